//! The actor's own SQLite database, typed.
//!
//! Outside [`transaction`] each statement commits by itself. Limits, and what is kept when, are in the
//! contract: [`bindings::platform::wasmkeep::actor::storage`](crate::bindings::platform::wasmkeep::actor::storage).

mod cursor;
mod error;
mod row;
mod transaction;
mod value;

use crate::bindings::platform::wasmkeep::actor::storage as host;

pub use cursor::{Cursor, open_cursor};
pub use error::Error;
pub use host::{Changes, ResultSet, SqliteError, Value};
pub use row::FromRow;
pub use transaction::{transaction, transaction_durable};
pub use value::FromValue;

/// The parameters of a statement: `params![id, "text", None::<i64>]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::storage::Value::from($value)),*] as &[$crate::storage::Value]
    };
}

/// Runs one statement; rows it returns are dropped.
///
/// # Errors
/// SQLite's refusal, the platform's, or a full database.
pub fn exec(sql: &str, params: &[Value]) -> Result<Changes, Error> {
    Ok(host::exec(sql, params)?)
}

/// As [`exec`], and returns only once the commit is durable: in the bucket, or on disk without one.
///
/// # Errors
/// As [`exec`]; [`Error::NotDurable`] when durability was not confirmed, and the write then stands locally.
pub fn exec_durable(sql: &str, params: &[Value]) -> Result<Changes, Error> {
    Ok(host::exec_durable(sql, params)?)
}

/// All rows of one statement, at most 10,000 and 16 MiB.
///
/// A row is a tuple (`(i64, String)`), a single value (`i64`) or a `Vec<Value>`.
///
/// # Errors
/// As [`exec`]; [`Error::Shape`] when a row does not fit `T`.
pub fn query<T: FromRow>(sql: &str, params: &[Value]) -> Result<Vec<T>, Error> {
    host::query(sql, params)?.rows.into_iter().map(T::from_row).collect()
}

/// The first row of a statement.
///
/// # Errors
/// As [`query`]; [`Error::NoRow`] when there is none.
pub fn query_one<T: FromRow>(sql: &str, params: &[Value]) -> Result<T, Error> {
    query_optional(sql, params)?.ok_or(Error::NoRow)
}

/// The first row of a statement, if it has one.
///
/// # Errors
/// As [`query`].
pub fn query_optional<T: FromRow>(sql: &str, params: &[Value]) -> Result<Option<T>, Error> {
    host::query(sql, params)?.rows.into_iter().next().map(T::from_row).transpose()
}

/// All rows of one statement with the names of its columns, at most 10,000 rows and 16 MiB.
///
/// # Errors
/// As [`exec`].
pub fn query_raw(sql: &str, params: &[Value]) -> Result<ResultSet, Error> {
    Ok(host::query(sql, params)?)
}

/// Runs several statements without parameters, stopping at the first error; those before it stand.
///
/// # Errors
/// As [`exec`].
pub fn exec_script(sql: &str) -> Result<(), Error> {
    Ok(host::exec_script(sql)?)
}

/// Size of the database in bytes.
#[must_use]
pub fn size_bytes() -> u64 {
    host::size()
}

/// Forgets this actor once the event has ended: data, alarm, sockets and history. It cannot be taken back.
pub fn delete_self() {
    host::delete_self();
}

#[cfg(test)]
mod tests;
