//! The platform's own rows in an actor's database, and the transaction `on-init` runs in.
//!
//! They are in `_wasmkeep_state`, made when first needed, which guests can neither see into nor touch: the
//! authorizer refuses its name.

use crate::{
    connection::Connection, cursor, database::Database, error::Error, statement::Statement, value::Value,
};

const CREATE: &std::ffi::CStr =
    c"CREATE TABLE IF NOT EXISTS _wasmkeep_state(key TEXT PRIMARY KEY, value) WITHOUT ROWID";
const READ: &str = "SELECT value FROM _wasmkeep_state WHERE key=?1";
const WRITE: &str = "INSERT INTO _wasmkeep_state(key, value) VALUES(?1, ?2) \
    ON CONFLICT(key) DO UPDATE SET value=excluded.value";
const EXISTS: &std::ffi::CStr = c"SELECT 1 FROM sqlite_schema WHERE name='_wasmkeep_state' AND type='table'";

/// The row that holds the version whose `on-init` has run.
const INIT_KEY: &str = "init";

fn read(connection: &Connection, key: &str) -> Result<Option<Value>, Error> {
    let exists = connection.host_text(EXISTS).map_err(|code| connection.error(code))?;
    if exists.is_none() {
        return Ok(None);
    }
    let params = [Value::Text(key.to_owned())];
    host_row(connection, READ, &params)
}

fn write(connection: &Connection, key: &str, value: Value) -> Result<(), Error> {
    connection.host_run(CREATE)?;
    host_row(connection, WRITE, &[Value::Text(key.to_owned()), value]).map(drop)
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

impl Database {
    /// Opens the transaction `on-init` runs in. While it is open guests may use savepoints, but not begin, end
    /// or roll back, and not `exec_durable`.
    ///
    /// # Errors
    /// [`Error::Refused`] when a transaction is open already or the connection is away; else what SQLite says.
    pub fn begin_init(&self) -> Result<(), Error> {
        let connection = self.here()?;
        if connection.in_transaction() {
            return Err(Error::refused("a transaction is open"));
        }
        connection.host_run(c"BEGIN IMMEDIATE")?;
        connection.in_init.set(true);
        Ok(())
    }

    /// Commits what `on-init` wrote, together with the fact that it ran for `version`.
    ///
    /// # Errors
    /// Nothing of it stands then: [`Error::Refused`] when an error had rolled the transaction back already;
    /// else what SQLite says (a deferred foreign key that does not hold).
    pub fn commit_init(&self, version: &str) -> Result<(), Error> {
        let connection = self.here()?;
        let result = if connection.in_init.get() && connection.in_transaction() {
            cursor::close_all(connection);
            commit(connection, version)
        } else {
            Err(Error::refused("the transaction of on-init was rolled back by an earlier error"))
        };
        if result.is_err() {
            self.abort_init();
            return result;
        }
        connection.in_init.set(false);
        *self.version.borrow_mut() = Some(Some(version.to_owned()));
        Ok(())
    }

    /// Rolls back what `on-init` wrote.
    pub fn abort_init(&self) {
        if let Ok(connection) = self.here()
            && connection.in_init.replace(false)
        {
            self.end_event_transaction(connection);
        }
    }

    fn end_event_transaction(&self, connection: &Connection) {
        cursor::close_all(connection);
        if connection.in_transaction()
            && let Err(error) = connection.host_run(c"ROLLBACK")
        {
            tracing::warn!(%error, path = ?connection.path(), "rolling back on-init failed");
        }
    }

    /// The version whose `on-init` has run, if any.
    ///
    /// # Errors
    /// What SQLite says; [`Error::Refused`] while the connection is away.
    pub fn init_version(&self) -> Result<Option<String>, Error> {
        if let Some(known) = &*self.version.borrow() {
            return Ok(known.clone());
        }
        let found = match read(self.here()?, INIT_KEY)? {
            Some(Value::Text(version)) => Some(version),
            _ => None,
        };
        *self.version.borrow_mut() = Some(found.clone());
        Ok(found)
    }
}

fn commit(connection: &Connection, version: &str) -> Result<(), Error> {
    let reserve = |open| connection.set_reserve(open).map_err(|code| connection.error(code));
    reserve(true)?;
    let written = write(connection, INIT_KEY, Value::Text(version.to_owned()));
    reserve(false)?;
    written?;
    connection.host_run(c"COMMIT")
}
