//! What is on stable storage, checkpoints, and work that happens on other threads.

use std::{fs, future::Future, path::PathBuf, pin::Pin, rc::Rc, sync::mpsc, thread};

use wasmkeep_storage::{CommitSink, Config, Database, Error, Inline, Offload, Value};

use crate::rig::{Held, Rig, polled, refusal, wait};

/// Drops every job.
struct Broken;

impl Offload for Broken {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        drop(job);
    }
}

/// Runs jobs on threads of their own.
struct Threads;

impl Offload for Threads {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        thread::spawn(job);
    }
}

fn fill(rig: &Rig, frames: i64) {
    rig.exec("CREATE TABLE IF NOT EXISTS t(x)").unwrap();
    rig.exec(&format!("INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < {frames}) SELECT zeroblob(3500) FROM r")).unwrap();
}

fn wal_path(rig: &Rig) -> PathBuf {
    rig.folder.path().join("shop/cart.db-wal")
}

fn wal_len(rig: &Rig) -> u64 {
    fs::metadata(wal_path(rig)).map_or(0, |found| found.len())
}

fn is_wal_blank(rig: &Rig) -> bool {
    fs::read(wal_path(rig)).unwrap().iter().take(32).all(|byte| *byte == 0)
}

#[test]
fn what_was_committed_is_in_the_files_whatever_happens_to_the_process() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    for number in 0..20 {
        rig.durable(&format!("INSERT INTO t VALUES({number})")).unwrap();
        let after = rig.after_a_kill();
        assert_eq!(after.number("SELECT count(*) FROM t"), number + 1);
        assert!(after.is_sound());
    }
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(is_wal_blank(&rig), "after a checkpoint nothing in the WAL counts");
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 20);
    rig.durable("INSERT INTO t VALUES(20)").unwrap();
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 21);
    assert_eq!(rig.reopen().number("SELECT count(*) FROM t"), 21);
}

#[test]
fn a_checkpoint_is_due_after_a_thousand_frames_and_not_while_something_is_open() {
    let rig = Rig::new();
    fill(&rig, 500);
    assert!(!rig.db.checkpoint_due());
    fill(&rig, 600);
    assert!(rig.db.checkpoint_due());
    rig.exec("BEGIN").unwrap();
    assert!(refusal(wait(rig.db.checkpoint(&Inline))).contains("transaction"));
    rig.exec("COMMIT").unwrap();
    let cursor = wait(rig.db.open_cursor("SELECT x FROM t", vec![])).unwrap();
    wait(cursor.next(1)).unwrap();
    assert!(refusal(wait(rig.db.checkpoint(&Inline))).contains("cursor"));
    drop(cursor);
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(!rig.db.checkpoint_due());
    assert_eq!(rig.number("SELECT count(*) FROM t"), 1100);
    fill(&rig, 10);
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 1110);
}

#[test]
fn a_round_is_written_over_the_one_before_and_never_mixes_with_it() {
    let rig = Rig::new();
    fill(&rig, 50);
    let old = fs::read(wal_path(&rig)).unwrap();
    wait(rig.db.checkpoint(&Inline)).unwrap();
    rig.exec("DELETE FROM t WHERE rowid > 40").unwrap();
    rig.exec("INSERT INTO t VALUES(1)").unwrap();
    assert_eq!(wal_len(&rig), old.len() as u64, "the space is used again");
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 41);
    // What a power loss may leave of the new round, none of which was synced: its frames without its header, its
    // header without its frames, and its header with a part of them.
    let new = fs::read(wal_path(&rig)).unwrap();
    let header_only = [&new[..32], &old[32..]].concat();
    let frames_only = [&[0; 32], &new[32..]].concat();
    let one_frame = [&new[..32 + 4120], &old[32 + 4120..]].concat();
    for (what, wal) in [("header", header_only), ("frames", frames_only), ("one frame", one_frame)] {
        let after = rig.after_a_kill();
        let path = after.path();
        let Rig { folder, config, db } = after;
        drop(db);
        fs::write(folder.path().join("shop/cart.db-wal"), wal).unwrap();
        let db = Rc::new(Database::open(&path, &config).unwrap());
        let after = Rig { folder, config, db };
        assert!(after.is_sound(), "{what}");
        assert_eq!(after.number("SELECT count(*) FROM t"), 50, "{what}: as of the checkpoint");
    }
    let rig = rig.reopen();
    assert_eq!(rig.number("SELECT count(*) FROM t"), 41);
}

#[test]
fn space_that_a_large_transaction_took_is_given_back() {
    let rig = Rig::new();
    fill(&rig, 2_500);
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert_eq!(wal_len(&rig), 0);
    fill(&rig, 1_500);
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(wal_len(&rig) > 0 && is_wal_blank(&rig));
    assert!(!rig.db.checkpoint_due(), "what was moved is not moved again");
    fill(&rig, 1);
    assert!(!rig.db.checkpoint_due());
    let rig = rig.reopen();
    assert_eq!(wal_len(&rig), 0, "a close gives back what a busy time took");
    assert_eq!(rig.number("SELECT count(*) FROM t"), 4_001);
}

