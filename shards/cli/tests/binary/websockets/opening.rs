//! The upgrade: who gets a socket, and what everyone else is told.

use std::io::{BufRead, BufReader, Read, Write};

use crate::{
    support::{eventually, socket::Socket},
    websockets::start,
};

#[test]
fn a_socket_opens_and_echoes() {
    // R-WS-1
    let node = start(&["--node-id=n1"]);
    let mut socket = node.socket("/actor/sockets/a");
    assert_eq!(socket.answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(socket.answer.header("upgrade"), Some("websocket"));
    assert_eq!(socket.answer.header("x-wasmkeep-node"), Some("n1"));
    assert_eq!(socket.answer.header("sec-websocket-extensions"), None);
    assert_eq!(socket.answer.header("sec-websocket-protocol"), None);
    for text in ["hello", "", "é€𝄞"] {
        socket.text(text);
        assert_eq!(socket.expect_text(), text);
    }
    socket.frame(0x82, &[0, 255, 7]);
    assert_eq!(socket.receive().unwrap().payload, [0, 255, 7]);
}

#[test]
fn the_hook_sees_the_path_and_the_headers_and_decides_how_the_socket_is_let_in() {
    // R-WS-1
    let node = start(&[]);
    let headers = "cookie: a=b\r\nx-wasmkeep-caller: forged\r\nsec-websocket-protocol: one, two\r\n\
                   sec-websocket-extensions: permessage-deflate\r\n";
    let path = "/actor/sockets/a/headers?tags=red,blue&note=hi&protocol=two";
    let socket = node.try_socket(path, headers).unwrap();
    assert_eq!(socket.answer.header("sec-websocket-protocol"), Some("two"));
    assert_eq!(socket.answer.header("sec-websocket-extensions"), None);
    let seen = node.seen("a");
    assert!(seen.contains(&"header cookie: a=b".to_owned()), "{seen:?}");
    assert!(seen.contains(&"header host: x".to_owned()), "{seen:?}");
    for hidden in ["header upgrade", "header connection", "header x-wasmkeep"] {
        assert!(!seen.iter().any(|line| line.starts_with(hidden)), "{seen:?}");
    }
    let id = node.only("a");
    assert_eq!(seen.last().unwrap(), &format!("open {id} /headers?tags=red,blue&note=hi&protocol=two"));
    let about = &node.connections("a")[0];
    assert_eq!(about["tags"], serde_json::json!(["red", "blue"]));
    assert_eq!(about["attachment"], "hi");
}

#[test]
fn what_is_not_a_handshake_is_refused_and_nothing_runs() {
    // R-WS-1
    let node = start(&[]);
    let handshake = |method: &str, version: &str, lines: &str| {
        let answer = node.raw(&format!(
            "{method} /actor/sockets/a HTTP/{version}\r\nhost: x\r\nupgrade: websocket\r\n{lines}\r\n"
        ));
        answer.lines().next().unwrap_or_default().to_owned() + answer.lines().last().unwrap_or_default()
    };
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let version = "sec-websocket-version: 13\r\n";
    let connection = "connection: upgrade, close\r\n";
    for (method, http, lines, status) in [
        ("POST", "1.1", format!("{connection}{version}{key}content-length: 0\r\n"), 400),
        ("GET", "1.0", format!("{connection}{version}{key}"), 400),
        ("GET", "1.1", format!("connection: close\r\n{version}{key}"), 400),
        ("GET", "1.1", format!("{connection}{key}"), 426),
        ("GET", "1.1", format!("{connection}sec-websocket-version: 12\r\n{key}"), 426),
        ("GET", "1.1", format!("{connection}{version}"), 400),
        ("GET", "1.1", format!("{connection}{version}sec-websocket-key: c2hvcnQ=\r\n"), 400),
        ("GET", "1.1", format!("{connection}{version}{key}content-length: 1\r\n\r\nx"), 400),
    ] {
        let answer = handshake(method, http, &lines);
        assert!(answer.contains(&format!(" {status} ")), "{method} {http} {lines:?}: {answer}");
    }
    let answer = node
        .raw(&format!("GET /actor/sockets/a HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n{connection}\r\n"));
    assert!(answer.to_lowercase().contains("sec-websocket-version: 13"), "{answer}");
    assert_eq!(node.metric("wasmkeep_actor_wakes_total", "class=\"sockets\""), 0.0);
}

#[test]
fn access_rules_come_before_the_hook_and_a_class_without_it_has_no_sockets() {
    // R-WS-1, R-ACC-1
    let node = start(&["--access=sockets=existing:main", "--access=sql=internal"]);
    let refused = |path: &str| node.try_socket(path, "").err().unwrap().status;
    assert_eq!(refused("/actor/sockets/other"), 404);
    assert_eq!(refused("/actor/sql/a"), 403);
    assert_eq!(refused("/actor/nope/a"), 404);
    assert_eq!(refused("/actor/counter/a"), 501);
    assert!(!node.data_dir.join("actors/default/sockets/other.db").exists());
    assert!(!node.data_dir.join("actors/default/counter/a.db").exists());
    node.socket("/actor/sockets/main");
}

#[test]
fn an_actor_refuses_with_the_status_it_says_and_its_mistakes_are_500() {
    // R-WS-1
    let node = start(&[]);
    for (path, status) in [
        ("refuse?status=403", 403),
        ("refuse?status=503", 503),
        ("refuse?status=200", 500),
        ("refuse?status=999", 500),
        ("trap", 500),
        ("x?tags=,", 500),
        ("x?protocol=never-offered", 500),
    ] {
        let refused = node.try_socket(&format!("/actor/sockets/a/{path}"), "").err().unwrap();
        assert_eq!(refused.status, status, "{path}");
        assert_eq!(node.connections("a"), Vec::<serde_json::Value>::new(), "{path}");
    }
    // None of them was open, so none has closed.
    assert!(!node.seen("a").iter().any(|line| line.starts_with("close")));
    assert_eq!(node.metric("wasmkeep_websockets", ""), 0.0);
}

#[test]
fn what_is_sent_before_the_hook_returns_leaves_behind_the_answer() {
    // R-WS-1
    let node = start(&[]);
    let mut socket = node.socket("/actor/sockets/a/greet");
    assert_eq!(socket.expect_text(), "one");
    assert_eq!(socket.expect_text(), "two");
}

#[test]
fn frames_sent_with_the_request_wait_for_the_answer() {
    let node = start(&[]);
    let mut stream = node.connect();
    let mut bytes = b"GET /actor/sockets/a/slow?ms=100 HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
          sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .to_vec();
    bytes.extend(crate::support::socket::frame(0x81, b"early"));
    stream.write_all(&bytes).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0);
    }
    let mut echo = [0; 7];
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"\x81\x05early");
}

