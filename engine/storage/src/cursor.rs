//! Results read a batch at a time. The statements belong to the connection and end with the event; a
//! [`Cursor`] only names one.

use std::{cell::Cell, rc::Weak};

use crate::{
    connection::Connection,
    database::Database,
    error::Error,
    execute::{self, Ask},
    limits::{CURSORS_OPEN_MAX, QUERY_BYTES_MAX},
    statement::Statement,
    value::Value,
};

/// A statement being read. The statement drops before the parameters it refers to.
struct Open {
    id: u64,
    statement: Statement,
    _params: Vec<Value>,
}

/// The open cursors of a connection.
#[derive(Default)]
pub(crate) struct Cursors {
    open: Vec<Open>,
    last_id: u64,
}

impl Cursors {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn take(&mut self, id: u64) -> Option<Open> {
        let at = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.swap_remove(at))
    }
}

/// Opens a cursor; its id and column names.
pub(crate) fn open(
    connection: &Connection,
    sql: &str,
    params: Vec<Value>,
) -> Result<(u64, Vec<String>), Error> {
    if connection.cursors.borrow().open.len() >= CURSORS_OPEN_MAX {
        return Err(Error::Refused(format!("{CURSORS_OPEN_MAX} cursors are open: drop one first")));
    }
    let statement = connection.take(sql)?;
    execute::admit(connection, &statement, Ask::Plain)?;
    if !statement.is_readonly() || statement.column_count() == 0 {
        return Err(Error::refused("a cursor reads rows: use exec or query for a statement that writes"));
    }
    // SAFETY: the values live on the heap, in the vector that is kept beside the statement and dropped after it.
    unsafe { statement.bind(connection, &params) }?;
    let columns = statement.columns();
    let mut cursors = connection.cursors.borrow_mut();
    cursors.last_id += 1;
    let id = cursors.last_id;
    cursors.open.push(Open { id, statement, _params: params });
    Ok((id, columns))
}

/// Up to `max` rows, fewer when they reach the byte limit of a batch, and whether the end was reached.
fn next(connection: &Connection, id: u64, max: usize) -> Result<(Vec<Vec<Value>>, bool), Error> {
    let open = connection.cursors.borrow_mut().take(id);
    let Some(open) = open else {
        return Err(Error::refused("the cursor is closed: a cursor ends with its event or with an error"));
    };
    let mut rows = Vec::new();
    let mut bytes = 0;
    while rows.len() < max && bytes < QUERY_BYTES_MAX {
        if !open.statement.step(connection)? {
            return Ok((rows, true));
        }
        let row = open.statement.row()?;
        bytes += row.iter().map(Value::size_bytes).sum::<usize>();
        rows.push(row);
    }
    connection.cursors.borrow_mut().open.push(open);
    Ok((rows, false))
}

/// A result being read. It ends with the event that opened it; dropped earlier, it closes then.
#[derive(Debug)]
pub struct Cursor {
    database: Weak<Database>,
    id: u64,
    columns: Vec<String>,
    is_at_end: Cell<bool>,
}

impl Cursor {
    pub(crate) fn new(database: Weak<Database>, id: u64, columns: Vec<String>) -> Self {
        Self { database, id, columns, is_at_end: Cell::new(false) }
    }

    /// Column names in order; bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Up to `max` rows (at least one is asked for), fewer when they reach 16 MiB; an empty list at the end.
    ///
    /// # Errors
    /// As for a query; [`Error::Refused`] once its event has ended. After an error the cursor is closed.
    pub async fn next(&self, max: u32) -> Result<Vec<Vec<Value>>, Error> {
        if self.is_at_end.get() {
            return Ok(Vec::new());
        }
        let Some(database) = self.database.upgrade() else {
            return Err(Error::refused("the cursor is closed: the database was closed"));
        };
        let id = self.id;
        let (rows, ended) = database.run(move |connection| next(connection, id, max.max(1) as usize)).await?;
        self.is_at_end.set(ended);
        Ok(rows)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(database) = self.database.upgrade() {
            database.close_cursor(self.id);
        }
    }
}

/// Closes one cursor if it is still open.
pub(crate) fn close(connection: &Connection, id: u64) {
    let open = connection.cursors.borrow_mut().take(id);
    connection.host(|| drop(open));
}

/// Closes all cursors.
pub(crate) fn close_all(connection: &Connection) {
    let open = std::mem::take(&mut connection.cursors.borrow_mut().open);
    if !open.is_empty() {
        connection.host(|| drop(open));
    }
}