#[test]
fn statements_wait_for_a_checkpoint_even_one_whose_asker_has_left() {
    let rig = Rig::new();
    fill(&rig, 50);
    let held = Held::default();
    {
        let mut asked = Box::pin(rig.db.checkpoint(&held));
        let waker = std::task::Waker::noop();
        assert!(asked.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    assert!(rig.db.begin_init().is_err());
    let mut ending = Box::pin(rig.db.end_event());
    let mut count = Box::pin(rig.db.query("SELECT count(*) FROM t", vec![]));
    let waker = std::task::Waker::noop();
    for _ in 0..3 {
        assert!(ending.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        assert!(count.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    held.release();
    assert!(!wait(ending).rolled_back);
    assert_eq!(wait(count).unwrap().rows, [[Value::Integer(50)]]);
    assert!(is_wal_blank(&rig));
}

#[test]
fn a_database_dropped_during_a_checkpoint_is_closed_by_the_thread_that_has_it() {
    let rig = Rig::new();
    fill(&rig, 50);
    let held = Held::default();
    {
        let mut asked = Box::pin(rig.db.checkpoint(&held));
        let waker = std::task::Waker::noop();
        assert!(asked.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    let Rig { folder, config, db } = rig;
    drop(db);
    held.release();
    let db = Rc::new(Database::open(&folder.path().join("shop/cart.db"), &config).unwrap());
    assert_eq!(Rig { folder, config, db }.number("SELECT count(*) FROM t"), 50);
}

#[test]
// R-DUR-1
fn a_sync_that_is_not_confirmed_is_told_and_nothing_more_is_taken() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    let result = wait(rig.db.exec_durable(&Broken, "INSERT INTO t VALUES(1)", vec![]));
    assert!(matches!(result, Err(Error::NotDurable(_))), "{result:?}");
    assert!(rig.db.is_poisoned());
    assert!(matches!(rig.exec("INSERT INTO t VALUES(2)"), Err(Error::NotDurable(_))));
    assert!(matches!(rig.rows("SELECT 1"), Err(Error::NotDurable(_))));
    assert!(matches!(rig.durable("SELECT 1"), Err(Error::NotDurable(_))));
    wait(rig.db.end_event());
}

#[test]
fn a_sync_of_files_that_are_gone_is_a_failure() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    wasmkeep_storage::remove(&rig.path()).unwrap();
    let result = rig.durable("INSERT INTO t VALUES(1)");
    assert!(matches!(result, Err(Error::NotDurable(_))), "{result:?}");
    assert!(rig.db.is_poisoned());
}

#[test]
fn a_durable_write_leaves_the_file_locked_against_other_processes() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig.durable("INSERT INTO t VALUES(1)").unwrap();
    // A POSIX lock belongs to the process, so only another one can tell.
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\ntry:\n fcntl.lockf(f,fcntl.LOCK_SH|fcntl.LOCK_NB,510,0x40000002)\n print('free')\nexcept OSError:\n print('locked')";
    let answer = std::process::Command::new("python3").args(["-c", script]).arg(rig.path()).output();
    let Ok(answer) = answer else { return };
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "locked");
}

#[test]
fn a_database_opens_works_and_closes_across_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/c.db");
    let config = Config { root: folder.path().to_owned(), ..Config::default() };
    for round in 0..3 {
        let db = wait(Database::open_on(&Threads, &path, &config)).unwrap();
        wait(db.exec("CREATE TABLE IF NOT EXISTS t(x)", vec![])).unwrap();
        wait(db.exec_durable(&Threads, "INSERT INTO t VALUES(1)", vec![])).unwrap();
        wait(db.checkpoint(&Threads)).unwrap();
        wait(db.exec_durable(&Threads, "INSERT INTO t VALUES(2)", vec![])).unwrap();
        let rows = wait(db.query("SELECT count(*) FROM t", vec![])).unwrap().rows;
        assert_eq!(rows, [[Value::Integer(2 * (round + 1))]]);
        let ((), polls) = polled(db.close(&Threads));
        assert!(polls >= 1);
    }
    assert!(matches!(
        wait(Database::open_on(&Broken, &path, &config)),
        Err(wasmkeep_storage::OpenError::GivenUp)
    ));
}

#[test]
fn closing_a_long_wal_checkpoints_and_a_short_one_stays() {
    let rig = Rig::new();
    fill(&rig, 10);
    let rig = rig.reopen();
    assert!(wal_len(&rig) > 0, "a short WAL costs no sync at the close");
    assert_eq!(rig.number("SELECT count(*) FROM t"), 10);
    fill(&rig, 200);
    let rig = rig.reopen();
    assert_eq!(wal_len(&rig), 0);
    assert_eq!(rig.number("SELECT count(*) FROM t"), 210);
    assert!(rig.is_sound());
}

#[test]
fn an_open_database_can_be_handed_to_another_thread() {
    let (send, receive) = mpsc::channel();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let opener = thread::spawn(move || send.send(Database::open(&path, &Config::default())).unwrap());
    let db = receive.recv().unwrap().unwrap();
    opener.join().unwrap();
    wait(db.exec("CREATE TABLE t(x)", vec![])).unwrap();
    assert!(db.take_sql_time() > std::time::Duration::ZERO);
    assert_eq!(db.take_sql_time(), std::time::Duration::ZERO);
}

/// What the file at `path` holds by itself.
fn alone(path: &std::path::Path) -> i64 {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("shop/cart.db");
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::copy(path, &copy).unwrap();
    let db = Rc::new(Database::open(&copy, &Config::default()).unwrap());
    Rig { folder, config: Config::default(), db }.number("SELECT count(*) FROM t")
}

#[test]
fn a_database_that_was_closed_is_whole_without_its_log() {
    // R-DUR-1
    for dozes in [false, true] {
        let mut rig = Rig::new();
        rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(0)").unwrap();
        for round in 1..4 {
            rig.durable("INSERT INTO t VALUES(1)").unwrap();
            assert!(wait(rig.db.doze(&Inline)));
            if !dozes {
                wait(rig.db.wake(&Inline)).unwrap();
            }
            let path = rig.path();
            let log = fs::read(rig.folder.path().join("shop/cart.db-wal")).unwrap();
            rig = rig.reopen();
            assert_eq!(alone(&path), round + 1, "dozes: {dozes}");
            let after = fs::read(rig.folder.path().join("shop/cart.db-wal")).unwrap();
            assert!(after.starts_with(&log), "what was durable rests on it still");
            assert_eq!(rig.number("SELECT count(*) FROM t"), round + 1);
            // What was only read is not written again.
            let before = fs::metadata(&path).unwrap().modified().unwrap();
            rig = rig.reopen();
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        }
        // A process that was killed leaves the last of it in the log; a clean end completes it.
        rig.exec("INSERT INTO t VALUES(1)").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let killed = rig.after_a_kill();
        let path = killed.path();
        assert_eq!(alone(&path), 4);
        let log = fs::OpenOptions::new().append(true).open(path.with_extension("db-wal")).unwrap();
        log.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
        let Rig { folder, db, .. } = killed;
        wait(Rc::try_unwrap(db).unwrap().close(&Inline));
        assert_eq!(alone(&path), 5);
        drop(folder);
    }
}

#[test]
fn an_empty_file_is_damage_and_stays_as_it_is() {
    // R-DUR-1
    for keeps_log in [false, true] {
        let rig = Rig::new();
        rig.script("CREATE TABLE t(x)").unwrap();
        rig.durable("INSERT INTO t VALUES(1)").unwrap();
        let (path, config) = (rig.path(), rig.config.clone());
        let Rig { folder: _folder, db, .. } = rig;
        wait(Rc::try_unwrap(db).unwrap().close(&Inline));
        fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let log = path.with_extension("db-wal");
        if !keeps_log {
            fs::remove_file(&log).unwrap();
        }
        let before = fs::read(&log).ok();
        for _ in 0..2 {
            let error = Database::open(&path, &config).unwrap_err();
            assert!(matches!(error, wasmkeep_storage::OpenError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains("empty"), "{error}");
        }
        assert!(wasmkeep_storage::peek_alarm(&path, &config).is_err());
        assert_eq!((fs::metadata(&path).unwrap().len(), fs::read(&log).ok()), (0, before));
    }
}

#[test]
fn what_a_kill_leaves_of_a_new_database_is_no_damage() {
    // R-DUR-1: a file has its name once it has its content, so only the other name can be empty.
    let rig = Rig::new();
    let (path, config) = (rig.path(), rig.config.clone());
    let Rig { folder: _folder, db, .. } = rig;
    wait(Rc::try_unwrap(db).unwrap().close(&Inline));
    for left in [&b""[..], b"SQLite format 3"] {
        wasmkeep_storage::remove(&path).unwrap();
        let unfinished = path.with_extension("db-new");
        fs::write(&unfinished, left).unwrap();
        let database = Database::open(&path, &config).unwrap();
        assert!(path.exists() && !unfinished.exists());
        wait(database.close(&Inline));
    }
}

/// Has the durable copy somewhere else.
struct Elsewhere;

impl CommitSink for Elsewhere {
    fn flush<'a>(&'a self, _: &'a Database) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[test]
fn a_close_completes_no_file_whose_durable_copy_is_elsewhere() {
    // R-DUR-1: no sync of this disk is worth anything then.
    for is_elsewhere in [true, false] {
        let rig = Rig::new();
        if is_elsewhere {
            rig.db.set_sink(Rc::new(Elsewhere));
        }
        rig.script("CREATE TABLE t(x)").unwrap();
        let before = fs::read(rig.path()).unwrap();
        let (path, Rig { folder: _folder, db, .. }) = (rig.path(), rig);
        wait(Rc::try_unwrap(db).unwrap().close(&Inline));
        assert_eq!(fs::read(path).unwrap() == before, is_elsewhere);
    }
}
