//! An actor's database on a node's disk: opened, read by the checkers, shaped at random.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use wasmkeep_storage::{Config, Database, Error, Inline, OpenError, Pacer, Value};

use super::record::{Rows, fnv};
use crate::files;

/// Bytes one simulated database may reach.
const QUOTA_BYTES: u64 = 8 << 20;

/// Things that change the shape of a database and none of the rows that count.
const RESHAPES: &[&str] = &[
    "INSERT INTO ballast VALUES(zeroblob(120000))",
    "INSERT INTO ballast VALUES(zeroblob(3000)), (zeroblob(9000)), (zeroblob(30))",
    "DELETE FROM ballast",
    "DELETE FROM ballast WHERE rowid % 2 = 0",
    "VACUUM",
    "DELETE FROM ballast; VACUUM",
    "PRAGMA auto_vacuum=FULL; VACUUM",
    "PRAGMA incremental_vacuum",
    "BEGIN; INSERT INTO ballast VALUES(zeroblob(200000)); ROLLBACK",
    "BEGIN; SAVEPOINT s; INSERT INTO ballast VALUES(zeroblob(20000)); ROLLBACK TO s; COMMIT",
    "CREATE INDEX IF NOT EXISTS by_unit ON ops(unit)",
    "DROP INDEX IF EXISTS by_unit",
    "CREATE TEMP TABLE IF NOT EXISTS scratch(x); INSERT INTO scratch VALUES(1)",
    "UPDATE ops SET body = body WHERE unit % 3 = 0",
];

/// Where an actor's database is on a disk.
pub(crate) fn path(scratch: &Path, disk: u64, actor: usize) -> PathBuf {
    scratch.join(format!("disk-{disk}")).join(format!("a{actor}.db"))
}

/// What databases are opened with.
pub(crate) fn config() -> Config {
    Config { quota_bytes: QUOTA_BYTES, pacer: Pacer::checks(50), root: PathBuf::new() }
}

/// Opens or makes the database.
pub(crate) fn open(path: &Path) -> Result<Rc<Database>, OpenError> {
    Database::open(path, &config()).map(Rc::new)
}

/// Writes one row that counts, with the tables if need be.
pub(crate) async fn write(database: &Database, unit: u64, bytes: u64) -> Result<(), Error> {
    let script = format!(
        "CREATE TABLE IF NOT EXISTS ops(unit INTEGER PRIMARY KEY, body BLOB);
         CREATE TABLE IF NOT EXISTS ballast(body BLOB);
         INSERT INTO ops VALUES({unit}, zeroblob({bytes}));"
    );
    database.exec_script(&script).await
}

/// Changes its shape; `chosen` says how. A full database refuses, and that is no fault.
pub(crate) async fn reshape(database: &Database, chosen: u64) {
    let at = chosen as usize % (RESHAPES.len() + 1);
    let done = match RESHAPES.get(at) {
        Some(sql) => database.exec_script(sql).await,
        None => database.checkpoint(&Inline).await,
    };
    // Before the first row there is no table.
    drop(done);
    database.end_event().await;
}

/// The rows that count.
pub(crate) async fn rows(database: &Database) -> Result<Rows, Error> {
    let made = database.query("SELECT 1 FROM sqlite_schema WHERE name = 'ops'", Vec::new()).await?;
    if made.rows.is_empty() {
        return Ok(Rows::default());
    }
    let found = database.query("SELECT unit FROM ops ORDER BY unit", Vec::new()).await?.rows;
    let unit = |row: &Vec<Value>| match row.first() {
        Some(Value::Integer(unit)) => *unit as u64,
        _ => u64::MAX,
    };
    Ok(Rows(found.iter().map(unit).collect()))
}

/// What SQLite finds wrong with the database, if anything.
pub(crate) async fn unsound(database: &Database) -> Option<String> {
    match database.query("PRAGMA integrity_check", Vec::new()).await {
        Ok(found) if found.rows == [[Value::Text("ok".to_owned())]] => None,
        Ok(found) => Some(format!("{:?}", found.rows)),
        Err(error) => Some(error.to_string()),
    }
}

/// A hash of the database as one file, its log merged into it, without touching it.
pub(crate) async fn whole_file(path: &Path) -> io::Result<u64> {
    let folder = tempfile::tempdir_in(path.parent().unwrap_or(path))?;
    let copy = folder.path().join("copy.db");
    fs::copy(path, &copy)?;
    if let Err(error) = fs::copy(files::wal_of(path), files::wal_of(&copy))
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let database = open(&copy).map_err(io::Error::other)?;
    database.checkpoint(&Inline).await.map_err(io::Error::other)?;
    drop(database);
    Ok(fnv(&fs::read(&copy)?))
}

/// What a power loss takes: the end of the log.
pub(crate) fn tear(path: &Path, kept: u64) -> io::Result<()> {
    let wal = files::wal_of(path);
    match fs::metadata(&wal) {
        Ok(found) => OpenOptions::new().write(true).open(&wal)?.set_len(kept % (found.len() + 1)),
        Err(_) => Ok(()),
    }
}
