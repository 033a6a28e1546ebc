//! Memory, time slices, traps and events that are dropped midway.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures::future::{Either, select};
use wasmkeep_actor::{Failure, Guest as _, TurnEnd};

use super::kit::{self, GuestText, TICKED, ask, block_on, exchange, get};
use crate::{HttpEvent, Instance, InstantiateError, Unanswered, giving_back::PIECES, instance_memory_bytes};

#[test]
fn memory_grows_up_to_the_limit_and_then_fails_in_the_guest() {
    // Grows by 1 MiB until refused, then answers with the number of pages it got.
    let wasm = GuestText::new().handle(
        "(block $full (loop $more
           (br_if $full (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
           (br $more)))
         (i32.store (i32.const 512) (memory.size))
         (call $say (i32.const 200) (i32.const 512) (i32.const 4))",
    );
    let mut instance = kit::instance(&wasm);
    assert_eq!(instance_memory_bytes(&instance), 4 << 16);
    let (end, answer) = block_on(exchange(&mut instance, get("/")));
    assert_eq!(end, TurnEnd::Ready);
    let pages = u32::from_le_bytes(answer.unwrap().body.try_into().unwrap()) as usize;
    let bytes = pages << 16;
    assert!(bytes <= kit::MEMORY_BYTES_MAX && bytes > kit::MEMORY_BYTES_MAX - (1 << 20), "{bytes}");
    assert_eq!(instance_memory_bytes(&instance), bytes);
}

/// Runs instances with so many pages more than they begin with, one after the other; says how many memories were given
/// back after each.
fn given_back<const N: usize>(pages: [u32; N]) -> [u32; N] {
    let folder = tempfile::tempdir().unwrap();
    let runtime = kit::runtime(folder.path());
    pages.map(|pages| {
        let mut guest = GuestText::new();
        let text = guest.text("here");
        let code = format!("(drop (memory.grow (i32.const {pages}))) (call $say (i32.const 200) {text})");
        let version = runtime.load_actor(&guest.handle(&code)).unwrap();
        let mut instance = block_on(version.instantiate(kit::setting())).unwrap();
        assert_eq!(block_on(exchange(&mut instance, get("/"))).0, TurnEnd::Ready);
        drop(instance);
        runtime.0.engine.pooling_allocator_metrics().unwrap().unused_warm_memories()
    })
}

#[test]
fn small_memories_go_back_together_and_a_large_one_at_once() {
    let small = given_back([0; PIECES]);
    assert_eq!(small[0], 0);
    assert!(small[PIECES - 1] > 0, "{small:?}");
    let large = given_back([0, 64]);
    assert!(large[0] == 0 && large[1] >= 2, "{large:?}");
}

// case T4
#[test]
fn a_trap_poisons_the_instance_and_a_new_one_works() {
    let mut guest = GuestText::new();
    let fine = guest.text("fine");
    // Traps on its second event only.
    let wasm = guest.code("(global $events (mut i32) (i32.const 0))").handle(&format!(
        "(global.set $events (i32.add (global.get $events) (i32.const 1)))
         (if (i32.eq (global.get $events) (i32.const 2)) (then unreachable))
         (call $say (i32.const 200) {fine})"
    ));
    let mut instance = kit::instance(&wasm);
    let first = block_on(exchange(&mut instance, get("/")));
    assert_eq!((first.0, first.1.unwrap().text()), (TurnEnd::Ready, "fine"));
    match block_on(exchange(&mut instance, get("/"))) {
        (TurnEnd::Poisoned(Failure::Trap(_)), Err(Unanswered::Failed(Failure::Trap(text)))) => {
            assert!(text.contains("unreachable") && !text.contains('\n'), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // It is not entered a third time.
    let (end, answer) = block_on(exchange(&mut instance, get("/")));
    assert!(matches!(end, TurnEnd::Poisoned(Failure::Bug(_))));
    assert!(answer.is_err());
    drop(instance);
    let (end, answer) = ask(&wasm);
    assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "fine"));
}

#[test]
fn every_kind_of_trap_is_the_guests_own() {
    for (code, words) in [
        ("unreachable", "unreachable"),
        ("(drop (i32.load (i32.const 0x7fffffff)))", "out of bounds"),
        ("(drop (i32.div_u (i32.const 1) (local.get $a)))", "divide by zero"),
        ("(call $deep)", "stack"),
        ("(call_indirect (i32.const 0))", "uninitialized element"),
        // A handle that does not exist.
        ("(call $drop-stream (i32.const 77))", "unknown handle index"),
    ] {
        let wasm =
            GuestText::new().code("(table 1 funcref) (func $deep (call $deep) (call $deep))").handle(code);
        match ask(&wasm) {
            (TurnEnd::Poisoned(Failure::Trap(text)), Err(Unanswered::Failed(_))) => {
                assert!(text.contains(words), "{code}: {text}");
            }
            other => panic!("{code}: {other:?}"),
        }
    }
}

#[test]
fn leaked_handles_end_at_a_limit() {
    let wasm = GuestText::new().handle("(loop $more (drop (call $fields)) (br $more))");
    assert!(matches!(ask(&wasm).0, TurnEnd::Poisoned(Failure::Trap(_))));
}

#[test]
fn a_header_list_has_a_size_limit() {
    let mut guest = GuestText::new();
    let (name, value) = (guest.text("x-a"), guest.text("b"));
    let wasm = guest.handle(&format!("(loop $more (call $header {name} {value}) (br $more))"));
    assert!(matches!(ask(&wasm).0, TurnEnd::Poisoned(Failure::Trap(_))));
}

/// Advances the epoch until dropped.
struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ticker {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                TICKED.advance_epoch();
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// An instance whose time slices end.
fn ticked(wasm: &[u8]) -> Instance {
    block_on(TICKED.load_actor(wasm).unwrap().instantiate(kit::setting())).unwrap()
}

fn spinning() -> Vec<u8> {
    GuestText::new().handle("(loop $more (br $more))")
}

// case Q6, T2
#[test]
fn a_spinning_guest_leaves_its_thread_to_others() {
    let _ticker = Ticker::start();
    let mut guest = GuestText::new();
    let text = guest.text("other");
    let (mut busy, mut other) =
        (ticked(&spinning()), kit::instance(&guest.handle(&format!("(call $say (i32.const 200) {text})"))));
    let (event, _answer) = HttpEvent::new(get("/"));
    let busy_turn = pin!(busy.deliver(event.into()));
    let others = pin!(async {
        for _ in 0..20 {
            let (end, answer) = exchange(&mut other, get("/")).await;
            assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "other"));
            // Give the spinning one its turn in between.
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
        }
    });
    match block_on(select(busy_turn, others)) {
        Either::Right(((), _still_spinning)) => {}
        Either::Left(_) => panic!("the spinning guest ended"),
    }
}

