use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { head_bytes_max: 1024, headers_max: 8, body_bytes_max: 1000 };

/// What a connection would do with these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Request(String),
    BodyEnd { bytes_on_wire: usize },
    Refused(u16),
}

/// Reads `pieces` as one connection would, one request after another.
fn read(pieces: &[&[u8]]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut buffer: Vec<u8> = Vec::new();
    let mut scan = HeadScan::default();
    let mut body: Option<(BodyFraming, usize)> = None;
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            if let Some((framing, on_wire)) = &mut body {
                match framing.consume(&buffer) {
                    Err(violation) => {
                        events.push(Event::Refused(violation.status));
                        return events;
                    }
                    Ok(taken) => {
                        *on_wire += taken;
                        buffer.drain(..taken);
                    }
                }
                if !framing.is_complete() {
                    break;
                }
                events.push(Event::BodyEnd { bytes_on_wire: *on_wire });
                body = None;
            }
            buffer.drain(..scan.skip_empty_line(&buffer));
            let judged = scan.advance(&buffer, &LIMITS);
            let head =
                match judged.and_then(|len| len.map(|len| parse_head(&buffer[..len], &LIMITS)).transpose()) {
                    Err(violation) => {
                        events.push(Event::Refused(violation.status));
                        return events;
                    }
                    Ok(None) => break,
                    Ok(Some(head)) => head,
                };
            let path = String::from_utf8(buffer[head.path.clone()].to_vec()).unwrap();
            events.push(Event::Request(path));
            buffer.drain(..head.len);
            scan = HeadScan::default();
            body = Some((head.framing, 0));
        }
    }
    events
}

fn status_of(request: &str) -> Option<u16> {
    read(&[request.as_bytes()]).iter().find_map(|event| match event {
        Event::Refused(status) => Some(*status),
        _ => None,
    })
}

fn with_headers(headers: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\n{headers}\r\n")
}

// case H1
#[test]
fn ambiguous_framing_is_refused() {
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\ncontent-LENGTH: 5\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5;\r\n",
        "Content-Length:\r\n",
        "Content-Length: \u{b}5\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunkedx\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ] {
        assert_eq!(status_of(&with_headers(headers)), Some(400), "{headers:?}");
    }
    assert_eq!(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), Some(400));
}

// case H1
#[test]
fn malformed_heads_are_refused() {
    for request in [
        "GET / HTTP/1.1\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\tc\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA\u{0}: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\u{0}c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\u{7f}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nä: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
        "GET / http/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.10\r\nHost: h\r\n\r\n",
        "GET / HTTP/1,1\r\nHost: h\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        " \r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /é HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\"b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://u@h/a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://other/a HTTP/1.1\r\n\r\n",
        "GET http://other/a HTTP/1.1\r\nHost: a b\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "{\"json\": 1}",
        "AVERYLONGMETHODTHATNEVERENDSANDWILLNOTEND",
    ] {
        assert_eq!(read(&[request.as_bytes()]), [Event::Refused(400)], "{request:?}");
    }
}

// case H1
#[test]
fn malformed_chunks_are_refused_and_nothing_after_them_is_a_request() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for body in [
        "5;ext\nhello\r\n0\r\n\r\n",
        "5;ext\rX\nhello\r\n0\r\n\r\n",
        "5;e\u{0}xt\r\nhello\r\n0\r\n\r\n",
        "5;e\u{7f}xt\r\nhello\r\n0\r\n\r\n",
        "5 ext\r\nhello\r\n0\r\n\r\n",
        ";ext\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "g\r\n",
        "\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: x\r\n\r\n",
        "0\r\nX-WasmKeep-Caller: me\r\n\r\n",
        "0\r\nauthorization: x\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\nA: \u{0}\r\n\r\n",
        "0\r\nX",
    ] {
        let wire = with_headers("Transfer-Encoding: chunked\r\n") + body + smuggled;
        let events = read(&[wire.as_bytes()]);
        assert_eq!(events, [Event::Request("/a".into()), Event::Refused(400)], "{body:?}");
    }
}

