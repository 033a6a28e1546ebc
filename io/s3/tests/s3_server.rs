//! The suite against real S3 servers, which the tests start themselves, and against any bucket a URL names.
//!
//! `scripts/test-bucket-servers` installs the servers, sets the variables and asks for these tests; else they are
//! ignored, and say so. What needs no server is in `s3_faults.rs`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wasmkeep_bucket::conformance::{Scope, check, races};
use wasmkeep_bucket::{BucketUrl, Condition, ProbeError, probe};
use wasmkeep_s3::{S3Bucket, S3Limits, open};

/// What `scripts/test-bucket-servers` says is to be started.
fn named_server() -> String {
    std::env::var("WASMKEEP_S3_SERVER")
        .expect("WASMKEEP_S3_SERVER names a server: run scripts/test-bucket-servers")
}

/// Races of creates, and as many of replaces.
const ROUNDS: usize = 200;

/// A server's whole start: an interpreted one takes seconds on a loaded machine.
const START_MAX: Duration = Duration::from_secs(120);

fn on_tokio<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A server that ends with the test.
struct Server {
    child: Child,
    address: SocketAddr,
    scope: Scope,
    /// Whether it judges a condition and writes in one step.
    atomic: bool,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Server {
    /// Starts `kind=PROGRAM`, as `WASMKEEP_S3_SERVER` names it.
    fn start(named: &str) -> Self {
        let (kind, program) = named.split_once('=').expect("WASMKEEP_S3_SERVER is KIND=PROGRAM");
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(8);
        let mut command = Command::new(program);
        command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).current_dir(dir.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        let (scope, atomic) = match kind {
            "moto" => {
                command.args(["-H", "127.0.0.1", "-p", &ports[0].to_string()]);
                // It looks and then writes, in threads and without a lock: some races have two winners.
                (Scope::Everything, false)
            }
            "seaweedfs" => {
                command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-volume.max=400"]);
                command.arg(format!("-dir={}", dir.path().display()));
                let named = [
                    "s3.port",
                    "master.port",
                    "volume.port",
                    "filer.port",
                    "s3.port.grpc",
                    "master.port.grpc",
                    "volume.port.grpc",
                    "filer.port.grpc",
                ];
                command.args(named.iter().zip(&ports).map(|(flag, port)| format!("-{flag}={port}")));
                (Scope::ByDirectory, true)
            }
            other => panic!("no server is known by the name {other:?}"),
        };
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0]));
        let mut server = Self { child, address, scope, atomic, _dir: dir };
        server.make_bucket();
        server
    }

    fn make_bucket(&mut self) {
        let deadline = Instant::now() + START_MAX;
        loop {
            match self.try_make_bucket() {
                Ok(reply) if reply.starts_with("HTTP/1.1 200") => return,
                reply if Instant::now() > deadline => panic!("the server does not start: {reply:?}"),
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status}");
            }
        }
    }

    fn try_make_bucket(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(
            stream,
            "PUT /wasmkeep-test HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        )?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }

    fn bucket(&self) -> S3Bucket {
        let environment = [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value));
        let prefix = Some("prefix/of-tests".parse().unwrap());
        S3Bucket::open("wasmkeep-test", prefix, environment, S3Limits::default()).unwrap()
    }
}

// R-BKT-1
#[test]
#[ignore = "needs a server: scripts/test-bucket-servers"]
fn a_real_s3_server_keeps_every_promise() {
    let named = named_server();
    let server = Server::start(&named);
    let writers: Vec<S3Bucket> = (0..4).map(|_| server.bucket()).collect();
    on_tokio(async {
        let began = Instant::now();
        assert_eq!(check(&writers[0], server.scope).await, []);
        println!("{named}: suite passed after {:?}", began.elapsed());
        let probed = probe(&writers[0]).await;
        println!("{named}: probe {probed:?} after {:?}", began.elapsed());
        let report = races(&writers, ROUNDS).await;
        println!("{named}: {report:?} after {:?}", began.elapsed());
        if server.atomic {
            assert!(probed.is_ok(), "{probed:?}");
            assert_eq!((report.one_winner, report.faults), (2 * ROUNDS, Vec::new()));
        } else {
            // The probe may or may not catch it in the act, and has no other reason to refuse it.
            let caught = Err(ProbeError::Ignored(Condition::CreateRace));
            assert!(probed.is_ok() || probed == caught, "{probed:?}");
        }
    });
}

// R-BKT-1
#[test]
#[ignore = "needs a bucket: WASMKEEP_BUCKET_URL"]
fn the_bucket_a_url_names_keeps_every_promise() {
    let url = std::env::var("WASMKEEP_BUCKET_URL").expect("WASMKEEP_BUCKET_URL names a bucket");
    let bucket = open(&url.parse::<BucketUrl>().unwrap(), std::env::vars()).unwrap();
    on_tokio(async {
        assert_eq!(check(&bucket, Scope::Everything).await, []);
        assert!(probe(&bucket).await.is_ok());
    });
}

// R-BKT-1: a server that is up and has no such bucket is a refusal that names the cure
#[test]
#[ignore = "needs moto, since others make a bucket when it is written to: scripts/test-bucket-servers"]
fn a_missing_bucket_is_named_by_the_probe() {
    let named = named_server();
    assert!(named.starts_with("moto="), "{named}");
    let server = Server::start(&named);
    let environment = [
        ("AWS_ENDPOINT", format!("http://{}", server.address)),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value));
    let bucket = S3Bucket::open("not-there", None, environment, S3Limits::default()).unwrap();
    let probed = on_tokio(probe(&bucket));
    assert!(
        matches!(&probed, Err(ProbeError::Refused(text)) if text.contains("create the bucket")),
        "{probed:?}"
    );
}