#[test]
fn an_event_dropped_midway_leaves_nothing_behind() {
    let _ticker = Ticker::start();
    let version = TICKED.load_actor(&spinning()).unwrap();
    // More often than there are slots: each must come back.
    for _ in 0..300 {
        let mut instance = block_on(version.instantiate(kit::setting())).unwrap();
        let (event, answer) = HttpEvent::new(get("/"));
        {
            let mut turn = pin!(instance.deliver(event.into()));
            assert!(block_on(async { futures::poll!(turn.as_mut()) }).is_pending());
        }
        assert!(matches!(block_on(answer), Err(Unanswered::Dropped)));
        // And it is not entered again.
        let (end, _) = block_on(exchange(&mut instance, get("/")));
        assert!(matches!(end, TurnEnd::Poisoned(Failure::Bug(_))));
    }
}

/// Computes for `turns` turns between its head and its body.
fn computing_midway(turns: &str) -> Vec<u8> {
    let mut guest = GuestText::new();
    let text = guest.text("done");
    guest.handle(&format!(
        "(local $n i64)
         (local.set $a (call $make (i32.const 200)))
         (local.set $b (call $body (local.get $a)))
         (call $set (local.get $a))
         (loop $more
           (local.set $n (i64.add (local.get $n) (i64.const 1)))
           (br_if $more (i64.lt_u (local.get $n) (i64.const {turns}))))
         (local.set $c (call $stream (local.get $b)))
         (drop (call $write (local.get $c) {text}))
         (call $drop-stream (local.get $c))
         (drop (call $finish (local.get $b)))"
    ))
}

#[test]
fn a_slice_that_ends_midway_does_not_split_an_answer_and_many_do_not_hold_it_back() {
    let polls_until_head = |turns: &str| {
        let mut instance = ticked(&computing_midway(turns));
        let (event, answer) = HttpEvent::new(get("/"));
        let mut turn = pin!(instance.deliver(event.into()));
        let mut answer = pin!(answer);
        block_on(async {
            loop {
                let ended = futures::poll!(turn.as_mut()).is_ready();
                if let std::task::Poll::Ready(answer) = futures::poll!(answer.as_mut()) {
                    return (ended, answer.unwrap().body().as_whole().is_some());
                }
            }
        })
    };
    let _ticker = Ticker::start();
    assert_eq!(polls_until_head("1"), (true, true));
    // It would end in centuries.
    assert_eq!(polls_until_head("0x7fffffffffffffff"), (false, false));
}

#[test]
fn a_node_that_is_full_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let version = kit::runtime(folder.path()).load_actor(&GuestText::new().handle("")).unwrap();
    let mut alive = Vec::new();
    let refused = loop {
        match block_on(version.instantiate(kit::setting())) {
            Ok(instance) => alive.push(instance),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, InstantiateError::NoRoom);
    assert!(alive.len() >= 8, "{}", alive.len());
    alive.pop();
    assert!(block_on(version.instantiate(kit::setting())).is_ok());
}

#[test]
fn a_start_that_traps_is_an_error_and_not_an_instance() {
    let wasm = GuestText::new().code("(func $boom unreachable) (start $boom)").handle("");
    match block_on(kit::version(&wasm).instantiate(kit::setting())) {
        Err(InstantiateError::Failed(text)) => assert!(text.contains("unreachable"), "{text}"),
        other => panic!("{:?}", other.map(drop)),
    }
}
