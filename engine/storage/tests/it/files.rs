//! Files: made, found damaged, removed.

use std::{fs, path::Path};

use wasmkeep_storage::{Config, Database, Error, OpenError, remove};

use crate::rig::{Rig, wait};

fn open(path: &Path) -> Result<Database, OpenError> {
    Database::open(path, &Config::default())
}

fn count(db: &Database) -> usize {
    wait(db.query("SELECT name FROM sqlite_schema", vec![])).unwrap().rows.len()
}

#[test]
fn a_new_database_is_like_one_sqlite_makes() {
    let rig = Rig::new();
    assert_eq!(rig.db.size_bytes(), 2 * 4096);
    assert!(rig.is_sound());
    assert_eq!(rig.number("PRAGMA user_version"), 0);
    assert_eq!(rig.number("PRAGMA auto_vacuum"), 0);
    assert_eq!(rig.number("PRAGMA freelist_count"), 0);
    assert_eq!(rig.value("PRAGMA encoding"), crate::rig::text("UTF-8"));
    assert!(!rig.folder.path().join("shop/cart.db-shm").exists(), "no shared memory beside an actor");
    // The first page of a database that was really used agrees with its own size and change counter.
    rig.exec("CREATE TABLE t(x)").unwrap();
    assert!(rig.reopen().is_sound());
}

#[test]
fn pages_lost_in_a_crash_are_written_again() {
    let whole = {
        let rig = Rig::new();
        fs::read(rig.path()).unwrap()
    };
    let mut torn = whole.clone();
    torn[4096..].fill(0);
    // Not one of no bytes: a new file has its length first, and one that is empty was truncated.
    for lost in [&[0; 4096][..], &[0; 100], &[0; 8192], &whole[..4096], &whole[..5000], &torn, &whole] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, lost).unwrap();
        let db = open(&path).unwrap();
        wait(db.exec("CREATE TABLE t(x)", vec![])).unwrap();
        drop(db);
        // The same again, with a WAL that was written: it holds everything.
        fs::write(&path, lost).unwrap();
        let db = open(&path).unwrap();
        assert_eq!(count(&db), 2, "{} bytes", lost.len());
        let rig = Rig { folder, config: Config::default(), db: db.into() };
        assert!(rig.is_sound(), "{} bytes", lost.len());
    }
}

#[test]
fn a_wal_left_by_an_earlier_database_of_the_name_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let db = open(&path).unwrap();
    wait(db.exec("CREATE TABLE t(x)", vec![])).unwrap();
    drop(db);
    fs::remove_file(&path).unwrap();
    assert!(folder.path().join("x.db-wal").exists());
    assert_eq!(count(&open(&path).unwrap()), 1);
}

#[test]
fn remove_takes_everything_and_may_be_repeated() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    let path = rig.path();
    let Rig { folder, db, .. } = rig;
    drop(db);
    fs::write(folder.path().join("shop/cart.db-journal"), "x").unwrap();
    fs::write(folder.path().join("shop/cart.db2"), "another actor").unwrap();
    remove(&path).unwrap();
    remove(&path).unwrap();
    let left: Vec<_> =
        fs::read_dir(folder.path().join("shop")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["cart.db2"]);
    assert_eq!(count(&open(&path).unwrap()), 1);
}

#[test]
fn a_damaged_file_is_named_and_left_untouched() {
    let sound = {
        let rig = Rig::new();
        rig.exec("CREATE TABLE t(x)").unwrap();
        wait(rig.db.checkpoint(&wasmkeep_storage::Inline)).unwrap();
        fs::read(rig.path()).unwrap()
    };
    let mut header = sound.clone();
    header[..16].copy_from_slice(b"not a database!!");
    let mut version = sound.clone();
    version[19] = 9;
    for (what, content) in [
        ("text", b"this is not a database at all".to_vec()),
        ("noise", vec![0xa5; 20_000]),
        ("header", header),
        ("version", version),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, &content).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("damaged") && error.to_string().contains("untouched"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content, "{what}");
    }
}

#[test]
fn damage_found_by_a_statement_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let db = open(&path).unwrap();
    wait(db.exec("CREATE TABLE t(x)", vec![])).unwrap();
    wait(db.exec("INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 100) SELECT zeroblob(1000) FROM r", vec![])).unwrap();
    wait(db.checkpoint(&wasmkeep_storage::Inline)).unwrap();
    drop(db);
    let mut content = fs::read(&path).unwrap();
    // The table of the guest begins on the third page.
    content[2 * 4096..3 * 4096].fill(0xa5);
    fs::write(&path, &content).unwrap();
    let db = open(&path).unwrap();
    let error = wait(db.query("SELECT count(x) FROM t", vec![])).unwrap_err();
    assert!(error.is_damage(), "{error:?}");
    assert!(error.to_string().contains("database file is damaged"), "{error}");
    drop(db);
    assert_eq!(fs::read(&path).unwrap(), content);
    // A damaged index of a guest's own making is not damage of the file.
    let rig = Rig::new();
    let error = rig.exec("INSERT INTO missing VALUES(1)").unwrap_err();
    assert!(!error.is_damage() && !Error::Full.is_damage());
}

#[test]
fn an_unusable_place_is_an_error_of_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    let error = open(&folder.path().join("file/x.db")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    fs::create_dir(folder.path().join("x.db")).unwrap();
    assert!(open(&folder.path().join("x.db")).is_err());
}
