//! What the simulated actors keep: a counter with the requests that raised it, a register, notes, and who set the alarm.

use wasmkeep_storage::{Database, Error, Value};

use super::record::{Contents, Operation, RequestNumber};

const TABLES: &str = "CREATE TABLE IF NOT EXISTS added(request INTEGER);
     CREATE TABLE IF NOT EXISTS noted(request INTEGER);
     CREATE TABLE IF NOT EXISTS cells(name TEXT PRIMARY KEY, value INTEGER);
     INSERT OR IGNORE INTO cells VALUES('counter', 0), ('register', 0), ('reminder', 0);";

/// Does what a request asks for; the answer.
pub async fn carry_out(
    database: &Database,
    request: RequestNumber,
    operation: Operation,
) -> Result<u64, Error> {
    let change = match operation {
        Operation::Add => {
            format!(
                "INSERT INTO added VALUES({request});
                 UPDATE cells SET value = value + 1 WHERE name = 'counter';"
            )
        }
        Operation::Write => format!("UPDATE cells SET value = {request} WHERE name = 'register';"),
        Operation::Note => format!("INSERT INTO noted VALUES({request});"),
        Operation::Remind | Operation::Delete | Operation::Alarm | Operation::Count | Operation::Read => {
            String::new()
        }
    };
    if !change.is_empty() {
        database.exec_script(&format!("BEGIN; {TABLES} {change} COMMIT")).await?;
    }
    match operation {
        Operation::Add | Operation::Count => cell(database, "counter").await,
        Operation::Write | Operation::Read => cell(database, "register").await,
        Operation::Note | Operation::Remind | Operation::Delete | Operation::Alarm => Ok(0),
    }
}

/// Sets the alarm and notes for whom.
pub async fn remind(database: &Database, request: RequestNumber, due_ms: u64) -> Result<(), Error> {
    let note = format!("UPDATE cells SET value = {request} WHERE name = 'reminder';");
    database.exec_script(&format!("BEGIN; {TABLES} {note}")).await?;
    database.set_alarm(due_ms, |_| Ok::<_, Error>(()))?;
    database.exec_script("COMMIT").await
}

/// Who set the alarm last.
pub async fn reminder(database: &Database) -> Result<RequestNumber, Error> {
    cell(database, "reminder").await
}

/// Everything an actor has.
pub async fn contents(database: &Database) -> Result<Contents, Error> {
    Ok(Contents {
        added: requests(database, "added").await?,
        noted: requests(database, "noted").await?,
        counter: cell(database, "counter").await?,
        register: cell(database, "register").await?,
    })
}

async fn cell(database: &Database, name: &str) -> Result<u64, Error> {
    if !is_made(database).await? {
        return Ok(0);
    }
    Ok(numbers(database, &format!("SELECT value FROM cells WHERE name = '{name}'")).await?.pop().unwrap_or(0))
}

async fn requests(database: &Database, table: &str) -> Result<Vec<RequestNumber>, Error> {
    if !is_made(database).await? {
        return Ok(Vec::new());
    }
    numbers(database, &format!("SELECT request FROM {table} ORDER BY rowid")).await
}

/// Before the first write there is no table.
async fn is_made(database: &Database) -> Result<bool, Error> {
    Ok(!numbers(database, "SELECT 1 FROM sqlite_schema WHERE name = 'cells'").await?.is_empty())
}

async fn numbers(database: &Database, sql: &str) -> Result<Vec<u64>, Error> {
    let rows = database.query(sql, Vec::new()).await?.rows;
    let number = |row: &Vec<Value>| match row.first() {
        Some(Value::Integer(number)) => *number as u64,
        _ => u64::MAX,
    };
    Ok(rows.iter().map(number).collect())
}
