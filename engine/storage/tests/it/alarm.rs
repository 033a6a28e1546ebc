//! The alarm's row: whose transaction it is part of, and what a kill leaves of it.

use wasmkeep_protocol::alarm::{Alarm, Attempt, Wake};
use wasmkeep_storage::{Config, Error, OpenError, peek_alarm};

use crate::rig::{Rig, wait};

const NOW: u64 = 1_700_000_000_000;

fn set(rig: &Rig, due_ms: u64) -> Vec<Wake> {
    let mut announced = Vec::new();
    rig.db
        .set_alarm(due_ms, |wake| {
            announced.push(wake);
            Ok::<_, Error>(())
        })
        .unwrap();
    announced
}

fn pending(due_ms: u64) -> Alarm {
    Alarm { pending_ms: Some(due_ms), attempt: None }
}

#[test]
fn an_alarm_is_kept_and_replaced_and_cleared() {
    // R-ALM-1
    let rig = Rig::new();
    assert_eq!(rig.db.pending_alarm().unwrap(), None);
    rig.db.clear_alarm().unwrap();
    assert!(!rig.db.take_alarm_touched(), "nothing was there to clear");
    assert_eq!(rig.number("SELECT count(*) FROM sqlite_schema"), 1, "and nothing was made for it");
    assert_eq!(set(&rig, NOW), [Wake { at_ms: NOW, is_retry: false }]);
    assert!(rig.db.take_alarm_touched() && !rig.db.take_alarm_touched());
    set(&rig, NOW + 5);
    assert_eq!(rig.after_a_kill().db.alarm().unwrap(), pending(NOW + 5));
    let rig = rig.reopen();
    assert_eq!(rig.db.pending_alarm().unwrap(), Some(NOW + 5));
    rig.db.clear_alarm().unwrap();
    assert_eq!(rig.after_a_kill().db.alarm().unwrap(), Alarm::default());
}

#[test]
fn an_alarm_commits_and_rolls_back_with_the_transaction_it_was_set_in() {
    // case A2
    let rig = Rig::new();
    set(&rig, NOW);
    for (script, due_ms) in [
        (["BEGIN", "ROLLBACK"], NOW),
        (["SAVEPOINT a", "ROLLBACK TO a; RELEASE a"], NOW),
        (["BEGIN", "COMMIT"], NOW + 1),
    ] {
        rig.script(script[0]).unwrap();
        assert_eq!(set(&rig, NOW + 1), [Wake { at_ms: NOW + 1, is_retry: false }], "announced all the same");
        assert_eq!(rig.db.pending_alarm().unwrap(), Some(NOW + 1));
        rig.script(script[1]).unwrap();
        assert_eq!(rig.db.alarm().unwrap(), pending(due_ms), "{script:?}");
    }
    // An event that ends with its transaction open.
    rig.script("BEGIN").unwrap();
    rig.db.clear_alarm().unwrap();
    assert!(wait(rig.db.end_event()).rolled_back);
    assert_eq!(rig.db.alarm().unwrap(), pending(NOW + 1));
    // The first alarm of an actor, in a transaction that also makes the table for it.
    let rig = Rig::new();
    rig.script("BEGIN").unwrap();
    set(&rig, NOW);
    rig.script("ROLLBACK").unwrap();
    assert_eq!(rig.db.alarm().unwrap(), Alarm::default());
}

#[test]
fn an_alarm_that_cannot_be_announced_is_not_written() {
    // case A1
    let rig = Rig::new();
    set(&rig, NOW);
    let refused = rig.db.set_alarm(NOW - 1, |_| Err(Error::Refused("the disk is full".into())));
    assert_eq!(refused, Err(Error::Refused("the disk is full".into())));
    assert_eq!(rig.db.alarm().unwrap(), pending(NOW));
}

#[test]
fn an_attempt_survives_a_kill_until_it_succeeded() {
    // case A3
    let rig = Rig::new();
    set(&rig, NOW);
    assert_eq!(rig.db.begin_alarm(NOW - 1).unwrap(), None);
    let first = Attempt { due_ms: NOW, number: 1, retry_ms: NOW + 1_000 };
    assert_eq!(rig.db.begin_alarm(NOW).unwrap(), Some(first));
    assert_eq!(rig.db.pending_alarm().unwrap(), None, "while it runs it is not pending");
    let killed = rig.after_a_kill();
    assert_eq!(killed.db.pending_alarm().unwrap(), Some(NOW), "it is again when it is to be repeated");
    assert_eq!(killed.db.begin_alarm(NOW + 1_000).unwrap().map(|attempt| attempt.number), Some(2));
    rig.db.end_alarm(NOW + 10, false).unwrap();
    assert_eq!(rig.db.alarm().unwrap().wake(), Some(Wake { at_ms: NOW + 1_010, is_retry: true }));
    assert!(rig.db.begin_alarm(NOW + 1_010).unwrap().is_some());
    rig.db.end_alarm(NOW + 1_020, true).unwrap();
    assert_eq!(rig.after_a_kill().db.alarm().unwrap(), Alarm::default());
}

