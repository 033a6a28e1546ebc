//! The ends of sockets: by the client, the actor, the node and the network.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    support::{Node, eventually},
    websockets::start,
};

/// Waits until `actor` has no socket and its close hook has run; what it was told.
pub fn close_told(node: &Node, actor: &str) -> String {
    eventually("the hook heard of it", || node.seen(actor).iter().any(|line| line.starts_with("close")));
    assert_eq!(node.connections(actor).len(), 0);
    let seen = node.seen(actor);
    let told: Vec<&String> = seen.iter().filter(|line| line.starts_with("close")).collect();
    assert_eq!(told.len(), 1, "{seen:?}");
    told[0].splitn(3, ' ').nth(2).unwrap().to_owned()
}

#[test]
fn a_client_that_vanishes_is_seen_to_and_told_once() {
    // case W1
    let node = start(&["--websocket-ping-secs=1"]);
    // Stays connected and never answers.
    let _silent = node.socket("/actor/sockets/silent");
    node.socket("/actor/sockets/fin").shutdown();
    node.socket("/actor/sockets/rst").reset();
    for actor in ["fin", "rst", "silent"] {
        assert_eq!(close_told(&node, actor), "1006 ", "{actor}");
    }
    assert_eq!(node.metric("wasmkeep_websocket_closes_total", "code=\"1006\""), 3.0);
    assert_eq!(node.metric("wasmkeep_websockets", ""), 0.0);
}

#[test]
fn a_client_that_answers_pings_stays() {
    // case W1
    let node = start(&["--websocket-ping-secs=0.3"]);
    let mut socket = node.socket("/actor/sockets/a");
    for _ in 0..4 {
        let ping = socket.receive().unwrap();
        assert_eq!(ping.opcode, 9);
        socket.frame(0x8a, &ping.payload);
    }
    assert_eq!(node.connections("a").len(), 1);
}

#[test]
fn a_clients_close_is_answered_and_its_code_and_reason_reach_the_hook() {
    // case W2
    let node = start(&[]);
    let reason = "r".repeat(123);
    let mut socket = node.socket("/actor/sockets/a");
    socket.close(3123, &reason);
    assert_eq!(socket.expect_close(), (3123, String::new()));
    socket.expect_end();
    assert_eq!(close_told(&node, "a"), format!("3123 {reason}"));
    let mut silent = node.socket("/actor/sockets/b");
    silent.frame(0x88, b"");
    assert_eq!(silent.expect_close().0, 1005);
    silent.expect_end();
    assert_eq!(close_told(&node, "b"), "1005 ");
}

#[test]
fn an_actors_close_goes_behind_what_it_sent_and_its_hook_is_not_told() {
    // case W2
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let id = node.only("a");
    node.ask("a", &format!("send?socket={id}"), "last");
    assert_eq!(
        node.ask("a", &format!("close?socket={id}&code=3001&reason=enough"), ""),
        json!({ "ok": null })
    );
    assert_eq!(node.connections("a").len(), 0);
    assert_eq!(node.ask("a", &format!("send?socket={id}"), "x"), json!({ "error": "Error::Gone" }));
    assert_eq!(socket.expect_text(), "last");
    assert_eq!(socket.expect_close(), (3001, "enough".to_owned()));
    socket.close(3001, "");
    socket.expect_end();
    assert!(!node.seen("a").iter().any(|line| line.starts_with("close")));
}

#[test]
fn a_client_that_does_not_answer_a_close_is_cut_after_five_seconds() {
    // R-WS-3, case W2
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let began = Instant::now();
    socket.text("!close 1000 bye");
    assert_eq!(socket.expect_close(), (1000, "bye".to_owned()));
    socket.expect_end();
    let took = began.elapsed();
    assert!(took > Duration::from_millis(4500) && took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn closes_that_cross_end_the_connection_once() {
    // case W2
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    socket.text("!sleep 200");
    let id = {
        socket.close(3000, "mine");
        // Answered while the actor sleeps: it could not have closed the socket first.
        assert_eq!(socket.expect_close().0, 3000);
        node.seen("a")[0].split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(node.ask("a", &format!("close?socket={id}&code=1000"), ""), json!({ "error": "Error::Gone" }));
    let mut other = node.socket("/actor/sockets/b");
    let id = node.only("b");
    node.ask("b", &format!("close?socket={id}&code=1000"), "");
    other.close(3000, "mine");
    assert_eq!(other.expect_close().0, 1000);
    other.expect_end();
    assert!(!node.seen("b").iter().any(|line| line.starts_with("close")));
}

#[test]
fn a_stopping_node_says_so_to_every_client_after_the_last_messages() {
    // R-WS-1
    let node = start(&["--hibernate-after-secs=0.2"]);
    let mut asleep = node.socket("/actor/sockets/a");
    eventually("it sleeps", || node.metric("wasmkeep_actors_resident", "") == 0.0);
    let mut busy = node.socket("/actor/sockets/b");
    busy.text("!sleep 500");
    std::thread::sleep(Duration::from_millis(200));
    node.signal(rustix::process::Signal::TERM);
    assert_eq!(busy.expect_text(), "!sleep 500");
    for socket in [&mut asleep, &mut busy] {
        assert_eq!(socket.expect_close(), (1001, "the node is stopping".to_owned()));
        socket.close(1001, "");
        socket.expect_end();
    }
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_stopping_node_does_not_wait_long_for_clients_that_do_not_answer() {
    // R-WS-3
    let node = start(&[]);
    let _silent = node.socket("/actor/sockets/a");
    let began = Instant::now();
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_deleted_actor_has_no_sockets() {
    // R-DEL-1, case A5
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    node.ask("a", "delete", "");
    assert_eq!(socket.expect_close(), (1000, "the actor was deleted".to_owned()));
    socket.close(1000, "");
    socket.expect_end();
    assert_eq!(node.connections("a").len(), 0);
    assert_eq!(node.seen("a"), [""; 0]);
}

#[test]
fn ids_are_not_used_again_after_a_restart() {
    // R-WS-1
    let folder = tempfile::tempdir().unwrap();
    let class = format!("--actor=sockets={}", crate::support::guest("sockets").display());
    let mut last = 0;
    for _ in 0..2 {
        let node = Node::start_on(folder.path(), &[&class]);
        for _ in 0..3 {
            let _socket = node.socket("/actor/sockets/a");
            let id = node.connections("a").last().unwrap()["id"].as_u64().unwrap();
            assert!(id > last, "{id} after {last}");
            last = id;
        }
        node.kill();
    }
}
