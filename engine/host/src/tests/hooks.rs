use std::{cell::RefCell, rc::Rc};

use wasmkeep_actor::{AlarmError, Failure, Guest as _, TurnEnd};

use super::kit::{self, GuestText, block_on, exchange, get};
use crate::{
    ActorEvent, AnswerReceiver, Connection, Instance, Message, OpenAnswer, Setting, SocketClose, SocketGone,
    SocketMessage, SocketOpen, Sockets, Unanswered,
};

const ALARM: &str = "include wasmkeep:actor/hook-alarm@0.2.0;";

const SOCKETS: &str = "include wasmkeep:actor/hook-websocket-open@0.2.0;
    include wasmkeep:actor/hook-websocket-message@0.2.0; include wasmkeep:actor/hook-websocket-close@0.2.0;";

/// A guest whose requests are answered with the byte its hooks have left at address 512.
fn hooked(worlds: &[&str], code: &str) -> Instance {
    let guest = worlds.iter().fold(GuestText::new(), |guest, world| guest.world(world));
    kit::instance(&guest.code(code).handle("(call $say (i32.const 200) (i32.const 512) (i32.const 1))"))
}

/// Delivers one event and waits for its answer.
fn deliver<T>(
    instance: &mut Instance,
    event: ActorEvent,
    answer: AnswerReceiver<T>,
) -> (TurnEnd, Result<T, Unanswered>) {
    block_on(async { futures::join!(instance.deliver(event), answer) })
}

fn alarm(instance: &mut Instance) -> Result<(), AlarmError> {
    block_on(instance.alarm(7, 3))
}

fn open(instance: &mut Instance) -> (TurnEnd, Result<OpenAnswer, Unanswered>) {
    let headers = vec![("host".to_owned(), b"actor.test".to_vec())];
    let (event, answer) = SocketOpen::new(5, "/chat?x".into(), headers);
    deliver(instance, ActorEvent::SocketOpen(event), answer)
}

fn message(instance: &mut Instance, message: Message) -> (TurnEnd, Result<(), Unanswered>) {
    let (event, answer) = SocketMessage::new(5, message);
    deliver(instance, ActorEvent::SocketMessage(event), answer)
}

fn close(instance: &mut Instance) -> (TurnEnd, Result<(), Unanswered>) {
    let (event, answer) = SocketClose::new(5, 1006, String::new());
    deliver(instance, ActorEvent::SocketClose(event), answer)
}

fn seen(instance: &mut Instance) -> u8 {
    let (end, answer) = block_on(exchange(instance, get("/")));
    assert_eq!(end, TurnEnd::Ready);
    answer.expect("an answer").body[0]
}

#[test]
fn a_component_without_hooks_takes_every_event() {
    let mut instance = hooked(&[], "");
    assert_eq!(alarm(&mut instance), Err(AlarmError::Absent));
    assert!(matches!(open(&mut instance), (TurnEnd::Ready, Ok(Err(501)))));
    assert_eq!(message(&mut instance, Message::Text("x".into())), (TurnEnd::Ready, Ok(())));
    assert_eq!(close(&mut instance), (TurnEnd::Ready, Ok(())));
}

#[test]
fn on_alarm_sees_when_it_was_due_and_which_attempt_it_is() {
    let mut instance = hooked(
        &[ALARM],
        r#"(func (export "on-alarm") (param $due i64) (param $attempt i32) (result i32)
             (if (i64.ne (local.get $due) (i64.const 7)) (then unreachable))
             (i32.store8 (i32.const 512) (local.get $attempt))
             (i32.const 64))"#,
    );
    assert_eq!(alarm(&mut instance), Ok(()));
    assert_eq!(seen(&mut instance), 3);
}

#[test]
fn an_error_of_on_alarm_keeps_the_instance() {
    let mut instance = hooked(
        &[ALARM],
        r#"(data (i32.const 128) "later")
           (func (export "on-alarm") (param i64 i32) (result i32)
             (i32.store8 (i32.const 64) (i32.const 1))
             (i32.store (i32.const 68) (i32.const 128))
             (i32.store (i32.const 72) (i32.const 5))
             (i32.const 64))"#,
    );
    for _ in 0..2 {
        assert_eq!(alarm(&mut instance), Err(AlarmError::Refused("later".into())));
    }
}

