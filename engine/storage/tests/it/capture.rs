//! What commits changed: a copy made from the changes alone is equal to the database, page for page.

use std::{collections::HashSet, fs, rc::Rc};

use wasmkeep_ltx::{Changes, Checksum, File, MemoryPages, PageSize, Position, apply};
use wasmkeep_storage::{Config, Database, Inline, Offload};

use crate::rig::{Rig, polled, refusal, wait};

/// A copy of a database, kept up to date from its changes and nothing else.
pub(crate) struct Copy {
    pages: MemoryPages,
    pub(crate) at: Position,
}

impl Copy {
    /// Begins with a snapshot.
    pub(crate) fn of(rig: &Rig) -> Self {
        wait(rig.db.begin_capture(&Inline)).unwrap();
        let mut copy = Self { pages: MemoryPages::new(PageSize::DEFAULT, 1 << 20), at: Position::START };
        copy.read(&wait(rig.db.snapshot(&Inline, 1, 0)).unwrap().bytes);
        copy
    }

    fn read(&mut self, file: &[u8]) {
        let file = File::parse(file).unwrap().verify().unwrap();
        self.at = apply(&file, &self.at, &mut self.pages).unwrap();
    }

    /// Takes the changes there are; whether there were any.
    pub(crate) fn follow(&mut self, rig: &Rig) -> bool {
        let Some(changes) = wait(rig.db.take_changes()).unwrap() else { return false };
        self.read(&changes.encode(self.at.txid + 1, self.at.txid + 1, 0).unwrap().bytes);
        true
    }

    pub(crate) fn assert_equals(&self, rig: &Rig) {
        assert_eq!(rig.db.checksum(), self.at.checksum);
        let other = rig.after_a_kill();
        wait(other.db.checkpoint(&Inline)).unwrap();
        let file = fs::read(other.path()).unwrap();
        assert!(file == self.pages.as_bytes(), "the copy differs from the database");
    }
}

fn rows(rig: &Rig, count: u32) {
    let sql = format!(
        "INSERT INTO t(x) WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < {count}) SELECT randomblob(900) FROM r"
    );
    rig.exec(&sql).unwrap();
}

/// A database with a table, an index, a trigger that refuses, and a copy of it.
fn started() -> (Rig, Copy) {
    let rig = Rig::new();
    rig.script(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE INDEX by_x ON t(x);
         CREATE TABLE guard(kind);
         CREATE TRIGGER undo BEFORE INSERT ON guard WHEN new.kind = 'rollback'
             BEGIN SELECT RAISE(ROLLBACK, 'no'); END;",
    )
    .unwrap();
    let copy = Copy::of(&rig);
    (rig, copy)
}

// R-REPL-1, case Q3
#[test]
fn a_commit_is_seen_however_its_statement_ends() {
    let (rig, mut copy) = started();
    assert!(!copy.follow(&rig));
    let ways: &[(&str, &dyn Fn())] = &[
        ("to its end", &|| {
            rig.exec("INSERT INTO t(x) VALUES(1)").unwrap();
        }),
        ("with rows", &|| drop(rig.rows("INSERT INTO t(x) VALUES(2), (3) RETURNING id").unwrap())),
        ("several commits", &|| {
            rig.script("INSERT INTO t(x) VALUES(4); DELETE FROM t WHERE x = 4; UPDATE t SET x = 5").unwrap()
        }),
        ("a transaction", &|| rig.script("BEGIN; INSERT INTO t(x) VALUES(6); COMMIT").unwrap()),
        ("durable", &|| {
            rig.durable("INSERT INTO t(x) VALUES(7)").unwrap();
        }),
        ("an error after a commit", &|| {
            drop(rig.script("INSERT INTO t(x) VALUES(8); INSERT INTO missing VALUES(1)").unwrap_err())
        }),
        ("after a rollback of a trigger", &|| {
            rig.script("BEGIN; INSERT INTO t(x) VALUES(9); INSERT INTO guard VALUES('rollback')")
                .unwrap_err();
            rig.exec("INSERT INTO t(x) VALUES(10)").unwrap();
        }),
        ("within on-init", &|| {
            rig.db.begin_init().unwrap();
            rig.exec("INSERT INTO t(x) VALUES(11)").unwrap();
            rig.db.commit_init("v1").unwrap();
        }),
        ("beside a cursor", &|| {
            let cursor = wait(rig.db.open_cursor("SELECT x FROM t", vec![])).unwrap();
            wait(cursor.next(1)).unwrap();
            rig.exec("INSERT INTO t(x) VALUES(12)").unwrap();
            drop(cursor);
        }),
        ("a schema", &|| {
            rig.exec("ALTER TABLE t ADD COLUMN y").unwrap();
        }),
        ("a large value", &|| {
            rig.exec("INSERT INTO t(x) VALUES(zeroblob(3000000))").unwrap();
        }),
        ("a pragma", &|| {
            rig.exec("PRAGMA user_version=7").unwrap();
        }),
    ];
    for (way, act) in ways {
        act();
        assert!(copy.follow(&rig), "{way}");
        copy.assert_equals(&rig);
        assert!(!copy.follow(&rig), "{way}: given out twice");
    }
}

