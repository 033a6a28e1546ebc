//! What of a request the guest sees.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use wasmkeep_actor::TurnEnd;

use super::kit::{self, GuestText, block_on, exchange, get, post};
use crate::{RequestBody, RequestBodyError, bugs_caught};

/// Copies the request body to the response as it comes; answers through a body of its own size.
fn echo() -> Vec<u8> {
    GuestText::new().handle(
        "(call $consume (local.get $request) (i32.const 16))
         (if (i32.load8_u (i32.const 16)) (then unreachable))
         (call $incoming-stream (i32.load (i32.const 20)) (i32.const 16))
         (if (i32.load8_u (i32.const 16)) (then unreachable))
         (local.set $d (i32.load (i32.const 20)))
         (local.set $a (call $make (i32.const 200)))
         (local.set $b (call $body (local.get $a)))
         (call $set (local.get $a))
         (local.set $c (call $stream (local.get $b)))
         (block $end (loop $more
           (global.set $heap (i32.const 65536))
           (call $blocking-read (local.get $d) (i64.const 4096) (i32.const 16))
           (br_if $end (i32.load8_u (i32.const 16)))
           (drop (call $write (local.get $c) (i32.load (i32.const 20)) (i32.load (i32.const 24))))
           (br $more)))
         ;; `closed` is the second case of stream-error; anything else is no good end.
         (if (i32.ne (i32.load8_u (i32.const 20)) (i32.const 1)) (then unreachable))
         (call $drop-stream (local.get $c))
         (drop (call $finish (local.get $b)))",
    )
}

/// Answers with the raw list of header names and values it was given.
fn headers() -> Vec<u8> {
    GuestText::new().handle(
        "(call $entries (call $request-headers (local.get $request)) (i32.const 32))
         ;; The list, its names and values all lie on the heap since 64 KiB.
         (call $say (i32.const 200) (i32.const 65536) (i32.sub (global.get $heap) (i32.const 65536)))",
    )
}

/// Gives its chunks, each only when polled a second time, then ends as told.
struct Slow {
    chunks: Vec<Bytes>,
    end: Option<RequestBodyError>,
    ready: bool,
}

impl Body for Slow {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        self.ready = !self.ready;
        if self.ready {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.chunks.is_empty() {
            return Poll::Ready(self.end.take().map(Err));
        }
        Poll::Ready(Some(Ok(Frame::data(self.chunks.remove(0)))))
    }
}

fn slow(chunks: &[&'static str], end: Option<RequestBodyError>) -> http::Request<RequestBody> {
    let chunks = chunks.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect();
    let body = RequestBody::streamed(Slow { chunks, end, ready: false });
    http::Request::post("/").header("host", "actor.test").body(body).unwrap()
}

#[test]
fn a_request_body_arrives_whole_whether_it_is_here_or_streams() {
    let mut instance = kit::instance(&echo());
    let large = vec![b'y'; 3 << 20];
    for (request, expected) in [
        (post("/", ""), Vec::new()),
        (post("/", "hello"), b"hello".to_vec()),
        (post("/", large.clone()), large),
        (slow(&["a", "bc", "", "def"], None), b"abcdef".to_vec()),
    ] {
        let (end, answer) = block_on(exchange(&mut instance, request));
        assert_eq!(end, TurnEnd::Ready);
        assert_eq!(answer.unwrap().body, expected);
    }
}

#[test]
fn a_client_lost_while_it_sends_is_an_error_to_the_guest() {
    for error in
        [RequestBodyError::Lost("reset".into()), RequestBodyError::TooLong(3), RequestBodyError::TimedOut]
    {
        let mut instance = kit::instance(&echo());
        // The guest traps on an error, which shows that it saw one.
        let (end, _) = block_on(exchange(&mut instance, slow(&["a"], Some(error))));
        assert!(matches!(end, TurnEnd::Poisoned(_)));
    }
}

#[test]
fn a_guest_sees_its_clients_headers_but_not_those_of_the_platform_or_the_connection() {
    let mut instance = kit::instance(&headers());
    let request = http::Request::get("/")
        .header("host", "actor.test")
        .header("x-kept", "yes")
        .header("connection", "x-private")
        .header("x-private", "1")
        .header("te", "trailers")
        .header("x-wasmkeep-caller", "forged")
        .body(RequestBody::empty())
        .unwrap();
    let (_, answer) = block_on(exchange(&mut instance, request));
    let seen = String::from_utf8_lossy(&answer.unwrap().body).into_owned();
    assert!(seen.contains("x-kept") && seen.contains("yes"), "{seen:?}");
    for hidden in ["x-private", "te", "x-wasmkeep", "forged", "connection", "trailers"] {
        assert!(!seen.contains(hidden), "{hidden}: {seen:?}");
    }
}

#[test]
fn an_unread_request_body_does_not_outlive_its_event() {
    struct Counted {
        _alive: std::sync::Arc<()>,
    }
    impl Body for Counted {
        type Data = Bytes;
        type Error = RequestBodyError;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
            Poll::Pending
        }
    }
    // It keeps every handle it has.
    let mut guest = GuestText::new();
    let text = guest.text("kept");
    let wasm = guest.handle(&format!(
        "(call $consume (local.get $request) (i32.const 16)) (call $say (i32.const 200) {text})"
    ));
    let mut instance = kit::instance(&wasm);
    let alive = std::sync::Arc::new(());
    let body = RequestBody::streamed(Counted { _alive: alive.clone() });
    let request = http::Request::post("/").header("host", "h").body(body).unwrap();
    let (end, answer) = block_on(exchange(&mut instance, request));
    assert_eq!(end, TurnEnd::Ready);
    assert_eq!(answer.unwrap().text(), "kept");
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

/// A fault of the host inside an event.
struct Faulty;

impl Body for Faulty {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        panic!("a fault of the host")
    }
}

#[test]
fn a_panic_of_the_host_poisons_one_instance_and_is_counted() {
    let mut instance = kit::instance(&echo());
    let before = bugs_caught();
    let request = http::Request::post("/").header("host", "h").body(RequestBody::streamed(Faulty)).unwrap();
    let (end, _) = block_on(exchange(&mut instance, request));
    match end {
        TurnEnd::Poisoned(wasmkeep_actor::Failure::Bug(text)) => assert_eq!(text, "a fault of the host"),
        other => panic!("{other:?}"),
    }
    assert_eq!(bugs_caught(), before + 1);
    let (again, _) = block_on(exchange(&mut instance, get("/")));
    assert!(matches!(again, TurnEnd::Poisoned(_)));
    drop(instance);
    let (end, answer) = block_on(exchange(&mut kit::instance(&echo()), post("/", "next")));
    assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "next"));
}
