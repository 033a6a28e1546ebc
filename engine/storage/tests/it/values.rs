//! Values come back as they went in.

use proptest::prelude::*;
use wasmkeep_storage::{Error, Value};

use crate::rig::{Rig, code, text, wait};

fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        // −0.0 equals 0.0 and is another number.
        (Value::Real(left), Value::Real(right)) => left.to_bits() == right.to_bits(),
        _ => left == right,
    }
}

fn round_trip(rig: &Rig, value: Value) -> Value {
    rig.exec_with("INSERT OR REPLACE INTO t(k, v) VALUES(1, ?)", vec![value]).unwrap();
    rig.value("SELECT v FROM t WHERE k=1")
}

fn table() -> Rig {
    let rig = Rig::unpaced();
    rig.exec("CREATE TABLE t(k INTEGER PRIMARY KEY, v)").unwrap();
    rig
}

// case Q7
#[test]
fn extreme_numbers_are_kept_to_the_bit() {
    let rig = table();
    let two53 = 1i64 << 53;
    let integers = [i64::MIN, i64::MIN + 1, -1, 0, 1, two53 - 1, two53, two53 + 1, i64::MAX];
    let reals = [0.0, -0.0, 0.1, 1e308, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY, 3.0];
    for value in integers.into_iter().map(Value::Integer).chain(reals.into_iter().map(Value::Real)) {
        // As a parameter and through a table.
        let direct = wait(rig.db.query("SELECT ?", vec![value.clone()])).unwrap().rows.remove(0).remove(0);
        assert!(is_same(&direct, &value), "{value:?} came back as {direct:?}");
        let back = round_trip(&rig, value.clone());
        assert!(is_same(&back, &value) || back == value, "{value:?} came back as {back:?}");
    }
}

#[test]
fn an_empty_blob_an_empty_text_and_null_are_three_things() {
    let rig = table();
    for value in [Value::Blob(vec![]), text(""), Value::Null] {
        assert_eq!(round_trip(&rig, value.clone()), value);
    }
    let kinds =
        wait(rig.db.query("SELECT typeof(?), typeof(?)", vec![Value::Blob(vec![]), text("")])).unwrap();
    assert_eq!(kinds.rows, [[text("blob"), text("text")]]);
}

// case Q8
#[test]
fn text_that_is_not_utf8_comes_as_bytes_and_nul_is_kept() {
    let rig = Rig::new();
    let rows = rig.rows("SELECT CAST(x'FF41' AS TEXT), CAST(x'610062' AS TEXT), CAST(x'' AS TEXT)").unwrap();
    assert_eq!(rows, [[Value::Blob(vec![0xff, 0x41]), text("a\0b"), text("")]]);
    let nul = text("before\0after");
    let back = wait(rig.db.query("SELECT ?1, length(CAST(?1 AS BLOB))", vec![nul.clone()])).unwrap();
    assert_eq!(back.rows, [[nul, Value::Integer(12)]]);
}

// case Q8
#[test]
fn odd_column_names_and_messages_are_plain_text() {
    let rig = Rig::new();
    let result = wait(rig.db.query("SELECT 1 AS \"é\u{1F980}\", 2 AS \"\", 3 AS \"a b\"", vec![])).unwrap();
    assert_eq!(result.columns, ["é\u{1F980}", "", "a b"]);
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.exec("CREATE TRIGGER g BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, 'caf\u{e9} \u{1F980}'); END")
        .unwrap();
    match rig.exec("INSERT INTO t VALUES(1)") {
        Err(Error::Sqlite(error)) => assert_eq!(error.message, "café \u{1F980}"),
        other => panic!("{other:?}"),
    }
    // A message made of bytes that are not UTF-8.
    rig.exec("CREATE TRIGGER h BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, CAST(x'61FF62' AS TEXT)); END")
        .unwrap();
    rig.exec("DROP TRIGGER g").unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    match rig.exec("DELETE FROM t") {
        Err(Error::Sqlite(error)) => assert_eq!(error.message, "a\u{fffd}b"),
        other => panic!("{other:?}"),
    }
}

// case Q9
#[test]
fn a_value_at_the_limit_passes_and_one_byte_more_is_an_error() {
    let rig = table();
    const LIMIT: usize = wasmkeep_storage::limits::VALUE_BYTES_MAX;
    let bind =
        |bytes| rig.exec_with("INSERT OR REPLACE INTO t VALUES(1, ?)", vec![Value::Blob(vec![7; bytes])]);
    // A row holds its header and key beside the value.
    bind(LIMIT - 64).unwrap();
    assert_eq!(rig.number("SELECT length(v) FROM t"), (LIMIT - 64) as i64);
    assert_eq!(code(bind(LIMIT + 1)), 18, "SQLITE_TOOBIG");
    assert_eq!(code(rig.exec(&format!("SELECT zeroblob({})", LIMIT + 1))), 18);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 1);
}

#[test]
fn a_statement_that_needs_too_much_memory_is_an_error_and_not_the_end_of_the_node() {
    let rig = table();
    let columns = vec!["randomblob(16000000)"; 400].join(", ");
    assert_eq!(code(rig.rows(&format!("SELECT {columns}"))), 7, "SQLITE_NOMEM");
    assert!(rig.db.memory_bytes() < 2 << 20, "{}", rig.db.memory_bytes());
    assert_eq!(rig.number("SELECT 1"), 1);
    assert!(rig.is_sound());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_value_round_trips(values in proptest::collection::vec(any_value(), 1..12)) {
        let rig = Rig::unpaced();
        let names: Vec<_> = (0..values.len()).map(|index| format!("c{index}")).collect();
        rig.exec(&format!("CREATE TABLE t({})", names.join(", "))).unwrap();
        let marks = vec!["?"; values.len()].join(", ");
        rig.exec_with(&format!("INSERT INTO t VALUES({marks})"), values.clone()).unwrap();
        let rows = rig.rows("SELECT * FROM t").unwrap();
        prop_assert_eq!(rows.len(), 1);
        for (back, value) in rows[0].iter().zip(&values) {
            prop_assert!(is_same(back, value), "{:?} came back as {:?}", value, back);
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        // SQLite's file format stores a whole number as an integer: −0.0 in a table becomes 0.0.
        any::<f64>()
            .prop_filter("NaN is refused, -0.0 is not kept in a table", |n| !n.is_nan()
                && n.to_bits() != (-0.0f64).to_bits())
            .prop_map(Value::Real),
        ".{0,40}".prop_map(Value::Text),
        Just(Value::Text("a\0\u{10ffff}".repeat(1000))),
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(Value::Blob),
    ]
}
