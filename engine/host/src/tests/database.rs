//! `wasmkeep:actor/storage` with a real database behind it.

use std::rc::Rc;

use wasmkeep_actor::{Guest as _, TurnEnd};
use wasmkeep_storage::{Config, Database, Pacer};

use super::kit::{self, GuestText, block_on, exchange, get};
use crate::{HttpEvent, Instance, Setting};

const SQLITE: u8 = 0;
const REFUSED: u8 = 1;

struct Actor {
    instance: Instance,
    database: Rc<Database>,
    folder: tempfile::TempDir,
}

fn actor(wasm: &[u8]) -> Actor {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { root: folder.path().to_owned(), pacer: Pacer::checks(1), ..Config::default() };
    let database = Rc::new(Database::open(&folder.path().join("a.db"), &config).unwrap());
    let setting = Setting { database: Some(Rc::clone(&database)), ..kit::setting() };
    let instance = block_on(kit::version(wasm).instantiate(setting)).unwrap();
    Actor { instance, database, folder }
}

impl Actor {
    /// One event; what it answered.
    fn ask(&mut self) -> Vec<u8> {
        let (end, answer) = block_on(exchange(&mut self.instance, get("/")));
        assert_eq!(end, TurnEnd::Ready);
        block_on(self.database.end_event());
        answer.unwrap().body
    }
}

