//! The functions against SQLite's own.

use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use rusqlite::types::Value as Sqlite;

use crate::{Config, Database, Value};

fn wait<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

fn ours(database: &Database, sql: &str, params: &[Value]) -> Value {
    wait(database.query(sql, params.to_vec())).expect("a result").rows.remove(0).remove(0)
}

/// SQLite's own answer, from a connection without our functions.
fn theirs(connection: &rusqlite::Connection, sql: &str, params: &[Value]) -> Value {
    let params = params.iter().map(|value| match value {
        Value::Null => Sqlite::Null,
        Value::Integer(number) => Sqlite::Integer(*number),
        Value::Real(number) => Sqlite::Real(*number),
        Value::Text(text) => Sqlite::Text(text.clone()),
        Value::Blob(bytes) => Sqlite::Blob(bytes.clone()),
    });
    connection
        .query_row(sql, rusqlite::params_from_iter(params), |row| {
            use rusqlite::types::ValueRef;
            Ok(match row.get_ref(0)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => Value::Integer(number),
                ValueRef::Real(number) => Value::Real(number),
                ValueRef::Text(bytes) => match String::from_utf8(bytes.to_vec()) {
                    Ok(text) => Value::Text(text),
                    Err(error) => Value::Blob(error.into_bytes()),
                },
                ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
            })
        })
        .expect("a result")
}

fn any_argument() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => (-20i64..120).prop_map(Value::Integer),
        1 => Just(Value::Real(1.5)),
        6 => "[ab é\u{1F980}]{0,6}".prop_map(Value::Text),
        2 => "[ab]{0,3}".prop_map(|text| Value::Blob(text.into_bytes())),
    ]
}

#[test]
fn the_functions_answer_as_sqlites_own() {
    let folder = tempfile::tempdir().expect("a folder");
    // First: SQLite's memory is set up by the first to use it.
    let database = Database::open(&folder.path().join("x.db"), &Config::default()).expect("a database");
    let plain = rusqlite::Connection::open_in_memory().expect("a connection");
    proptest!(ProptestConfig::with_cases(4_000), |(a in any_argument(), b in any_argument(), c in any_argument())| {
        let three = [a, b, c];
        for sql in [
            "SELECT instr(?1, ?2)",
            "SELECT trim(?1, ?2)",
            "SELECT ltrim(?1, ?2)",
            "SELECT rtrim(?1, ?2)",
        ] {
            prop_assert_eq!(ours(&database, sql, &three[..2]), theirs(&plain, sql, &three[..2]), "{} {:?}", sql, three);
        }
        let sql = "SELECT replace(?1, ?2, ?3)";
        prop_assert_eq!(ours(&database, sql, &three), theirs(&plain, sql, &three), "{:?}", three);
    });
}

#[test]
fn repetitive_values_at_the_limit_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(&folder.path().join("x.db"), &Config::default()).expect("a database");
    let (hay, needle) = ("a".repeat(8 << 20), format!("{}b", "a".repeat(4 << 20)));
    let params = [Value::Text(hay), Value::Text(needle)];
    // The built-in forms take minutes here.
    assert_eq!(ours(&database, "SELECT instr(?1, ?2)", &params), Value::Integer(0));
    assert_eq!(ours(&database, "SELECT length(replace(?1, ?2, 'x'))", &params), Value::Integer(8 << 20));
    assert_eq!(ours(&database, "SELECT length(trim(?1, ?2))", &params), Value::Integer(0));
}
