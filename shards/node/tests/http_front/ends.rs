//! How connections end: slow clients, clients that leave, too many of them, a node that stops.

use crate::harness::{HUNG, Server, get, until};
use std::{io::Write, sync::atomic::Ordering::SeqCst, time::Duration};

fn reset(client: crate::harness::Client) {
    rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_slow_head_gets_408() {
    let server = Server::with(1, 10, |config| config.head_timeout = Duration::from_millis(100));
    for start in ["G", "GET / HTTP/1.1\r\nHost: h\r\n"] {
        let answer = server.exchange(start);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    let mut kept = server.connect();
    assert_eq!(kept.get("/a").0, 200);
    kept.send("GET /");
    assert!(kept.rest().starts_with("HTTP/1.1 408 "));
    assert_eq!(server.stats[0].timeouts(), 3);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let server = Server::with(1, 10, |config| config.idle_timeout = Duration::from_millis(100));
    assert_eq!(server.connect().rest(), "");
    let mut kept = server.connect();
    assert_eq!(kept.get("/a").0, 200);
    assert_eq!(kept.rest(), "");
    assert_eq!(server.stats[0].timeouts(), 0, "idle is no fault");
}

#[test]
fn a_body_that_stops_coming_gets_408() {
    let server = Server::with(1, 10, |config| config.body_timeout = Duration::from_millis(100));
    let answer = server.exchange("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(*server.seen.body_errors.lock().unwrap(), ["the request's body came too slowly"]);
}

#[test]
fn a_body_is_buffered_up_to_a_size_and_reads_as_it_came() {
    let server = Server::new(1);
    let sized = |length: usize| format!("Content-Length: {length}\r\n\r\n{}", "x".repeat(length));
    let chunked = |lengths: &[usize]| {
        let chunks: String =
            lengths.iter().map(|len| format!("{len:x}\r\n{}\r\n", "x".repeat(*len))).collect();
        format!("Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    };
    for (framed, says) in [
        (sized(0), "Some(0) []"),
        (sized(100), "Some(100) [100]"),
        // Not read before it is asked for.
        (sized(101), "Some(101) [101]"),
        (chunked(&[]), "Some(0) []"),
        (chunked(&[40, 60]), "Some(100) [100]"),
        (chunked(&[99]), "Some(99) [99]"),
        (chunked(&[40, 80, 7]), "None [120, 7]"),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /buffered HTTP/1.1\r\nHost: h\r\n{framed}"));
        assert_eq!(client.answer(), (200, says.into()), "{framed:?}");
    }
}

#[test]
fn a_body_that_is_not_whole_in_its_time_never_reaches_its_event() {
    let server = Server::with(1, 10, |config| config.buffer_timeout = Duration::from_millis(300));
    let mut drip = server.connect();
    drip.send("POST /buffered HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n");
    // A byte now and then does not make the time longer.
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(2) && drip.0.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() < Duration::from_secs(2), "the connection ended");
    let answer = server.exchange("POST /buffered HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(server.seen.started.load(SeqCst), 0);
    assert_eq!(*server.seen.body_errors.lock().unwrap(), ["the request's body came too slowly"; 2]);
}

#[test]
fn a_client_may_be_silent_while_its_handler_does_not_wait_for_the_body() {
    let server = Server::with(1, 10, |config| config.body_timeout = Duration::from_millis(200));
    let mut client = server.connect();
    client.send("POST /busy HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello");
    // Longer than a body's silence may be, shorter than the handler is busy and a silence more.
    std::thread::sleep(Duration::from_millis(320));
    client.send("world");
    assert_eq!(client.answer(), (200, "helloworld".into()));
}

#[test]
fn a_handler_that_asks_for_no_more_of_a_body_answers_for_itself() {
    let server = Server::with(1, 10, |config| config.body_timeout = Duration::from_millis(300));
    let mut client = server.connect();
    client.send("POST /gives-up HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(client.answer(), (200, "gave up".into()));
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let server = Server::with(1, 10, |config| config.write_timeout = Duration::from_millis(100));
    let mut client = server.connect();
    client.send(get("/endless"));
    until("the body is dropped", || server.seen.dropped.load(SeqCst) == 1);
    until("the connection is closed", || server.admission.open() == 0);
    drop(client);
}

// case H6
#[test]
fn work_for_a_client_that_left_is_dropped() {
    let server = Server::new(1);
    let post = |path: &str, sent: usize| {
        let body = "x".repeat(sent);
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n{body}")
    };
    let unread = post("/hang", 0);
    let unread_some = post("/hang", 100);
    // More than is read ahead, so that the end of the connection is hidden behind it.
    let unread_much = post("/hang", 60_000);
    let reading = post("/read-and-hang", 100);
    let pipelined = get("/hang").repeat(1000);
    let websocket = "GET /hang HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    // One whose request is whole and that closed without a reset may only have no more to say.
    let unfinished = [unread, unread_some, unread_much, reading, websocket.to_owned()];
    let finished = [get("/hang"), pipelined];
    let cases = unfinished.iter().flat_map(|request| [(request, false), (request, true)]);
    let cases = cases.chain(finished.iter().map(|request| (request, true)));
    for (count, (request, rude)) in cases.enumerate() {
        let mut client = server.connect();
        client.send(request);
        until("the handler started", || server.seen.started.load(SeqCst) == count + 1);
        assert_eq!(server.seen.dropped.load(SeqCst), count);
        if rude {
            reset(client)
        } else {
            drop(client)
        }
        until(&format!("the work of {count} is dropped"), || server.seen.dropped.load(SeqCst) == count + 1);
    }
    until("no connection is left", || server.admission.open() == 0);
    let hung = server.requests().iter().filter(|request| request.ends_with("hang")).count();
    assert_eq!(hung, 12, "no request pipelined behind the one that was dropped ran");
}

#[test]
fn a_client_that_sends_no_more_gets_the_answer_to_what_it_sent() {
    let server = Server::new(1);
    let chunked = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let large = "x".repeat(100_000);
    let large = format!("POST /busy HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n{large}");
    let streamed = get("/stream");
    for (request, ends) in [
        (get("/slow"), "slow".to_owned()),
        (chunked.to_owned(), "ok".to_owned()),
        // Its handler reads it only after the end has come, and more than is read ahead.
        (large, "x".repeat(100_000)),
        (format!("{}{}", get("/slow").repeat(3), get("/a")), "shard 0".to_owned()),
        (streamed, "0\r\n\r\n".to_owned()),
    ] {
        let mut client = server.connect();
        client.send(&request);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        let answers = client.rest();
        assert!(answers.ends_with(&ends), "{}: {answers}", &request[..40.min(request.len())]);
        assert_eq!(
            answers.matches("HTTP/1.1 200 ").count(),
            request.matches(" HTTP/1.1\r\n").count(),
            "{answers}"
        );
    }
}

#[test]
fn a_client_that_said_its_last_and_then_left_is_seen_to_leave() {
    let server = Server::new(1);
    let mut client = server.connect();
    client.send(get("/hang"));
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    until("the handler started", || server.seen.started.load(SeqCst) == 1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.seen.dropped.load(SeqCst), 0);
    // Its side is closed already: the reset is sent by hand.
    rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO)).unwrap();
    drop(client);
    until("the work is dropped", || server.seen.dropped.load(SeqCst) == 1);
    until("no connection is left", || server.admission.open() == 0);
}

#[test]
fn a_body_cut_off_is_no_whole_body_to_a_handler_that_reads_it_late() {
    let server = Server::new(1);
    let mut client = server.connect();
    client.send("POST /detached HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
    until("the handler has it", || server.requests().len() == 1);
    reset(client);
    until("the body was read", || server.seen.started.load(SeqCst) == 1);
    assert_eq!(*server.seen.body_errors.lock().unwrap(), ["the client left before its body was complete"]);
}

// case H6
#[test]
fn a_stream_for_a_client_that_left_is_dropped() {
    let server = Server::new(1);
    let mut client = server.connect();
    client.send(get("/endless"));
    client.head();
    drop(client);
    until("the stream is dropped", || server.seen.dropped.load(SeqCst) == 1);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// case H6
#[test]
fn ten_thousand_aborts_leak_nothing() {
    let server = Server::new(2);
    let address = server.address;
    assert_eq!(server.connect().get("/a").0, 200);
    let clients: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                for round in 0..2500 {
                    let mut client = std::net::TcpStream::connect(address).unwrap();
                    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
                    let request = match (thread + round) % 5 {
                        0 => "",
                        1 => "GET /ha",
                        2 => "GET /hang HTTP/1.1\r\nHost: h\r\n\r\n",
                        3 => "POST /read-and-hang HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx",
                        _ => "GET /endless HTTP/1.1\r\nHost: h\r\n\r\n",
                    };
                    let _ = std::io::Write::write_all(&mut client, request.as_bytes());
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let seen = &server.seen;
    until("every connection ended", || {
        // A connection reset before it was accepted may never be.
        server.admission.open() == 0 && seen.started.load(SeqCst) == seen.dropped.load(SeqCst)
    });
    assert_eq!(server.connect().get("/a").0, 200);
    // Other tests of this process open descriptors too; a leak here would be thousands.
    until("descriptors are given back", || open_descriptors() < 2000);
}

// R-FLAG-2
#[test]
fn a_connection_over_the_limit_gets_503_and_the_others_go_on() {
    let server = Server::with(1, 2, |_| ());
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!((first.get("/a").0, second.get("/a").0), (200, 200));
    let answer = server.exchange(get("/a"));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"), "{answer}");
    assert_eq!(first.get("/a").0, 200);
    drop(second);
    until("its place is free", || server.admission.open() == 1);
    assert_eq!(server.connect().get("/a").0, 200);
    assert_eq!(server.stats[0].over_limit(), 1);
}

// R-FLAG-2
#[test]
fn operators_are_answered_once_each_when_clients_have_every_connection() {
    let server = Server::with(2, 2, |config| config.operators = |path| path == "/health");
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!((first.get("/a").0, second.get("/a").0), (200, 200));
    for _ in 0..100 {
        let answer = server.exchange(format!("{}{}", get("/health?probe"), get("/health")));
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1, "{answer}");
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    let answer = server.exchange(get("/healthy"));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"), "{answer}");
    // Who asks for nothing is told so too, and soon.
    let answer = server.exchange("GET /hea");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(!server.requests().iter().any(|request| request.contains("healthy")));
    assert_eq!(server.stats.iter().map(|stats| stats.over_limit()).sum::<u64>(), 2);
    assert_eq!((first.get("/health").0, first.get("/a").0), (200, 200));
    drop((first, second));
    until("there is room again", || server.admission.open() == 0);
    let mut kept = server.connect();
    assert_eq!((kept.get("/health").0, kept.get("/health").0), (200, 200));
}

#[test]
fn a_stop_closes_idle_connections_and_answers_what_is_in_flight_or_about_to_come() {
    let mut server = Server::new(1);
    let (mut fresh, mut idle, mut busy, mut body) =
        (server.connect(), server.connect(), server.connect(), server.connect());
    assert_eq!(idle.get("/a").0, 200);
    busy.send(format!("{}{}", get("/slow"), get("/never")));
    body.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello");
    until("they are in flight", || server.requests().len() == 3 && server.admission.open() == 4);
    server.begin_stop();
    assert_eq!(idle.rest(), "");
    body.send("world");
    fresh.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nfirst");
    for (client, says) in [(&mut busy, "slow"), (&mut body, "helloworld"), (&mut fresh, "first")] {
        let answer = client.rest();
        assert!(answer.contains(&format!("\r\n\r\n{says}")), "{answer}");
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    assert!(!server.requests().iter().any(|request| request.contains("never")));
    server.join();
}

// R-LEASE-6
#[test]
fn whoever_may_have_a_request_on_its_way_when_all_is_over_is_told_that_nothing_became_of_it() {
    let mut server = Server::new(1);
    let (mut fresh, mut idle, mut node) = (server.connect(), server.connect(), server.connect());
    let from_node = "GET /b HTTP/1.1\r\nHost: h\r\nx-wasmkeep-forwarded: a\r\n\r\n";
    assert_eq!(idle.get("/a").0, 200);
    node.send(from_node);
    assert_eq!(node.answer().0, 200);
    until("all are open", || server.admission.open() == 3);
    server.begin_leave();
    assert_eq!(idle.rest(), "");
    for client in [&mut fresh, &mut node] {
        let answer = client.rest();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        for said in ["x-wasmkeep-elsewhere: stopping\r\n", "retry-after: 1\r\n", "connection: close\r\n"] {
            assert!(answer.contains(said), "{answer}");
        }
    }
    // What is written now has its answer already.
    node.send(from_node);
    until("no connection is left", || server.admission.open() == 0);
    assert_eq!(server.requests().len(), 2);
    server.join();
}

#[test]
fn a_stop_with_nothing_open_ends_at_once() {
    let server = Server::new(2);
    let began = std::time::Instant::now();
    server.join();
    assert!(began.elapsed() < HUNG);
}
