//! Transactions, and what an event leaves behind.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use wasmkeep_storage::{Error, EventEnd, Inline, Value};

use crate::rig::{Held, Rig, code, refusal, wait};

fn table() -> Rig {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x INTEGER PRIMARY KEY, y UNIQUE ON CONFLICT ROLLBACK)").unwrap();
    rig.db.take_committed();
    rig
}

const QUIET: EventEnd = EventEnd { rolled_back: false, delete: false };

// case Q3
#[test]
fn an_implicit_rollback_is_told_truly() {
    let failures = [
        "INSERT OR ROLLBACK INTO t VALUES(1, 'again')",
        "INSERT INTO t VALUES(9, 'one')",
        "INSERT INTO guarded VALUES(1)",
    ];
    for failure in failures {
        let rig = table();
        rig.script(
            "CREATE TABLE guarded(x); \
             CREATE TRIGGER g BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'no'); END; \
             INSERT INTO t VALUES(1, 'one')",
        )
        .unwrap();
        rig.script("BEGIN; INSERT INTO t VALUES(2, 'two')").unwrap();
        assert!(rig.db.in_transaction());
        assert_eq!(code(rig.exec(failure)) & 0xff, 19, "SQLITE_CONSTRAINT: {failure}");
        assert!(!rig.db.in_transaction(), "{failure}");
        rig.exec("INSERT INTO t VALUES(3, 'three')").unwrap();
        let commit = rig.exec("COMMIT");
        assert!(
            matches!(&commit, Err(Error::Sqlite(error)) if error.message.contains("no transaction")),
            "{commit:?}"
        );
        assert_eq!(wait(rig.db.end_event()), QUIET);
        let there = |rig: &Rig| rig.rows("SELECT x FROM t ORDER BY x").unwrap();
        let expected = [[Value::Integer(1)], [Value::Integer(3)]];
        assert_eq!(there(&rig), expected, "{failure}");
        assert_eq!(there(&rig.after_a_kill()), expected, "{failure}: the files say the same");
    }
}

// case Q5
#[test]
fn a_transaction_left_open_is_rolled_back_at_the_end_of_the_event() {
    for opening in [
        "BEGIN; INSERT INTO t VALUES(1, 1)",
        "BEGIN IMMEDIATE; INSERT INTO t VALUES(1, 1)",
        "SAVEPOINT a; INSERT INTO t VALUES(1, 1); SAVEPOINT b; INSERT INTO t VALUES(2, 2)",
        "SAVEPOINT a; INSERT INTO t VALUES(1, 1); ROLLBACK TO a; INSERT INTO t VALUES(2, 2)",
        "BEGIN",
    ] {
        let rig = table();
        rig.script(opening).unwrap();
        let cursor = wait(rig.db.open_cursor("SELECT * FROM t", vec![])).unwrap();
        let _ = wait(cursor.next(1));
        assert_eq!(wait(rig.db.end_event()), EventEnd { rolled_back: true, delete: false }, "{opening}");
        assert!(!rig.db.in_transaction(), "the next event starts in autocommit");
        assert!(!rig.db.take_committed(), "{opening}: there is nothing to ship");
        assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
        assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 0);
    }
}

#[test]
fn all_that_wait_for_the_connection_are_woken_when_it_is_home() {
    let rig = table();
    wait(rig.db.begin_capture(&Inline)).unwrap();
    let held = Held::default();
    let mut snapshot = pin!(rig.db.snapshot(&held, 1, 0));
    let mut end = pin!(rig.db.end_event());
    let (maker, ender) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let waker = |woken: &Arc<Woken>| Waker::from(Arc::clone(woken));
    assert!(snapshot.as_mut().poll(&mut Context::from_waker(&waker(&maker))).is_pending());
    assert!(end.as_mut().poll(&mut Context::from_waker(&waker(&ender))).is_pending());
    held.release();
    assert!(maker.0.load(Ordering::Relaxed) && ender.0.load(Ordering::Relaxed));
    assert_eq!(wait(end), QUIET);
    wait(snapshot).unwrap();
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn delete_self_is_reported_once_and_deletes_nothing() {
    let rig = table();
    rig.db.delete_self();
    rig.exec("INSERT INTO t VALUES(1, 1)").unwrap();
    assert_eq!(wait(rig.db.end_event()), EventEnd { rolled_back: false, delete: true });
    assert_eq!(wait(rig.db.end_event()), QUIET);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 1);
}

