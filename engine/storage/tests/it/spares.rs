//! Databases made ahead, and their way to where they belong.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use wasmkeep_storage::{Config, Database, Inline, OpenError, Spare, Unplaced};

use crate::rig::{Rig, wait};

/// A spare, and the folder of a class that has no actor.
fn rig() -> (TempDir, Config, Spare) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { root: folder.path().to_owned(), ..Config::default() };
    fs::create_dir_all(folder.path().join("shop")).unwrap();
    let spare = make(folder.path(), &config);
    (folder, config, spare)
}

fn make(folder: &Path, config: &Config) -> Spare {
    Spare::make(&folder.join("spares/1.db"), config).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn cart(folder: &TempDir) -> PathBuf {
    folder.path().join("shop/cart.db")
}

/// The files of a WAL and of a journal that would change the database they are found beside.
fn leftovers(folder: &Path) {
    let db = Database::open(&folder.join("cart.db"), &Config::default()).unwrap();
    wait(db.exec("CREATE TABLE earlier(x)", vec![])).unwrap();
    drop(db);
    fs::remove_file(folder.join("cart.db")).unwrap();
    fs::write(folder.join("cart.db-journal"), [0xd9; 600]).unwrap();
}

#[test]
fn a_spare_takes_its_place_as_an_empty_database() {
    for (what, before) in [("nothing", None), ("leftovers", Some(leftovers as fn(&Path)))] {
        let (folder, config, spare) = rig();
        before.inspect(|leave| leave(&folder.path().join("shop")));
        let db = spare.place(&cart(&folder), &config).unwrap();
        assert_eq!(db.init_version().unwrap(), None);
        assert_eq!(names(&folder.path().join("shop")), ["cart.db", "cart.db-wal"], "{what}");
        assert_eq!(names(&folder.path().join("spares")), [""; 0], "{what}");
        let rig = Rig { folder, config, db: db.into() };
        rig.db.begin_init().unwrap();
        rig.exec("CREATE TABLE t(x)").unwrap();
        rig.db.commit_init("v1").unwrap();
        rig.durable("INSERT INTO t VALUES(7)").unwrap();
        assert_eq!(
            rig.rows("SELECT name FROM sqlite_schema WHERE name = 'earlier'").unwrap().len(),
            0,
            "{what}"
        );
        let found = rig.after_a_kill();
        assert_eq!(found.db.init_version().unwrap().as_deref(), Some("v1"), "{what}");
        assert_eq!(found.number("SELECT x FROM t"), 7, "{what}");
        assert!(rig.is_sound() && found.is_sound(), "{what}");
    }
}

#[test]
fn a_placed_spare_dozes_wakes_and_checkpoints_where_it_is() {
    let (folder, config, spare) = rig();
    let rig = Rig { db: spare.place(&cart(&folder), &config).unwrap().into(), folder, config };
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    assert!(wait(rig.db.doze(&Inline)));
    wait(rig.db.wake(&Inline)).unwrap();
    rig.exec("INSERT INTO t VALUES(2)").unwrap();
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(rig.path().metadata().unwrap().len() > 2 * 4096, "the checkpoint reached the file");
    assert_eq!(rig.reopen().number("SELECT sum(x) FROM t"), 3);
}

#[test]
fn a_spare_never_replaces_a_database() {
    let (folder, config, spare) = rig();
    let there = Database::open(&cart(&folder), &config).unwrap();
    wait(there.exec("CREATE TABLE t(x)", vec![])).unwrap();
    drop(there);
    let Unplaced { spare, error } = spare.place(&cart(&folder), &config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(names(&folder.path().join("shop")), ["cart.db", "cart.db-wal"]);
    let there = Database::open(&cart(&folder), &config).unwrap();
    wait(there.query("SELECT x FROM t", vec![])).unwrap();
    // It is as good as before.
    let other = spare.place(&folder.path().join("shop/other.db"), &config).unwrap();
    wait(other.exec("CREATE TABLE t(x)", vec![])).unwrap();
}

#[test]
fn a_spare_waits_for_the_folder_it_belongs_to() {
    let (folder, config, spare) = rig();
    let path = folder.path().join("ship/cart.db");
    let Unplaced { spare, error } = spare.place(&path, &config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(names(&folder.path().join("spares")), ["1.db", "1.db-wal"]);
    fs::create_dir(folder.path().join("ship")).unwrap();
    wait(spare.place(&path, &config).unwrap().exec("CREATE TABLE t(x)", vec![])).unwrap();
}

#[test]
fn a_crash_between_the_renames_leaves_no_database() {
    let (folder, config, spare) = rig();
    leftovers(&folder.path().join("shop"));
    drop(spare);
    // The first of the two; then a process that knows nothing of it.
    fs::rename(folder.path().join("spares/1.db-wal"), folder.path().join("shop/cart.db-wal")).unwrap();
    assert!(!cart(&folder).exists());
    let rig = Rig { db: Database::open(&cart(&folder), &config).unwrap().into(), folder, config };
    assert_eq!(rig.rows("SELECT 1 FROM sqlite_schema WHERE name = 'earlier'").unwrap().len(), 0);
    assert!(rig.is_sound());
}

#[test]
fn a_spare_replaces_nothing_where_it_is_made_and_leaves_no_trace() {
    let (folder, config, spare) = rig();
    let made_at = folder.path().join("spares/1.db");
    assert!(matches!(Spare::make(&made_at, &config), Err(OpenError::Io { .. })), "another one has the name");
    spare.discard().unwrap();
    assert_eq!(names(&folder.path().join("spares")), [""; 0]);
    make(folder.path(), &config);
}
