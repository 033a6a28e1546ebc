//! WASI as an actor sees it, and the parts of the contract that need no database.

use std::{sync::Arc, time::Duration};

use wasmkeep_actor::{Failure, TurnEnd};
use wasmkeep_protocol::{ActorId, call_chain::CallChain};

use super::kit::{self, GuestText, ask, block_on, exchange, get};
use crate::HttpEvent;

/// Calls `call`, whose result lands at 32, and answers with the heap and then the 64 bytes at 32.
fn showing(import: &str, call: &str) -> Vec<u8> {
    GuestText::new().import(import).handle(&format!(
        "{call}
         (memory.copy (global.get $heap) (i32.const 32) (i32.const 64))
         (call $say (i32.const 200) (i32.const 65536)
           (i32.add (i32.const 64) (i32.sub (global.get $heap) (i32.const 65536))))"
    ))
}

/// What came back: the heap and the result.
fn shown(wasm: &[u8]) -> (String, Vec<u8>) {
    let (end, answer) = ask(wasm);
    assert_eq!(end, TurnEnd::Ready);
    let body = answer.unwrap().body;
    let (heap, result) = body.split_at(body.len() - 64);
    (String::from_utf8_lossy(heap).into_owned(), result.to_vec())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn the_environment_is_the_classs_and_nothing_else() {
    let wasm = showing(
        r#"(import "wasi:cli/environment@0.2.12" "get-environment" (func $env (param i32)))"#,
        "(call $env (i32.const 32))",
    );
    let mut setting = kit::setting();
    setting.env = Arc::new(vec![("GREETING".into(), "hi".into())]);
    let mut instance = block_on(kit::version(&wasm).instantiate(setting)).unwrap();
    let body = block_on(exchange(&mut instance, get("/"))).1.unwrap().body;
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(text.contains("GREETING") && text.contains("hi") && !text.contains("PATH"), "{text:?}");
    let (_, result) = shown(&wasm);
    assert_eq!(u32_at(&result, 4), 0, "no variables where none were given");
}

#[test]
fn there_are_no_arguments() {
    let wasm = showing(
        r#"(import "wasi:cli/environment@0.2.12" "get-arguments" (func $args (param i32)))"#,
        "(call $args (i32.const 32))",
    );
    assert_eq!(u32_at(&shown(&wasm).1, 4), 0);
}

#[test]
fn the_file_system_is_empty() {
    let wasm = showing(
        r#"(import "wasi:filesystem/preopens@0.2.12" "get-directories" (func $dirs (param i32)))"#,
        "(call $dirs (i32.const 32))",
    );
    assert_eq!(u32_at(&shown(&wasm).1, 4), 0);
}

#[test]
fn every_socket_is_refused() {
    const ACCESS_DENIED: u8 = 1;
    for (interface, function) in
        [("tcp-create-socket", "create-tcp-socket"), ("udp-create-socket", "create-udp-socket")]
    {
        let wasm = showing(
            &format!(
                r#"(import "wasi:sockets/{interface}@0.2.12" "{function}" (func $socket (param i32 i32)))"#
            ),
            "(call $socket (i32.const 0) (i32.const 32))",
        );
        let (_, result) = shown(&wasm);
        assert_eq!((result[0], result[4]), (1, ACCESS_DENIED), "{function}");
    }
}

#[test]
fn names_are_not_looked_up() {
    let mut guest = GuestText::new();
    let name = guest.text("localhost");
    let wasm = guest
        .import(r#"(import "wasi:sockets/ip-name-lookup@0.2.12" "resolve-addresses" (func $resolve (param i32 i32 i32 i32)))
                   (import "wasi:sockets/instance-network@0.2.12" "instance-network" (func $network (result i32)))"#)
        .handle(&format!(
            "(call $resolve (call $network) {name} (i32.const 32)) (call $say (i32.const 200) (i32.const 32) (i32.const 8))"
        ));
    let body = ask(&wasm).1.unwrap().body;
    // `permanent-resolver-failure`, which is what wasi has for a lookup that is not permitted.
    assert_eq!(body[0], 1, "{body:?}");
}

#[test]
fn randomness_differs_from_call_to_call() {
    let wasm = showing(
        r#"(import "wasi:random/random@0.2.12" "get-random-bytes" (func $random (param i64 i32)))"#,
        "(call $random (i64.const 32) (i32.const 32))",
    );
    let (one, other) = (ask(&wasm).1.unwrap().body, ask(&wasm).1.unwrap().body);
    assert_eq!(one.len(), 32 + 64);
    assert_ne!(one[..32], other[..32]);
}

#[test]
fn more_randomness_than_the_limit_is_a_trap() {
    let wasm = showing(
        r#"(import "wasi:random/random@0.2.12" "get-random-bytes" (func $random (param i64 i32)))"#,
        "(call $random (i64.const 2000000) (i32.const 32))",
    );
    assert!(matches!(ask(&wasm).0, TurnEnd::Poisoned(Failure::Trap(_))));
}

#[test]
fn the_wall_clock_tells_the_time() {
    let wasm = showing(
        r#"(import "wasi:clocks/wall-clock@0.2.12" "now" (func $now (param i32)))"#,
        "(call $now (i32.const 32))",
    );
    let seconds = u64_at(&shown(&wasm).1, 0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(seconds) < 3600, "{seconds} against {now}");
}

const SLEEP: &str = r#"
    (import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $after (param i64) (result i32)))
    (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))"#;

