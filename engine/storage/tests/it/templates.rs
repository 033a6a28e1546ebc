//! Databases that begin with what `on-init` left in another.

use std::{fs, path::Path, rc::Rc, sync::Arc};

use tempfile::TempDir;
use wasmkeep_storage::{Config, Database, Inline, OpenError, Spare, Template};

use crate::rig::{Rig, wait};

/// What `script` leaves, run as `on-init` of `v1`; an instance may have set pragmas meanwhile.
fn template(folder: &Path, script: &str) -> Option<Arc<Template>> {
    let path = folder.join("first.db");
    let database = Spare::make(&path, &Config::default()).unwrap().into_database();
    database.begin_init().unwrap();
    wait(database.exec_script(script)).unwrap();
    database.commit_init("v1").unwrap();
    let template = wait(Template::of(database, &Inline)).unwrap();
    wasmkeep_storage::remove(&path).unwrap();
    template.map(Arc::new)
}

/// An actor whose database began like `template`.
fn placed(template: &Arc<Template>, number: u32) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { root: folder.path().to_owned(), ..Config::default() };
    fs::create_dir_all(folder.path().join("shop")).unwrap();
    let spare = Spare::make_like(template, &folder.path().join(format!("{number}.db")), &config).unwrap();
    let db = spare.place(&folder.path().join("shop/cart.db"), &config).unwrap();
    Rig { folder, config, db: Rc::new(db) }
}

const SCHEMA: &str = "CREATE TABLE line(id INTEGER PRIMARY KEY, n INTEGER DEFAULT 7, updated_at INTEGER);
    CREATE INDEX by_n ON line(n);
    INSERT INTO line(id) VALUES(1);";

#[test]
fn a_database_that_begins_with_a_template_is_as_its_own_on_init_would_leave_it() {
    let folder = tempfile::tempdir().unwrap();
    let template = template(folder.path(), SCHEMA).expect("there is nothing against it");
    let (rig, other) = (placed(&template, 1), placed(&template, 2));
    for rig in [&rig, &other] {
        assert_eq!(rig.db.init_version().unwrap().as_deref(), Some("v1"));
        assert_eq!(rig.number("SELECT n FROM line WHERE id = 1"), 7);
    }
    rig.exec("INSERT INTO line(id, n) VALUES(2, 8)").unwrap();
    rig.durable("INSERT INTO line(id, n) VALUES(3, 9)").unwrap();
    assert_eq!(other.number("SELECT count(*) FROM line"), 1, "each is its own");
    let found = rig.after_a_kill();
    assert_eq!(found.db.init_version().unwrap().as_deref(), Some("v1"));
    assert_eq!(found.number("SELECT sum(n) FROM line"), 24);
    wait(rig.db.checkpoint(&Inline)).unwrap();
    assert!(wait(rig.db.doze(&Inline)));
    wait(rig.db.wake(&Inline)).unwrap();
    rig.exec("INSERT INTO line(id, n) VALUES(4, 1)").unwrap();
    let reopened = rig.reopen();
    assert_eq!(reopened.number("SELECT sum(n) FROM line"), 25);
    assert!(reopened.is_sound() && other.is_sound() && found.is_sound());
}

#[test]
fn what_a_crash_keeps_of_it_is_a_database_too() {
    let folder = tempfile::tempdir().unwrap();
    let template = template(folder.path(), SCHEMA).unwrap();
    let rig = placed(&template, 1);
    rig.exec("INSERT INTO line(id, n) VALUES(2, 8)").unwrap();
    let whole = fs::read(rig.folder.path().join("shop/cart.db-wal")).unwrap();
    // Nothing of either file need have reached the disk, nor all of the log in one piece.
    for kept in (0..=whole.len()).step_by(1030) {
        for pages in [0, 4096, 8192] {
            let lost = tempfile::tempdir().unwrap();
            let path = lost.path().join("cart.db");
            let mut file = fs::read(rig.path()).unwrap();
            file[pages..].fill(0);
            fs::write(&path, file).unwrap();
            fs::write(lost.path().join("cart.db-wal"), &whole[..kept]).unwrap();
            let db = Rc::new(Database::open(&path, &Config::default()).unwrap());
            let found = Rig { folder: lost, config: Config::default(), db };
            let version = found.db.init_version().unwrap();
            let tables = found.number("SELECT count(*) FROM sqlite_schema WHERE name = 'line'");
            assert_eq!(tables, i64::from(version.is_some()), "{kept} bytes of the log, {pages} of the file");
            assert!(found.is_sound());
        }
    }
}

#[test]
fn what_may_differ_from_actor_to_actor_is_no_template() {
    for (script, expected) in [
        (SCHEMA, true),
        ("CREATE TABLE a(x); UPDATE a SET x = 1", true),
        ("CREATE VIRTUAL TABLE a USING fts5(x); INSERT INTO a VALUES('now')", true),
        ("CREATE TABLE a(x); INSERT INTO a VALUES(random())", false),
        ("CREATE TABLE a(x); INSERT INTO a VALUES(RandomBlob(4))", false),
        ("CREATE TABLE a(x DEFAULT CURRENT_TIMESTAMP)", false),
        ("CREATE TABLE a(x DEFAULT (date('now')))", false),
        ("CREATE TABLE a(x); INSERT INTO a SELECT \"unixepoch\"()", false),
        ("CREATE VIEW a AS SELECT strftime/**/('%s')", false),
        (
            "CREATE TABLE a(x); CREATE TRIGGER b AFTER INSERT ON a BEGIN DELETE FROM a WHERE x < julianday(); END",
            false,
        ),
        // Until the actor sleeps, in no file.
        ("CREATE TABLE a(x); PRAGMA recursive_triggers = 1", false),
        ("CREATE TEMP TABLE a(x)", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(template(folder.path(), script).is_some(), expected, "{script}");
    }
}

#[test]
fn much_data_is_no_template_and_neither_is_a_database_without_on_init() {
    let folder = tempfile::tempdir().unwrap();
    let much = "CREATE TABLE a(x); INSERT INTO a VALUES(zeroblob(300000))";
    assert!(template(folder.path(), much).is_none());
    let database = Spare::make(&folder.path().join("1.db"), &Config::default()).unwrap().into_database();
    assert!(wait(Template::of(database, &Inline)).unwrap().is_none());
}

#[test]
fn a_spare_that_cannot_be_made_like_its_template_is_an_error() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let template = template(folder.path(), SCHEMA).unwrap();
    let path = folder.path().join("1.db");
    fs::write(&path, "taken").unwrap();
    let made = Spare::make_like(&template, &path, &Config::default());
    assert!(matches!(made, Err(OpenError::Io { .. })), "{made:?}");
}
