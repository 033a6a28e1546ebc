//! The ordinary course: keep-alive, pipelining, streaming, HEAD, and answers that are wrong.

use crate::harness::{Server, get, header_of, status_of};
use std::time::Duration;

#[test]
fn a_connection_serves_many_requests() {
    let server = Server::new(1);
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/a"), (200, "shard 0".into()));
    }
    client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.answer(), (200, "abc".into()));
    assert_eq!(server.stats[0].accepted(), 1);
    assert_eq!(server.stats[0].requests(), 101);
    assert!(server.stats[0].bytes_read() > 0 && server.stats[0].bytes_written() > 0);
}

#[test]
fn a_connection_that_rested_serves_on() {
    let server = Server::with(1, 10, |config| config.rest_after = Duration::from_millis(1));
    let mut client = server.connect();
    for _ in 0..4 {
        assert_eq!(client.get("/a"), (200, "shard 0".into()));
        client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.answer(), (200, "abc".into()));
        std::thread::sleep(Duration::from_millis(120));
    }
    client.send(get("/a").split_at(9).0);
    std::thread::sleep(Duration::from_millis(120));
    client.send(get("/a").split_at(9).1);
    assert_eq!(client.answer(), (200, "shard 0".into()));
    // In the middle of an answer nothing rests.
    client.send(get("/slow"));
    assert_eq!(client.answer(), (200, "slow".into()));
    assert_eq!(server.stats[0].accepted(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order_one_at_a_time() {
    let server = Server::new(1);
    let mut client = server.connect();
    let post = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";
    client.send(format!("{}{post}{}{}", get("/slow"), get("/nothing"), get("/b")));
    let answers: Vec<_> = (0..4).map(|_| client.answer()).collect();
    let bodies: Vec<_> = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    assert_eq!(bodies, [(200, "slow"), (200, "hi"), (204, ""), (200, "shard 0")]);
    assert_eq!(server.requests(), ["GET /slow", "POST /echo", "GET /nothing", "GET /b"]);
}

#[test]
fn a_client_that_never_pauses_leaves_room_for_others() {
    let server = Server::new(1);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let mut busy = server.connect();
    let asking = std::thread::spawn(move || {
        let mut answers = 0;
        while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
            assert_eq!(busy.get("/a"), (200, "shard 0".into()));
            answers += 1;
        }
        answers
    });
    let mut other = server.connect();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        // Limits of the front are waits of the shard's timers, which need their turn as well.
        other.send(get("/slow"));
        assert_eq!(other.answer(), (200, "slow".into()));
    }
    drop(stop);
    assert!(asking.join().unwrap() > 100);
}

#[test]
fn a_thousand_pipelined_requests_are_all_answered() {
    let server = Server::new(1);
    let mut client = server.connect();
    let mut writer = client.0.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        writer.write_all(get("/a").repeat(1000).as_bytes()).unwrap();
    });
    for _ in 0..1000 {
        assert_eq!(client.answer(), (200, "shard 0".into()));
    }
    sender.join().unwrap();
}

#[test]
fn head_has_the_length_and_no_body() {
    let server = Server::new(1);
    let mut client = server.connect();
    client.send("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.head();
    assert_eq!((status_of(&head), header_of(&head, "content-length")), (200, Some("7")));
    client.send("HEAD /too-short HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.head();
    assert_eq!(header_of(&head, "content-length"), Some("8"), "a declared length is kept");
    assert!(header_of(&head, "date").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(client.get("/a").1, "shard 0", "no byte of a body came between");
}

#[test]
fn bodies_stream_both_ways() {
    let server = Server::new(1);
    let body: Vec<u8> = (0..4_000_000u32).map(|number| number as u8).collect();
    let mut client = server.connect();
    let mut writer = client.0.try_clone().unwrap();
    let sent = body.clone();
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        writer.write_all(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        for chunk in sent.chunks(100_003) {
            writer.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).unwrap();
            writer.write_all(chunk).unwrap();
            writer.write_all(b"\r\n").unwrap();
        }
        writer.write_all(b"0\r\nX-Trailer: t\r\n\r\n").unwrap();
    });
    let head = client.head();
    let mut echoed = vec![0; header_of(&head, "content-length").unwrap().parse().unwrap()];
    std::io::Read::read_exact(&mut client.0, &mut echoed).unwrap();
    sender.join().unwrap();
    assert!(echoed == body);

    client.send(get("/stream"));
    assert_eq!(header_of(&client.head(), "transfer-encoding"), Some("chunked"));
    client.send("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let rest = client.rest();
    assert_eq!(rest.matches('x').count(), 3 * 4096);
    assert!(rest.contains("\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"), "the stream ended and the next answer came");
}

#[test]
fn http_1_0_is_answered_and_closed_unless_kept_alive() {
    let server = Server::new(1);
    let answer = server.exchange("GET /a HTTP/1.0\r\n\r\n");
    assert!(answer.ends_with("shard 0"), "{answer}");
    let mut client = server.connect();
    for _ in 0..2 {
        client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.answer().1, "shard 0");
    }
}

// case H7
#[test]
fn a_wrong_length_or_a_broken_body_cuts_the_connection() {
    let server = Server::new(1);
    for path in ["/too-long", "/too-short", "/missing"] {
        let answer = server.exchange(get(path));
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().replace("<reset>", "");
        let declared: usize = header_of(&answer, "content-length").unwrap_or("8").parse().unwrap();
        assert!(body.len() < declared, "{path} gave a whole answer: {answer:?}");
    }
    let broken = server.exchange(get("/broken"));
    assert!(!broken.contains("0\r\n\r\n"), "a cut stream must not look complete");
}

#[test]
fn an_answer_without_reading_the_body_is_received() {
    let server = Server::new(1);
    let body = "x".repeat(300_000);
    let answer = server
        .exchange(format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert!(answer.contains("shard 0"), "{answer}");
}

#[test]
fn a_panic_cuts_its_connection_and_no_other() {
    let server = Server::new(1);
    let mut other = server.connect();
    assert_eq!(other.get("/a").0, 200);
    assert_eq!(server.exchange(get("/panic")).replace("<reset>", ""), "");
    assert_eq!(other.get("/a").0, 200);
    assert_eq!(server.stats[0].panics(), 1);
}
