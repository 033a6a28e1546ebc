//! What clients see of a node of a cluster that stops cleanly: its own, and those of the nodes that stay.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use crate::support::{Node, cluster::Bucket, eventually};
use rustix::process::Signal;
use serde_json::json;

/// Ends within the grace for events in flight.
const LONG_EVENT: Duration = Duration::from_secs(7);

/// Waits until the other node takes no more events of its actors; it keeps one until the event that runs has ended.
fn until_it_gives_up(a: &Node) {
    eventually("an idle actor of it is here", || {
        a.get("/actor/counter/of-b").expect(200).header("x-wasmkeep-node") == Some("a")
    });
}

// R-LEASE-6, R-WAIT-1
#[test]
fn a_get_waits_for_as_long_as_the_node_of_its_actor_takes_to_stop() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let rows = |node: &Node| node.steps("busy", json!([{"sql": "SELECT count(*) FROM t"}]));
    b.steps("busy", json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}]));
    let sleep = format!("/actor/sql/busy/sleep?ms={}", LONG_EVENT.as_millis());
    thread::scope(|scope| {
        let event = scope.spawn(|| a.get(&sleep).expect(200));
        thread::sleep(Duration::from_millis(500));
        b.signal(Signal::TERM);
        until_it_gives_up(&a);
        let answer = a.get("/actor/sql/busy/sleep?ms=0").expect(200);
        assert_eq!(answer.header("x-wasmkeep-node"), Some("a"));
        assert_eq!(event.join().unwrap().header("x-wasmkeep-node"), Some("b"));
    });
    assert_eq!(rows(&a)[0]["ok"]["rows"][0], json!([1]));
    let (status, log) = b.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

// R-LEASE-6
#[test]
fn a_stopping_nodes_own_clients_are_answered_by_another_node() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    b.steps("busy", json!([{"as": "script", "sql": "CREATE TABLE t (x)"}]));
    let sleep = format!("/actor/sql/busy/sleep?ms={}", LONG_EVENT.as_millis());
    let connections = [(); 4].map(|()| b.connect());
    thread::scope(|scope| {
        let event = scope.spawn(|| b.get(&sleep).expect(200));
        thread::sleep(Duration::from_millis(500));
        b.signal(Signal::TERM);
        until_it_gives_up(&a);
        let requests = [
            // Taken by nobody: any other node may.
            "GET /actor/counter/asleep",
            "POST /actor/counter/written",
            // The other node's all along.
            "GET /actor/counter/of-a",
            // Given up once its last event has ended.
            "GET /actor/sql/busy/sleep?ms=0",
        ];
        for (mut stream, request) in connections.iter().zip(requests) {
            write!(stream, "{request} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
        for (stream, request) in connections.iter().zip(requests) {
            let (status, head) = answer(stream).unwrap_or_else(|| panic!("no answer to {request}"));
            assert!(status == 200 && head.contains("x-wasmkeep-node: a\r\n"), "{request}: {head}");
            assert!(head.contains("connection: close\r\n") && answer(stream).is_none(), "{request}: {head}");
        }
        assert_eq!(event.join().unwrap().header("x-wasmkeep-node"), Some("b"));
    });
    let (status, log) = b.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    a.get("/actor/counter/written").expect(200);
}

/// One answer with a length; `None` if the connection ended before any of it came.
fn answer(stream: &TcpStream) -> Option<(u16, String)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match reader.read_line(&mut head) {
            Ok(1..) => {}
            _ if head.is_empty() => return None,
            ended => panic!("{ended:?} after {head:?}"),
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    Some((head[9..12].parse().unwrap(), head))
}

// R-LEASE-6
#[test]
fn requests_that_a_stopping_node_has_not_read_are_answered() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    node.post("/actor/counter/alice", "").expect(200);
    let get = |more: &str| format!("GET /actor/counter/alice HTTP/1.1\r\nHost: h\r\n{more}\r\n");
    let (client, of_node) = (get(""), get("x-wasmkeep-forwarded: b\r\n"));
    let mut connections = Vec::new();
    for (request, uses) in [(&client, 0), (&client, 1), (&of_node, 0), (&of_node, 1)] {
        let mut stream = node.connect();
        for _ in 0..uses {
            stream.write_all(request.as_bytes()).unwrap();
            assert_eq!(answer(&stream).unwrap().0, 200);
        }
        connections.push((stream, request));
    }
    // The node finds all of it at once: that it has to stop, and the requests.
    node.signal(Signal::STOP);
    node.signal(Signal::TERM);
    for (stream, request) in &mut connections {
        stream.write_all(request.as_bytes()).unwrap();
    }
    node.signal(Signal::CONT);
    for (stream, request) in &connections {
        let (status, head) = answer(stream).unwrap_or_else(|| panic!("no answer to {request}"));
        assert_eq!(status, 200, "{head}");
        // A node is told in the end that nothing became of another request, should one be on its way.
        let told = answer(stream);
        assert!(told.is_none_or(|(status, _)| status == 503 && *request == &of_node), "{request}");
    }
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}
