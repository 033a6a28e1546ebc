//! What a job does with one text of SQL, on the statement's own stack.

use rusqlite::ffi;

use crate::{
    connection::Connection,
    error::Error,
    limits::{QUERY_BYTES_MAX, QUERY_ROWS_MAX},
    policy::Boundary,
    statement::Statement,
    value::{Changes, ResultSet, Value},
};

/// A statement with its parameters bound; reset when dropped, before the parameters can go.
struct Bound<'a> {
    connection: &'a Connection,
    statement: &'a Statement,
}

impl<'a> Bound<'a> {
    fn new(connection: &'a Connection, statement: &'a Statement, params: &'a [Value]) -> Result<Self, Error> {
        let bound = Self { connection, statement };
        // SAFETY: the values are borrowed for 'a, and the reset in drop comes within it.
        unsafe { statement.bind(connection, params) }?;
        Ok(bound)
    }

    fn step(&self) -> Result<bool, Error> {
        self.statement.step(self.connection)
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        self.statement.reset();
    }
}

/// How much a call asks of its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// That it ran.
    Plain,
    /// That it is durable: inside a transaction only COMMIT can be.
    Durable,
}

/// Refuses, before it runs, a statement that has no place where the connection stands.
pub(crate) fn admit(connection: &Connection, statement: &Statement, ask: Ask) -> Result<(), Error> {
    let in_transaction = connection.in_transaction();
    if connection.in_init.get() {
        if ask == Ask::Durable {
            return Err(Error::refused("exec-durable has no place in on-init: it commits as a whole"));
        }
        if matches!(statement.boundary, Boundary::Begin | Boundary::Commit | Boundary::Rollback) {
            return Err(Error::refused(
                "on-init runs in a transaction of its own: BEGIN, COMMIT and ROLLBACK are not available in it, savepoints are",
            ));
        }
        if !in_transaction {
            return Err(Error::refused("the transaction of on-init was rolled back by an earlier error"));
        }
    }
    if ask == Ask::Durable && in_transaction && statement.boundary != Boundary::Commit {
        return Err(Error::refused("inside a transaction exec-durable takes only COMMIT"));
    }
    Ok(())
}

/// One statement to its end.
pub(crate) fn exec(connection: &Connection, sql: &str, params: &[Value], ask: Ask) -> Result<Changes, Error> {
    let statement = connection.take(sql)?;
    let result = admit(connection, &statement, ask).and_then(|()| {
        let was_in_transaction = connection.in_transaction();
        within_quota(connection, &statement, was_in_transaction, || {
            let bound = Bound::new(connection, &statement, params)?;
            let before = total_changes(connection);
            while bound.step()? {}
            Ok(changes(connection, before))
        })
    });
    connection.keep(sql, statement);
    result
}

/// Runs `work`, letting a statement that frees space use the reserve when the quota is met.
fn within_quota<T>(
    connection: &Connection,
    statement: &Statement,
    was_in_transaction: bool,
    work: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    let with_reserve = || {
        connection.set_reserve(true).map_err(|code| connection.error(code))?;
        let result = work();
        connection.set_reserve(false).map_err(|code| connection.error(code))?;
        result
    };
    let result = if statement.shrinks && connection.was_full.get() {
        with_reserve()
    } else {
        match work() {
            // Outside a transaction nothing of the attempt is left.
            Err(Error::Full) if statement.shrinks && !was_in_transaction => with_reserve(),
            result => result,
        }
    };
    if result.is_ok() && statement.is_vacuum {
        // VACUUM commits past the commit hook.
        connection.hooks.note_commit();
    }
    result
}

fn total_changes(connection: &Connection) -> i64 {
    // SAFETY: plain call on an open connection.
    unsafe { ffi::sqlite3_total_changes64(connection.raw()) }
}

/// What changed since `before`. SQLite's own count is that of the last statement that changes rows, which
/// need not be this one.
fn changes(connection: &Connection, before: i64) -> Changes {
    // SAFETY: plain calls on an open connection.
    let (rows, rowid) = unsafe {
        (ffi::sqlite3_changes64(connection.raw()), ffi::sqlite3_last_insert_rowid(connection.raw()))
    };
    let rows = if total_changes(connection) == before { 0 } else { rows };
    Changes { rows: u64::try_from(rows).unwrap_or(0), last_insert_rowid: rowid }
}

/// All rows of one statement.
pub(crate) fn query(connection: &Connection, sql: &str, params: &[Value]) -> Result<ResultSet, Error> {
    let statement = connection.take(sql)?;
    let result = admit(connection, &statement, Ask::Plain).and_then(|()| {
        let was_in_transaction = connection.in_transaction();
        within_quota(connection, &statement, was_in_transaction, || {
            let bound = Bound::new(connection, &statement, params)?;
            collect(connection, &bound)
        })
    });
    connection.keep(sql, statement);
    result
}

fn collect(connection: &Connection, bound: &Bound<'_>) -> Result<ResultSet, Error> {
    let statement = bound.statement;
    let mut rows = Vec::new();
    let mut bytes = 0;
    while bound.step()? {
        let row = statement.row()?;
        bytes += row.iter().map(Value::size_bytes).sum::<usize>();
        if rows.len() == QUERY_ROWS_MAX || bytes > QUERY_BYTES_MAX {
            return Err(overflow(connection, bound));
        }
        rows.push(row);
    }
    // Names after the rows: SQLite may have compiled the statement anew at the first step.
    Ok(ResultSet { columns: statement.columns(), rows })
}

/// Ends a statement whose result is too big. One that writes (RETURNING) would commit if it were only reset.
#[cold]
fn overflow(connection: &Connection, bound: &Bound<'_>) -> Error {
    let limits = format!("the result has over {QUERY_ROWS_MAX} rows or {} MiB", QUERY_BYTES_MAX >> 20);
    if bound.statement.is_readonly() {
        return Error::Refused(format!("{limits}: use a cursor"));
    }
    // SAFETY: plain call on an open connection; the next step ends in an error and is undone.
    unsafe { ffi::sqlite3_interrupt(connection.raw()) };
    let _ = bound.step();
    Error::Refused(format!("{limits}: the statement was rolled back, and its transaction if it was in one"))
}

/// Several statements, stopping at the first error.
pub(crate) fn script(connection: &Connection, sql: &str) -> Result<(), Error> {
    let mut rest = sql;
    loop {
        let prepared = Statement::prepare(connection, rest)?;
        let Some(statement) = prepared.statement else { return Ok(()) };
        admit(connection, &statement, Ask::Plain)?;
        within_quota(connection, &statement, connection.in_transaction(), || {
            let bound = Bound::new(connection, &statement, &[])?;
            while bound.step()? {}
            Ok(())
        })?;
        rest = &rest[prepared.used..];
    }
}
