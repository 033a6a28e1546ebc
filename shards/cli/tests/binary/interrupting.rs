//! Ends that do not wait for what the node is doing: a signal during the start, a second one, a shard that is frozen; and
//! what clients see of a node that has not started.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::support::{
    self, Node,
    cluster::{Bucket, REAL_TTL, listener_address},
    eventually, follow, guest, wait, wasmkeep,
};
use rustix::process::{Pid, Signal, kill_process};

/// A node that starts.
struct Starting {
    child: Child,
    stdout: Arc<Mutex<String>>,
    log: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Starting {
    fn new(mut command: Command, data_dir: &Path, arguments: &[String]) -> Self {
        let mut child = command
            .args(["serve", "--overprovisioned", "--shards=2", "--data-dir"])
            .arg(data_dir)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, log) = (Arc::default(), Arc::default());
        let readers = vec![
            follow(child.stdout.take().unwrap(), Arc::clone(&stdout)),
            follow(child.stderr.take().unwrap(), Arc::clone(&log)),
        ];
        Self { child, stdout, log, readers }
    }

    fn until_it_logs(&self, what: &str) {
        eventually(what, || self.log.lock().unwrap().contains(what));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its status, and what it said on stdout and stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let status = wait(&mut self.child);
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let said = |text: &Mutex<String>| text.lock().unwrap().clone();
        (status.code(), said(&self.stdout), said(&self.log))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn counter() -> String {
    format!("--actor=counter={}", guest("counter").display())
}

/// A first start of a node of a cluster, which watches its id for a while.
fn checking(bucket: &Bucket, data_dir: &Path, listen: SocketAddr, cluster_listen: SocketAddr) -> Starting {
    support::share_compiled_code(data_dir);
    let mut flags = bucket.encrypted("a", cluster_listen, &[]);
    bucket.forget("a");
    flags.retain(|flag| !flag.starts_with("--shards"));
    flags.extend([counter(), format!("--listen={listen}")]);
    let node = Starting::new(wasmkeep(), data_dir, &flags);
    node.until_it_logs("checking that no other process runs with this node id");
    node
}

#[track_caller]
fn refuses(address: SocketAddr) {
    let refused = TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn the_first_signal_ends_a_start_whatever_it_is_doing() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = Bucket::new();
    let watching = checking(&bucket, &folder.path().join("watching"), listener_address(), listener_address());
    watching.signal(Signal::TERM);
    // Nothing answers there.
    let mut silent = wasmkeep();
    silent.envs([
        ("AWS_ENDPOINT", "http://127.0.0.1:1"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_REGION", "us-east-1"),
    ]);
    let flags = ["--bucket=s3://acme", "--node-id=b", "--cluster-plaintext=accept", "--listen=127.0.0.1:0"];
    let flags: Vec<String> = flags.map(str::to_owned).into_iter().chain([counter()]).collect();
    support::share_compiled_code(&folder.path().join("silent"));
    let asking = Starting::new(silent, &folder.path().join("silent"), &flags);
    asking.until_it_logs("proving that the bucket keeps its conditions");
    asking.signal(Signal::TERM);
    // Code of its own, so that all of it has to be compiled.
    let compiled = folder.path().join("compiling");
    let flags = ["--listen=127.0.0.1:0".to_owned(), format!("--actor=sql={}", guest("sql").display())];
    let compiling = Starting::new(wasmkeep(), &compiled, &flags);
    compiling.until_it_logs("compiling; the code is kept for the next start");
    compiling.signal(Signal::TERM);
    for (what, node) in [("watching", watching), ("asking", asking), ("compiling", compiling)] {
        let (status, stdout, log) = node.end();
        assert_eq!((status, &*stdout), (Some(0), ""), "{what}: {log}");
        assert!(log.contains("stopped before it had started"), "{what}: {log}");
        assert!(what != "compiling" || !log.contains("\"compiled\""), "it waited for the code: {log}");
    }
    assert!(!fs::exists(bucket.0.path().join("objects/nodes/a#")).unwrap(), "it became a node");
}

// R-LEASE-8
#[test]
fn a_node_that_has_not_started_refuses_connections_on_both_ports_and_holds_them() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = Bucket::new();
    let (listen, cluster_listen) = (listener_address(), listener_address());
    let node = checking(&bucket, &folder.path().join("a"), listen, cluster_listen);
    refuses(listen);
    refuses(cluster_listen);
    eventually("it serves", || node.stdout.lock().unwrap().contains("listening on"));
    TcpStream::connect(listen).unwrap();
    TcpStream::connect(cluster_listen).unwrap();
    // Another process is told before anything else.
    let (status, _, log) = {
        let flags = [counter(), format!("--listen={listen}")];
        let data_dir = folder.path().join("other");
        support::share_compiled_code(&data_dir);
        Starting::new(wasmkeep(), &data_dir, &flags).end()
    };
    assert!(status == Some(5) && log.contains("already in use"), "{log}");
    node.signal(Signal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn of_two_nodes_that_took_an_address_before_they_listened_the_second_gives_its_lease_back() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = Bucket::new();
    let listen = listener_address();
    let start = |id: &str| {
        let data_dir = folder.path().join(id);
        support::share_compiled_code(&data_dir);
        // Both watch their ids, for as long as it takes that both have the address.
        let mut flags = bucket.flags(id, &[&format!("--listen={listen}"), REAL_TTL]);
        bucket.forget(id);
        flags.retain(|flag| !flag.starts_with("--shards"));
        flags.push(counter());
        let node = Starting::new(wasmkeep(), &data_dir, &flags);
        node.until_it_logs("checking that no other process runs with this node id");
        node
    };
    let first = start("a");
    let second = start("b");
    let mut ended = None;
    let mut nodes = vec![first, second];
    eventually("one of them ends", || {
        ended = nodes.iter_mut().position(|node| node.child.try_wait().unwrap().is_some());
        ended.is_some()
    });
    let (status, _, log) = nodes.remove(ended.unwrap()).end();
    assert!(status == Some(5) && log.contains("already in use"), "{status:?} {log}");
    let id = if ended == Some(0) { "a" } else { "b" };
    let record = bucket.object(&format!("nodes/{id}"));
    assert!(record.contains("released"), "{record}");
    assert!(TcpStream::connect(listen).is_ok(), "the other one serves");
}

#[test]
fn a_second_signal_ends_a_node_that_is_stopping() {
    let node = Node::start(&[]);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut stream = node.connect();
            let request = b"GET /actor/sql/a/sleep?ms=9000 HTTP/1.1\r\nhost: h\r\n\r\n";
            std::io::Write::write_all(&mut stream, request).unwrap();
            // Cut: there is no answer.
            std::io::read_to_string(stream)
        });
        eventually("the event runs", || node.metric("wasmkeep_actors_resident", "") == 1.0);
        node.signal(Signal::TERM);
        eventually("it stops", || node.log().contains("stopping: events in flight have"));
        node.signal(Signal::INT);
        assert!(running.join().unwrap().is_ok_and(|answer| !answer.contains("200")));
    });
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(18), "{log}");
}

