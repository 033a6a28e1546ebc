//! A database that closes while its actor is idle, and what its user sees of that: nothing.

use std::{fs, path::PathBuf};

use wasmkeep_storage::{Config, Database, Inline};

use crate::rig::{Held, Rig, polled, refusal, wait};

/// The files of the rig this process holds open.
fn open_files(rig: &Rig) -> Vec<PathBuf> {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(rig.folder.path())).collect()
}

#[test]
fn a_dozing_database_holds_no_file_and_no_memory_and_comes_back_as_it_was() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    for round in 1..4 {
        assert!(wait(rig.db.doze(&Inline)));
        assert!(rig.db.is_dozing());
        assert!(open_files(&rig).is_empty());
        assert_eq!(rig.db.memory_bytes(), 0);
        assert!(
            !rig.db.checkpoint_due() && !rig.db.in_transaction() && !wait(rig.db.end_event()).rolled_back
        );
        assert!(refusal(rig.exec("SELECT 1")).contains("idle"));
        assert!(wait(rig.db.doze(&Inline)), "it goes on dozing");
        wait(rig.db.wake(&Inline)).unwrap();
        wait(rig.db.wake(&Inline)).unwrap();
        assert!(!rig.db.is_dozing());
        rig.durable("INSERT INTO t VALUES(1)").unwrap();
        assert_eq!(rig.number("SELECT count(*) FROM t"), round + 1);
        assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), round + 1);
    }
    let refused = rig.exec("PRAGMA journal_mode=DELETE");
    assert!(refusal(refused).contains("not set"), "the rules are in force again");
    assert!(rig.reopen().is_sound());
}

#[test]
fn what_was_committed_before_a_doze_is_given_out_during_it_and_after() {
    let rig = Rig::new();
    wait(rig.db.begin_capture(&Inline)).unwrap();
    rig.exec("CREATE TABLE t(x)").unwrap();
    assert!(wait(rig.db.doze(&Inline)));
    assert!(wait(rig.db.take_changes()).unwrap().is_some());
    assert!(wait(rig.db.take_changes()).unwrap().is_none());
    wait(rig.db.wake(&Inline)).unwrap();
    assert!(wait(rig.db.take_changes()).unwrap().is_none(), "nothing twice");
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    // What the new commit leads to is what a fresh look at the files finds.
    assert!(wait(rig.db.take_changes()).unwrap().is_some());
    let after = rig.after_a_kill();
    assert_eq!(wait(after.db.begin_capture(&Inline)).unwrap(), rig.db.checksum().unwrap());
}

#[test]
fn a_cursor_of_an_earlier_event_does_not_read_from_a_new_one() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1), (2)").unwrap();
    let before = wait(rig.db.open_cursor("SELECT x FROM t", vec![])).unwrap();
    wait(rig.db.end_event());
    assert!(wait(rig.db.doze(&Inline)));
    wait(rig.db.wake(&Inline)).unwrap();
    let after = wait(rig.db.open_cursor("SELECT x + 10 FROM t", vec![])).unwrap();
    assert!(refusal(wait(before.next(1))).contains("closed"));
    drop(before);
    assert_eq!(wait(after.next(9)).unwrap().len(), 2);
}

#[test]
fn a_connection_with_something_of_its_own_stays_open() {
    for (sql, check, expected) in [
        ("CREATE TEMP TABLE mine(x)", "SELECT count(*) FROM temp.mine", 0),
        ("PRAGMA foreign_keys=OFF", "PRAGMA foreign_keys", 0),
        ("PRAGMA reverse_unordered_selects=ON", "PRAGMA reverse_unordered_selects", 1),
    ] {
        let rig = Rig::new();
        rig.exec(sql).unwrap();
        rig.exec("CREATE TABLE t(x)").unwrap();
        let used = rig.db.memory_bytes();
        assert!(!wait(rig.db.doze(&Inline)), "{sql}");
        assert!(!rig.db.is_dozing() && rig.db.memory_bytes() < used, "{sql}");
        assert_eq!(rig.number(check), expected, "{sql}");
        // Closed for good, it is an ordinary connection again.
        let rig = rig.reopen();
        assert!(wait(rig.db.doze(&Inline)), "{sql}");
    }
}