#[test]
fn what_is_not_committed_is_no_change() {
    let (rig, mut copy) = started();
    rows(&rig, 50);
    assert!(copy.follow(&rig));
    for sql in [
        "BEGIN; INSERT INTO t(x) VALUES(1); ROLLBACK",
        "CREATE TEMP TABLE scratch(x); INSERT INTO scratch VALUES(1); DROP TABLE scratch",
        "SELECT count(*) FROM t",
        "BEGIN; SELECT 1; COMMIT",
        "UPDATE t SET x = 1 WHERE id < 0",
    ] {
        rig.script(sql).unwrap();
        assert!(!copy.follow(&rig), "{sql}");
    }
    // Larger than the page cache, so that pages reach the log before the rollback.
    rig.exec("BEGIN").unwrap();
    rows(&rig, 6_000);
    assert!(!copy.follow(&rig), "an open transaction");
    rig.exec("ROLLBACK").unwrap();
    assert!(!copy.follow(&rig));
    rig.exec("INSERT INTO t(x) VALUES(1)").unwrap();
    assert!(copy.follow(&rig));
    copy.assert_equals(&rig);
    rig.script(
        "BEGIN; SAVEPOINT a; INSERT INTO t(x) VALUES(2); ROLLBACK TO a; INSERT INTO t(x) VALUES(3); COMMIT",
    )
    .unwrap();
    assert!(copy.follow(&rig));
    copy.assert_equals(&rig);
}

// case R4
#[test]
fn a_database_that_shrinks_and_grows_again_is_followed() {
    for prelude in ["", "PRAGMA auto_vacuum=FULL; VACUUM", "PRAGMA auto_vacuum=INCREMENTAL; VACUUM"] {
        let (rig, mut copy) = started();
        rig.script(prelude).unwrap();
        rows(&rig, 600);
        copy.follow(&rig);
        let large = rig.db.size_bytes();
        for round in 0..3 {
            rig.exec("DELETE FROM t WHERE id % 10 <> 0").unwrap();
            copy.follow(&rig);
            rig.script("PRAGMA incremental_vacuum; VACUUM").unwrap();
            rig.durable("INSERT INTO t(x) VALUES('after')").unwrap();
            assert!(rig.db.size_bytes() < large, "{prelude}");
            copy.follow(&rig);
            copy.assert_equals(&rig);
            if round == 1 {
                wait(rig.db.checkpoint(&Inline)).unwrap();
            }
            rows(&rig, 500);
            copy.follow(&rig);
            copy.assert_equals(&rig);
        }
        // Both between two looks.
        rig.script("DELETE FROM t; VACUUM").unwrap();
        rows(&rig, 300);
        copy.follow(&rig);
        copy.assert_equals(&rig);
    }
}

#[test]
fn a_checkpoint_loses_no_change_and_the_next_log_is_read_from_its_start() {
    let (rig, mut copy) = started();
    for round in 0..4 {
        rows(&rig, 40);
        wait(rig.db.checkpoint(&Inline)).unwrap();
        if round % 2 == 0 {
            rows(&rig, 40);
        }
        assert!(copy.follow(&rig));
        copy.assert_equals(&rig);
    }
}

// R-REPL-5, case R6
#[test]
fn a_database_opened_again_is_known_by_its_checksum() {
    let (mut rig, mut copy) = started();
    for round in 0..6 {
        rows(&rig, if round % 2 == 0 { 5 } else { 300 });
        rig.exec("DELETE FROM t WHERE id % 3 = 0").unwrap();
        copy.follow(&rig);
        rig = rig.reopen();
        assert_eq!(wait(rig.db.begin_capture(&Inline)).map(Some), Ok(copy.at.checksum));
        assert!(!copy.follow(&rig));
        rig.exec("INSERT INTO t(x) VALUES('next')").unwrap();
        assert!(copy.follow(&rig));
        copy.assert_equals(&rig);
    }
    let killed = rig.after_a_kill();
    assert_eq!(wait(killed.db.begin_capture(&Inline)).map(Some), Ok(copy.at.checksum));
}

