//! Messages in both directions, tags and attachments.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    support::{eventually, socket::frame},
    websockets::start,
};

const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[test]
fn messages_are_events_in_order_with_the_others() {
    // R-WS-1
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let id = node.only("a");
    for number in 0..50 {
        socket.text(&format!("!log {number}"));
    }
    // An echo comes back when all before it have run.
    socket.text("done");
    assert_eq!(socket.expect_text(), "done");
    let expected: Vec<String> = (0..50).map(|number| format!("message {id} {number}")).collect();
    assert_eq!(node.seen("a")[1..], expected);
}

#[test]
fn a_full_mailbox_loses_and_reorders_nothing() {
    // R-WS-1
    let node = start(&["--mailbox=2"]);
    let mut sockets: Vec<_> = (0..8).map(|_| node.socket("/actor/sockets/a")).collect();
    sockets[0].text("!sleep 300");
    for number in 0..40 {
        for socket in &mut sockets {
            socket.text(&number.to_string());
        }
    }
    assert_eq!(sockets[0].expect_text(), "!sleep 300");
    for socket in &mut sockets {
        for number in 0..40 {
            assert_eq!(socket.expect_text(), number.to_string());
        }
    }
}

#[test]
fn a_busy_actor_does_not_keep_pings_waiting() {
    // case W5
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let began = Instant::now();
    socket.text("!sleep 2000");
    socket.frame(0x89, b"there?");
    let pong = socket.receive().unwrap();
    assert_eq!((pong.opcode, &*pong.payload), (10, &b"there?"[..]));
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn connections_are_listed_in_the_order_of_opening_and_found_by_tag() {
    // R-WS-1
    let node = start(&[]);
    let _red = node.socket("/actor/sockets/a?tags=red,all&note=1");
    let _blue = node.socket("/actor/sockets/a?tags=blue,all&note=2");
    let _none = node.socket("/actor/sockets/a?note=3");
    let notes = |tag: &str| {
        let answer = node.get(&format!("/actor/sockets/a/connections{tag}")).expect(200).json();
        let all = answer["ok"].as_array().unwrap().clone();
        let ids: Vec<u64> = all.iter().map(|one| one["id"].as_u64().unwrap()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| *id < 1 << 53), "{ids:?}");
        all.iter().map(|one| one["attachment"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(notes(""), ["1", "2", "3"]);
    assert_eq!(notes("?tag=all"), ["1", "2"]);
    assert_eq!(notes("?tag=blue"), ["2"]);
    assert_eq!(notes("?tag=green"), [""; 0]);
}

#[test]
fn a_broadcast_reaches_those_with_the_tag_and_says_how_many() {
    // R-WS-1
    let node = start(&[]);
    let mut red: Vec<_> = (0..3).map(|_| node.socket("/actor/sockets/a?tags=red")).collect();
    let mut blue = node.socket("/actor/sockets/a?tags=blue");
    let mut elsewhere = node.socket("/actor/sockets/b?tags=red");
    assert_eq!(node.ask("a", "broadcast?tag=red", "to red"), json!({ "ok": 3 }));
    assert_eq!(node.ask("a", "broadcast", "to all"), json!({ "ok": 4 }));
    assert_eq!(node.ask("b", "broadcast", "to b"), json!({ "ok": 1 }));
    for socket in &mut red {
        assert_eq!([socket.expect_text(), socket.expect_text()], ["to red", "to all"]);
    }
    assert_eq!(blue.expect_text(), "to all");
    assert_eq!(elsewhere.expect_text(), "to b");
    assert_eq!(node.metric("wasmkeep_websocket_messages_total", "direction=\"out\""), 8.0);
}

#[test]
fn sockets_are_their_actors_own() {
    // R-WS-1
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let id = node.only("a");
    let gone = json!({ "error": "Error::Gone" });
    assert_eq!(node.ask("b", &format!("send?socket={id}"), "x"), gone);
    assert_eq!(node.ask("b", &format!("attach?socket={id}"), "x"), gone);
    assert_eq!(node.ask("b", &format!("close?socket={id}&code=1000"), ""), gone);
    assert_eq!(node.ask("a", &format!("send?socket={id}"), "mine"), json!({ "ok": null }));
    assert_eq!(socket.expect_text(), "mine");
}

#[test]
fn what_is_over_a_limit_is_refused_and_closes_nothing() {
    // R-WS-1
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let id = node.only("a");
    let refused = |what: &str, body: &str| {
        let answer = node.ask("a", what, body);
        assert!(answer["error"].as_str().unwrap().starts_with("Error::Refused"), "{what}: {answer}");
    };
    refused(&format!("send?socket={id}&bytes={}", MESSAGE_BYTES_MAX + 1), "");
    refused(&format!("broadcast?bytes={}", MESSAGE_BYTES_MAX + 1), "");
    refused(&format!("attach?socket={id}"), &"x".repeat((16 << 10) + 1));
    refused(&format!("close?socket={id}&code=1001"), "");
    refused(&format!("close?socket={id}&code=1000&reason={}", "r".repeat(124)), "");
    assert_eq!(
        node.ask("a", &format!("send?socket={id}&bytes={MESSAGE_BYTES_MAX}"), ""),
        json!({ "ok": null })
    );
    assert_eq!(socket.receive().unwrap().payload.len(), MESSAGE_BYTES_MAX);
    assert_eq!(node.ask("a", &format!("attach?socket={id}"), &"x".repeat(16 << 10)), json!({ "ok": null }));
}

#[test]
fn a_message_at_the_limit_passes_and_one_over_it_is_1009_before_it_is_read() {
    // case W4
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    socket.frame(0x82, &vec![7; MESSAGE_BYTES_MAX]);
    assert_eq!(socket.receive().unwrap().payload, vec![7; MESSAGE_BYTES_MAX]);
    // The head alone is enough.
    socket.raw(&frame(0x82, &vec![7; MESSAGE_BYTES_MAX + 1])[..14]);
    assert_eq!(socket.expect_close().0, 1009);
    socket.expect_end();
    eventually("the hook heard of it", || node.seen("a").last().unwrap().contains(" 1009 "));
}

#[test]
fn a_client_that_does_not_read_is_closed_and_the_others_get_everything() {
    // case W4
    const MESSAGES: usize = 500;
    let node = start(&[]);
    let mut good = node.socket("/actor/sockets/a?note=good");
    let slow = node.socket("/actor/sockets/a?note=slow");
    let before = memory_mib(node.pid());
    let mut highest = 0;
    for _ in 0..MESSAGES {
        node.ask("a", &format!("broadcast?bytes={MESSAGE_BYTES_MAX}"), "");
        assert_eq!(good.expect_message().len(), MESSAGE_BYTES_MAX);
        highest = highest.max(memory_mib(node.pid()));
    }
    let left = node.connections("a");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["attachment"], "good");
    assert!(highest < before + 64, "{before} MiB, then {highest} MiB");
    assert_eq!(node.metric("wasmkeep_websocket_slow_readers_total", ""), 1.0);
    eventually("the hook heard of it", || node.seen("a").iter().any(|line| line.contains(" 1006 ")));
    drop(slow);
}

fn memory_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn a_trap_in_a_hook_closes_no_socket() {
    // case T4
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a?note=kept");
    socket.text("!trap");
    socket.text("after");
    assert_eq!(socket.expect_text(), "after");
    let mut other = node.socket("/actor/sockets/a");
    other.close(1000, "!trap");
    assert_eq!(other.expect_close().0, 1000);
    socket.text("again");
    assert_eq!(socket.expect_text(), "again");
    eventually("three are told apart", || {
        node.metric("wasmkeep_event_failures_total", "class=\"sockets\"") == 2.0
    });
    assert_eq!(node.connections("a")[0]["attachment"], "kept");
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}
