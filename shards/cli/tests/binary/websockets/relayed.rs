//! Sockets of actors that are on another node than the one their client is connected to.

use std::time::{Duration, Instant};

use crate::{
    support::{
        Node,
        cluster::{Bucket, timing},
        eventually, guest,
        socket::{Frame, Socket},
    },
    websockets::closing::close_told,
};

/// Two nodes that serve the sockets sample too.
fn pair(bucket: &Bucket, flags: &[&str]) -> (Node, Node) {
    let sockets = format!("--actor=sockets={}", guest("sockets").display());
    bucket.pair_with(&[&[&*sockets], flags].concat())
}

/// Makes the actor `node`'s.
#[track_caller]
fn settle(node: &Node, id: &str, actor: &str) {
    let answer = node.get(&format!("/actor/sockets/{actor}/made")).expect(200);
    assert_eq!(answer.header("x-wasmkeep-node"), Some(id));
}

fn relays(node: &Node) -> f64 {
    node.metric("wasmkeep_websockets_relayed", "")
}

#[track_caller]
fn echo(socket: &mut Socket, text: &str) {
    socket.text(text);
    assert_eq!(socket.expect_message(), text.as_bytes());
}

// R-WS-1, R-WS-3, cases W1, W2
#[test]
fn a_socket_of_another_nodes_actor_is_like_any_other() {
    let bucket = Bucket::new();
    let (a, b) = pair(&bucket, &[]);
    settle(&b, "b", "room");
    settle(&a, "a", "of-a");

    let offer = "sec-websocket-protocol: chat\r\nsec-websocket-extensions: permessage-deflate\r\n";
    let mut there = a.try_socket("/actor/sockets/room?protocol=chat&tags=x&note=n", offer).unwrap();
    assert_eq!(there.answer.header("x-wasmkeep-node"), Some("b"));
    assert_eq!(there.answer.header("sec-websocket-protocol"), Some("chat"));
    assert_eq!(there.answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(there.answer.header("sec-websocket-extensions"), None);
    assert_eq!(b.connections("room")[0]["tags"][0], "x");
    assert_eq!((relays(&a), b.metric("wasmkeep_websockets", "")), (1.0, 1.0));
    assert_eq!((relays(&b), a.metric("wasmkeep_websockets", "")), (0.0, 0.0));
    both_ways(&a, &b, &mut there);
    what_the_owner_refuses_is_refused(&a);
    ends_pass(&a, &b, there);

    // Either node stops: its own sockets and those it relays are told the same.
    let mut owned = b.socket("/actor/sockets/room");
    let mut relayed = a.socket("/actor/sockets/room");
    let mut carried = b.socket("/actor/sockets/of-a");
    let (status, log) = b.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    for socket in [&mut owned, &mut relayed, &mut carried] {
        assert_eq!(socket.expect_close(), (1012, "the node is stopping".to_owned()));
    }
    let again = a.socket("/actor/sockets/room");
    assert_eq!(again.answer.header("x-wasmkeep-node"), Some("a"));
}

fn both_ways(a: &Node, b: &Node, there: &mut Socket) {
    let mut here = b.socket("/actor/sockets/room");
    echo(there, "hello");
    there.frame(0x82, &vec![7; 1 << 20]);
    assert_eq!(there.expect_message(), vec![7; 1 << 20]);
    a.ask("room", "broadcast", "to all");
    for socket in [&mut *there, &mut here] {
        assert_eq!(socket.expect_text(), "to all");
    }
    // case W5: answered by the owner, frames in order.
    there.frame(0x89, b"p");
    let pong = there.receive().unwrap();
    assert_eq!((pong.opcode, &*pong.payload), (10, &b"p"[..]));
    // Sent before the answer to the upgrade has come, and by the actor before it let the socket in.
    let early = crate::support::socket::frame(0x81, b"early");
    let request = "GET /actor/sockets/room/greet HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n\
         connection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut eager = Socket::begin(a.connect(), &[request.as_bytes(), &early].concat()).unwrap();
    for text in ["one", "two", "early"] {
        assert_eq!(eager.expect_text(), text);
    }
    eager.close(1000, "");
    assert_eq!(eager.expect_close().0, 1000);
    here.close(1000, "");
    assert_eq!(here.expect_close().0, 1000);
}

fn what_the_owner_refuses_is_refused(a: &Node) {
    let refused = a.try_socket("/actor/sockets/room/refuse?status=418", "").err().unwrap();
    assert_eq!((refused.status, refused.header("x-wasmkeep-node")), (418, Some("b")));
    let again = a.try_socket("/actor/sockets/room", "sec-websocket-version: 8\r\n").err().unwrap();
    assert_eq!((again.status, again.header("x-wasmkeep-node")), (426, Some("a")));
}

fn ends_pass(a: &Node, b: &Node, mut there: Socket) {
    // The client closes.
    let reason = "r".repeat(123);
    there.close(3123, &reason);
    assert_eq!(there.expect_close(), (3123, String::new()));
    there.expect_end();
    let told = |text: &str| b.seen("room").iter().filter(|line| line.ends_with(text)).count();
    eventually("the close is told", || told(&format!(" 3123 {reason}")) == 1);

    // The actor closes; so it does when the client does not answer.
    settle(b, "b", "closing");
    let mut socket = a.socket("/actor/sockets/closing");
    socket.text("!close 3001 enough");
    assert_eq!(socket.expect_close(), (3001, "enough".to_owned()));
    socket.close(3001, "");
    socket.expect_end();
    let mut silent = a.socket("/actor/sockets/closing");
    let began = Instant::now();
    silent.text("!close 1000 bye");
    assert_eq!(silent.expect_close(), (1000, "bye".to_owned()));
    silent.expect_end();
    let took = began.elapsed();
    assert!(took > Duration::from_millis(4500) && took < Duration::from_secs(15), "{took:?}");

    // The client is lost, with and without a last word.
    for actor in ["fin", "rst", "parting"] {
        settle(b, "b", actor);
    }
    a.socket("/actor/sockets/fin").shutdown();
    a.socket("/actor/sockets/rst").reset();
    let mut parting = a.socket("/actor/sockets/parting");
    parting.close(3999, "gone");
    parting.shutdown();
    for (actor, how) in [("fin", "1006 "), ("rst", "1006 "), ("parting", "3999 gone")] {
        assert_eq!(close_told(b, actor), how, "{actor}");
    }
    eventually("no relay is left", || relays(a) == 0.0);
}

// R-WS-2, cases W1, W4, W5
#[test]
fn a_sleeping_actor_keeps_its_relayed_sockets_until_another_node_takes_it() {
    let bucket = Bucket::new();
    let (a, b) = pair(&bucket, &["--hibernate-after-secs=2", "--websocket-ping-secs=1"]);
    clients_that_do_not_answer_or_read_are_lost(&a, &b);
    settle(&b, "b", "room");
    let mut first = a.socket("/actor/sockets/room");
    let mut second = a.socket("/actor/sockets/room");
    let mut listener = b.socket("/actor/sockets/room");
    assert_eq!((relays(&a), b.metric("wasmkeep_websockets", "")), (2.0, 3.0));
    let asleep = || bucket.object("owners/default/sockets/room").contains("\"state\":\"released\"");
    ping_until([&mut first, &mut second, &mut listener], asleep);
    let wakes = |node: &Node| node.metric("wasmkeep_actor_wakes_total", "class=\"sockets\"");
    let before = (wakes(&b), wakes(&a));
    let began = Instant::now();
    // Pings of both sides are answered and wake nobody.
    ping_until([&mut first, &mut second, &mut listener], || began.elapsed() > Duration::from_secs(4));
    assert_eq!((wakes(&b), wakes(&a)), before);
    echo(&mut first, "awake");
    assert_eq!(wakes(&b), before.0 + 1.0);
    ping_until([&mut first, &mut second, &mut listener], asleep);
    settle(&a, "a", "room");
    // Its next message finds out; who only listens is told by the sweep.
    first.text("anyone?");
    assert_eq!(first.expect_close(), (1012, "the actor is elsewhere; connect again".to_owned()));
    let moved = [&1012u16.to_be_bytes()[..], b"the actor moved"].concat();
    let began = Instant::now();
    let mut listening = vec![second, listener];
    while !listening.is_empty() {
        listening.retain_mut(|socket| match ping(socket) {
            Frame { opcode: 8, payload } => {
                assert_eq!(payload, moved);
                false
            }
            _ => true,
        });
        assert!(began.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(b.metric("wasmkeep_websockets", ""), 0.0);
}

// cases W1, W4
fn clients_that_do_not_answer_or_read_are_lost(a: &Node, b: &Node) {
    let open = |actor: &str| {
        settle(b, "b", actor);
        let socket = a.socket(&format!("/actor/sockets/{actor}"));
        assert_eq!(socket.answer.header("x-wasmkeep-node"), Some("b"));
        socket
    };
    let silent = open("silent");
    assert_eq!(close_told(b, "silent"), "1006 ");
    drop(silent);
    let slow = open("slow");
    for _ in 0..60 {
        b.ask("slow", "broadcast?bytes=1000000", "");
    }
    assert_eq!(close_told(b, "slow"), "1006 ");
    // The client is still there, and takes nothing.
    eventually("no relay is left", || relays(a) == 0.0);
    drop(slow);
}

/// Sends a ping and answers those that come before its pong, or before a close frame; which of the two came.
fn ping(socket: &mut Socket) -> Frame {
    socket.frame(0x89, b"x");
    loop {
        let frame = socket.receive().unwrap();
        match frame.opcode {
            9 => socket.frame(0x8a, &frame.payload),
            8 | 10 => return frame,
            _ => panic!("{frame:?}"),
        }
    }
}

/// Keeps the sockets alive by pings both ways until `done`.
fn ping_until(mut sockets: [&mut Socket; 3], mut done: impl FnMut() -> bool) {
    eventually("it is done", || {
        for socket in &mut sockets {
            assert_eq!(ping(socket), Frame { opcode: 10, payload: b"x".to_vec() });
        }
        done()
    });
}

// R-WS-1, R-WAIT-1
#[test]
fn a_client_whose_owner_died_is_told_and_its_next_upgrade_waits_for_the_takeover() {
    let bucket = Bucket::new();
    let (a, b) = pair(&bucket, &[]);
    settle(&b, "b", "room");
    let mut socket = a.socket("/actor/sockets/room");
    echo(&mut socket, "hello");
    b.kill();
    let died = Instant::now();
    assert_eq!(
        socket.expect_close(),
        (1012, "the way to the actor's node was lost; connect again".to_owned())
    );
    assert!(died.elapsed() < Duration::from_secs(5), "{:?}", died.elapsed());
    socket.close(1012, "");
    socket.expect_end();
    let mut again = loop {
        match a.try_socket("/actor/sockets/room", "") {
            Ok(socket) => break socket,
            Err(head) => assert_eq!((head.status, head.header("retry-after")), (503, Some("1"))),
        }
    };
    assert_eq!(again.answer.header("x-wasmkeep-node"), Some("a"));
    let took = died.elapsed();
    assert!(took > timing().lapse(timing().ttl) - timing().period - Duration::from_millis(500), "{took:?}");
    assert!(a.metric("wasmkeep_failover_waits_total", "outcome=\"served\"") >= 1.0);
    echo(&mut again, "hello again");
}

// R-WS-1, R-WS-3, case L1
#[test]
fn a_client_whose_owner_froze_is_told_once_that_node_left_the_view() {
    let bucket = Bucket::new();
    let (a, b) = pair(&bucket, &[]);
    settle(&b, "b", "room");
    let mut socket = a.socket("/actor/sockets/room");
    b.signal(rustix::process::Signal::STOP);
    let froze = Instant::now();
    assert_eq!(
        socket.expect_close(),
        (1012, "the way to the actor's node was lost; connect again".to_owned())
    );
    let took = froze.elapsed();
    assert!(took > timing().in_view() - timing().period - Duration::from_millis(500), "{took:?}");
    eventually("the relay has ended", || relays(&a) == 0.0);
    let again = a.socket("/actor/sockets/room");
    assert_eq!(again.answer.header("x-wasmkeep-node"), Some("a"));
}