#[test]
fn a_snapshot_holds_what_the_changes_lead_to() {
    let (rig, mut copy) = started();
    rows(&rig, 100);
    assert!(refusal(wait(rig.db.snapshot(&Inline, 2, 0))).contains("changes wait"));
    copy.follow(&rig);
    let file = wait(rig.db.snapshot(&Inline, 2, 0)).unwrap();
    let mut other = Copy { pages: MemoryPages::new(PageSize::DEFAULT, 1 << 20), at: Position::START };
    other.read(&file.bytes);
    assert!(other.pages == copy.pages && other.at == copy.at);
    // What is open does not matter: a transaction, larger than the page cache, and a cursor.
    rig.exec("BEGIN").unwrap();
    rows(&rig, 6_000);
    let cursor = wait(rig.db.open_cursor("SELECT x FROM t", vec![])).unwrap();
    wait(cursor.next(1)).unwrap();
    assert_eq!(wait(rig.db.snapshot(&Inline, 2, 0)).map(|again| again.bytes), Ok(file.bytes));
    wait(cursor.next(1)).unwrap();
    drop(cursor);
    rig.exec("ROLLBACK").unwrap();
    let plain = Rig::new();
    assert!(refusal(wait(plain.db.snapshot(&Inline, 2, 0))).contains("kept track of"));
    assert_eq!(wait(plain.db.take_changes()), Ok(None));
}

#[test]
fn reading_a_long_transaction_gives_the_core_back() {
    let (rig, _) = started();
    rows(&rig, 2_000);
    let (changes, polls) = polled(rig.db.take_changes());
    assert!(changes.unwrap().is_some());
    assert!(polls > 10, "{polls}");
}

#[test]
fn a_log_cut_in_a_commit_is_read_as_sqlite_recovers_it() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(id INTEGER PRIMARY KEY, x)").unwrap();
    rows(&rig, 3);
    rows(&rig, 30);
    let wal = fs::read(rig.folder.path().join("shop/cart.db-wal")).unwrap();
    let mut seen: HashSet<Checksum> = HashSet::new();
    for cut in (0..wal.len()).step_by(1_111) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        let path = folder.path().join("shop/cart.db");
        fs::copy(rig.path(), &path).unwrap();
        fs::write(folder.path().join("shop/cart.db-wal"), &wal[..cut]).unwrap();
        let db = Rc::new(Database::open(&path, &Config::default()).unwrap());
        let other = Rig { folder, config: Config::default(), db };
        let copy = Copy::of(&other);
        copy.assert_equals(&other);
        seen.extend(copy.at.checksum);
    }
    assert_eq!(
        seen.len(),
        3,
        "an empty database, and one after each of two statements that reached the cuts"
    );
}

/// Drops every job.
struct Broken;

impl Offload for Broken {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        drop(job);
    }
}

#[test]
fn what_the_threads_give_up_is_an_error_and_nothing_is_lost() {
    let (rig, mut copy) = started();
    rig.exec("INSERT INTO t(x) VALUES(1)").unwrap();
    assert!(refusal(wait(rig.db.checkpoint(&Broken))).contains("given up"));
    assert!(copy.follow(&rig));
    assert!(refusal(wait(rig.db.snapshot(&Broken, 2, 0))).contains("given up"));
    copy.assert_equals(&rig);
}

#[test]
fn changes_taken_one_by_one_merge_into_what_they_are_together() {
    let (rig, mut copy) = started();
    let mut merged: Option<Changes> = None;
    for sql in [
        "INSERT INTO t(x) VALUES(zeroblob(90000))",
        "DELETE FROM t; VACUUM",
        "INSERT INTO t(x) VALUES(zeroblob(50000))",
    ] {
        rig.script(sql).unwrap();
        let changes = wait(rig.db.take_changes()).unwrap().expect("a commit");
        match &mut merged {
            Some(earlier) => earlier.append(changes).unwrap(),
            None => merged = Some(changes),
        }
    }
    copy.read(&merged.unwrap().encode(2, 4, 0).unwrap().bytes);
    copy.assert_equals(&rig);
}
