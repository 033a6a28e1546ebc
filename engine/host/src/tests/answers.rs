//! What a guest may answer and what becomes of its mistakes (case H7).

use http::{HeaderMap, StatusCode};
use wasmkeep_actor::{Guest as _, TurnEnd};

use super::kit::{self, GuestText, Received, ask, block_on, exchange, get};
use crate::{Cut, HttpEvent, Mistake, RequestBody, Unanswered};

/// A response with the given headers whose body is written by `write`, which has the stream in `$c`, and ended
/// by `end`, which has the body in `$b`.
fn responding(status: u16, headers: &[(&str, &str)], write: &str, end: &str) -> Vec<u8> {
    let mut guest = GuestText::new();
    let mut code = String::new();
    for (name, value) in headers {
        let (name, value) = (guest.text(name), guest.text(value));
        code.push_str(&format!("(call $header {name} {value})\n"));
    }
    guest.handle(&format!(
        "{code}
         (local.set $a (call $make (i32.const {status})))
         (local.set $b (call $body (local.get $a)))
         (call $set (local.get $a))
         (local.set $c (call $stream (local.get $b)))
         {write}
         (call $drop-stream (local.get $c))
         {end}"
    ))
}

const FINISH: &str = "(drop (call $finish (local.get $b)))";

/// Writes `len` bytes of zero memory.
fn bytes(len: usize) -> String {
    format!("(drop (call $write (local.get $c) (i32.const 131072) (i32.const {len})))")
}

fn mistake(wasm: &[u8]) -> Mistake {
    match ask(wasm) {
        // A mistake is not a trap: the instance goes on, unless it said nothing at all.
        (end, Err(Unanswered::Mistake(mistake)))
            if (end == TurnEnd::Retired) == (mistake == Mistake::NoResponse) =>
        {
            mistake
        }
        other => panic!("{other:?}"),
    }
}

fn received(wasm: &[u8]) -> Received {
    match ask(wasm) {
        (TurnEnd::Ready, Ok(received)) => received,
        other => panic!("{other:?}"),
    }
}

fn header_names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(http::HeaderName::as_str).collect()
}

#[test]
fn a_whole_answer_arrives_with_its_head_in_one_piece() {
    let mut guest = GuestText::new();
    let (name, value, body) = (guest.text("content-type"), guest.text("text/plain"), guest.text("hello"));
    let wasm = guest.handle(&format!("(call $header {name} {value}) (call $say (i32.const 201) {body})"));
    let received = received(&wasm);
    assert_eq!(received.parts.status, StatusCode::CREATED);
    assert_eq!(received.parts.headers["content-type"], "text/plain");
    assert_eq!(received.text(), "hello");
    assert!(received.whole);
}

/// A guest that answers in one call of `replies.send`, which leaves `$result` at address 16.
fn replying(status: u16, header: (&str, &str), body: &str) -> Vec<u8> {
    let mut guest = GuestText::new().import(
        r#"(import "wasmkeep:actor/replies@0.2.0" "send" (func $reply (param i32 i32 i32 i32 i32 i32 i32)))"#,
    );
    let operands = [header.0, header.1].map(|text| guest.text(text));
    let [name, value] = operands.map(|text| {
        let (at, len) = text.split_once(") (").expect("two operands");
        (format!("{at})"), format!("({len}"))
    });
    let body = guest.text(body);
    guest.handle(&format!(
        "(i32.store (i32.const 512) {}) (i32.store (i32.const 516) {})
         (i32.store (i32.const 520) {}) (i32.store (i32.const 524) {})
         (call $reply (global.get $outparam) (i32.const {status}) (i32.const 512) (i32.const 1) {body} (i32.const 16))",
        name.0, name.1, value.0, value.1,
    ))
}

#[test]
fn an_answer_given_in_one_call_arrives_whole() {
    let received = received(&replying(201, ("content-type", "text/plain"), "hello"));
    assert_eq!(received.parts.status, StatusCode::CREATED);
    assert_eq!(received.parts.headers["content-type"], "text/plain");
    assert_eq!(received.parts.headers["content-length"], "5");
    assert_eq!(received.text(), "hello");
    assert!(received.whole);
}

#[test]
fn mistakes_of_an_answer_given_in_one_call_are_the_same() {
    for (status, header, wrong) in [
        (101, ("a", "b"), Mistake::Status(101)),
        (200, ("content-length", "9"), Mistake::BodyLength { promised: 9, written: 5 }),
        (200, ("content-length", "3"), Mistake::BodyLength { promised: 3, written: 5 }),
        (200, ("content-length", "five"), Mistake::ContentLength),
        (99, ("a", "b"), Mistake::NoResponse),
        (200, ("a b", "c"), Mistake::NoResponse),
        (200, ("a", "b\r\nc: d"), Mistake::NoResponse),
    ] {
        assert_eq!(mistake(&replying(status, header, "hello")), wrong, "{status} {header:?}");
    }
    let forged = received(&replying(200, ("x-wasmkeep-node", "forged"), "hello"));
    assert!(!forged.parts.headers.contains_key("x-wasmkeep-node"));
}

