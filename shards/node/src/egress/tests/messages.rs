//! Requests and responses as they are on the wire, whole and broken.

use std::{io::Write, net::TcpListener, sync::mpsc};

use http::Request;
use http_body_util::BodyExt;
use wasmkeep_host::outbound::{Answered, OutboundError, OutboundOptions};

use super::kit::{Client, PATIENCE, Server, get, head, post, tell_end};

fn client() -> Client {
    Client::new(&["127.0.0.0/8"])
}

/// The head a server sees.
fn seen(request: impl FnOnce(&str) -> Request<wasmkeep_host::outbound::OutboundBody>) -> String {
    let (sender, heads) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        let _ = sender.send(head(&mut stream));
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
    });
    client().ask(request(&server.url())).unwrap();
    heads.recv_timeout(PATIENCE).unwrap().to_ascii_lowercase()
}

#[test]
fn the_host_is_the_urls_and_lengths_are_plain() {
    let head = seen(|url| {
        let mut request = get(&format!("{url}a/b?c=%20d"));
        request.headers_mut().insert("host", "elsewhere.test".parse().unwrap());
        request.headers_mut().insert("x-mine", "1".parse().unwrap());
        request
    });
    assert!(head.starts_with("get /a/b?c=%20d http/1.1\r\n"), "{head}");
    assert!(head.contains("host: 127.0.0.1:") && !head.contains("elsewhere"), "{head}");
    assert!(head.contains("x-mine: 1\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    let head = seen(|url| post(url, "body"));
    assert!(head.contains("content-length: 4\r\n"), "{head}");
}

#[test]
fn broken_answers_are_errors_and_never_short_answers() {
    let cases: [(&'static str, &str); 8] = [
        ("", "ConnectionTerminated"),
        ("HTTP/1.1 200 OK\r\n", "ConnectionTerminated"),
        ("this is no HTTP\r\n\r\n", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", "HttpResponseIncomplete"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n", "HttpResponseIncomplete"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nshort\r\n", "HttpResponseIncomplete"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nshort", "HttpProtocolError"),
        ("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nshort", "HttpProtocolError"),
    ];
    let client = client();
    for (answer, expected) in cases {
        let server = Server::start(move |mut stream| {
            head(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = client.get(&server.url()).map(|(status, _)| status).unwrap_err();
        assert_eq!(format!("{error:?}"), expected, "{answer:?}");
    }
    assert_eq!((client.counted("broken"), client.open()), (8, 0));
}

#[test]
fn a_head_over_the_limit_is_refused() {
    let client = client();
    for (headers, bytes) in [(3, 30 << 10), (101, 1), (60, 10 << 10)] {
        let server = Server::start(move |mut stream| {
            head(&mut stream);
            let mut answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n".to_owned();
            for n in 0..headers {
                answer.push_str(&format!("x-{n}: {}\r\n", "v".repeat(bytes)));
            }
            let _ = stream.write_all((answer + "\r\n").as_bytes());
            tell_end(stream, &mpsc::channel().0);
        });
        let error = client.get(&server.url()).unwrap_err();
        assert!(matches!(error, OutboundError::HttpResponseHeaderSectionSize(_)), "{headers}: {error:?}");
    }
}

#[test]
fn nobody_there_is_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = client();
    let error = client.get(&format!("http://{closed}/")).unwrap_err();
    assert!(matches!(error, OutboundError::ConnectionRefused), "{error:?}");
    let nowhere = Client::looking_up(&[], || Some(Vec::new()));
    let error = nowhere.get("http://nobody.test/").unwrap_err();
    assert!(matches!(error, OutboundError::DnsError { .. }), "{error:?}");
    assert_eq!((client.counted("unreachable"), nowhere.counted("lookup")), (1, 1));
}

#[test]
fn tls_that_fails_says_how() {
    // A fatal alert: handshake_failure.
    let alert: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    let client = client();
    for (answer, expected) in
        [(alert, "TlsAlertReceived"), (b"HTTP/1.1 400 Bad\r\n\r\n".as_slice(), "TlsProtocol")]
    {
        let server = Server::start(move |mut stream| {
            let _ = stream.write_all(answer);
            tell_end(stream, &mpsc::channel().0);
        });
        let error = client.get(&server.url().replace("http:", "https:")).unwrap_err();
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
    }
    assert_eq!(client.counted("tls"), 2);
}

#[test]
fn bodies_stream_both_ways() {
    let server = Server::start(|mut stream| {
        let head = head(&mut stream);
        let length: usize = head
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
            .unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
        let mut body = std::io::Read::take(stream.try_clone().unwrap(), length as u64);
        std::io::copy(&mut body, &mut stream).unwrap();
    });
    let sent: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (status, received) = client().ask(post(&server.url(), sent.clone())).unwrap();
    assert!(status == 200 && received == sent);
}

#[test]
fn an_answer_that_comes_before_the_body_was_read_counts() {
    let server =
        Server::answering("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno");
    let (status, body) = client().ask(post(&server.url(), vec![b'x'; 64])).unwrap();
    assert_eq!((status, &*body), (413, &b"no"[..]));
}

#[test]
fn an_empty_answer_ends_at_once() {
    let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let client = client();
    let empty = client.wait(async {
        let Answered { response, rest } =
            client.send(get(&server.url()), OutboundOptions::default()).await.unwrap();
        rest.await;
        response.into_body().collect().await.unwrap().to_bytes()
    });
    assert_eq!((empty.len(), client.open()), (0, 0));
}
