//! A database that was closed well is recognised without being read, and one that was not is read.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    rc::Rc,
};

use wasmkeep_storage::{Database, Inline, remove};

use crate::rig::{Rig, refusal, wait};

const SUMS: &str = "shop/cart.db-sums";

/// What may happen between two closes, by name.
type Act<'a> = (&'a str, &'a dyn Fn(&Rig));

/// Bytes this thread has read from files so far.
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// Begins to capture; the checksum, and whether the database was read for it.
fn begun(rig: &Rig) -> (u64, bool) {
    let before = bytes_read();
    let checksum = wait(rig.db.begin_capture(&Inline)).unwrap().get();
    (checksum, bytes_read() - before >= rig.db.size_bytes())
}

fn checksum(rig: &Rig) -> u64 {
    wait(rig.db.take_changes()).unwrap();
    rig.db.checksum().unwrap().get()
}

/// A database of 8 MiB whose commits are kept track of.
fn large() -> Rig {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(id INTEGER PRIMARY KEY, x); INSERT INTO t(x) VALUES(randomblob(8000000))")
        .unwrap();
    assert!(begun(&rig).1);
    rig
}

/// Lets a database go as a process does that is killed: nothing is written any more. It is opened again.
fn killed(rig: Rig) -> Rig {
    let Rig { folder, config, db } = rig;
    drop(db);
    let db = Rc::new(Database::open(&folder.path().join("shop/cart.db"), &config).unwrap());
    Rig { folder, config, db }
}

/// What a look at every page finds.
fn looked_at(rig: &Rig) -> u64 {
    let copy = rig.after_a_kill();
    let (checksum, was_read) = begun(&copy);
    assert!(was_read, "a copy is another file");
    checksum
}

// R-REPL-5
#[test]
fn a_database_that_was_closed_well_is_known_without_being_read() {
    let acts: &[Act] = &[
        ("nothing", &|_| {}),
        ("a commit", &|rig| rig.script("INSERT INTO t(x) VALUES(1)").unwrap()),
        ("a log that is put away at the close", &|rig| {
            rig.exec("INSERT INTO t(x) VALUES(randomblob(900000))").unwrap();
        }),
        ("a checkpoint", &|rig| wait(rig.db.checkpoint(&Inline)).unwrap()),
        ("a doze", &|rig| {
            rig.exec("UPDATE t SET x = randomblob(500000) WHERE id > 1").unwrap();
            assert!(wait(rig.db.doze(&Inline)));
            wait(rig.db.wake(&Inline)).unwrap();
            rig.exec("INSERT INTO t(x) VALUES(2)").unwrap();
        }),
        ("a close while it dozes", &|rig| assert!(wait(rig.db.doze(&Inline)))),
        ("fewer pages", &|rig| rig.script("DELETE FROM t WHERE id > 1; VACUUM").unwrap()),
    ];
    let mut rig = large();
    for (what, act) in acts {
        act(&rig);
        let expected = checksum(&rig);
        rig = rig.reopen();
        assert_eq!(begun(&rig), (expected, false), "{what}");
        assert_eq!(looked_at(&rig), expected, "{what}");
    }
    // What it goes on from is right, too.
    rig.exec("UPDATE t SET x = randomblob(3000000)").unwrap();
    let expected = checksum(&rig);
    assert_eq!(looked_at(&rig), expected);
}

// R-REPL-5, case R6
#[test]
fn a_database_that_was_not_closed_well_is_read() {
    let rig = large().reopen();
    assert!(!begun(&rig).1);
    rig.exec("INSERT INTO t(x) VALUES(1)").unwrap();
    let expected = checksum(&rig);
    let rig = killed(rig);
    assert_eq!(begun(&rig), (expected, true));
    // Killed while it was not kept track of: nobody believes what was kept before.
    let rig = rig.reopen();
    rig.exec("INSERT INTO t(x) VALUES(2)").unwrap();
    let rig = killed(rig);
    let expected = looked_at(&rig);
    assert_eq!(begun(&rig), (expected, true));
}

