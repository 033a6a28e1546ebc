//! Raw frames: what a client may not send, and what it may although it looks odd.

use crate::{
    support::{
        eventually,
        socket::{Frame, frame},
    },
    websockets::start,
};

#[test]
fn frames_that_break_the_protocol_fail_the_connection_and_run_nothing() {
    // case W3
    let node = start(&[]);
    let unmasked = b"\x81\x04!log".to_vec();
    let bad_text = frame(0x81, b"!log \xff");
    let close = |code: u16| frame(0x88, &code.to_be_bytes());
    let start_text = || frame(0x01, b"!log ");
    for (why, bytes, code) in [
        ("a new text inside a message", [start_text(), frame(0x81, b"x")].concat(), 1002),
        ("a fragmented ping", frame(0x09, b""), 1002),
        ("a ping of 126 bytes", frame(0x89, &[0; 126]), 1002),
        ("a close of one byte", frame(0x88, b"x"), 1002),
        ("a close with 1005", close(1005), 1002),
        ("a close with 1006", close(1006), 1002),
        ("a close with 999", close(999), 1002),
        ("a close with 1004", close(1004), 1002),
        ("an unmasked frame", unmasked, 1002),
        ("a reserved bit", frame(0xc1, b"!log x"), 1002),
        ("a reserved kind", frame(0x83, b"!log x"), 1002),
        ("text that is not UTF-8", bad_text, 1007),
        ("a continuation of nothing", frame(0x80, b"!log x"), 1002),
        ("a length of 2^63", [&b"\x82\xff\x80"[..], &[0; 11]].concat(), 1009),
    ] {
        let mut socket = node.socket("/actor/sockets/a");
        socket.raw(&bytes);
        assert_eq!(socket.expect_close().0, code, "{why}");
        socket.expect_end();
    }
    eventually("each was told", || {
        node.seen("a").iter().filter(|line| line.starts_with("close")).count() == 14
    });
    assert!(!node.seen("a").iter().any(|line| line.starts_with("message")));
    assert_eq!(node.metric("wasmkeep_websockets", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn frames_that_only_look_odd_pass() {
    // case W3
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a");
    let euro = "€".as_bytes();
    // A character in three frames, with a ping between them.
    socket.frame(0x01, &euro[..1]);
    socket.frame(0x89, b"between");
    socket.frame(0x00, &euro[1..2]);
    socket.frame(0x00, b"");
    socket.frame(0x80, &euro[2..]);
    assert_eq!(socket.receive(), Some(Frame { opcode: 10, payload: b"between".to_vec() }));
    assert_eq!(socket.expect_text(), "€");
    // A pong nobody asked for, and a frame one byte at a time.
    socket.frame(0x8a, b"unasked");
    for byte in frame(0x81, b"slowly") {
        socket.raw(&[byte]);
    }
    assert_eq!(socket.expect_text(), "slowly");
    // Many in one write.
    socket.raw(&(0..100).flat_map(|number| frame(0x81, format!("{number}").as_bytes())).collect::<Vec<u8>>());
    for number in 0..100 {
        assert_eq!(socket.expect_text(), number.to_string());
    }
}

#[test]
fn what_is_announced_and_never_sent_holds_nothing_up() {
    // case W4
    let node = start(&["--websocket-ping-secs=1"]);
    let mut stuck = node.socket("/actor/sockets/a");
    stuck.raw(&frame(0x82, &vec![0; 1 << 20])[..20]);
    let mut other = node.socket("/actor/sockets/a");
    other.text("hi");
    assert_eq!(other.expect_text(), "hi");
    // It is silent from then on, and is dropped as any silent client.
    drop(other);
    eventually("both are gone", || node.metric("wasmkeep_websockets", "") == 0.0);
}
