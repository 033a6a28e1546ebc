//! How requests come: slowly, in part, from a client that sends no more, to a node that is full.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::support::{self, Node, cluster::Bucket, eventually};

fn post(path: &str, length: usize, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn begin(node: &Node, request: &str) -> TcpStream {
    let mut stream = node.connect();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset after the answer is a close too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_client_that_stalls_in_a_short_body_holds_up_nobody() {
    let site = support::guest("site").display().to_string();
    let node = Node::start(&["--shards=2", "--buffered-body-kib=1", &site]);
    let chunked = "POST /actor/sql/a/echo HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                   transfer-encoding: chunked\r\n\r\n4\r\nfour\r\n";
    for (index, actor) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let path = format!("/actor/sql/{actor}/echo");
        // A connection that has served another request stays on its shard, whosever the next one's actor is.
        let before = ["", "GET /_wasmkeep/health HTTP/1.1\r\nhost: h\r\n\r\n"][index / 2];
        let begin = |node: &Node, request: &str| begin(node, &format!("{before}{request}"));
        let mut stalled = [
            begin(&node, &post(&path, 10, "four")),
            begin(&node, &chunked.replace("/a/", &format!("/{actor}/"))),
            begin(&node, &post(&path, 1024, "")),
        ];
        // Would be answered only after those, were they with the actor already.
        for _ in 0..3 {
            node.get(&format!("/actor/sql/{actor}/get")).expect(200);
        }
        stalled[0].write_all(b"and-ix").unwrap();
        stalled[1].write_all(b"2\r\n+2\r\n0\r\n\r\n").unwrap();
        stalled[2].write_all(&[b'x'; 1024]).unwrap();
        for (stream, says) in stalled.iter_mut().zip(["fourand-ix", "four+2", &"x".repeat(1024)]) {
            let answer = rest(stream);
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(says), "{answer}");
        }
    }
    let mut stalled = begin(&node, &post("/", 10, "four"));
    node.get("/").expect(200);
    stalled.write_all(b"-------").unwrap();
    assert!(rest(&mut stalled).starts_with("HTTP/1.1 "));
}