#[test]
fn a_lost_log_is_noticed() {
    // Closed, and its log with it; the next one is short and stays beside the database.
    let rig = large().reopen();
    assert!(!begun(&rig).1);
    rig.exec("INSERT INTO t(x) VALUES(1)").unwrap();
    let before = checksum(&rig);
    let Rig { folder, config, db } = rig;
    wait(Rc::try_unwrap(db).unwrap().close(&Inline));
    fs::remove_file(folder.path().join("shop/cart.db-wal")).unwrap();
    let db = Rc::new(Database::open(&folder.path().join("shop/cart.db"), &config).unwrap());
    let rig = Rig { folder, config, db };
    let (now, was_read) = begun(&rig);
    assert!(was_read);
    assert_eq!(now, before, "a database that was closed is whole without it");
}

#[test]
fn a_page_the_disk_changed_is_found_by_the_next_snapshot_and_the_database_is_read_then() {
    let rig = large();
    wait(rig.db.checkpoint(&Inline)).unwrap();
    checksum(&rig);
    let file = OpenOptions::new().write(true).open(rig.path()).unwrap();
    file.write_all_at(&[0xa5], 1_000_000).unwrap();
    let refused = wait(rig.db.snapshot(&Inline, 1, 0)).map(drop);
    assert!(refusal(refused).contains("snapshot cannot be made"));
    let rig = rig.reopen();
    assert!(begun(&rig).1);
    wait(rig.db.snapshot(&Inline, 1, 0)).unwrap();
}

#[test]
fn nothing_is_left_of_a_database_that_is_removed() {
    let rig = large();
    assert!(rig.folder.path().join(SUMS).exists());
    remove(&rig.path()).unwrap();
    assert!(!rig.folder.path().join(SUMS).exists());
}

/// A database of 3 MiB in some 800 pages of rows, kept track of, closed well and opened again.
fn of_rows() -> Rig {
    let rig = Rig::new();
    rig.script(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x);
         INSERT INTO t(x) WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3000)
             SELECT zeroblob(1000) FROM r",
    )
    .unwrap();
    wait(rig.db.checkpoint(&Inline)).unwrap();
    begun(&rig);
    rig.reopen()
}

#[test]
fn damage_that_a_statement_finds_is_told_and_makes_the_next_opening_read_all() {
    // R-RST-1
    let rig = of_rows();
    let (sound, was_read) = begun(&rig);
    assert!(!was_read, "its sums are believed, so this tells something");
    let file = OpenOptions::new().write(true).open(rig.path()).unwrap();
    file.write_all_at(&[0x5a; 16 * 4096], 400 * 4096).unwrap();
    let damaged = fs::read(rig.path()).unwrap();
    assert_eq!(rig.number("SELECT count(*) FROM t WHERE id < 10"), 9);
    assert!(!rig.db.is_damaged());
    let error = rig.rows("SELECT sum(length(x)) FROM t").unwrap_err();
    assert!(error.is_damage() && rig.db.is_damaged(), "{error}");
    let rig = rig.reopen();
    assert!(!rig.db.is_damaged(), "nobody has looked yet");
    assert!(fs::read(rig.path()).unwrap() == damaged, "it is left as it was");
    let (found, was_read) = begun(&rig);
    assert!(was_read && found != sound);
}

#[test]
fn a_file_the_disk_cannot_read_is_damage() {
    // R-RST-1. The system answers EIO to a read of this one.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
    let error = Database::open(&path, &wasmkeep_storage::Config::default()).unwrap_err();
    assert!(error.is_damage(), "{error}");
    let nowhere = folder.path().join("x.db/y.db");
    let error = Database::open(&nowhere, &wasmkeep_storage::Config::default()).unwrap_err();
    assert!(!error.is_damage(), "{error}");
}
