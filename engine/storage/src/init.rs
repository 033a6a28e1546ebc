//! The transaction `on-init` runs in, and the row that says for which version it has run.

use crate::{connection::Connection, cursor, database::Database, error::Error, rows, value::Value};

/// The row that holds the version whose `on-init` has run.
const INIT_KEY: &str = "init";

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
        connection.hooks.depends_on_moment.set(false);
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
            self.undo_init();
            return result;
        }
        connection.in_init.set(false);
        *self.version.borrow_mut() = Some(Some(version.to_owned()));
        Ok(())
    }

    /// Rolls back what `on-init` wrote. As [`Database::end_event`], it waits for a connection that is with another
    /// thread.
    pub async fn abort_init(&self) {
        self.home().await;
        self.undo_init();
    }

    fn undo_init(&self) {
        let Ok(connection) = self.here() else { return };
        if !connection.in_init.replace(false) {
            return;
        }
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
        let found = match rows::read(self.here()?, INIT_KEY)? {
            Some(Value::Text(version)) => Some(version),
            _ => None,
        };
        *self.version.borrow_mut() = Some(found.clone());
        Ok(found)
    }
}

fn commit(connection: &Connection, version: &str) -> Result<(), Error> {
    rows::within_reserve(connection, || rows::write(connection, INIT_KEY, Value::Text(version.to_owned())))?;
    connection.host_run(c"COMMIT")
}
