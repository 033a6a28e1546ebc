//! Strict framing and limits, over the socket.

use crate::harness::{Server, get, header_of, status_of};

/// Sends `request` and, on the same connection, a second request that must never run.
fn refused(server: &Server, request: &str) -> (u16, String) {
    let answer = server.exchange(format!("{request}{}", get("/smuggled")));
    let ran = server.requests();
    assert!(!ran.iter().any(|request| request.contains("smuggled")), "{request:?} ran {ran:?}");
    assert_eq!(
        answer.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count(),
        1,
        "{request:?} gave {answer:?}"
    );
    assert_eq!(header_of(&answer, "connection"), Some("close"), "{answer}");
    (status_of(&answer), answer)
}

// case H1
#[test]
fn an_ambiguous_request_gets_400_and_nothing_after_it_runs() {
    let server = Server::new(1);
    let post = |headers: &str, body: &str| format!("POST /echo HTTP/1.1\r\nHost: h\r\n{headers}\r\n{body}");
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    for request in [
        post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
        post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
        post("Content-Length: +5\r\n", "hello"),
        post("Content-Length: 5, 5\r\n", "hello"),
        post("Content-Length: -1\r\n", ""),
        post("Content-Length: 18446744073709551616\r\n", ""),
        post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        "GET /echo HTTP/1.1\nHost: h\r\n\r\n".into(),
        "GET /echo HTTP/1.1\r\nHost: h\n\r\n".into(),
        "GET /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n".into(),
        "GET /echo HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n".into(),
        "GET /echo HTTP/1.1\r\n\r\n".into(),
        "GET /echo HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n".into(),
        "GET /echo HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}".into(),
        chunked("5;a=b\nhello\r\n0\r\n\r\n"),
        "\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        chunked("10000000000000000\r\n"),
        chunked("5\r\nhelloX0\r\n\r\n"),
        chunked("5\nhello\r\n0\r\n\r\n"),
        chunked("zz\r\n"),
        chunked("0\r\nContent-Length: 5\r\n\r\n"),
        chunked("0\r\nX-Wasmkeep-Caller: x\r\n\r\n"),
    ] {
        assert_eq!(refused(&server, &request).0, 400, "{request:?}");
    }
}

#[test]
fn what_is_too_large_or_not_understood_has_its_own_status() {
    let server = Server::with(1, 100, |config| config.limits.body_bytes_max = 10);
    let long = "a".repeat(70_000);
    for (request, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(101)), 431),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n".into(), 413),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n".into(), 413),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: magic\r\nContent-Length: 1\r\n\r\nx".into(), 417),
        ("GET / HTTP/3.0\r\nHost: h\r\n\r\n".into(), 505),
    ] {
        assert_eq!(refused(&server, &request).0, status, "{:?}", &request[..40.min(request.len())]);
    }
    let ran = server.requests();
    assert_eq!(ran, ["POST /echo"], "only the chunked body had to begin before it was known to be too large");
    assert_eq!(server.stats[0].refused(), 6);
}

#[test]
fn a_body_that_breaks_off_is_an_error_to_the_handler_whatever_it_answers() {
    let server = Server::new(1);
    let (status, answer) = refused(
        &server,
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
    );
    assert_eq!(status, 400);
    assert!(!answer.contains("does not mind"));
    assert_eq!(*server.seen.body_errors.lock().unwrap(), ["a chunk's size is malformed"]);
}

#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    let server = Server::new(1);
    let answers =
        server.exchange(format!("{}{}GET / HTTP/1.1\r\n\r\n{}", get("/slow"), get("/a"), get("/smuggled")));
    let statuses: Vec<u16> =
        answers.split("HTTP/1.1 ").skip(1).map(|rest| rest[..3].parse().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 400], "{answers}");
    assert_eq!(server.requests(), ["GET /slow", "GET /a"]);
}

#[test]
fn a_request_in_single_bytes_is_the_same_request() {
    let server = Server::new(1);
    let mut client = server.connect();
    for request in [
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ] {
        for byte in request.as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.answer(), (200, "hello".into()));
    }
}

#[test]
fn what_http_has_a_server_take_is_taken() {
    let server = Server::new(1);
    let mut client = server.connect();
    for (request, says) in [
        // RFC 9112 section 7.1.1: unknown chunk extensions.
        (
            "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             2;a=b\r\nhe\r\n3 ; c=\"d;e\"\r\nllo\r\n0;end\r\n\r\n",
            "hello",
        ),
        // Section 3.2.2: the host of an absolute target.
        ("GET http://target:8080/host?x HTTP/1.1\r\nHost: header\r\n\r\n", "target:8080"),
        ("GET http://target/host HTTP/1.1\r\nHost:\r\n\r\n", "target"),
        ("GET /host HTTP/1.1\r\nHost: header\r\n\r\n", "header"),
        // Section 2.2: an empty line before a request line.
        ("\r\nGET /host HTTP/1.1\r\nHost: a\r\n\r\n", "a"),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody\r\n", "body"),
        // RFC 9110 section 2.5: a minor version to come.
        ("GET /host HTTP/1.2\r\nHost: b\r\n\r\n", "b"),
    ] {
        client.send(request);
        assert_eq!(client.answer(), (200, says.into()), "{request:?}");
    }
    let answer = server.exchange("GET http://target/host HTTP/1.0\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\ntarget"), "{answer}");
}

#[test]
fn an_empty_line_behind_a_request_leaves_the_connection_idle() {
    let server = Server::with(1, 100, |config| config.idle_timeout = std::time::Duration::from_millis(200));
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody\r\n");
    assert_eq!(client.answer(), (200, "body".into()));
    assert_eq!(client.rest(), "", "it is closed without a word, as one that sent nothing");
}

#[test]
fn a_head_as_large_as_allowed_passes() {
    let server = Server::new(1);
    let frame = "GET / HTTP/1.1\r\nHost: h\r\nA: \r\n\r\n".len();
    let value = "v".repeat((64 << 10) - frame - 1);
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {value}\r\n\r\n"));
    assert_eq!(client.answer().0, 200);
}

// case H2
#[test]
fn a_client_that_expects_100_gets_it_only_when_its_body_is_wanted() {
    let server = Server::with(1, 100, |config| config.limits.body_bytes_max = 10);
    let expecting = |path: &str, length: u64| {
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut client = server.connect();
    client.send(expecting("/echo", 5));
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.answer(), (200, "hello".into()));

    let early = server.exchange(expecting("/echo", 11));
    assert!(early.starts_with("HTTP/1.1 413 "), "{early}");
    let unread = server.exchange(expecting("/", 5));
    assert!(unread.starts_with("HTTP/1.1 200 "), "{unread}");

    let mut old = server.connect();
    old.send("POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    let answer = old.rest();
    assert!(answer.ends_with("\r\n\r\nhello") && !answer.contains("100 Continue"), "{answer}");
}
