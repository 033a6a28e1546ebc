//! Instances that are made before they have an actor.

use std::{path::Path, rc::Rc, sync::Arc};

use wasmkeep_actor::TurnEnd;
use wasmkeep_storage::{Config, Database, Spare, Template, Value};

use super::kit::{self, GuestText, block_on, exchange, get};
use crate::{AheadError, Setting};

const CONTEXT: &str = r#"(import "wasmkeep:actor/context@0.2.0" "self" (func $self (param i32)))
    (import "wasmkeep:actor/context@0.2.0" "caller" (func $caller (param i32)))"#;
const SIZE: &str = r#"(import "wasmkeep:actor/storage@0.2.0" "size" (func $size (result i64)))"#;

/// Made with `begin` as its initialiser; answers nothing.
fn beginning(imports: &str, begin: &str) -> Vec<u8> {
    GuestText::new()
        .import(imports)
        .code(&format!(r#"(func (export "_initialize") {begin})"#))
        .handle("unreachable")
}

#[test]
fn an_instance_made_ahead_serves_the_actor_it_is_given_to() {
    let folder = tempfile::tempdir().unwrap();
    let database = Rc::new(Database::open(&folder.path().join("a.db"), &Config::default()).unwrap());
    let mut guest = GuestText::new();
    let nothing = guest.text("nothing");
    // The name lies behind tenant and class: its place at 16 after the 32 bytes.
    let wasm = guest.import(CONTEXT).import(SIZE).handle(&format!(
        "(if (i64.eqz (call $size)) (then (call $say (i32.const 200) {nothing}) return))
         (call $self (i32.const 32))
         (call $say (i32.const 200) (i32.load (i32.const 48)) (i32.load (i32.const 52)))"
    ));
    let version = kit::version(&wasm);
    let nobody = kit::setting();
    let spare = block_on(version.instantiate_ahead(&nobody)).unwrap();
    assert!(spare.memory_bytes() > 0);
    let mut identity = kit::identity();
    identity.name = "late".to_owned();
    let setting =
        Setting { identity: identity.into(), database: Some(Rc::clone(&database)), ..kit::setting() };
    let mut instance = spare.claim(&setting);
    let (end, answer) = block_on(exchange(&mut instance, get("/")));
    assert_eq!((end, answer.unwrap().text()), (TurnEnd::Ready, "late"));
}

#[test]
fn an_instance_that_asks_for_its_actor_while_it_is_made_is_not_made_ahead() {
    let delete = r#"(import "wasmkeep:actor/storage@0.2.0" "delete-self" (func $delete))"#;
    let alarm = r#"(import "wasmkeep:actor/alarms@0.2.0" "get" (func $alarm (param i32)))"#;
    let sockets =
        r#"(import "wasmkeep:actor/websockets@0.2.0" "connections" (func $open (param i32 i32 i32 i32)))"#;
    let out = r#"(import "wasi:cli/stdout@0.2.12" "get-stdout" (func $stdout (result i32)))"#;
    for (imports, begin) in [
        (CONTEXT, "(call $self (i32.const 32))"),
        (CONTEXT, "(call $caller (i32.const 32))"),
        (SIZE, "(drop (call $size))"),
        // It may have failed for what it was refused.
        (SIZE, "(if (i64.eqz (call $size)) (then unreachable))"),
        (delete, "(call $delete)"),
        (alarm, "(call $alarm (i32.const 32))"),
        (sockets, "(call $open (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32))"),
        (out, "(drop (call $write (call $stdout) (i32.const 1024) (i32.const 2)))"),
    ] {
        let made = block_on(kit::version(&beginning(imports, begin)).instantiate_ahead(&kit::setting()));
        assert_eq!(made.err(), Some(AheadError::AsksForActor), "{begin}");
    }
}

#[test]
fn clocks_and_chance_are_nobodys_and_a_failed_start_is_told() {
    let now = r#"(import "wasi:clocks/monotonic-clock@0.2.12" "now" (func $now (result i64)))
        (import "wasi:random/random@0.2.12" "get-random-u64" (func $random (result i64)))"#;
    let version = kit::version(&beginning(now, "(drop (call $now)) (drop (call $random))"));
    assert!(block_on(version.instantiate_ahead(&kit::setting())).is_ok());
    let version = kit::version(&beginning("", "unreachable"));
    let failed = block_on(version.instantiate_ahead(&kit::setting())).err();
    assert!(matches!(failed, Some(AheadError::Failed(_))), "{failed:?}");
}

/// `on-init` is `init`; what it gives is where its result lies.
fn with_init(mut guest: GuestText, imports: &str, code: &str, init: &str) -> Vec<u8> {
    let text = guest.text("up");
    guest
        .world("include wasmkeep:actor/hook-init@0.2.0;")
        .import(imports)
        .code(&format!(r#"{code} (func (export "on-init") (result i32) {init})"#))
        .handle(&format!("(call $say (i32.const 200) {text})"))
}

/// What `on-init` leaves; the database's folder is looked after by the caller.
fn rehearse(folder: &Path, wasm: &[u8]) -> Result<Option<Template>, AheadError> {
    let spare = Spare::make(&folder.join("1.db"), &Config::default()).unwrap();
    block_on(kit::version(wasm).rehearse_init(&kit::setting(), spare))
}

const EXEC: &str =
    r#"(import "wasmkeep:actor/storage@0.2.0" "exec-script" (func $script (param i32 i32 i32)))"#;

#[test]
fn what_on_init_writes_is_for_every_actor_of_the_class() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = GuestText::new();
    let sql = guest.text("CREATE TABLE a(x); INSERT INTO a VALUES(7)");
    let wasm = with_init(guest, EXEC, "", &format!("(call $script {sql} (i32.const 96)) (i32.const 64)"));
    let template = rehearse(folder.path(), &wasm).unwrap().expect("nothing in it is an actor's own");
    let (template, path) = (Arc::new(template), folder.path().join("2.db"));
    let spare = Spare::make_like(&template, &path, &Config::default()).unwrap();
    let database = spare.into_database();
    assert_eq!(database.init_version().unwrap().as_deref(), Some(kit::version(&wasm).id()));
    let rows = block_on(database.query("SELECT x FROM a", vec![])).unwrap().rows;
    assert_eq!(rows, [[Value::Integer(7)]]);
}

#[test]
fn an_on_init_that_asks_for_its_actor_the_time_or_chance_runs_for_each() {
    let alarm = r#"(import "wasmkeep:actor/alarms@0.2.0" "clear" (func $alarm (param i32)))"#;
    let delete = r#"(import "wasmkeep:actor/storage@0.2.0" "delete-self" (func $delete))"#;
    let now = r#"(import "wasi:clocks/monotonic-clock@0.2.12" "now" (func $now (result i64)))"#;
    let wall = r#"(import "wasi:clocks/wall-clock@0.2.12" "now" (func $wall (param i32)))"#;
    let random = r#"(import "wasi:random/random@0.2.12" "get-random-u64" (func $random (result i64)))"#;
    let insecure =
        r#"(import "wasi:random/insecure@0.2.12" "get-insecure-random-u64" (func $random (result i64)))"#;
    let out = r#"(import "wasi:cli/stdout@0.2.12" "get-stdout" (func $stdout (result i32)))"#;
    for (imports, asks) in [
        (CONTEXT, "(call $self (i32.const 32))"),
        (alarm, "(call $alarm (i32.const 32))"),
        (delete, "(call $delete)"),
        (now, "(drop (call $now))"),
        (wall, "(call $wall (i32.const 32))"),
        (random, "(drop (call $random))"),
        (insecure, "(drop (call $random))"),
        (out, "(drop (call $write (call $stdout) (i32.const 1024) (i32.const 2)))"),
        // It may have failed for what it was refused.
        (alarm, "(call $alarm (i32.const 32)) unreachable"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let init = format!("{asks} (i32.const 64)");
        let left = rehearse(folder.path(), &with_init(GuestText::new(), imports, "", &init));
        assert_eq!(left.err(), Some(AheadError::AsksForActor), "{asks}");
    }
}

#[test]
fn chance_drawn_while_an_instance_is_made_may_go_into_its_database() {
    let folder = tempfile::tempdir().unwrap();
    let random = r#"(import "wasi:random/random@0.2.12" "get-random-u64" (func $random (result i64)))"#;
    let begin = r#"(func (export "_initialize") (drop (call $random)))"#;
    let left = rehearse(folder.path(), &with_init(GuestText::new(), random, begin, "(i32.const 64)"));
    assert_eq!(left.err(), Some(AheadError::AsksForActor));
}

#[test]
fn an_on_init_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let left = rehearse(folder.path(), &with_init(GuestText::new(), "", "", "unreachable"));
    assert!(left.is_err(), "{left:?}");
}