#[test]
fn each_limit_has_its_status() {
    let long = "a".repeat(1100);
    assert_eq!(status_of(&format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n")), Some(431));
    assert_eq!(status_of(&format!("GET /{long}")), Some(431), "without waiting for its end");
    let line = "A: b\r\n";
    assert_eq!(status_of(&with_headers(&line.repeat(7))), None);
    assert_eq!(status_of(&with_headers(&line.repeat(8))), Some(431));
    assert_eq!(status_of(&with_headers("Content-Length: 1000\r\n")), None);
    assert_eq!(status_of(&with_headers("Content-Length: 1001\r\n")), Some(413), "before the body is read");
    let chunked = with_headers("Transfer-Encoding: chunked\r\n");
    assert_eq!(status_of(&format!("{chunked}3e8\r\n")), None);
    assert_eq!(status_of(&format!("{chunked}3e9\r\n")), Some(413), "before the chunk is read");
    assert_eq!(status_of(&format!("{chunked}ffffffffffffffff\r\n")), Some(413));
    let full = format!("{chunked}3e8\r\n{}\r\n", "x".repeat(1000));
    assert_eq!(status_of(&format!("{full}0\r\n\r\n")), None);
    assert_eq!(status_of(&format!("{full}1\r\n")), Some(413));
    let trailers = format!("{chunked}0\r\n{}", "A: b\r\n".repeat(2000));
    assert_eq!(status_of(&trailers), Some(431));
    for version in ["HTTP/0.9", "HTTP/2.0", "HTTP/3.0"] {
        assert_eq!(status_of(&format!("GET / {version}\r\nHost: h\r\n\r\n")), Some(505), "{version}");
    }
}

// case H2
#[test]
fn only_100_continue_may_be_expected_and_only_in_http_1_1() {
    let head = |headers: &str, version: &str| format!("POST / HTTP/{version}\r\nHost: h\r\n{headers}\r\n");
    assert_eq!(status_of(&head("Expect: 100-Continue\r\nContent-Length: 1\r\n", "1.1")), None);
    assert_eq!(status_of(&head("Expect: teapot\r\n", "1.1")), Some(417));
    assert_eq!(status_of(&head("Expect:\r\n", "1.1")), Some(417));
    assert_eq!(status_of(&head("Expect: 100-continue\r\nExpect: 100-continue\r\n", "1.1")), Some(417));
    assert_eq!(status_of(&head("Expect: teapot\r\n", "1.0")), None);
    let wire = head("Expect: 100-continue\r\nContent-Length: 1\r\n", "1.1");
    assert!(parse_head(wire.as_bytes(), &LIMITS).unwrap().expects_continue);
}

// RFC 9112 section 7.1.1
#[test]
fn chunk_extensions_are_read_past_within_a_bound() {
    let chunked = with_headers("Transfer-Encoding: chunked\r\n");
    let next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    for body in [
        "5;ext=1\r\nhello\r\n0\r\n\r\n",
        "5;\r\nhello\r\n0\r\n\r\n",
        "5 ; ext = \"a;b 0\" ;c\r\nhello\r\n0;last\t\r\n\r\n",
        "5\t;ext=caf\u{e9}\r\nhello\r\n0;x\r\nA: b\r\n\r\n",
    ] {
        let events = read(&[format!("{chunked}{body}{next}").as_bytes()]);
        let end = |bytes_on_wire| Event::BodyEnd { bytes_on_wire };
        let request = |path: &str| Event::Request(path.into());
        assert_eq!(events, [request("/a"), end(body.len()), request("/next"), end(0)], "{body:?}");
    }
    // All of a body's extensions together.
    let chunks = |count: usize| {
        format!("{chunked}{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "e".repeat(99)).repeat(count))
    };
    assert_eq!(status_of(&chunks(40)), None);
    assert_eq!(status_of(&chunks(41)), Some(431));
    assert_eq!(
        status_of(&format!("{chunked}5;{}", "e".repeat(5000))),
        Some(431),
        "without waiting for its end"
    );
}

// RFC 9112 section 2.2
#[test]
fn one_empty_line_before_a_request_line_is_skipped() {
    let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let one = [Event::Request("/a".into()), Event::BodyEnd { bytes_on_wire: 0 }];
    let wire = format!("\r\n{get}\r\n{get}{get}\r\n");
    assert_eq!(read(&[wire.as_bytes()]), [&one[..], &one, &one].concat());
    let single: Vec<&[u8]> = wire.as_bytes().chunks(1).collect();
    assert_eq!(read(&single), [&one[..], &one, &one].concat());
    assert_eq!(read(&[b"\r", b"\n", get.as_bytes()]), one);
    let twice = format!("{get}\r\n\r\n{get}");
    assert_eq!(read(&[twice.as_bytes()]), [&one[..], &[Event::Refused(400)]].concat());
}

// RFC 9110 section 2.5
#[test]
fn a_newer_minor_version_is_taken_as_http_1_1() {
    for (version, minor) in [("1.2", Some('2')), ("1.9", Some('9')), ("1.1", None), ("1.0", None)] {
        let wire = format!("GET /a HTTP/{version}\r\nHost: h\r\n\r\n");
        let head = parse_head(wire.as_bytes(), &LIMITS).unwrap();
        assert_eq!(head.newer_minor_at.map(|at| char::from(wire.as_bytes()[at])), minor, "{version}");
    }
    assert_eq!(status_of("GET / HTTP/1.2\r\n\r\n"), Some(400), "it must name its Host as HTTP/1.1");
    let chunked = "POST / HTTP/1.3\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(status_of(chunked), None);
}

// RFC 9112 section 3.2.2
#[test]
fn the_host_of_an_absolute_target_need_not_be_that_of_the_host_header() {
    for host in ["other", "h", "", "h:8080"] {
        let wire = format!("GET http://h/a?b HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(read(&[wire.as_bytes()])[0], Event::Request("/a".into()), "{host:?}");
    }
}

#[test]
fn whether_bytes_complete_a_body_is_known_without_taking_them() {
    let chunked = || BodyFraming::chunked(100);
    for (framing, bytes, whole) in [
        (BodyFraming::sized(3), "ab", false),
        (BodyFraming::sized(3), "abc", true),
        (BodyFraming::sized(3), "abcGET", true),
        (chunked(), "3\r\nabc\r\n0\r\n", false),
        (chunked(), "3\r\nabc\r\n0\r\n\r\n", true),
        (chunked(), "zz", true),
    ] {
        let before = framing.clone();
        assert_eq!(framing.would_complete(bytes.as_bytes()), whole, "{bytes:?}");
        assert_eq!(framing, before);
    }
}

#[test]
fn ordinary_requests_pass() {
    let wire = "GET /actor/counter/a%20b?x=1&y=/z HTTP/1.1\r\nHost: h:8080\r\nAccept:\t*/* \r\n\r\n\
        POST /b HTTP/1.0\r\nContent-Length: 005\r\nX: caf\u{e9}\r\n\r\nhello\
        OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n\
        PUT http://H/c?d HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n\
        5\r\nhello\r\nA\r\n0123456789\r\n000\r\nX-Checksum: 1\r\n\r\n\
        GET HTTPS://[::1]:8 HTTP/1.1\r\nhost: [::1]:8\r\n\r\n";
    let chunked = "5\r\nhello\r\nA\r\n0123456789\r\n000\r\nX-Checksum: 1\r\n\r\n".len();
    let end = |bytes_on_wire| Event::BodyEnd { bytes_on_wire };
    let request = |path: &str| Event::Request(path.into());
    let expected = [
        request("/actor/counter/a%20b"),
        end(0),
        request("/b"),
        end(5),
        request("*"),
        end(0),
        request("/c"),
        end(chunked),
        request(""),
        end(0),
    ];
    assert_eq!(read(&[wire.as_bytes()]), expected);
}

/// Requests to cut into pieces: whole, broken, pipelined.
fn connections() -> impl Strategy<Value = Vec<u8>> {
    let request = prop_oneof![
        Just("GET /a HTTP/1.1\r\nHost: h\r\n\r\n"),
        Just("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
        Just(
            "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n"
        ),
        Just("POST /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n"),
        Just("POST /e HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"),
        Just("GET /f HTTP/1.1\r\nHost: h\r\nA: b\n\r\n"),
        Just("GET /g HTTP/1.1\r\n\r\n"),
        Just("PRI * HTTP/2.0\r\n\r\n"),
        Just("\r\n"),
        Just("GET http://other/h HTTP/1.2\r\nHost: h\r\n\r\n"),
    ];
    let bytes = proptest::collection::vec(request, 1..5).prop_map(|requests| requests.concat().into_bytes());
    (bytes, proptest::option::of((any::<usize>(), any::<u8>()))).prop_map(|(mut bytes, flip)| {
        if let Some((at, byte)) = flip {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn where_the_network_cuts_makes_no_difference(bytes in connections(), cuts in proptest::collection::vec(any::<usize>(), 0..8)) {
        let whole = read(&[&bytes]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), whole.clone());
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&single), whole);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let events = read(&[&bytes]);
        prop_assert!(events.len() <= bytes.len() + 1);
    }

    #[test]
    fn what_passes_is_read_the_same_by_the_parser_behind_the_guard(mut bytes in connections()) {
        let mut scan = HeadScan::default();
        let mut bytes = bytes.split_off(scan.skip_empty_line(&bytes));
        let Ok(Some(len)) = scan.advance(&bytes, &LIMITS) else { return Ok(()) };
        let Ok(head) = parse_head(&bytes[..len], &LIMITS) else { return Ok(()) };
        if let Some(at) = head.newer_minor_at {
            bytes[at] = b'1';
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        prop_assert_eq!(request.parse(&bytes), Ok(httparse::Status::Complete(len)));
        let uri: http::Uri = request.path.unwrap_or_default().parse().unwrap();
        let path = std::str::from_utf8(&bytes[head.path]).unwrap();
        prop_assert_eq!(uri.path(), if path.is_empty() { "/" } else { path });
    }
}