fn import(function: &str, name: &str, params: &str) -> String {
    format!(r#"(import "wasmkeep:actor/storage@0.2.0" "{function}" (func ${name} {params}))"#)
}

const SQL_PARAMS: &str = "(param i32 i32 i32 i32 i32)";
const NO_PARAMS: &str = "(i32.const 0) (i32.const 0)";
/// Answers with the 64 bytes at 32, where results are put.
const SHOW: &str = "(call $say (i32.const 200) (i32.const 32) (i32.const 64))";

/// Runs one statement without parameters by `function` and shows the result.
fn running(function: &str, sql: &str) -> Vec<u8> {
    let mut guest = GuestText::new();
    let sql = guest.text(sql);
    guest
        .import(&import(function, "run", SQL_PARAMS))
        .handle(&format!("(call $run {sql} {NO_PARAMS} (i32.const 32)) {SHOW}"))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn exec_tells_what_it_changed() {
    for function in ["exec", "exec-durable"] {
        let mut actor = actor(&running(function, "INSERT INTO t VALUES (1), (2), (3)"));
        block_on(actor.database.exec_script("CREATE TABLE t (a)")).unwrap();
        let result = actor.ask();
        assert_eq!((result[0], i64_at(&result, 8), i64_at(&result, 16)), (0, 3, 3), "{function}");
        assert!(actor.database.take_committed());
    }
}

#[test]
fn a_script_runs_all_of_it() {
    let mut guest = GuestText::new();
    let sql = guest.text("CREATE TABLE t (a); INSERT INTO t VALUES (7); -- done");
    let wasm = guest
        .import(&import("exec-script", "run", "(param i32 i32 i32)"))
        .handle(&format!("(call $run {sql} (i32.const 32)) {SHOW}"));
    let mut actor = actor(&wasm);
    assert_eq!(actor.ask()[0], 0);
    let rows = block_on(actor.database.query("SELECT a FROM t", Vec::new())).unwrap().rows;
    assert_eq!(rows, [[wasmkeep_storage::Value::Integer(7)]]);
}

#[test]
fn a_wal_is_put_away_within_an_event_that_writes_much() {
    let rows = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 400) SELECT zeroblob(3500) FROM r";
    for (function, end) in [("exec", ""), ("exec-durable", ""), ("query", " RETURNING 1")] {
        let mut guest = GuestText::new();
        let sql = guest.text(&format!("INSERT INTO t {rows}{end}"));
        let run = format!("(call $run {sql} {NO_PARAMS} (i32.const 32))");
        let wasm =
            guest.import(&import(function, "run", SQL_PARAMS)).handle(&format!("{} {SHOW}", run.repeat(6)));
        let mut actor = actor(&wasm);
        block_on(actor.database.exec_script("CREATE TABLE t (a)")).unwrap();
        assert_eq!(actor.ask()[0], 0, "{function}");
        // 2,400 pages were written, 4 KiB each.
        let wal = std::fs::metadata(actor.folder.path().join("a.db-wal")).unwrap().len();
        assert!(wal < 1_500 * 4_120, "{function}: {wal} bytes");
        let found = block_on(actor.database.query("SELECT count(*) FROM t", Vec::new())).unwrap().rows;
        assert_eq!(found, [[wasmkeep_storage::Value::Integer(2_400)]], "{function}");
    }
}

/// `SELECT ?1` with the value that `make` puts at 512; shows the one value that came back.
fn returning(make: &str) -> Vec<u8> {
    let mut guest = GuestText::new();
    let sql = guest.text("SELECT ?1");
    guest.import(&import("query", "query", SQL_PARAMS)).handle(&format!(
        "{make}
         (call $query {sql} (i32.const 512) (i32.const 1) (i32.const 32))
         (if (i32.load8_u (i32.const 32)) (then {SHOW} (return)))
         ;; rows, the first row, its values
         (local.set $a (i32.load (i32.load (i32.const 44))))
         (memory.copy (i32.const 40) (local.get $a) (i32.const 16))
         ;; text and blobs: the bytes themselves behind it
         (if (i32.ge_u (i32.load8_u (i32.const 40)) (i32.const 3))
           (then (memory.copy (i32.const 56) (i32.load (i32.const 48)) (i32.load (i32.const 52)))))
         {SHOW}"
    ))
}

// case Q7, Q8
#[test]
fn values_come_back_as_they_went() {
    let integer = |value: i64| {
        (
            format!(
                "(i32.store8 (i32.const 512) (i32.const 1)) (i64.store (i32.const 520) (i64.const {value}))"
            ),
            1,
            value,
        )
    };
    let real = |value: f64| {
        let bits = value.to_bits().cast_signed();
        (
            format!(
                "(i32.store8 (i32.const 512) (i32.const 2)) (i64.store (i32.const 520) (i64.const {bits}))"
            ),
            2,
            bits,
        )
    };
    let cases = [
        integer(i64::MIN),
        integer(i64::MAX),
        integer((1 << 53) + 1),
        real(-0.0),
        real(1e308),
        real(f64::INFINITY),
        real(f64::NEG_INFINITY),
    ];
    for (make, kind, bits) in cases {
        let result = actor(&returning(&make)).ask();
        assert_eq!((result[0], result[8], i64_at(&result, 16)), (0, kind, bits), "{make}");
    }
    let null = actor(&returning("(i32.store8 (i32.const 512) (i32.const 0))")).ask();
    assert_eq!((null[0], null[8]), (0, 0));
    // Text with a NUL inside, and bytes that are no text.
    for (kind, bytes) in [(3, [0x61_u8, 0, 0x62]), (4, [0xff, 0, 0xfe])] {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        let make = format!(
            "(i32.store8 (i32.const 512) (i32.const {kind})) (i32.store (i32.const 520) (i32.const 640))
             (i32.store (i32.const 524) (i32.const 3)) (i32.store (i32.const 640) (i32.const {word}))"
        );
        let result = actor(&returning(&make)).ask();
        assert_eq!((result[0], result[8], i32_at(&result, 20)), (0, kind, 3));
        assert_eq!(&result[24..27], &bytes);
    }
    let nan = format!(
        "(i32.store8 (i32.const 512) (i32.const 2)) (i64.store (i32.const 520) (i64.const {}))",
        f64::NAN.to_bits().cast_signed()
    );
    let refused = actor(&returning(&nan)).ask();
    assert_eq!((refused[0], refused[4]), (1, REFUSED));
}

#[test]
fn refusals_are_values_of_their_kind() {
    for function in ["exec", "exec-durable", "query", "open-cursor"] {
        // `changes` holds 64-bit numbers, so its result is laid out wider.
        let at = if function.starts_with("exec") { 8 } else { 4 };
        let syntax = actor(&running(function, "SELEC 1")).ask();
        assert_eq!((syntax[0], syntax[at], i32_at(&syntax, at + 4)), (1, SQLITE, 1), "{function}");
        let attach = actor(&running(function, "ATTACH 'x' AS x")).ask();
        assert_eq!((attach[0], attach[at]), (1, REFUSED), "{function}");
    }
}

/// Opens a cursor on its first event; every event reads `max` rows and shows the answer.
fn reading(max: u32) -> Vec<u8> {
    let mut guest = GuestText::new();
    let sql = guest
        .text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n");
    guest
        .import(&import("open-cursor", "open", SQL_PARAMS))
        .import(&import("[method]cursor.next", "next", "(param i32 i32 i32)"))
        .import(&import("[method]cursor.columns", "columns", "(param i32 i32)"))
        .code("(global $cursor (mut i32) (i32.const 0))")
        .handle(&format!(
            "(if (i32.eqz (global.get $cursor)) (then
               (call $open {sql} {NO_PARAMS} (i32.const 32))
               (if (i32.load8_u (i32.const 32)) (then unreachable))
               (global.set $cursor (i32.load (i32.const 36)))))
             (call $columns (global.get $cursor) (i32.const 32))
             (call $next (global.get $cursor) (i32.const {max}) (i32.const 32))
             {SHOW}"
        ))
}

