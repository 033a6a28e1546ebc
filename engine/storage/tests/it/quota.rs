//! The size limit of a database.

use wasmkeep_storage::{Error, Inline, Value};

use crate::rig::{Rig, code, text, wait};

const QUOTA: u64 = 64 * 4096;

/// Fills a table until nothing more fits; the rows that did.
fn fill(rig: &Rig) -> i64 {
    rig.exec("CREATE TABLE t(x INTEGER PRIMARY KEY, y)").unwrap();
    loop {
        match rig.exec("INSERT INTO t(y) VALUES(zeroblob(3000))") {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Error::Full);
                return rig.number("SELECT count(*) FROM t");
            }
        }
    }
}

#[test]
fn a_full_database_still_reads_and_deletes() {
    let rig = Rig::quota(QUOTA);
    let rows = fill(&rig);
    assert!(rows > 40, "{rows}");
    assert_eq!(rig.db.size_bytes(), QUOTA);
    assert!(!rig.db.in_transaction());
    assert_eq!(rig.exec("UPDATE t SET y = zeroblob(7000)"), Err(Error::Full));
    assert_eq!(rig.number("SELECT sum(length(y)) FROM t"), rows * 3000, "nothing of the update stands");
    assert_eq!(rig.exec("DELETE FROM t WHERE x <= 5").unwrap().rows, 5);
    rig.exec("INSERT INTO t(y) VALUES(zeroblob(3000))").unwrap();
    rig.script("BEGIN; DELETE FROM t; COMMIT").unwrap();
    assert!(rig.is_sound());
}

#[test]
fn a_delete_that_writes_before_it_frees_may_use_the_reserve() {
    for in_transaction in [false, true] {
        let rig = Rig::quota(QUOTA);
        rig.exec("CREATE VIRTUAL TABLE f USING fts5(body)").unwrap();
        rig.exec("INSERT INTO f WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 40) SELECT hex(randomblob(400)) FROM r").unwrap();
        fill(&rig);
        let _ = rig.exec("CREATE TABLE filler(x)");
        if in_transaction {
            rig.exec("BEGIN").unwrap();
        }
        assert_eq!(rig.exec("INSERT INTO t(y) VALUES(zeroblob(3000))"), Err(Error::Full));
        if in_transaction && !rig.db.in_transaction() {
            rig.exec("BEGIN").unwrap();
        }
        for row in 1..=40 {
            rig.exec(&format!("DELETE FROM f WHERE rowid = {row}")).unwrap();
        }
        if in_transaction {
            rig.exec("COMMIT").unwrap();
        }
        assert_eq!(rig.number("SELECT count(*) FROM f"), 0);
        rig.exec("DELETE FROM t").unwrap();
        rig.exec("VACUUM").unwrap();
        wait(rig.db.end_event());
        assert_eq!(rig.number("PRAGMA max_page_count"), 64, "the reserve is closed again");
        assert!(rig.is_sound());
    }
}

// case Q4
#[test]
fn the_quota_within_savepoints_leaves_a_database_that_works() {
    let rig = Rig::quota(QUOTA);
    rig.exec("CREATE TABLE t(x INTEGER PRIMARY KEY, y)").unwrap();
    rig.exec("INSERT INTO t(y) VALUES('before')").unwrap();
    rig.script("BEGIN; SAVEPOINT a; INSERT INTO t(y) VALUES('in a'); SAVEPOINT b").unwrap();
    let error = loop {
        if let Err(error) = rig.exec("INSERT INTO t(y) VALUES(zeroblob(3000))") {
            break error;
        }
    };
    assert_eq!(error, Error::Full);
    // Whatever SQLite did to the transaction, the answer to the next statement and the state agree.
    let open = rig.db.in_transaction();
    assert_eq!(rig.exec("ROLLBACK TO b").is_ok(), open);
    assert_eq!(wait(rig.db.end_event()).rolled_back, open);
    assert_eq!(rig.value("SELECT y FROM t"), text("before"));
    rig.exec("INSERT INTO t(y) VALUES('after')").unwrap();
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 2);
    assert!(rig.is_sound());
}

#[test]
fn the_quota_can_be_lowered_below_what_is_there() {
    let rig = Rig::quota(QUOTA);
    let rows = fill(&rig);
    let Rig { folder, mut config, db } = rig;
    wait(std::rc::Rc::try_unwrap(db).unwrap().close(&Inline));
    config.quota_bytes = 4096;
    let db = wasmkeep_storage::Database::open(&folder.path().join("shop/cart.db"), &config).unwrap();
    let rig = Rig { folder, config, db: db.into() };
    assert_eq!(rig.number("SELECT count(*) FROM t"), rows);
    assert_eq!(rig.exec("INSERT INTO t(y) VALUES(zeroblob(30000))"), Err(Error::Full));
    rig.exec("DELETE FROM t").unwrap();
    assert!(rig.is_sound());
}

#[test]
fn the_platforms_rows_fit_in_a_full_database() {
    let rig = Rig::quota(QUOTA);
    fill(&rig);
    rig.db.begin_init().unwrap();
    rig.db.commit_init("v1").unwrap();
    assert_eq!(rig.reopen().db.init_version().unwrap().as_deref(), Some("v1"));
}

#[test]
fn an_error_other_than_the_quota_is_not_taken_for_it() {
    let rig = Rig::quota(QUOTA);
    rig.exec("CREATE TABLE t(x CHECK(x > 0))").unwrap();
    assert_eq!(code(rig.exec_with("INSERT INTO t VALUES(?)", vec![Value::Integer(0)])) & 0xff, 19);
}