#[test]
fn an_answer_without_a_body_is_fine() {
    let wasm = GuestText::new().handle("(call $set (call $make (i32.const 404)))");
    let received = received(&wasm);
    assert_eq!(received.parts.status, StatusCode::NOT_FOUND);
    assert!(received.body.is_empty() && received.end.is_ok());
}

#[test]
fn no_response_is_a_mistake() {
    assert_eq!(mistake(&GuestText::new().handle("")), Mistake::NoResponse);
}

#[test]
fn an_error_code_instead_of_a_response_is_a_mistake() {
    // Case 39 of `error-code` is `internal-error`; here with no text.
    let wasm = GuestText::new().handle(
        "(call $outparam-set (global.get $outparam) (i32.const 1) (i32.const 38) (i32.const 0)
           (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
    );
    match mistake(&wasm) {
        Mistake::ErrorCode(code) => assert!(code.contains("InternalError"), "{code}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_status_that_is_no_final_answer_is_a_mistake() {
    for status in [100, 101, 103, 199, 600, 999] {
        assert_eq!(mistake(&responding(status, &[], "", FINISH)), Mistake::Status(status));
    }
    for status in [200, 404, 503, 599] {
        assert_eq!(received(&responding(status, &[], "", FINISH)).parts.status.as_u16(), status);
    }
}

#[test]
fn a_body_of_the_promised_length_passes() {
    let wasm = responding(200, &[("content-length", "7")], &bytes(7), FINISH);
    let received = received(&wasm);
    assert_eq!(received.body.len(), 7);
    assert_eq!(received.parts.headers["content-length"], "7");
}

#[test]
fn a_short_body_is_a_mistake() {
    let short = Mistake::BodyLength { promised: 9, written: 3 };
    let headers = [("content-length", "9")];
    assert_eq!(mistake(&responding(200, &headers, &bytes(3), FINISH)), short);
    assert_eq!(mistake(&responding(200, &headers, &bytes(3), "(call $drop-body (local.get $b))")), short);
    assert_eq!(mistake(&responding(200, &headers, &bytes(3), "")), short);
    let mut guest = GuestText::new();
    let (name, value) = (guest.text("content-length"), guest.text("9"));
    let none =
        guest.handle(&format!("(call $header {name} {value}) (call $set (call $make (i32.const 200)))"));
    assert_eq!(mistake(&none), Mistake::BodyLength { promised: 9, written: 0 });
}

#[test]
fn a_long_body_is_a_mistake() {
    let wasm = responding(200, &[("content-length", "3")], &bytes(9), FINISH);
    assert_eq!(mistake(&wasm), Mistake::BodyLength { promised: 3, written: 9 });
}

#[test]
fn an_unfinished_body_is_a_mistake() {
    assert_eq!(mistake(&responding(200, &[], &bytes(3), "")), Mistake::BodyUnfinished);
    let dropped = responding(200, &[], &bytes(3), "(call $drop-body (local.get $b))");
    assert_eq!(mistake(&dropped), Mistake::BodyUnfinished);
}

/// Writes chunks of 4 KiB until there are `total` bytes.
fn many(total: usize) -> String {
    format!(
        "(loop $more
           (if (call $write (local.get $c) (i32.const 131072) (i32.const 4096)) (then (return)))
           (local.set $d (i32.add (local.get $d) (i32.const 4096)))
           (br_if $more (i32.lt_u (local.get $d) (i32.const {total}))))"
    )
}

#[test]
fn a_large_body_streams_and_arrives_whole() {
    const TOTAL: usize = 5 << 20;
    let streamed = received(&responding(200, &[], &many(TOTAL), FINISH));
    assert_eq!(streamed.body.len(), TOTAL);
    assert!(!streamed.whole && streamed.end.is_ok());
    let length = TOTAL.to_string();
    let promised = received(&responding(200, &[("content-length", &length)], &many(TOTAL), FINISH));
    assert_eq!(promised.body.len(), TOTAL);
    assert!(promised.end.is_ok());
}

#[test]
fn a_body_that_goes_wrong_after_its_head_is_cut() {
    const TOTAL: usize = 1 << 20;
    let (longer, shorter) = ((TOTAL + 1).to_string(), (TOTAL - 1).to_string());
    let cases = [
        (responding(200, &[("content-length", &longer)], &many(TOTAL), FINISH), Cut::Length),
        (responding(200, &[("content-length", &shorter)], &many(TOTAL), FINISH), Cut::Length),
        (responding(200, &[], &many(TOTAL), ""), Cut::Unfinished),
        (responding(200, &[], &many(TOTAL), "(call $drop-body (local.get $b))"), Cut::Unfinished),
    ];
    for (wasm, cut) in cases {
        assert_eq!(received(&wasm).end, Err(cut));
    }
    let (end, answer) = ask(&responding(200, &[], &many(TOTAL), "unreachable"));
    assert!(matches!(end, TurnEnd::Poisoned(_)));
    assert_eq!(answer.unwrap().end, Err(Cut::Failed));
}

#[test]
fn more_than_promised_never_reaches_the_client() {
    const TOTAL: usize = 1 << 20;
    let promised = TOTAL - 5;
    let wasm = responding(200, &[("content-length", &promised.to_string())], &many(TOTAL), FINISH);
    assert!(received(&wasm).body.len() <= promised);
}

#[test]
fn a_trap_before_the_answer_left_is_a_failure() {
    let complete = "(call $drop-stream (local.get $c)) (drop (call $finish (local.get $b))) unreachable";
    for write in ["unreachable", complete] {
        match ask(&responding(200, &[], write, "")) {
            (TurnEnd::Poisoned(one), Err(Unanswered::Failed(other))) => {
                assert_eq!(one, other);
                assert!(one.to_string().contains("unreachable"), "{one}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn headers_of_the_connection_and_the_platform_are_stripped() {
    let wasm = responding(
        200,
        &[
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "timeout=1"),
            ("upgrade", "websocket"),
            ("x-wasmkeep-node", "forged"),
            ("x-kept", "yes"),
        ],
        &bytes(1),
        FINISH,
    );
    assert_eq!(header_names(&received(&wasm).parts.headers), ["x-kept"]);
}

fn asked(method: http::Method, wasm: &[u8]) -> Received {
    let mut instance = kit::instance(wasm);
    let mut request = get("/");
    *request.method_mut() = method;
    let (end, answer) = block_on(exchange(&mut instance, request));
    assert_eq!(end, TurnEnd::Ready);
    answer.unwrap()
}

#[test]
fn head_keeps_the_length_and_has_no_body() {
    let headers = [("content-length", "7")];
    for wasm in [responding(200, &headers, &bytes(7), FINISH), responding(200, &headers, "", FINISH)] {
        let received = asked(http::Method::HEAD, &wasm);
        assert_eq!(received.parts.headers["content-length"], "7");
        assert!(received.body.is_empty() && received.end.is_ok());
    }
    let large = asked(http::Method::HEAD, &responding(200, &[], &many(1 << 20), FINISH));
    assert!(large.body.is_empty() && large.end.is_ok());
}

#[test]
fn statuses_without_a_body_have_none() {
    for status in [204, 304] {
        let received = received(&responding(status, &[("content-length", "3")], &bytes(3), FINISH));
        assert_eq!(received.parts.status.as_u16(), status);
        assert!(received.body.is_empty() && received.end.is_ok());
        assert_eq!(received.parts.headers.contains_key("content-length"), status == 304);
    }
}

// case H6
#[test]
fn a_guest_whose_client_left_sees_its_writes_fail_and_ends() {
    // Without end, but for a write that fails.
    let wasm = responding(200, &[], &many(usize::MAX >> 33), FINISH);
    let mut instance = kit::instance(&wasm);
    let before_head = {
        let (event, answer) = HttpEvent::new(get("/"));
        drop(answer);
        block_on(instance.deliver(event.into()))
    };
    assert_eq!(before_head, TurnEnd::Ready);
    let while_streaming = {
        let (event, answer) = HttpEvent::new(get("/"));
        let leave = async { drop(answer.await.expect("a head")) };
        block_on(async { futures::join!(instance.deliver(event.into()), leave).0 })
    };
    assert_eq!(while_streaming, TurnEnd::Ready);
}

#[test]
fn a_client_that_does_not_read_holds_the_guest_back() {
    let wasm = responding(200, &[], &many(5 << 20), FINISH);
    let mut instance = kit::instance(&wasm);
    let (event, answer) = HttpEvent::new(get("/"));
    let mut turn = std::pin::pin!(instance.deliver(event.into()));
    let response = block_on(async {
        // The head arrives; then the guest stops, however often it is polled.
        let response = match futures::future::select(turn.as_mut(), answer).await {
            futures::future::Either::Right((answer, _)) => answer.expect("a head"),
            futures::future::Either::Left(_) => panic!("the turn must not end before the body is read"),
        };
        for _ in 0..100 {
            assert!(futures::poll!(turn.as_mut()).is_pending());
        }
        response
    });
    drop(response);
    assert_eq!(block_on(turn), TurnEnd::Ready);
}

#[test]
fn a_request_body_may_be_anything_that_is_a_body() {
    let request = http::Request::post("/").body(RequestBody::full("x")).unwrap();
    let mut instance = kit::instance(&responding(200, &[], &bytes(2), FINISH));
    // No host header at all, as in HTTP/1.0.
    let (end, answer) = block_on(exchange(&mut instance, request));
    assert_eq!(end, TurnEnd::Ready);
    assert_eq!(answer.unwrap().body.len(), 2);
}

#[test]
fn a_body_that_is_not_sent_does_not_hold_the_core() {
    let endless =
        "(loop $more (drop (call $write (local.get $c) (i32.const 131072) (i32.const 4096))) (br $more))";
    let mut instance = kit::instance(&responding(204, &[], endless, FINISH));
    let (event, answer) = HttpEvent::new(get("/"));
    let mut turn = std::pin::pin!(instance.deliver(event.into()));
    block_on(async {
        for _ in 0..10 {
            assert!(futures::poll!(turn.as_mut()).is_pending());
        }
        assert_eq!(answer.await.expect("a head").status(), 204);
    });
}
