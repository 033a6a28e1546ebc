//! The tables of the model actor, and a reader of all they hold.

use wasmkeep_storage::{Database, Error, Value};

use crate::history::Found;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS ops(unit INTEGER, part INTEGER, owner TEXT, body BLOB);
    CREATE TABLE IF NOT EXISTS counter(n INTEGER);
    CREATE TABLE IF NOT EXISTS inits(version INTEGER, attempt INTEGER);
    CREATE TABLE IF NOT EXISTS ballast(body BLOB);
    CREATE TABLE IF NOT EXISTS one(k INTEGER PRIMARY KEY CHECK(k = 1));
    CREATE TABLE IF NOT EXISTS guard(kind TEXT);
    CREATE TRIGGER IF NOT EXISTS ops_count AFTER INSERT ON ops BEGIN UPDATE counter SET n = n + 1; END;
    CREATE TRIGGER IF NOT EXISTS guard_rollback BEFORE INSERT ON guard WHEN new.kind = 'rollback'
        BEGIN SELECT RAISE(ROLLBACK, 'as scripted'); END;
    CREATE TRIGGER IF NOT EXISTS guard_abort BEFORE INSERT ON guard WHEN new.kind = 'abort'
        BEGIN SELECT RAISE(ABORT, 'as scripted'); END;
    INSERT INTO counter SELECT 0 WHERE NOT EXISTS(SELECT 1 FROM counter);
    INSERT OR IGNORE INTO one VALUES(1);
";

/// Makes the tables where there are none; `alone`: in a transaction of its own.
///
/// # Errors
/// What the database says.
pub async fn make_tables(database: &Database, alone: bool) -> Result<(), Error> {
    if alone {
        database.exec_script(&format!("BEGIN;{TABLES}COMMIT;")).await
    } else {
        database.exec_script(TABLES).await
    }
}

/// Everything the checkers want to know. Nothing when there are no tables.
///
/// # Errors
/// What the database says.
pub async fn read(database: &Database) -> Result<Found, Error> {
    let made = database.query("SELECT 1 FROM sqlite_schema WHERE name = 'ops'", Vec::new()).await?;
    if made.rows.is_empty() {
        return Ok(Found::default());
    }
    let rows = database.query("SELECT unit, part, owner FROM ops ORDER BY rowid", Vec::new()).await?.rows;
    let counter = database.query("SELECT n FROM counter", Vec::new()).await?.rows;
    let inits = database.query("SELECT version, attempt FROM inits ORDER BY rowid", Vec::new()).await?.rows;
    Ok(Found {
        rows: rows.iter().map(|row| (number(row, 0), number(row, 1), text(row, 2))).collect(),
        counter: counter.first().map_or(0, |row| number(row, 0)),
        inits: inits.iter().map(|row| (number(row, 0), number(row, 1))).collect(),
    })
}

fn number(row: &[Value], column: usize) -> u64 {
    match row.get(column) {
        Some(Value::Integer(number)) => *number as u64,
        _ => u64::MAX,
    }
}

fn text(row: &[Value], column: usize) -> String {
    match row.get(column) {
        Some(Value::Text(text)) => text.clone(),
        other => format!("{other:?}"),
    }
}
