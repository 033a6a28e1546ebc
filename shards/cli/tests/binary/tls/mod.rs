//! Nodes that talk to each other by their cluster listeners: what passes, who is let in, and when trust ends. Their
//! leases are the documented ones, and the nodes are shared by what is asked of them.

mod mixed;
pub mod puppet;
mod trust;

use std::net::SocketAddr;

use crate::support::{
    Node,
    cluster::{Bucket, REAL_TTL, listener_address},
    eventually, guest,
    socket::Socket,
};
use serde_json::json;
use tempfile::TempDir;

/// A node that serves what the tests need, and where its listener is.
struct Member {
    node: Node,
    listener: SocketAddr,
    _disk: TempDir,
}

/// Flags of the classes all nodes here serve.
fn classes() -> Vec<String> {
    let class = |name: &str| format!("--actor={name}={}", guest(name).display());
    let mut classes: Vec<_> = ["counter", "sql", "sockets", "bank", "account"].map(class).into();
    classes.push("--access=account=internal".to_owned());
    classes
}

impl Member {
    /// A node whose plain address leads nowhere: whatever reaches it from others came by its listener.
    fn start(bucket: &Bucket, id: &str, shards: &str) -> Self {
        let listener = listener_address();
        let mut flags = classes();
        flags.extend(bucket.encrypted(id, listener, &["--advertise=http://127.0.0.1:1", REAL_TTL]));
        flags.retain(|flag| flag != "--shards=1");
        flags.push(shards.to_owned());
        let disk = tempfile::tempdir().unwrap();
        Self { node: Node::start_with(disk.path(), &flags), listener, _disk: disk }
    }

    /// Makes an actor this node's.
    #[track_caller]
    fn settle(&self, path: &str) {
        self.node.get(path).expect(200);
    }
}

// R-TLS-1 to R-TLS-5, R-WS-3, case H8
#[test]
fn nodes_reach_each_other_by_their_listeners_and_let_nobody_else_in() {
    let bucket = Bucket::new();
    let early = trust::Early::new(&bucket);
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| Member::start(&bucket, "a", "--shards=1"));
        let b = scope.spawn(|| Member::start(&bucket, "b", "--shards=2"));
        (a.join().unwrap(), b.join().unwrap())
    });
    early.stays_unasked(&a);
    waits_until_it_is_known(&a.node);
    requests_calls_and_sockets_pass(&a, &b);
    trust::strangers_are_told_so(&b);
    std::thread::scope(|scope| {
        scope.spawn(|| trust::ends_by_itself_ten_seconds_after_the_last_heartbeat(&bucket, &b));
        scope.spawn(|| trust::ends_with_a_new_key(&bucket, &a));
        trust::what_a_node_refuses_is_sent_once_more(&bucket, &a, &b);
    });
    for node in [&a.node, &b.node] {
        assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
}

/// R-TLS-2
fn waits_until_it_is_known(node: &Node) {
    node.get("/_wasmkeep/health").expect(200);
    eventually("it is ready", || node.get("/_wasmkeep/ready").status == 200);
}

/// R-TLS-1
fn requests_calls_and_sockets_pass(a: &Member, b: &Member) {
    b.settle("/actor/counter/of-b");
    for n in 1..=4 {
        let by = if n % 2 == 0 { a } else { b };
        let answer = by.node.post("/actor/counter/of-b", "").expect(200);
        assert_eq!(
            (answer.text, answer.headers["x-wasmkeep-node"].as_bytes()),
            (format!("{n}\n"), &b"b"[..])
        );
    }
    // More than any buffer on the way, there and back.
    let text = "x".repeat(900 << 10);
    b.settle("/actor/sql/big-of-b/context");
    let big = a.node.post("/actor/sql/big-of-b/sql", format!("SELECT '{text}'")).expect(200);
    assert!(big.text.contains(&text) && big.header("x-wasmkeep-node") == Some("b"));
    let sent = a.node.post("/actor/sql/big-of-b/count", "y".repeat(3 << 20)).expect(200);
    assert_eq!(sent.text.trim(), (3 << 20).to_string());

    let deposit = |bank: &str, id: &str| {
        let wish = json!({ "id": id, "to": "mine", "amount": 5 }).to_string();
        a.node.post(&format!("/actor/bank/{bank}/deposit"), wish)
    };
    // The account is b's, and reached by calls alone.
    let wish = json!({ "id": "1", "to": "mine", "amount": 5 }).to_string();
    b.node.post("/actor/bank/of-b/deposit", wish).expect(200);
    assert_eq!(deposit("of-a", "2").expect(200).text.trim(), "10");
    a.node.get("/actor/account/mine").expect(403);

    // On either shard of b: the connection goes there with its TLS.
    for room in ["one", "two", "three", "four"] {
        b.settle(&format!("/actor/sockets/{room}/made"));
        let mut socket = a.node.socket(&format!("/actor/sockets/{room}"));
        assert_eq!(socket.answer.header("x-wasmkeep-node"), Some("b"));
        echo(&mut socket, b"hello");
        echo(&mut socket, &vec![7; 1 << 20]);
    }
}

fn echo(socket: &mut Socket, payload: &[u8]) {
    socket.frame(0x82, payload);
    assert!(socket.expect_message() == payload, "not what was sent");
}
