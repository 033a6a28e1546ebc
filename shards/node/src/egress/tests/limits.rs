//! Times, places and the pace: what bounds a request, and what ends with it.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use http_body_util::BodyExt;
use wasmkeep_host::outbound::{Answered, OutboundError, OutboundOptions};
use wasmkeep_protocol::limits::OUTBOUND_REQUESTS_PER_ACTOR_MAX;

use super::kit::{Client, PATIENCE, Server, eventually, get, head, tell_end};

const SOON: Option<Duration> = Some(Duration::from_millis(100));

fn client() -> Client {
    Client::new(&["127.0.0.0/8"])
}

/// Takes a request, sends `part` of an answer, and tells when the client has gone.
fn unfinished(part: &'static str) -> (Server, mpsc::Receiver<()>) {
    let (gone, ends) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        head(&mut stream);
        stream.write_all(part.as_bytes()).unwrap();
        tell_end(stream, &gone);
    });
    (server, ends)
}

const PART: &str = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\npart";

#[test]
fn each_wait_has_its_limit_and_its_error() {
    let (silent, _ends) = unfinished("");
    let (stalled, _ends) = unfinished(PART);
    let client = client();
    let lost = Client::looking_up(&[], || None);
    let connect = OutboundOptions { connect_timeout: SOON, ..Default::default() };
    let error = lost.ask_with(get("http://nowhere.test/"), connect).unwrap_err();
    assert!(matches!(error, OutboundError::ConnectionTimeout), "{error:?}");
    let first = OutboundOptions { connect_timeout: SOON, first_byte_timeout: SOON, ..Default::default() };
    let error = client.ask_with(get(&silent.url()), first).unwrap_err();
    assert!(matches!(error, OutboundError::ConnectionReadTimeout), "{error:?}");
    let between = OutboundOptions { between_bytes_timeout: SOON, ..Default::default() };
    let error = client.ask_with(get(&stalled.url()), between).unwrap_err();
    assert!(matches!(error, OutboundError::ConnectionReadTimeout), "{error:?}");
    assert_eq!((lost.counted("timeout"), client.counted("timeout"), client.counted("broken")), (1, 1, 1));
}

// case H6
#[test]
fn a_request_that_is_let_go_closes_its_connection() {
    let client = client();
    // Before the head.
    let (silent, ends) = unfinished("");
    client.wait(async {
        let send = client.send(get(&silent.url()), OutboundOptions::default());
        let ended = tokio::time::timeout(Duration::from_millis(200), send).await;
        assert!(ended.is_err(), "it waits for the head");
    });
    ends.recv_timeout(PATIENCE).expect("closed");
    // Within the body, by who reads it and by who moves it.
    for letting_go_of_the_body in [true, false] {
        let (stalled, ends) = unfinished(PART);
        client.wait(async {
            let Answered { response, rest } =
                client.send(get(&stalled.url()), OutboundOptions::default()).await.unwrap();
            if letting_go_of_the_body {
                drop(response);
                rest.await;
            } else {
                drop(rest);
                let error = response.into_body().collect().await.unwrap_err();
                assert!(matches!(error, OutboundError::HttpResponseIncomplete), "{error:?}");
            }
        });
        ends.recv_timeout(PATIENCE).expect("closed");
    }
    eventually("all are counted", || client.counted("given_up") == 3 && client.open() == 0);
}

#[test]
fn a_body_that_nobody_reads_is_not_fetched() {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let server = Server::start(move |mut stream| {
        head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        while stream.write_all(&[0; 64 << 10]).is_ok() {
            counted.fetch_add(64 << 10, Ordering::SeqCst);
        }
    });
    let client = client();
    client.wait(async {
        let Answered { response, rest } =
            client.send(get(&server.url()), OutboundOptions::default()).await.unwrap();
        let moving = tokio::spawn(rest);
        let mut before = 0;
        // Until the server is held back.
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = written.load(Ordering::SeqCst);
            // Kernel buffers and one frame, of a body without end.
            assert!(now < 32 << 20, "{now}");
            if now > 0 && now == before {
                break;
            }
            before = now;
        }
        drop(response);
        moving.await.unwrap();
    });
}

#[test]
fn an_actor_may_have_so_many_requests_open_and_its_neighbour_as_many() {
    let (silent, _ends) = unfinished("");
    let client = client();
    let (url, neighbour) = (silent.url(), client.another());
    client.wait(async {
        let send = || Box::pin(client.send(get(&url), OutboundOptions::default()));
        let mut open: Vec<_> = (0..OUTBOUND_REQUESTS_PER_ACTOR_MAX).map(|_| send()).collect();
        for request in &mut open {
            assert!(futures::poll!(request.as_mut()).is_pending());
        }
        let refused = send().await.err();
        assert!(matches!(refused, Some(OutboundError::ConnectionLimitReached)), "{refused:?}");
        let mut other = neighbour.send(get(&url), OutboundOptions::default());
        assert!(futures::poll!(other.as_mut()).is_pending());
        open.pop();
        let mut next = send();
        assert!(futures::poll!(next.as_mut()).is_pending(), "a place is free again");
    });
    assert_eq!(client.counted("over_limit"), 1);
    assert_eq!(client.open(), 0);
}

#[test]
fn a_node_may_have_so_many_requests_open() {
    let (silent, _ends) = unfinished("");
    let client = Client::with_requests_max(1);
    let (url, neighbour) = (silent.url(), client.another());
    client.wait(async {
        let mut open = Box::pin(client.send(get(&url), OutboundOptions::default()));
        assert!(futures::poll!(open.as_mut()).is_pending());
        let refused = neighbour.send(get(&url), OutboundOptions::default()).await.err();
        assert!(matches!(refused, Some(OutboundError::ConnectionLimitReached)), "{refused:?}");
    });
}

#[test]
fn many_lookups_that_hang_hold_up_no_other_request() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let client = Client::looking_up(&["127.0.0.0/8"], || None);
    client.wait(async {
        let mut waiting: Vec<_> = (0..20)
            .map(|_| Box::pin(client.send(get("http://hangs.test/"), OutboundOptions::default())))
            .collect();
        for request in &mut waiting {
            assert!(futures::poll!(request.as_mut()).is_pending());
        }
        let answered = client.send(get(&server.url()), OutboundOptions::default()).await.unwrap();
        assert_eq!(answered.response.status(), 200);
    });
}