#[test]
fn what_an_attempt_sets_is_for_later_and_what_others_set_replaces_it() {
    // case A4
    let rig = Rig::new();
    set(&rig, NOW);
    assert!(rig.db.begin_alarm(NOW).unwrap().is_some());
    // The attempt's own retry comes first, so that is what the index is told.
    assert_eq!(set(&rig, NOW + 60_000), [Wake { at_ms: NOW + 1_000, is_retry: true }]);
    rig.db.end_alarm(NOW, false).unwrap();
    assert_eq!(rig.db.alarm().unwrap().pending_ms, Some(NOW + 60_000));
    assert_eq!(set(&rig, NOW + 9), [Wake { at_ms: NOW + 9, is_retry: false }]);
    assert_eq!(rig.db.alarm().unwrap(), pending(NOW + 9));
}

#[test]
fn a_full_database_takes_a_first_alarm_and_still_runs_one_that_was_set() {
    let rig = Rig::quota(64 * 1024);
    set(&rig, NOW);
    rig.exec("CREATE TABLE t(x)").unwrap();
    while rig.exec("INSERT INTO t VALUES(randomblob(2000))").is_ok() {}
    wait(rig.db.end_event());
    assert!(rig.db.begin_alarm(NOW).unwrap().is_some());
    rig.db.end_alarm(NOW, true).unwrap();
    assert_eq!(rig.db.alarm().unwrap(), Alarm::default());

    let rig = Rig::quota(64 * 1024);
    rig.exec("CREATE TABLE t(x)").unwrap();
    while rig.exec("INSERT INTO t VALUES(randomblob(2000))").is_ok() {}
    wait(rig.db.end_event());
    set(&rig, NOW);
    assert_eq!(rig.db.alarm().unwrap(), pending(NOW));
}

#[test]
fn a_full_database_of_an_earlier_version_refuses_a_first_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop/cart.db");
    std::fs::create_dir(folder.path().join("shop")).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    let config = Config { quota_bytes: 64 * 1024, ..Config::default() };
    let db = wasmkeep_storage::Database::open(&path, &config).unwrap().into();
    let rig = Rig { folder, config, db };
    while rig.exec("INSERT INTO t VALUES(randomblob(2000))").is_ok() {}
    wait(rig.db.end_event());
    assert_eq!(rig.db.set_alarm(NOW, |_| Ok::<_, Error>(())), Err(Error::Full));
    assert_eq!(rig.db.alarm().unwrap(), Alarm::default());
}

#[test]
fn a_closed_database_is_asked_for_its_alarm_without_being_made() {
    let rig = Rig::new();
    let (path, config) = (rig.path(), Config::default());
    set(&rig, NOW);
    assert!(matches!(peek_alarm(&path, &config), Err(OpenError::Locked { .. })), "somebody has it open");
    let killed = rig.after_a_kill();
    let killed_path = killed.path();
    drop(killed.db);
    let kept = peek_alarm(&killed_path, &config).unwrap().expect("an alarm");
    assert_eq!((kept.alarm, kept.name), (pending(NOW), None));
    rig.db.clear_alarm().unwrap();
    drop(rig.db);
    assert_eq!(peek_alarm(&path, &config).unwrap(), None);
    let absent = path.with_file_name("absent.db");
    assert_eq!(peek_alarm(&absent, &config).unwrap(), None);
    assert!(!absent.exists());
}

#[test]
fn the_name_is_kept_where_the_file_does_not_tell_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("~hash.db");
    let db =
        wasmkeep_storage::Database::open(&path, &Config::default()).unwrap().named("the name".to_owned());
    db.set_alarm(NOW, |_| Ok::<_, Error>(())).unwrap();
    drop(db);
    let kept = peek_alarm(&path, &Config::default()).unwrap().expect("an alarm");
    assert_eq!(kept.name.as_deref(), Some("the name"));
}