#[test]
fn a_guest_waits_five_seconds_for_more_of_a_long_body_and_its_actor_goes_on() {
    let node = Node::start(&["--shards=2", "--buffered-body-kib=1"]);
    for actor in ["a", "b"] {
        // It reads the whole body before it answers.
        let mut stalled = begin(&node, &post(&format!("/actor/sql/{actor}/sql"), 2000, "SELECT 1"));
        let next = node.get(&format!("/actor/sql/{actor}/get"));
        assert_eq!(next.status, 200, "{}", next.text);
        let answer = rest(&mut stalled);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn a_client_may_be_silent_while_its_long_body_waits_for_the_actor() {
    let node = Node::start(&["--shards=2", "--buffered-body-kib=1"]);
    let before = "GET /_wasmkeep/health HTTP/1.1\r\nhost: h\r\n\r\n";
    let mut waiting = Vec::new();
    for actor in ["a", "b", "c", "d"] {
        let sleep = format!("GET /actor/sql/{actor}/sleep?ms=9000 HTTP/1.1\r\nhost: h\r\n\r\n");
        let busy = begin(&node, &sleep);
        eventually("it runs", || node.metric("wasmkeep_actors_resident", "") > waiting.len() as f64);
        std::thread::sleep(Duration::from_millis(200));
        // On its actor's shard, or on another one: that makes no difference.
        let request = format!("{before}{}", post(&format!("/actor/sql/{actor}/sql"), 2000, "SELECT 1"));
        waiting.push((busy, begin(&node, &request)));
    }
    std::thread::sleep(Duration::from_millis(6500));
    for (_busy, client) in &mut waiting {
        client.write_all(&[b' '; 1992]).unwrap();
        let answer = rest(client);
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
    }
}

/// Sends `count` durable writes to one actor, each from a client that sends no more afterwards.
fn half_closed_writes(node: &Node, path: &str, count: usize) {
    let mut clients: Vec<TcpStream> = (0..count)
        .map(|_| {
            let client = begin(node, &post(&format!("{path}/durable"), 0, ""));
            client.shutdown(Shutdown::Write).unwrap();
            client
        })
        .collect();
    let mut numbers: Vec<usize> = clients
        .iter_mut()
        .map(|client| {
            let answer = rest(client);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            answer.rsplit("\r\n\r\n").next().unwrap().trim().parse().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
}

#[test]
fn a_client_that_sends_no_more_gets_its_answer_although_its_request_had_to_wait() {
    let node = Node::start(&["--shards=2"]);
    // More than one at a time runs of no actor: most of these wait in its mailbox.
    half_closed_writes(&node, "/actor/counter/a", 100);
    half_closed_writes(&node, "/actor/counter/b", 100);
    // Its body waits unread behind its head when the end comes.
    let body = "x".repeat(200_000);
    let mut client = begin(&node, &post("/actor/sql/a/echo", body.len(), &body));
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client).ends_with(&body));
}

/// Has a client of `by` leave whose event waits behind another one of `owner`'s.
fn leaves_before_its_turn(owner: &Node, by: &Node, actor: &str) {
    let path = |rest: &str| format!("/actor/sql/{actor}/{rest}");
    let first = begin(owner, &format!("GET {} HTTP/1.1\r\nhost: h\r\n\r\n", path("sleep?ms=3000")));
    eventually("it runs", || owner.metric("wasmkeep_actors_resident", "") >= 1.0);
    std::thread::sleep(Duration::from_millis(300));
    let waiting = begin(by, &format!("GET {} HTTP/1.1\r\nhost: h\r\n\r\n", path("set?value=ran")));
    eventually("it waits", || owner.metric("wasmkeep_mailbox_events", "") == 1.0);
    rustix::net::sockopt::set_socket_linger(&waiting, Some(Duration::ZERO)).unwrap();
    drop(waiting);
    assert_eq!(
        owner.get(&path("get")).expect(200).json(),
        "",
        "{actor}: it ran although its client had left"
    );
    drop(first);
}

// case H6
#[test]
fn an_event_whose_client_resets_its_connection_before_its_turn_does_not_run() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    b.get("/actor/sql/of-b/get").expect(200);
    leaves_before_its_turn(&b, &b, "of-b");
    leaves_before_its_turn(&b, &a, "of-b");
}

// R-FWD-1
#[test]
fn through_another_node_a_client_that_sends_no_more_gets_its_answer_too() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    b.get("/actor/counter/shared").expect(200);
    half_closed_writes(&a, "/actor/counter/shared", 20);
    // A short body is whole before it is sent on; a longer one streams.
    for length in [10, 70_000] {
        let body = "x".repeat(length);
        let mut client = begin(&a, &post("/actor/sql/of-b/echo", length, &body));
        client.shutdown(Shutdown::Write).unwrap();
        let answer = rest(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&body), "{length}: {answer:.200}");
    }
    let mut stalled = begin(&a, &post("/actor/sql/of-b/sql", 70_000, "SELECT 1"));
    b.get("/actor/sql/of-b/get").expect(200);
    let answer = rest(&mut stalled);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let mut stalled = begin(&a, &post("/actor/counter/shared", 10, "four"));
    assert_eq!(b.get("/actor/counter/shared").expect(200).text, "20\n");
    assert_eq!(a.get("/actor/counter/shared").expect(200).text, "20\n");
    stalled.write_all(b"and-ix").unwrap();
    assert!(rest(&mut stalled).ends_with("21\n"));
}

// R-FLAG-2, R-OPS-5
#[test]
fn a_full_node_still_tells_operators_how_it_is() {
    let node = Node::start(&["--max-connections=3", "--max-resident=10"]);
    let held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut client = begin(&node, "GET /actor/counter/a HTTP/1.1\r\nhost: h\r\n\r\n");
            client.read_exact(&mut [0; 15]).unwrap();
            client
        })
        .collect();
    for _ in 0..70 {
        node.get("/_wasmkeep/health").expect(200);
    }
    node.get("/_wasmkeep/ready").expect(200);
    assert_eq!(node.metric("wasmkeep_connections", ""), 3.0);
    for path in ["/actor/counter/a", "/", "/_wasmkeep/other"] {
        let answer = node.raw(&format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
    }
    drop(held);
    eventually("there is room again", || {
        let answer = node.raw("GET /actor/counter/a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        answer.starts_with("HTTP/1.1 200 ")
    });
}

/// Answers nothing, ever.
const TRAPPING: &str = r#"(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $out))
  (core module $guest (func (export "handle") (param i32 i32) unreachable))
  (core instance $guest (instantiate $guest))
  (func $handle (param "request" (own $request)) (param "response-out" (own $out))
    (canon lift (core func $guest "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))"#;

#[test]
fn a_trap_of_the_stateless_component_is_not_an_actors() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = support::samples();
    let component = folder.path().join("trapping.wasm");
    std::fs::write(&component, wat::parse_str(TRAPPING).unwrap()).unwrap();
    arguments.push(component.display().to_string());
    let node = Node::start_with(folder.path(), &arguments);
    let answer = node.get("/").expect(500).text;
    assert!(answer.contains("the stateless component trapped"), "{answer}");
    eventually("the log says it", || node.log().lines().any(|line| line.contains("trapped")));
    let line = node.log().lines().find(|line| line.contains("trapped")).unwrap().to_owned();
    assert!(line.contains("stateless") && !line.contains("actor"), "{line}");
    assert!(node.get("/actor/sql/a/trap").expect(500).text.contains("the actor trapped"));
}
