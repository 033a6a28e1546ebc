//! `on-init` and the platform's own rows.

use wasmkeep_storage::{Error, Value};

use crate::rig::{Rig, code, refusal, wait};

#[test]
fn on_init_commits_with_its_version_or_not_at_all() {
    let rig = Rig::new();
    assert_eq!(rig.db.init_version().unwrap(), None);
    rig.db.begin_init().unwrap();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    wait(rig.db.abort_init());
    assert_eq!(rig.db.init_version().unwrap(), None);
    assert_eq!(rig.number("SELECT count(*) FROM sqlite_schema"), 1, "nothing is left of an aborted on-init");

    rig.db.begin_init().unwrap();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    rig.db.commit_init("v1").unwrap();
    assert!(!rig.db.in_transaction());
    assert!(rig.db.take_committed());
    assert_eq!(rig.db.init_version().unwrap().as_deref(), Some("v1"));
    let rig = rig.reopen();
    assert_eq!(rig.db.init_version().unwrap().as_deref(), Some("v1"));
    rig.db.begin_init().unwrap();
    rig.db.commit_init("v2").unwrap();
    assert_eq!(rig.after_a_kill().db.init_version().unwrap().as_deref(), Some("v2"));
    assert_eq!(rig.number("SELECT x FROM t"), 1);
}

#[test]
fn guests_cannot_end_the_transaction_of_on_init() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    // Kept from before: the check is not only made while compiling.
    rig.script("BEGIN; COMMIT").unwrap();
    rig.exec("BEGIN").unwrap();
    rig.exec("COMMIT").unwrap();
    rig.db.begin_init().unwrap();
    for sql in ["BEGIN", "COMMIT", "ROLLBACK", "END", "BEGIN EXCLUSIVE"] {
        assert!(refusal(rig.exec(sql)).contains("on-init"), "{sql}");
    }
    assert!(refusal(rig.durable("INSERT INTO t VALUES(1)")).contains("on-init"));
    assert!(refusal(rig.durable("COMMIT")).contains("on-init"));
    rig.script("SAVEPOINT a; INSERT INTO t VALUES(1); SAVEPOINT b; INSERT INTO t VALUES(2); ROLLBACK TO b; RELEASE a").unwrap();
    assert!(rig.db.in_transaction(), "releasing the guest's last savepoint commits nothing");
    rig.db.commit_init("v1").unwrap();
    assert_eq!(rig.rows("SELECT x FROM t").unwrap(), [[Value::Integer(1)]]);
    rig.exec("BEGIN").unwrap();
    rig.exec("ROLLBACK").unwrap();
}

#[test]
fn on_init_whose_transaction_an_error_rolled_back_does_not_count() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x UNIQUE ON CONFLICT ROLLBACK)").unwrap();
    rig.db.begin_init().unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(code(rig.exec("INSERT INTO t VALUES(1)")) & 0xff, 19);
    assert!(
        refusal(rig.exec("INSERT INTO t VALUES(2)")).contains("rolled back"),
        "it would commit by itself"
    );
    assert!(refusal(rig.db.commit_init("v1")).contains("rolled back"));
    assert_eq!(rig.db.init_version().unwrap(), None);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn a_deferred_foreign_key_that_does_not_hold_fails_on_init() {
    let rig = Rig::new();
    rig.script("CREATE TABLE p(x PRIMARY KEY); CREATE TABLE c(x REFERENCES p DEFERRABLE INITIALLY DEFERRED)")
        .unwrap();
    rig.db.begin_init().unwrap();
    rig.exec("INSERT INTO c VALUES(1)").unwrap();
    assert_eq!(code(rig.db.commit_init("v1")), 787, "SQLITE_CONSTRAINT_FOREIGNKEY");
    assert!(!rig.db.in_transaction());
    assert_eq!(rig.number("SELECT count(*) FROM c"), 0);
}

#[test]
fn an_event_that_ends_within_on_init_leaves_nothing() {
    let rig = Rig::new();
    rig.db.begin_init().unwrap();
    rig.exec("CREATE TABLE t(x)").unwrap();
    assert!(wait(rig.db.end_event()).rolled_back);
    rig.exec("BEGIN").unwrap();
    rig.exec("ROLLBACK").unwrap();
    assert_eq!(rig.db.init_version().unwrap(), None);
}

#[test]
fn guests_can_neither_see_nor_touch_nor_make_the_platforms_names() {
    let rig = Rig::new();
    rig.db.begin_init().unwrap();
    rig.db.commit_init("v1").unwrap();
    rig.script("CREATE TABLE mine(x); CREATE VIEW fine AS SELECT * FROM mine").unwrap();
    for sql in [
        "SELECT * FROM _wasmkeep_state",
        "SELECT count(*) FROM _WASMKEEP_STATE",
        "SELECT count(*) FROM main.\"_wasmkeep_state\"",
        "INSERT INTO _wasmkeep_state VALUES('init', 'v9')",
        "UPDATE [_wasmkeep_state] SET value='v9'",
        "DELETE FROM _wasmkeep_state",
        "DROP TABLE _wasmkeep_state",
        "ALTER TABLE _wasmkeep_state RENAME TO x",
        "ALTER TABLE _wasmkeep_state ADD COLUMN x",
        "ALTER TABLE mine RENAME TO _wasmkeep_state2",
        "ALTER TABLE mine RENAME TO \"_WasmKeep_x\"",
        "CREATE TABLE _wasmkeep_other(x)",
        "CREATE TEMP TABLE _wasmkeep_state(x)",
        "CREATE VIEW _wasmkeep_v AS SELECT 1",
        "CREATE INDEX i ON _wasmkeep_state(value)",
        "CREATE TRIGGER g AFTER UPDATE ON _wasmkeep_state BEGIN SELECT 1; END",
        "CREATE TEMP TRIGGER g AFTER UPDATE ON main._wasmkeep_state BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE _wasmkeep_f USING fts5(x)",
        "CREATE VIRTUAL TABLE _wasmkeep USING fts5(x)",
        "CREATE TABLE copy AS SELECT * FROM _wasmkeep_state",
    ] {
        let sentence = refusal(rig.exec(sql));
        assert!(sentence.contains("belong to the platform"), "{sql}: {sentence}");
    }
    // What is only looked at when it is used.
    rig.exec("CREATE VIEW peek AS SELECT * FROM _wasmkeep_state")
        .unwrap_or_else(|_| panic!("a view may name it"));
    assert!(refusal(rig.rows("SELECT * FROM peek")).contains("platform"));
    rig.exec("CREATE VIRTUAL TABLE f USING fts5(value, content='_wasmkeep_state', content_rowid='key')")
        .unwrap();
    assert!(matches!(rig.rows("SELECT * FROM f"), Err(Error::Refused(_) | Error::Sqlite(_))));
    rig.exec("CREATE TRIGGER sneak AFTER INSERT ON mine BEGIN DELETE FROM _wasmkeep_state; END").unwrap();
    assert!(refusal(rig.exec("INSERT INTO mine VALUES(1)")).contains("platform"));
    rig.exec("DROP TRIGGER sneak").unwrap();
    // What goes over all tables works all the same.
    rig.script("ANALYZE; PRAGMA optimize; REINDEX; VACUUM").unwrap();
    assert!(rig.is_sound());
    let rig = rig.reopen();
    assert_eq!(rig.db.init_version().unwrap().as_deref(), Some("v1"));
}
