//! The output gate: nothing an actor says leaves before what it wrote is in the bucket, and nothing that was
//! acknowledged is lost with a node and its disk.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{self, Node, PATIENCE, cluster, eventually, guest};
use serde_json::json;

/// Long enough that what does not wait for the bucket would have come.
const A_MOMENT: Duration = Duration::from_millis(700);

/// A bucket that can be kept from taking what actors write, while the node's own records go on.
struct Bucket(cluster::Bucket);

impl Bucket {
    fn new() -> Self {
        Self(cluster::Bucket::new())
    }

    fn node(&self, more: &[&str]) -> Node {
        let sockets = format!("--actor=sockets={}", guest("sockets").display());
        self.0.node_with("a", &[&[&*sockets], more].concat())
    }

    fn histories(&self) -> PathBuf {
        self.0.0.path().join("objects/actors")
    }

    fn aside(&self) -> PathBuf {
        self.0.0.path().join("aside")
    }

    /// Where the histories are is a file for now.
    fn block(&self) {
        std::fs::rename(self.histories(), self.aside()).unwrap();
        std::fs::write(self.histories(), "").unwrap();
    }

    fn unblock(&self) {
        std::fs::remove_file(self.histories()).unwrap();
        std::fs::rename(self.aside(), self.histories()).unwrap();
    }
}

#[test]
fn what_a_gated_actor_says_waits_for_the_bucket_while_its_next_events_run() {
    let bucket = Bucket::new();
    let node = bucket.node(&["--durability=counter=gate", "--durability=sockets=gate"]);
    node.post("/actor/counter/alice", "").expect(200);
    let mut socket = node.socket("/actor/sockets/room");
    socket.text("before");
    assert_eq!(socket.expect_text(), "before");
    node.steps("plain", json!([{"as": "script", "sql": "CREATE TABLE t (x)"}]));
    bucket.block();
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let ask = |method: &'static str| {
            let (node, answered) = (&node, &answered);
            scope.spawn(move || {
                let answer = node.request(method, "/actor/counter/alice", b"").expect(200);
                answered.fetch_add(1, Ordering::SeqCst);
                answer.text
            })
        };
        let writes = [ask("POST"), ask("POST")];
        let seen = || node.metric("wasmkeep_event_seconds_count", "class=\"counter\"");
        eventually("both ran, though neither is answered", || seen() >= 3.0);
        let read = ask("GET");
        // Its log is a write; the echo may tell of it.
        socket.text("!log written");
        socket.text("after");
        // The default waits for nothing.
        node.steps("plain", json!([{"sql": "INSERT INTO t VALUES (1)"}]));
        socket.set_read_timeout(A_MOMENT);
        assert_eq!(socket.receive(), None);
        socket.set_read_timeout(PATIENCE);
        assert_eq!(answered.load(Ordering::SeqCst), 0);
        bucket.unblock();
        let mut texts = writes.map(|write| write.join().unwrap());
        texts.sort();
        assert_eq!((texts, &*read.join().unwrap()), (["2\n".to_owned(), "3\n".to_owned()], "3\n"));
        assert_eq!(socket.expect_text(), "after");
    });
}

#[test]
fn calls_and_outbound_requests_of_a_gated_actor_wait_too() {
    let bucket = Bucket::new();
    let node = bucket.node(&["--durability=sql=gate", "--allow-outbound=127.0.0.0/8"]);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, asked) = (format!("http://{}/", server.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
        }
    });
    node.steps("a", json!([{"as": "script", "sql": "CREATE TABLE t (x)"}]));
    node.steps("b", json!([{"as": "script", "sql": "CREATE TABLE t (x)"}]));
    node.get("/actor/counter/callee").expect(200);
    bucket.block();
    thread::scope(|scope| {
        let insert = json!([{"sql": "INSERT INTO t VALUES (1)"}]);
        for actor in ["a", "b"] {
            let (node, insert) = (&node, insert.clone());
            scope.spawn(move || node.steps(actor, insert));
        }
        let ran = || node.metric("wasmkeep_event_seconds_count", "class=\"sql\"");
        eventually("both have written", || ran() >= 4.0);
        let call =
            scope.spawn(|| node.post("/actor/sql/a/call?class=counter&name=callee&method=POST&path=/", ""));
        let outbound = scope.spawn(|| node.post(&format!("/actor/sql/b/outbound?url={url}"), ""));
        thread::sleep(A_MOMENT);
        assert_eq!(node.get("/actor/counter/callee").expect(200).text, "0\n");
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        bucket.unblock();
        let (call, outbound) = (call.join().unwrap().expect(200), outbound.join().unwrap().expect(200));
        assert!(call.text.contains("\"ok\""), "{}", call.text);
        assert!(outbound.text.contains("200"), "{}", outbound.text);
    });
    assert_eq!(node.get("/actor/counter/callee").expect(200).text, "1\n");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

// R-DUR-1, R-RST-1
#[test]
fn what_a_gated_actor_acknowledged_survives_kill_after_kill_on_empty_disks() {
    const ACTORS: usize = 8;
    let bucket = Bucket::new();
    let acknowledged: [AtomicU64; ACTORS] = Default::default();
    let mut sent = [0; ACTORS];
    for round in 0..3_u64 {
        let node = bucket.node(&["--durability=counter=gate"]);
        for (actor, sent) in sent.iter_mut().enumerate() {
            let text = node.get(&format!("/actor/counter/c{actor}")).expect(200).text;
            let found: u64 = text.trim().parse().unwrap();
            let known = acknowledged[actor].load(Ordering::SeqCst);
            assert!((known..=*sent).contains(&found), "round {round}, c{actor}: {known} ≤ {found} ≤ {sent}");
            (*sent, _) = (found, acknowledged[actor].store(found, Ordering::SeqCst));
        }
        let attempts: [AtomicU64; ACTORS] = Default::default();
        thread::scope(|scope| {
            for actor in 0..ACTORS {
                let (address, known, attempts) = (node.address, &acknowledged[actor], &attempts[actor]);
                scope.spawn(move || {
                    let url = format!("http://{address}/actor/counter/c{actor}");
                    loop {
                        attempts.fetch_add(1, Ordering::SeqCst);
                        let Ok(mut answer) = support::agent().post(&url).send_empty() else { return };
                        if answer.status() != 200 {
                            return;
                        }
                        let Ok(text) = answer.body_mut().read_to_string() else { return };
                        known.store(text.trim().parse().unwrap(), Ordering::SeqCst);
                    }
                });
            }
            thread::sleep(Duration::from_millis(900 + 350 * round));
            node.kill();
        });
        for (sent, attempts) in sent.iter_mut().zip(attempts) {
            *sent += attempts.into_inner();
        }
    }
    let total: u64 = acknowledged.iter().map(|known| known.load(Ordering::SeqCst)).sum();
    assert!(total > 100, "only {total} writes were acknowledged");
}