/// A way a writing statement can end, and whether it commits.
#[test]
fn every_way_a_statement_can_end_is_seen_by_the_commit_flag() {
    let schema = "CREATE TABLE guarded(x); \
        CREATE TRIGGER g AFTER INSERT ON guarded BEGIN SELECT RAISE(ABORT, 'no') WHERE new.x = 3; END; \
        INSERT INTO t VALUES(1, 'one')";
    let ways: &[(&str, &str, bool)] = &[
        ("done", "INSERT INTO t VALUES(2, 2)", true),
        ("returning", "INSERT INTO t VALUES(2, 2) RETURNING x", true),
        ("update", "UPDATE t SET y = 5", true),
        ("delete", "DELETE FROM t", true),
        ("schema", "CREATE TABLE other(x)", true),
        ("pragma", "PRAGMA user_version = 7", true),
        ("vacuum", "VACUUM", true),
        ("transaction", "BEGIN; INSERT INTO t VALUES(2, 2); COMMIT", true),
        ("savepoint", "SAVEPOINT a; INSERT INTO t VALUES(2, 2); RELEASE a", true),
        ("abort", "INSERT INTO t VALUES(2, 2), (1, 3)", false),
        ("raise after rows", "INSERT INTO guarded VALUES(1), (2), (3)", false),
        ("rolled back", "BEGIN; INSERT INTO t VALUES(2, 2); ROLLBACK", false),
        ("open", "BEGIN; INSERT INTO t VALUES(2, 2)", false),
        ("or fail keeps rows", "INSERT OR FAIL INTO t VALUES(2, 2), (1, 3)", true),
        ("read", "SELECT * FROM t", false),
    ];
    for (name, sql, commits) in ways {
        let rig = table();
        rig.script(schema).unwrap();
        assert!(rig.db.take_committed());
        let result = rig.script(sql);
        assert_eq!(rig.db.take_committed(), *commits, "{name}: {result:?}");
        assert!(!rig.db.take_committed(), "{name}: asking takes it");
    }
}

#[test]
fn a_result_cut_short_still_shows_its_commit() {
    let rig = table();
    rig.exec("INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 50) SELECT n, n FROM r").unwrap();
    rig.db.take_committed();
    let rows = rig.rows("UPDATE t SET y = -y RETURNING y").unwrap();
    assert_eq!(rows.len(), 50);
    assert!(rig.db.take_committed());
}

#[test]
fn exec_durable_takes_only_commit_inside_a_transaction() {
    // R-DUR-2
    let rig = table();
    assert_eq!(rig.durable("INSERT INTO t VALUES(1, 1)").unwrap().rows, 1);
    rig.exec("BEGIN").unwrap();
    for other in [
        "INSERT INTO t VALUES(2, 2)",
        "SELECT 1",
        "ROLLBACK",
        "SAVEPOINT a",
        "BEGIN",
        "EXPLAIN COMMIT",
        "PRAGMA user_version=3",
    ] {
        assert!(refusal(rig.durable(other)).contains("only COMMIT"), "{other}");
        assert!(rig.db.in_transaction(), "{other}");
    }
    rig.exec("INSERT INTO t VALUES(3, 3)").unwrap();
    rig.durable("/* now */ END TRANSACTION").unwrap();
    assert!(!rig.db.in_transaction());
    rig.exec("BEGIN").unwrap();
    rig.durable("commit").unwrap();
    assert_eq!(rig.rows("SELECT x FROM t").unwrap(), [[Value::Integer(1)], [Value::Integer(3)]]);
    assert_eq!(rig.number("PRAGMA user_version"), 0);
}

#[test]
fn a_savepoint_makes_exec_durable_wait_for_commit_too() {
    let rig = table();
    rig.exec("SAVEPOINT a").unwrap();
    assert!(refusal(rig.durable("RELEASE a")).contains("only COMMIT"));
    rig.durable("COMMIT").unwrap();
    assert!(!rig.db.in_transaction());
    assert!(wait(rig.db.checkpoint(&Inline)).is_ok());
}

#[test]
fn a_transaction_is_rolled_back_also_when_the_event_is_cut_while_a_snapshot_reads_the_files() {
    // R-DUR-2: `on-init` has a transaction of its own, an event the one it began.
    for in_init in [false, true] {
        let rig = Rig::new();
        wait(rig.db.begin_capture(&Inline)).unwrap();
        rig.exec("CREATE TABLE t(x)").unwrap();
        wait(rig.db.take_changes()).unwrap();
        if in_init {
            rig.db.begin_init().unwrap();
        } else {
            rig.script("BEGIN").unwrap();
        }
        rig.exec("INSERT INTO t VALUES(1)").unwrap();

        let held = Held::default();
        let mut context = Context::from_waker(Waker::noop());
        // The event ends at its limit: what waits for the snapshot is dropped, the snapshot goes on.
        assert!(pin!(rig.db.snapshot(&held, 1, 0)).as_mut().poll(&mut context).is_pending());
        {
            let mut ending = pin!(async {
                if in_init {
                    rig.db.abort_init().await;
                }
                rig.db.end_event().await
            });
            assert!(ending.as_mut().poll(&mut context).is_pending(), "the connection is away");
            held.0.take().into_iter().for_each(|job| job());
            assert_eq!(wait(ending), EventEnd { rolled_back: !in_init, delete: false });
        }
        assert!(!rig.db.in_transaction(), "the next event begins outside a transaction");
        assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
        rig.exec("INSERT INTO t VALUES(2)").unwrap();
        assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 1);
    }
}
