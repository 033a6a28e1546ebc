//! The platform's own rows in an actor's database.
//!
//! They are in `_wasmkeep_state`, which guests can neither see into nor touch: the authorizer refuses its name. New
//! databases begin with the table; in those of earlier versions it is made when first needed.

use crate::{connection::Connection, error::Error, statement::Statement, value::Value};

pub(crate) const CREATE: &std::ffi::CStr =
    c"CREATE TABLE IF NOT EXISTS _wasmkeep_state(key TEXT PRIMARY KEY, value) WITHOUT ROWID";
const READ: &str = "SELECT value FROM _wasmkeep_state WHERE key=?1";
const WRITE: &str = "INSERT INTO _wasmkeep_state(key, value) VALUES(?1, ?2) \
    ON CONFLICT(key) DO UPDATE SET value=excluded.value";
const EXISTS: &std::ffi::CStr = c"SELECT 1 FROM sqlite_schema WHERE name='_wasmkeep_state' AND type='table'";

/// The value of a row, if it is there.
pub(crate) fn read(connection: &Connection, key: &str) -> Result<Option<Value>, Error> {
    if !has_table(connection)? {
        return Ok(None);
    }
    let params = [Value::Text(key.to_owned())];
    host_row(connection, READ, &params)
}

/// Makes a row, or gives it another value. Part of the transaction that is open, if one is.
pub(crate) fn write(connection: &Connection, key: &str, value: Value) -> Result<(), Error> {
    if !has_table(connection)? {
        connection.host_run(CREATE)?;
    }
    host_row(connection, WRITE, &[Value::Text(key.to_owned()), value]).map(drop)
}

/// Whether the table is there. Asked once: nothing takes it away, but a rollback of the transaction that made it.
fn has_table(connection: &Connection) -> Result<bool, Error> {
    if connection.has_rows.get() {
        return Ok(true);
    }
    let found = connection.host_text(EXISTS).map_err(|code| connection.error(code))?.is_some();
    connection.has_rows.set(found && !connection.in_transaction());
    Ok(found)
}

/// Runs one host statement to its end; the first column of its last row.
fn host_row(connection: &Connection, sql: &str, params: &[Value]) -> Result<Option<Value>, Error> {
    connection.host(|| {
        let prepared = Statement::prepare(connection, sql)?;
        let statement = prepared.statement.ok_or_else(|| Error::refused("no statement"))?;
        // SAFETY: the parameters outlive the statement, which is dropped here.
        unsafe { statement.bind(connection, params) }?;
        let mut found = None;
        while statement.step(connection)? {
            found = statement.row()?.into_iter().next();
        }
        Ok(found)
    })
}

/// Lets `work` take from the pages kept beyond the quota: what the platform must note, it can note when the
/// actor's database is full.
pub(crate) fn within_reserve<T>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    if connection.is_far_from_full() {
        return work();
    }
    let reserve = |open| connection.set_reserve(open).map_err(|code| connection.error(code));
    reserve(true)?;
    let done = work();
    reserve(false)?;
    done
}
