//! One statement, several, cursors.

use wasmkeep_storage::{Error, Value};

use crate::rig::{Rig, code, refusal, text, wait};

#[test]
fn exec_takes_exactly_one_statement() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x) -- trailing comment").unwrap();
    rig.exec("  /* leading */ INSERT INTO t VALUES(1);  -- and ; after \n /* more */ ; ").unwrap();
    assert!(refusal(rig.exec("INSERT INTO t VALUES(2); INSERT INTO t VALUES(3)")).contains("more than one"));
    for nothing in ["", " ", ";", "-- only a comment", "/* open"] {
        assert!(refusal(rig.exec(nothing)).contains("no statement"), "{nothing:?}");
    }
    assert!(refusal(rig.exec("SELECT 1 \0 garbage")).contains("NUL"));
    assert_eq!(rig.number("SELECT count(*) FROM t"), 1, "nothing of a refused text ran");
}

#[test]
fn parameters_must_match_in_number_and_be_numbers() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    assert!(refusal(rig.exec("INSERT INTO t VALUES(?)")).contains("takes 1 parameters and was given 0"));
    let two = vec![Value::Null, Value::Null];
    assert!(refusal(rig.exec_with("INSERT INTO t VALUES(?)", two)).contains("given 2"));
    // case Q7
    let nan = vec![Value::Real(f64::NAN)];
    assert!(refusal(rig.exec_with("INSERT INTO t VALUES(?)", nan)).contains("NaN"));
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn changes_count_this_statement_alone() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); CREATE TABLE log(x); CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO log VALUES(new.x); END;")
        .unwrap();
    let changes = rig.exec("INSERT INTO t VALUES(1), (2), (3)").unwrap();
    assert_eq!((changes.rows, changes.last_insert_rowid), (3, 3));
    assert_eq!(rig.exec("SELECT * FROM t").unwrap().rows, 0);
    assert_eq!(rig.exec("CREATE TABLE u(x)").unwrap().rows, 0);
    assert_eq!(rig.exec("UPDATE t SET x=9 WHERE x=100").unwrap().rows, 0);
    assert_eq!(rig.exec("DELETE FROM t").unwrap().rows, 3);
}

#[test]
fn a_kept_statement_survives_a_change_of_the_schema() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(rig.rows("SELECT * FROM t").unwrap(), [[Value::Integer(1)]]);
    rig.exec("ALTER TABLE t ADD COLUMN y DEFAULT 'new'").unwrap();
    let result = wait(rig.db.query("SELECT * FROM t", vec![])).unwrap();
    assert_eq!(result.columns, ["x", "y"]);
    assert_eq!(result.rows, [[Value::Integer(1), text("new")]]);
}

#[test]
fn more_texts_than_are_kept_all_work() {
    let rig = Rig::new();
    for round in 0..3 {
        for number in 0..100 {
            assert_eq!(rig.number(&format!("SELECT {number} + {round}")), number + round);
        }
    }
}

#[test]
fn rows_of_returning_are_stepped_to_the_end_by_exec_and_given_by_query() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    assert_eq!(rig.exec("INSERT INTO t VALUES(1), (2), (3) RETURNING x").unwrap().rows, 3);
    let rows = rig.rows("INSERT INTO t VALUES(4), (5) RETURNING x * 2").unwrap();
    assert_eq!(rows, [[Value::Integer(8)], [Value::Integer(10)]]);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 5);
}

#[test]
fn a_script_stops_at_its_first_error_and_keeps_what_came_before() {
    let rig = Rig::new();
    let error =
        rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1);; bad syntax; INSERT INTO t VALUES(2)");
    assert!(matches!(error, Err(Error::Sqlite(_))), "{error:?}");
    assert_eq!(rig.number("SELECT count(*) FROM t"), 1);
    assert!(refusal(rig.script("SELECT ?")).contains("takes 1 parameters"));
}

#[test]
fn a_syntax_error_says_where() {
    let rig = Rig::new();
    match rig.exec("SELECT 1 FROMM t") {
        Err(Error::Sqlite(error)) => {
            assert_eq!(error.sql_offset, Some(15), "{error:?}");
            assert!(error.message.contains("syntax error"), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_result_has_limits_and_a_cursor_has_none() {
    let rig = Rig::new();
    const MANY: &str =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 25000) SELECT n FROM r";
    assert!(refusal(rig.rows(MANY)).contains("cursor"));
    let big = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 20) SELECT zeroblob(1000000) FROM r";
    assert!(refusal(rig.rows(big)).contains("16 MiB"));

    let cursor = wait(rig.db.open_cursor(MANY, vec![])).unwrap();
    assert_eq!(cursor.columns(), ["n"]);
    let mut seen = 0;
    loop {
        let rows = wait(cursor.next(999)).unwrap();
        if rows.is_empty() {
            break;
        }
        assert_eq!(rows[0], [Value::Integer(seen + 1)]);
        seen += rows.len() as i64;
    }
    assert_eq!(seen, 25_000);
    assert!(wait(cursor.next(1)).unwrap().is_empty(), "the end stays the end");
    let cursor = wait(rig.db.open_cursor(big, vec![])).unwrap();
    assert_eq!(wait(cursor.next(u32::MAX)).unwrap().len(), 17, "a batch ends at its byte limit");
    assert_eq!(wait(cursor.next(u32::MAX)).unwrap().len(), 3);
}

#[test]
fn a_result_too_big_does_not_commit_what_it_wrote() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.db.take_committed();
    let insert = "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 10001) SELECT n FROM r RETURNING x";
    assert!(refusal(rig.rows(insert)).contains("rolled back"));
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
    rig.script("BEGIN; INSERT INTO t VALUES(1)").unwrap();
    assert!(refusal(rig.rows(insert)).contains("and its transaction"));
    assert!(!rig.db.in_transaction());
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn cursors_read_only_and_end_with_their_event() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1), (2), (3)").unwrap();
    assert!(refusal(wait(rig.db.open_cursor("DELETE FROM t RETURNING x", vec![]))).contains("reads rows"));
    assert!(refusal(wait(rig.db.open_cursor("BEGIN", vec![]))).contains("reads rows"));
    let cursor = wait(rig.db.open_cursor("SELECT x FROM t WHERE x > ?", vec![Value::Integer(1)])).unwrap();
    assert_eq!(wait(cursor.next(1)).unwrap(), [[Value::Integer(2)]]);
    rig.exec("INSERT INTO t VALUES(4)").unwrap();
    wait(rig.db.end_event());
    assert!(refusal(wait(cursor.next(1))).contains("closed"));
    rig.exec("DROP TABLE t").unwrap();
}

#[test]
fn an_open_cursor_refuses_what_it_would_break_and_dropping_it_lets_it_through() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1), (2)").unwrap();
    let cursor = wait(rig.db.open_cursor("SELECT x FROM t", vec![])).unwrap();
    wait(cursor.next(1)).unwrap();
    assert_eq!(code(rig.exec("DROP TABLE t")) & 0xff, 6, "SQLITE_LOCKED");
    drop(cursor);
    rig.exec("DROP TABLE t").unwrap();
}

#[test]
fn the_number_of_open_cursors_is_bounded() {
    let rig = Rig::new();
    let cursors: Vec<_> = (0..64).map(|_| wait(rig.db.open_cursor("SELECT 1", vec![])).unwrap()).collect();
    assert!(refusal(wait(rig.db.open_cursor("SELECT 1", vec![]))).contains("64 cursors"));
    drop(cursors);
    wait(rig.db.open_cursor("SELECT 1", vec![])).unwrap();
}