#[test]
fn a_cursor_reads_in_batches_and_ends_with_its_event() {
    let mut actor = actor(&reading(3));
    let first = actor.ask();
    assert_eq!((first[0], i32_at(&first, 8)), (0, 3));
    for _ in 0..2 {
        let later = actor.ask();
        assert_eq!((later[0], later[4]), (1, REFUSED));
    }
}

#[test]
fn a_batch_outside_the_contract_is_refused() {
    for max in [0, 10_001, u32::MAX] {
        let result = actor(&reading(max)).ask();
        assert_eq!((result[0], result[4]), (1, REFUSED), "{max}");
    }
}

// case Q6
#[test]
fn endless_sql_leaves_the_thread_to_others_and_can_be_dropped() {
    let endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
    let mut actor = actor(&running("query", endless));
    let mut other = self::actor(&running("exec", "CREATE TABLE t (a)"));
    {
        let (event, _answer) = HttpEvent::new(get("/"));
        let turn = std::pin::pin!(actor.instance.deliver(event.into()));
        let others = std::pin::pin!(exchange(&mut other.instance, get("/")));
        match block_on(futures::future::select(turn, others)) {
            futures::future::Either::Right(((end, answer), _still_running)) => {
                assert_eq!(end, TurnEnd::Ready);
                assert_eq!(answer.unwrap().body[0], 0);
            }
            futures::future::Either::Left(_) => panic!("the endless statement ended"),
        }
    }
    // The connection outlives the event that was dropped.
    block_on(actor.database.end_event());
    assert!(block_on(actor.database.exec("CREATE TABLE t (a)", Vec::new())).is_ok());
}

#[test]
fn size_and_deletion_reach_the_database() {
    let wasm = GuestText::new()
        .import(&import("size", "size", "(result i64)"))
        .import(&import("delete-self", "forget", ""))
        .handle(&format!("(i64.store (i32.const 32) (call $size)) (call $forget) {SHOW}"));
    let mut actor = actor(&wasm);
    block_on(actor.database.exec_script("CREATE TABLE t (a)")).unwrap();
    let (end, answer) = block_on(exchange(&mut actor.instance, get("/")));
    assert_eq!(end, TurnEnd::Ready);
    assert_eq!(i64_at(&answer.unwrap().body, 0).cast_unsigned(), actor.database.size_bytes());
    assert!(block_on(actor.database.end_event()).delete);
}
