//! Sockets of actors that sleep.

use std::time::{Duration, Instant};

use crate::{
    support::{Node, eventually},
    websockets::start,
};

fn wait_until_asleep(node: &Node) {
    eventually("it sleeps", || node.metric("wasmkeep_actors_resident", "") == 0.0);
}

#[test]
fn an_actor_that_slept_finds_its_sockets_tags_and_attachments() {
    // R-WS-2
    let node = start(&["--hibernate-after-secs=0.2"]);
    let mut first = node.socket("/actor/sockets/a?tags=x,y&note=first");
    let mut second = node.socket("/actor/sockets/a?note=second");
    let before = node.connections("a");
    let id = before[0]["id"].as_u64().unwrap();
    node.ask("a", &format!("attach?socket={id}"), "changed");
    wait_until_asleep(&node);
    first.text("!note");
    let told: serde_json::Value = serde_json::from_str(&first.expect_text()).unwrap();
    assert_eq!(told[0]["id"], id);
    assert_eq!(told[0]["tags"], serde_json::json!(["x", "y"]));
    assert_eq!(told[0]["attachment"], "changed");
    assert_eq!(told[0]["opened_ms"], before[0]["opened_ms"]);
    assert_eq!(told[1], 1, "it is a new instance");
    wait_until_asleep(&node);
    node.ask("a", "broadcast", "to all");
    assert_eq!(first.expect_text(), "to all");
    assert_eq!(second.expect_text(), "to all");
}

#[test]
fn pings_are_answered_and_wake_nobody() {
    // R-WS-2, case W5
    let node = start(&["--hibernate-after-secs=0.2", "--websocket-ping-secs=1"]);
    let mut socket = node.socket("/actor/sockets/a");
    wait_until_asleep(&node);
    let wakes = node.metric("wasmkeep_actor_wakes_total", "class=\"sockets\"");
    let (mut pings, mut pongs) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        socket.frame(0x89, b"x");
        let frame = socket.receive().unwrap();
        match frame.opcode {
            9 => {
                pings += 1;
                socket.frame(0x8a, &frame.payload);
            }
            10 => pongs += 1,
            other => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(1200));
    }
    assert!(pongs > 0 && pings > 0, "{pings} pings, {pongs} pongs");
    assert_eq!(node.metric("wasmkeep_actor_wakes_total", "class=\"sockets\""), wakes);
    assert_eq!(node.metric("wasmkeep_actors_resident", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_websockets", ""), 1.0);
}

#[test]
fn a_client_that_leaves_a_sleeping_actor_wakes_it_once() {
    // case W1
    let node = start(&["--hibernate-after-secs=0.2"]);
    let socket = node.socket("/actor/sockets/a");
    wait_until_asleep(&node);
    drop(socket);
    eventually("the hook heard of it", || {
        node.metric("wasmkeep_actor_wakes_total", "class=\"sockets\"") == 2.0
    });
    let seen = node.seen("a");
    assert_eq!(seen.iter().filter(|line| line.ends_with(" 1006 ")).count(), 1, "{seen:?}");
}

#[test]
fn a_message_that_cannot_wake_its_actor_closes_the_socket() {
    let node = start(&["--hibernate-after-secs=0.2"]);
    let mut socket = node.socket("/actor/sockets/a");
    wait_until_asleep(&node);
    let database = node.data_dir.join("actors/default/sockets/a.db");
    let _ = std::fs::remove_file(database.with_extension("db-wal"));
    std::fs::write(&database, vec![b'x'; 8192]).unwrap();
    socket.text("hi");
    assert_eq!(socket.expect_close().0, 1011);
}