/// One thread of another process, stopped. The thread that made it is its tracer.
struct Frozen(libc::pid_t);

impl Frozen {
    fn new(thread: libc::pid_t) -> Self {
        for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
            // SAFETY: neither request takes a pointer.
            let done = unsafe { libc::ptrace(request, thread, 0, 0) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        Self(thread)
    }
}

impl Drop for Frozen {
    /// A traced thread that has ended keeps its process from being waited for.
    fn drop(&mut self) {
        let mut status = 0;
        loop {
            // SAFETY: `status` outlives the call.
            let waited = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
            if waited < 0 || !libc::WIFSTOPPED(status) {
                return;
            }
        }
    }
}

#[test]
fn a_node_with_a_frozen_shard_ends_and_with_it_its_lease() {
    let bucket = Bucket::new();
    let node = bucket.node_with("a", &["--frozen-after-secs=3", REAL_TTL]);
    node.post("/actor/counter/alice", "").expect(200);
    // A pause of all of it freezes nobody.
    node.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(4));
    node.signal(Signal::CONT);
    node.get("/actor/counter/alice").expect(200);
    let threads =
        fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap().map(|task| task.unwrap().path());
    let shard: Vec<_> = threads
        .filter(|task| fs::read_to_string(task.join("comm")).unwrap().trim_end().starts_with("shard"))
        // The executor, and the thread it has for what blocks.
        .map(|task| Frozen::new(task.file_name().unwrap().to_str().unwrap().parse().unwrap()))
        .collect();
    assert!(!shard.is_empty());
    // Not even a stop would help.
    node.signal(Signal::TERM);
    eventually("it gives up", || node.log().contains("gives its lease up"));
    drop(shard);
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(17), "{log}");
    assert!(log.contains("shard 0 has made no progress for 3s"), "{log}");
}