#[test]
fn sockets_open_speak_and_close_in_the_guest() {
    let mut instance = hooked(
        &[SOCKETS],
        r#"(func (export "on-websocket-open") (param $socket i64) (param $path i32) (param $path-len i32)
                 (param $headers i32) (param $headers-len i32) (result i32)
             (if (i64.ne (local.get $socket) (i64.const 5)) (then unreachable))
             (if (i32.ne (local.get $path-len) (i32.const 7)) (then unreachable))
             (i32.store8 (i32.const 512) (local.get $headers-len))
             (i32.const 64))
           (func (export "on-websocket-message") (param $socket i64) (param $kind i32) (param $at i32) (param $len i32)
             (i32.store8 (i32.const 512)
               (i32.add (i32.load8_u (local.get $at)) (i32.mul (local.get $kind) (local.get $len)))))
           (func (export "on-websocket-close") (param $socket i64) (param $code i32) (param $at i32) (param $len i32)
             (i32.store8 (i32.const 512) (i32.sub (local.get $code) (i32.const 1000))))"#,
    );
    let (end, opened) = open(&mut instance);
    assert_eq!(end, TurnEnd::Ready);
    assert_eq!(opened, Ok(Ok(None)));
    assert_eq!(seen(&mut instance), 1);
    for (sent, expected) in [(Message::Text("A".into()), b'A'), (Message::Binary(vec![1, 2, 3]), 4)] {
        assert_eq!(message(&mut instance, sent), (TurnEnd::Ready, Ok(())));
        assert_eq!(seen(&mut instance), expected);
    }
    assert_eq!(close(&mut instance), (TurnEnd::Ready, Ok(())));
    assert_eq!(seen(&mut instance), 6);
}

/// Records what is asked of the sockets.
#[derive(Default)]
struct Recorder(RefCell<Vec<String>>);

impl Recorder {
    fn note(&self, what: String) {
        self.0.borrow_mut().push(what);
    }
}

impl Sockets for Recorder {
    fn open(&self, socket: u64, tags: Vec<String>, attachment: Vec<u8>) {
        self.note(format!("open {socket} {tags:?} {attachment:?}"));
    }

    fn connections(&self, _: Option<&str>) -> Vec<Connection> {
        Vec::new()
    }

    fn send(&self, socket: u64, message: Message) -> Result<(), SocketGone> {
        self.note(format!("send {socket} {message:?}"));
        Ok(())
    }

    fn broadcast(&self, _: Option<&str>, _: Message) -> u32 {
        0
    }

    fn set_attachment(&self, _: u64, _: Vec<u8>) -> Result<(), SocketGone> {
        Err(SocketGone)
    }

    fn close(&self, _: u64, _: u16, _: &str) -> Result<(), SocketGone> {
        Err(SocketGone)
    }
}

#[test]
fn a_socket_is_the_actors_when_its_hook_has_returned_and_what_was_sent_before_stays_before() {
    // R-WS-1
    let guest = GuestText::new()
        .world(SOCKETS)
        .world("import wasmkeep:actor/websockets@0.2.0;")
        .import(
            r#"(import "wasmkeep:actor/websockets@0.2.0" "send"
                 (func $send-to (param i64 i32 i32 i32 i32)))"#,
        )
        .code(
            r#"(data (i32.const 128) "hi")
               (func (export "on-websocket-open") (param $socket i64) (param i32 i32 i32 i32) (result i32)
                 (call $send-to (local.get $socket) (i32.const 0) (i32.const 128) (i32.const 2) (i32.const 256))
                 (i32.const 64))
               (func (export "on-websocket-message") (param i64 i32 i32 i32))
               (func (export "on-websocket-close") (param i64 i32 i32 i32))"#,
        );
    let recorder = Rc::new(Recorder::default());
    let sockets = Some(Rc::clone(&recorder) as Rc<dyn Sockets>);
    let version = kit::version(&guest.handle("(call $say (i32.const 200) (i32.const 512) (i32.const 1))"));
    let mut instance = block_on(version.instantiate(Setting { sockets, ..kit::setting() })).unwrap();
    assert_eq!(open(&mut instance), (TurnEnd::Ready, Ok(Ok(None))));
    assert_eq!(*recorder.0.borrow(), [r#"send 5 Message::Text("hi")"#, "open 5 [] []"]);
}

// case T4
#[test]
fn a_trap_in_any_hook_is_told_and_poisons() {
    let worlds = [ALARM, SOCKETS];
    let code = r#"
        (func (export "on-alarm") (param i64 i32) (result i32) unreachable)
        (func (export "on-websocket-open") (param i64 i32 i32 i32 i32) (result i32) unreachable)
        (func (export "on-websocket-message") (param i64 i32 i32 i32) unreachable)
        (func (export "on-websocket-close") (param i64 i32 i32 i32) unreachable)"#;
    let trapped = |end: TurnEnd, why: Option<Unanswered>| {
        assert!(matches!(end, TurnEnd::Poisoned(Failure::Trap(_))), "{end:?}");
        assert!(matches!(why, Some(Unanswered::Failed(Failure::Trap(_)))), "{why:?}");
    };
    let ended = alarm(&mut hooked(&worlds, code));
    assert!(matches!(ended, Err(AlarmError::Poisoned(Failure::Trap(_)))), "{ended:?}");
    let (end, answer) = open(&mut hooked(&worlds, code));
    trapped(end, answer.err());
    let (end, answer) = message(&mut hooked(&worlds, code), Message::Text("x".into()));
    trapped(end, answer.err());
    let mut instance = hooked(&worlds, code);
    let (end, answer) = close(&mut instance);
    trapped(end, answer.err());
    let (end, _) = close(&mut instance);
    assert!(matches!(end, TurnEnd::Poisoned(Failure::Bug(_))), "{end:?}");
}