#[test]
fn a_kept_connection_becomes_a_socket_on_its_actors_shard() {
    // R-WS-1
    let node = start(&["--shards=2"]);
    let mut opened = Vec::new();
    for actor in 0..8 {
        let mut stream = node.connect();
        // Served where it was accepted, so that it is no new connection any more.
        stream.write_all(b"GET /_wasmkeep/health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        assert!(stream.read(&mut answer).unwrap() > 0);
        let mut socket = Socket::open(stream, &format!("/actor/sockets/{actor}"), "").unwrap();
        socket.text("hi");
        assert_eq!(socket.expect_text(), "hi");
        opened.push(socket);
    }
    assert!(node.metric("wasmkeep_connection_moves_total", "") >= 1.0);
    assert_eq!(node.metric("wasmkeep_websockets", ""), 8.0);
    for shard in ["shard=\"0\"", "shard=\"1\""] {
        assert!(node.metric("wasmkeep_websockets", shard) > 0.0, "{shard}");
    }
}

#[test]
fn a_client_that_leaves_while_the_hook_runs_was_there_and_is_gone() {
    // case W1
    let node = start(&[]);
    let mut stream = node.connect();
    stream
        .write_all(
            b"GET /actor/sockets/a/slow?ms=300 HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
              sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(stream);
    eventually("the hook heard of it", || node.seen("a").iter().any(|line| line.starts_with("close")));
    let seen = node.seen("a");
    let id = seen[0].split(' ').nth(1).unwrap();
    assert_eq!(seen, [format!("open {id} /slow?ms=300"), format!("close {id} 1006 ")]);
    assert_eq!(node.metric("wasmkeep_websockets", ""), 0.0);
}

#[test]
fn sockets_count_among_the_connections() {
    // R-FLAG-2
    let node = start(&["--max-connections=3", "--max-resident=10"]);
    let _first = node.socket("/actor/sockets/a");
    let _second = node.socket("/actor/sockets/b");
    eventually("two are open", || node.metric("wasmkeep_connections", "") == 3.0);
    let third = node.socket("/actor/sockets/c");
    let mut fourth = node.connect();
    let mut answer = String::new();
    let _ = fourth.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(third);
    eventually("there is room again", || {
        node.connect().write_all(b"GET /_wasmkeep/health HTTP/1.1\r\n").is_ok()
    });
}