#[test]
fn a_long_wal_is_put_away_first() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    for _ in 0..150 {
        rig.exec("INSERT INTO t VALUES(zeroblob(3500))").unwrap();
    }
    assert!(wait(rig.db.doze(&Inline)));
    assert_eq!(fs::metadata(rig.folder.path().join("shop/cart.db-wal")).unwrap().len(), 0);
    wait(rig.db.wake(&Inline)).unwrap();
    assert_eq!(rig.number("SELECT count(*) FROM t"), 150);
}

#[test]
fn who_comes_while_it_closes_waits_and_a_thread_pool_that_gives_up_costs_nothing() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    let held = Held::default();
    {
        let mut doze = std::pin::pin!(rig.db.doze(&held));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(doze.as_mut().poll(&mut context).is_pending());
        // The work is dropped: the database is as open as before.
        held.0.borrow_mut().clear();
        assert!(matches!(doze.as_mut().poll(&mut context), std::task::Poll::Ready(false)));
    }
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
    assert!(wait(rig.db.doze(&Inline)));
    {
        let mut wake = std::pin::pin!(rig.db.wake(&held));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(wake.as_mut().poll(&mut context).is_pending());
        held.0.borrow_mut().clear();
        let std::task::Poll::Ready(result) = wake.as_mut().poll(&mut context) else {
            panic!("it was dropped")
        };
        assert!(result.is_err());
    }
    assert!(rig.db.is_dozing());
    wait(rig.db.wake(&Inline)).unwrap();
    assert_eq!(polled(rig.db.query("SELECT count(*) FROM t", vec![])).0.unwrap().rows.len(), 1);
}

#[test]
fn a_file_that_is_gone_or_damaged_meanwhile_is_an_error_and_the_database_dozes_on() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(wait(rig.db.doze(&Inline)));
    let content = fs::read(rig.path()).unwrap();
    fs::write(rig.path(), vec![0xa5; content.len()]).unwrap();
    let error = wait(rig.db.wake(&Inline)).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    fs::remove_file(rig.path()).unwrap();
    assert!(wait(rig.db.wake(&Inline)).is_err());
    assert!(rig.db.is_dozing());
    fs::write(rig.path(), content).unwrap();
    wait(rig.db.wake(&Inline)).unwrap();
    assert_eq!(rig.number("SELECT count(*) FROM t"), 0);
}

#[test]
fn statements_wait_for_a_database_that_is_being_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let held = Held::default();
    let db = Database::begin_open(&held, &path, &Config::default()).unwrap();
    let mut query = std::pin::pin!(db.query("SELECT count(*) FROM sqlite_schema", vec![]));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(query.as_mut().poll(&mut context).is_pending());
    assert!(!path.exists());
    held.0.take().into_iter().for_each(|job| job());
    assert_eq!(wait(query).unwrap().rows.len(), 1);
    wait(db.opened()).unwrap();
    wait(db.opened()).unwrap();
    assert_eq!(db.init_version().unwrap(), None);
}

#[test]
fn a_database_that_could_not_be_opened_says_why_and_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::write(&path, "this is no database, and long enough to be looked at as one".repeat(100)).unwrap();
    let db = Database::begin_open(&Inline, &path, &Config::default()).unwrap();
    assert!(wait(db.exec("CREATE TABLE t(x)", vec![])).is_err());
    let error = wait(db.opened()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(wait(db.exec("CREATE TABLE t(x)", vec![])).is_err());
    wait(db.close(&Inline));
    // A thread pool that gives up leaves no database behind.
    let held = Held::default();
    let db = Database::begin_open(&held, &folder.path().join("y.db"), &Config::default()).unwrap();
    held.0.borrow_mut().clear();
    assert!(wait(db.opened()).is_err());
}
