//! Statements share their core.

use std::{cell::RefCell, rc::Rc, task::Context};

use wasmkeep_storage::{Config, Error, Pacer, Value};

use crate::rig::{Rig, code, polled, wait};

const ENDLESS: &str = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT count(*) FROM r";

fn paced(checks: u32) -> Rig {
    Rig::with(Config { pacer: Pacer::checks(checks), ..Config::default() })
}

/// Polls `future` `times` times and drops it.
fn poll_and_drop<F: Future>(future: F, times: usize) {
    let mut future = Box::pin(future);
    for _ in 0..times {
        assert!(future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
}

#[test]
fn a_long_statement_gives_its_core_back_and_a_short_one_need_not() {
    let rig = paced(0);
    let (result, polls) = polled(rig.db.query(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 20000) SELECT sum(n) FROM r",
        vec![],
    ));
    assert_eq!(result.unwrap().rows, [[Value::Integer(200_010_000)]]);
    assert!(polls > 100, "{polls}");
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(polled(rig.db.exec("INSERT INTO t VALUES(1)", vec![])).1, 1, "compiled before");
}

#[test]
fn compiling_gives_the_core_back_too_and_can_be_dropped() {
    let rig = paced(0);
    rig.exec("CREATE TABLE v0(x)").unwrap();
    let views: String = (1..=150)
        .map(|n| format!("CREATE VIEW v{n} AS SELECT DISTINCT x FROM v{} ORDER BY x LIMIT 5;", n - 1))
        .collect();
    rig.script(&views).unwrap();
    let (rows, polls) = polled(rig.db.query("EXPLAIN SELECT * FROM v150", vec![]));
    assert!(!rows.unwrap().rows.is_empty());
    assert!(polls > 500, "{polls}");
    for times in [1, 10, 100, 400] {
        poll_and_drop(rig.db.query("SELECT count(*) FROM v150", vec![]), times);
        poll_and_drop(rig.db.exec("ALTER TABLE v0 ADD COLUMN y", vec![]), times.min(10));
        assert_eq!(rig.number("SELECT count(*) FROM v3"), 0);
    }
    assert_eq!(rig.number("SELECT count(*) FROM pragma_table_info('v0')"), 1);
    assert!(rig.is_sound());
}

// case Q6
#[test]
fn an_endless_statement_ends_when_it_is_dropped_and_the_connection_goes_on() {
    let rig = paced(0);
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    for sql in [
        ENDLESS,
        "SELECT count(*) FROM (WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT DISTINCT n % 1000 FROM r)",
        "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r ORDER BY random()",
    ] {
        poll_and_drop(rig.db.query(sql, vec![]), 20);
        assert!(!rig.db.in_transaction());
        assert_eq!(rig.number("SELECT count(*) FROM t"), 1, "{sql}");
    }
    poll_and_drop(
        rig.db.exec_script(&format!("INSERT INTO t VALUES(2); {ENDLESS}; INSERT INTO t VALUES(3)")),
        20,
    );
    assert_eq!(rig.number("SELECT count(*) FROM t"), 2, "a script ends where it was");
    assert!(rig.is_sound());
}

#[test]
fn a_statement_dropped_inside_a_transaction_is_undone_by_the_end_of_the_event() {
    let rig = paced(0);
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.script("BEGIN; INSERT INTO t VALUES(1)").unwrap();
    poll_and_drop(rig.db.query(ENDLESS, vec![]), 5);
    assert!(rig.db.in_transaction(), "reading undoes nothing");
    poll_and_drop(
        rig.db.exec(
            "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r",
            vec![],
        ),
        5,
    );
    wait(rig.db.end_event());
    assert!(!rig.db.in_transaction());
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn a_running_statement_can_be_told_to_end() {
    let rig = paced(0);
    let mut running = Box::pin(rig.db.query(ENDLESS, vec![]));
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(running.as_mut().poll(&mut context).is_pending());
    rig.db.interrupt();
    assert_eq!(wait(running).unwrap_err(), Error::Interrupted);
    rig.db.interrupt();
    assert_eq!(rig.number("SELECT 1"), 1, "with nothing running it is nothing");
}

#[test]
fn a_cursor_left_in_the_middle_is_closed_and_no_more() {
    let rig = paced(0);
    let slow =
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r WHERE n % 100000 = 0";
    let cursor = wait(rig.db.open_cursor(slow, vec![])).unwrap();
    assert_eq!(wait(cursor.next(1)).unwrap(), [[Value::Integer(100_000)]]);
    poll_and_drop(cursor.next(1), 3);
    assert!(matches!(wait(cursor.next(1)), Err(Error::Refused(_))));
    assert_eq!(rig.number("SELECT 1"), 1);
}

#[test]
fn one_statement_at_a_time_runs_on_a_database() {
    let rig = paced(0);
    let mut running = Box::pin(rig.db.query(ENDLESS, vec![]));
    assert!(running.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    assert!(
        matches!(rig.exec("SELECT 1"), Err(Error::Refused(sentence)) if sentence.contains("another statement"))
    );
    drop(running);
    rig.exec("SELECT 1").unwrap();
}

/// Work that compiles, sorts, spills, fires triggers, fills an index, fails and rolls back.
const WORK: &[&str] = &[
    "CREATE TABLE t(x INTEGER PRIMARY KEY, y, z)",
    "CREATE INDEX i ON t(y, z)",
    "CREATE TABLE log(x)",
    "CREATE TRIGGER g AFTER UPDATE ON t BEGIN INSERT INTO log VALUES(old.y || new.y); END",
    "CREATE VIRTUAL TABLE f USING fts5(body)",
    "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 300) SELECT n, (n * SEED) % 97, 'v' || n FROM r",
    "BEGIN",
    "UPDATE t SET y = y + 1 WHERE x % 3 = 0",
    "SAVEPOINT a",
    "DELETE FROM t WHERE x % 5 = 0",
    "ROLLBACK TO a",
    "COMMIT",
    "INSERT INTO t VALUES(1, 1, 1)",
    "INSERT INTO f SELECT z || ' ' || y FROM t",
    "INSERT INTO f(f) VALUES('optimize')",
    "BEGIN",
    "DELETE FROM t",
    "ROLLBACK",
    "ALTER TABLE t ADD COLUMN w DEFAULT 5",
    "VACUUM",
];

const RESULTS: &[&str] = &[
    "SELECT y, count(*), max(z) FROM t GROUP BY y ORDER BY 2 DESC, 1",
    "SELECT x, row_number() OVER (PARTITION BY y ORDER BY z DESC) FROM t ORDER BY z, x",
    "SELECT count(*) FROM t a JOIN t b ON a.y = b.y AND a.z < b.z",
    "SELECT rowid FROM f WHERE f MATCH 'v7 OR 12' ORDER BY rank, rowid",
    "SELECT count(*), min(x), max(x) FROM log",
    "PRAGMA integrity_check",
];

async fn work(rig: &Rig, seed: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for sql in WORK {
        let result = rig.db.exec(&sql.replace("SEED", &seed.to_string()), vec![]).await;
        seen.push(format!("{result:?}"));
    }
    for sql in RESULTS {
        seen.push(format!("{:?}", rig.db.query(sql, vec![]).await));
    }
    seen
}

#[test]
fn a_hundred_databases_interleaved_on_one_thread_give_what_each_gives_alone() {
    const DATABASES: usize = 100;
    let rigs: Vec<_> = (0..DATABASES).map(|_| paced(1)).collect();
    let results: Rc<RefCell<Vec<Option<Vec<String>>>>> = Rc::new(RefCell::new(vec![None; DATABASES]));
    let mut running: Vec<_> =
        rigs.iter().enumerate().map(|(seed, rig)| Some(Box::pin(work(rig, seed % 7 + 1)))).collect();
    let mut context = Context::from_waker(std::task::Waker::noop());
    let (mut left, mut rounds) = (DATABASES, 0);
    while left > 0 {
        rounds += 1;
        for (index, slot) in running.iter_mut().enumerate() {
            let Some(future) = slot else { continue };
            if let std::task::Poll::Ready(seen) = future.as_mut().poll(&mut context) {
                results.borrow_mut()[index] = Some(seen);
                *slot = None;
                left -= 1;
            }
        }
    }
    assert!(rounds > 20, "{rounds}");
    for seed in 1..=7 {
        let alone = wait(work(&Rig::unpaced(), seed));
        for index in (0..DATABASES).filter(|index| index % 7 + 1 == seed) {
            assert_eq!(results.borrow()[index].as_ref(), Some(&alone), "database {index}");
        }
    }
}

#[test]
fn a_pace_of_ones_own_is_asked() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    struct Counting(Arc<AtomicUsize>);
    impl wasmkeep_storage::Pace for Counting {
        fn begin(&self) {}
        fn spent(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let rig = Rig::with(Config {
        pacer: Pacer::new(move || Box::new(Counting(Arc::clone(&counter)))),
        ..Config::default()
    });
    let (_, polls) = polled(rig.db.query(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 20000) SELECT sum(n) FROM r",
        vec![],
    ));
    assert_eq!(polls, 1);
    assert!(asked.load(Ordering::Relaxed) > 100);
}

#[test]
fn a_constraint_met_after_a_suspension_is_still_an_error() {
    let rig = paced(0);
    rig.exec("CREATE TABLE t(x UNIQUE)").unwrap();
    let insert = "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 5000) SELECT n % 4999 FROM r";
    assert_eq!(code(rig.exec(insert)) & 0xff, 19);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}
