//! Who is let in by a cluster listener, what becomes of what a node refuses, and when trust ends.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustls::AlertDescription;
use wasmkeep_protocol::records::Presence;

use crate::{
    support::{self, PATIENCE, cluster::Bucket, eventually},
    tls::{
        Member,
        puppet::{Keys, Puppet, ReadWrite, Stream, ask, connect},
    },
};

/// The time from a change of a heartbeat to the end of what rested on it: a listing, 500 ms (R-WS-3), and what a busy
/// machine adds.
const SOON: Duration = Duration::from_millis(3_000 + 500 + 1_500);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

/// Whether the other side says that it does not trust the certificate.
fn is_refused(stream: &mut Stream) -> bool {
    let told = ask(stream, &get("/_wasmkeep/health")).unwrap_err();
    let alert = told.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(alert, Some(rustls::Error::AlertReceived(AlertDescription::AccessDenied)))
}

/// R-TLS-1, R-TLS-2
pub fn strangers_are_told_so(b: &Member) {
    assert!(is_refused(&mut Keys::new().connect(b.listener)), "a certificate in no heartbeat");
    let told = ask(&mut connect(b.listener, None), &get("/_wasmkeep/health")).unwrap_err();
    assert!(told.to_string().contains("CertificateRequired"), "{told}");
    // Plain HTTP is not answered at all.
    let mut plain = std::net::TcpStream::connect(b.listener).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(get("/_wasmkeep/health").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
}

/// Waits until a node lets the puppet in.
fn is_let_in(puppet: &Puppet, by: &Member) {
    eventually("it is let in", || {
        puppet.beat();
        ask(&mut puppet.keys.connect(by.listener), &get("/_wasmkeep/health"))
            .is_ok_and(|answer| answer.contains("200 OK"))
    });
}

/// An idle connection that has served a request.
fn idle(puppet: &Puppet, to: &Member) -> Stream {
    let mut stream = puppet.keys.connect(to.listener);
    stream.write_all(b"GET /_wasmkeep/health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(read_until(&mut stream, "ok\n").starts_with("HTTP/1.1 200"));
    stream
}

fn read_until(stream: &mut impl Read, end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {text:?}"));
        text.push(byte[0].into());
    }
    text
}

/// Waits for the end of a connection.
fn ended(stream: &mut Stream) {
    let read = stream.read(&mut [0; 256]);
    assert!(!matches!(read, Ok(1..)), "{read:?}");
}

/// R-TLS-4
pub fn ends_by_itself_ten_seconds_after_the_last_heartbeat(bucket: &Bucket, b: &Member) {
    let silent = Puppet::new(bucket, "silent", |_, _| false);
    is_let_in(&silent, b);
    let mut stream = idle(&silent, b);
    silent.beat();
    let last = Instant::now();
    ended(&mut stream);
    let after = last.elapsed();
    assert!(after > Duration::from_secs(6) && after < Duration::from_millis(11_500), "{after:?}");
    assert!(is_refused(&mut silent.keys.connect(b.listener)));
}

/// R-TLS-4
pub fn ends_with_a_new_key(bucket: &Bucket, a: &Member) {
    let changed = Puppet::new(bucket, "changed", |_, _| false);
    is_let_in(&changed, a);
    let mut stream = idle(&changed, a);
    let began = Instant::now();
    changed.write(|record| {
        let presence = Presence { fingerprint: Some("0".repeat(64)), ..Presence::clone(&record.presence) };
        record.presence = Arc::new(presence);
    });
    ended(&mut stream);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// A node that is there before the others and has an actor.
pub struct Early {
    puppet: Arc<Puppet>,
    beating: Arc<AtomicBool>,
}

impl Early {
    pub fn new(bucket: &Bucket) -> Self {
        let puppet = Puppet::new(bucket, "early", serve);
        puppet.take("counter", "of-early");
        let beating = Arc::new(AtomicBool::new(true));
        puppet.keep_beating(&beating);
        Self { puppet, beating }
    }

    /// R-TLS-2, R-TLS-5: by a node whose first heartbeat has just landed.
    pub fn stays_unasked(self, a: &Member) {
        assert_eq!(a.node.get("/_wasmkeep/ready").status, 503, "nobody can have seen its certificate yet");
        let forwarded = a.node.post("/actor/counter/of-early", "");
        assert_eq!((forwarded.status, forwarded.header("retry-after")), (503, Some("1")));
        assert!(forwarded.text.contains("this node's certificate may be new"), "{}", forwarded.text);
        assert!(self.puppet.requests.lock().unwrap().is_empty(), "it was asked");
        // A call waits, and is sent once that time is over.
        let path = "/actor/sql/new-caller/call?class=counter&name=of-early&path=%2Fx";
        let called = a.node.get(path).expect(200).json();
        assert_eq!(called["ok"]["text"], "called", "{called}");
        assert_eq!(self.puppet.requests.lock().unwrap().len(), 1);
        assert!(!a.node.log().contains("refused this node's certificate"));
        self.beating.store(false, Ordering::Relaxed);
    }
}

/// How the puppet that owns actors answers.
fn serve(head: &str, stream: &mut dyn ReadWrite) -> bool {
    let answer = if head.contains("/cut") {
        return false;
    } else if head.contains("upgrade: websocket") {
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    } else if head.contains("x-wasmkeep-call-signature") {
        "HTTP/1.1 200 OK\r\nx-wasmkeep-call-outcome: answered\r\ncontent-length: 6\r\n\r\ncalled"
    } else {
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsent"
    };
    stream.write_all(answer.as_bytes()).is_ok() && stream.flush().is_ok()
}

fn call(path: &str) -> String {
    format!("/actor/sql/caller/call?class=counter&name=of-z&path=%2F{path}")
}

/// R-TLS-5, case H8
pub fn what_a_node_refuses_is_sent_once_more(bucket: &Bucket, a: &Member, b: &Member) {
    let z = Puppet::new(bucket, "z", serve);
    z.refuses.store(true, Ordering::Relaxed);
    is_let_in(&z, a);
    let beating = Arc::new(AtomicBool::new(true));
    z.keep_beating(&beating);
    z.take("counter", "of-z");
    z.take("sockets", "of-z");
    a.settle("/actor/sql/caller/context");

    let began = Instant::now();
    let forwarded = a.node.get("/actor/counter/of-z");
    assert_eq!((forwarded.status, forwarded.header("retry-after")), (503, Some("1")), "{}", forwarded.text);
    assert!(forwarded.text.contains("refused this node's certificate"), "{}", forwarded.text);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());

    let (called, mut socket) = std::thread::scope(|scope| {
        let call = scope.spawn(|| (a.node.get(&call("x")).expect(200).json(), began.elapsed()));
        let socket = scope.spawn(|| (a.node.socket("/actor/sockets/of-z"), began.elapsed()));
        eventually("both were refused", || z.refused.load(Ordering::Relaxed) >= 3);
        z.refuses.store(false, Ordering::Relaxed);
        let ((called, call_took), (socket, socket_took)) = (call.join().unwrap(), socket.join().unwrap());
        for took in [call_took, socket_took] {
            assert!(took > Duration::from_secs(6) && took < Duration::from_secs(15), "{took:?}");
        }
        (called, socket)
    });
    assert_eq!(called["ok"]["text"], "called", "{called}");
    assert_eq!(socket.answer.header("x-wasmkeep-node"), Some("z"));
    assert_eq!((z.seen("/actor/counter/of-z/x"), z.seen("/actor/sockets/of-z")), (1, 1));
    // R-FWD-2: on a connection that was used before, what may have been read is not sent again.
    let cut = a.node.get(&call("cut")).expect(200).json();
    assert!(cut["error"].as_str().unwrap().starts_with("Error::Unknown"), "{cut}");
    assert_eq!(a.node.get("/actor/counter/of-z/cut").status, 503);
    assert_eq!(z.seen("/cut"), 2);

    the_cluster_port_serves_nodes_alone(&z, b);
    let mut relayed = relay(&z, b);
    let mut kept = idle(&z, b);
    beating.store(false, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(1_200));
    fence(bucket, "z");
    let fenced = Instant::now();
    // R-TLS-4, R-WS-3: both ways.
    let (code, reason) = socket.expect_close();
    assert_eq!(code, 1012, "{reason}");
    ended(&mut relayed);
    ended(&mut kept);
    assert!(fenced.elapsed() < SOON, "{:?}", fenced.elapsed());
    assert!(is_refused(&mut z.keys.connect(b.listener)));
    eventually("its socket is gone", || b.node.metric("wasmkeep_websockets", "") == 0.0);
}

/// R-TLS-2
fn the_cluster_port_serves_nodes_alone(z: &Puppet, b: &Member) {
    let asked = |path: &str| ask(&mut z.keys.connect(b.listener), &get(path)).unwrap();
    for (path, status) in [
        ("/_wasmkeep/health", "200"),
        ("/_wasmkeep/ready", "200"),
        ("/actor/counter/of-b", "200"),
        ("/_wasmkeep/metrics", "404"),
        ("/_wasmkeep/other", "404"),
        ("/", "404"),
        // A node is no client: what is reached by calls alone needs a signed one.
        ("/actor/account/mine", "403"),
    ] {
        let answer = asked(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    // One that says that it sends no more, in TLS and below it, gets its answer.
    let mut stream = z.keys.connect(b.listener);
    stream.write_all(get("/actor/counter/of-b").as_bytes()).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Opens a socket as a node that relays one.
fn relay(z: &Puppet, b: &Member) -> Stream {
    b.settle("/actor/sockets/one/made");
    let mut stream = z.keys.connect(b.listener);
    let request = "GET /actor/sockets/one HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-wasmkeep-forwarded: z\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_until(&mut stream, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream
}

fn fence(bucket: &Bucket, node: &str) {
    let url = format!("--bucket=file://{}", bucket.0.path().display());
    let (status, stdout, stderr) =
        support::run(support::wasmkeep().args(["cluster", "fence", node]).arg(url));
    assert_eq!(status, Some(0), "{stdout}{stderr}");
}