#[test]
fn a_sleep_ends_on_a_thread_without_tokio() {
    for nanoseconds in [0, 1, 5_000_000] {
        let mut guest = GuestText::new();
        let text = guest.text("rested");
        let wasm = guest.import(SLEEP).handle(&format!(
            "(call $block (call $after (i64.const {nanoseconds}))) (call $say (i32.const 200) {text})"
        ));
        let (end, answer) = ask(&wasm);
        assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "rested"));
    }
}

#[test]
fn a_sleeping_event_can_be_dropped() {
    let wasm = GuestText::new().import(SLEEP).handle("(call $block (call $after (i64.const 3600000000000)))");
    let mut instance = kit::instance(&wasm);
    let (event, _answer) = HttpEvent::new(get("/"));
    {
        let mut turn = std::pin::pin!(wasmkeep_actor::Guest::deliver(&mut instance, event.into()));
        assert!(block_on(async { futures::poll!(turn.as_mut()) }).is_pending());
    }
    drop(instance);
}

#[test]
fn exit_ends_the_event_as_a_trap() {
    for (code, words) in [(0, "exit with status 0"), (1, "exit with status 1")] {
        let wasm = GuestText::new()
            .import(r#"(import "wasi:cli/exit@0.2.12" "exit" (func $exit (param i32)))"#)
            .handle(&format!("(call $exit (i32.const {code}))"));
        match ask(&wasm).0 {
            TurnEnd::Poisoned(Failure::Trap(text)) => assert!(text.contains(words), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_outbound_request_is_denied() {
    const HTTP_REQUEST_DENIED: u8 = 15;
    let mut guest = GuestText::new();
    let (authority, path) = (guest.text("example.test"), guest.text("/"));
    let wasm = guest
        .import(
            r#"(import "wasi:http/types@0.2.12" "[constructor]outgoing-request" (func $outgoing (param i32) (result i32)))
               (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-authority" (func $authority (param i32 i32 i32 i32) (result i32)))
               (import "wasi:http/types@0.2.12" "[method]outgoing-request.set-path-with-query" (func $path (param i32 i32 i32 i32) (result i32)))
               (import "wasi:http/outgoing-handler@0.2.12" "handle" (func $send (param i32 i32 i32 i32)))
               (import "wasi:http/types@0.2.12" "[method]future-incoming-response.subscribe" (func $subscribe (param i32) (result i32)))
               (import "wasi:http/types@0.2.12" "[method]future-incoming-response.get" (func $get (param i32 i32)))
               (import "wasi:io/poll@0.2.12" "[method]pollable.block" (func $block (param i32)))"#,
        )
        .handle(&format!(
            "(local.set $a (call $outgoing (call $fields)))
             (drop (call $authority (local.get $a) (i32.const 1) {authority}))
             (drop (call $path (local.get $a) (i32.const 1) {path}))
             (call $send (local.get $a) (i32.const 0) (i32.const 0) (i32.const 32))
             (if (i32.load8_u (i32.const 32)) (then unreachable))
             (local.set $b (i32.load (i32.const 40)))
             (call $block (call $subscribe (local.get $b)))
             (call $get (local.get $b) (i32.const 32))
             (call $say (i32.const 200) (i32.const 32) (i32.const 32))"
        ));
    let (end, answer) = ask(&wasm);
    assert_eq!(end, TurnEnd::Ready);
    let body = answer.unwrap().body;
    // option: some; result: ok; result: error; error-code.
    assert_eq!([body[0], body[8], body[16], body[24]], [1, 0, 1, HTTP_REQUEST_DENIED]);
}

#[test]
fn an_actor_knows_who_it_is_and_who_called() {
    let wasm = showing(
        r#"(import "wasmkeep:actor/context@0.2.0" "self" (func $self (param i32)))
           (import "wasmkeep:actor/context@0.2.0" "caller" (func $caller (param i32)))"#,
        "(call $self (i32.const 256)) (call $caller (i32.const 32))",
    );
    let mut instance = kit::instance(&wasm);
    let (event, answer) = HttpEvent::new(get("/"));
    let chain =
        CallChain::new(vec![ActorId { class: "room".parse().unwrap(), name: "lobby".parse().unwrap() }]);
    let event = event.called(chain, Duration::from_secs(1));
    let (_, answer) = block_on(async {
        futures::join!(wasmkeep_actor::Guest::deliver(&mut instance, event.into()), answer)
    });
    let body = answer.unwrap().into_body();
    let text = String::from_utf8_lossy(body.as_whole().unwrap()).into_owned();
    for word in ["acme", "counter", "a/b", "n1", "v1", "room", "lobby"] {
        assert!(text.contains(word), "{word}: {text:?}");
    }
    // The next event has no caller any more.
    let (_, answer) = block_on(exchange(&mut instance, get("/")));
    let body = answer.unwrap().body;
    assert_eq!(body[body.len() - 64], 0, "none");
}

#[test]
fn parts_that_are_not_offered_say_unsupported() {
    let cases = [
        // Interface and function, its type, its call, where the error's case lies and which it is.
        ("alarms", "get", "(param i32)", "", 8, 2),
        ("alarms", "clear", "(param i32)", "", 4, 2),
        (
            "actors",
            "call",
            "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)",
            "(i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
             (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)",
            4,
            8,
        ),
        ("websockets", "connections", "(param i32 i32 i32 i32)", "(i32.const 0) (i32.const 0) (i32.const 0)", 4, 2),
        (
            "websockets",
            "send",
            "(param i64 i32 i32 i32 i32)",
            "(i64.const 1) (i32.const 0) (i32.const 0) (i32.const 0)",
            4,
            2,
        ),
        (
            "websockets",
            "broadcast",
            "(param i32 i32 i32 i32 i32 i32 i32)",
            "(i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)",
            4,
            2,
        ),
        ("websockets", "set-attachment", "(param i64 i32 i32 i32)", "(i64.const 1) (i32.const 0) (i32.const 0)", 4, 2),
        (
            "websockets",
            "close",
            "(param i64 i32 i32 i32 i32)",
            "(i64.const 1) (i32.const 1000) (i32.const 0) (i32.const 0)",
            4,
            2,
        ),
    ];
    for (interface, function, signature, operands, at, unsupported) in cases {
        let wasm = showing(
            &format!(r#"(import "wasmkeep:actor/{interface}@0.2.0" "{function}" (func $call {signature}))"#),
            &format!("(call $call {operands} (i32.const 32))"),
        );
        let (_, result) = shown(&wasm);
        assert_eq!((result[0], result[at]), (1, unsupported), "{interface}.{function}");
    }
}

#[test]
fn an_alarm_needs_a_hook_to_run() {
    let wasm = showing(
        r#"(import "wasmkeep:actor/alarms@0.2.0" "set" (func $set-alarm (param i64 i32)))"#,
        "(call $set-alarm (i64.const 1) (i32.const 32))",
    );
    const REFUSED: u8 = 0;
    let (_, result) = shown(&wasm);
    assert_eq!((result[0], result[4]), (1, REFUSED));
}

#[test]
fn without_a_database_storage_is_refused_and_nothing_else() {
    let wasm = showing(
        r#"(import "wasmkeep:actor/storage@0.2.0" "exec" (func $exec (param i32 i32 i32 i32 i32)))"#,
        "(call $exec (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32))",
    );
    const REFUSED: u8 = 1;
    let (_, result) = shown(&wasm);
    assert_eq!((result[0], result[8]), (1, REFUSED));
}
