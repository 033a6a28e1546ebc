//! The actor's one alarm, which wakes it by [`Alarm`](crate::Alarm).
//!
//! It is kept in the actor's database: inside [`storage::transaction`](crate::storage::transaction) it commits or
//! rolls back with the rest. Times are in milliseconds since the Unix epoch.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use crate::bindings::platform::wasmkeep::actor::alarms as host;

/// Sets the alarm, in place of the one that was pending. A time that has passed is due once this event has ended.
///
/// # Errors
/// [`Error::Refused`] for a component that does not name `alarm` in [`actor!`](crate::actor) and for a time over
/// 2^63-1.
pub fn set(due_ms: u64) -> Result<(), Error> {
    Ok(host::set(due_ms)?)
}

/// As [`set`], for a time from now on.
///
/// # Errors
/// As [`set`].
pub fn set_in(wait: Duration) -> Result<(), Error> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    set(now_ms().saturating_add(wait_ms))
}

/// The pending alarm. One that failed and is to be tried again is pending; while [`Alarm`](crate::Alarm) runs, the
/// one it runs for is not.
///
/// # Errors
/// [`Error::Storage`].
pub fn get() -> Result<Option<u64>, Error> {
    Ok(host::get()?)
}

/// Removes the pending alarm; no error when there is none.
///
/// # Errors
/// [`Error::Storage`].
pub fn clear() -> Result<(), Error> {
    Ok(host::clear()?)
}

/// The time as alarms count it.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Why the alarm was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The component has no hook for it, or the time cannot be kept.
    Refused(String),
    /// The database refused the write, for instance because it is full.
    Storage(String),
    /// This node does not run alarms.
    Unsupported,
}

impl From<host::Error> for Error {
    fn from(error: host::Error) -> Error {
        match error {
            host::Error::Refused(reason) => Error::Refused(reason),
            host::Error::Storage(reason) => Error::Storage(reason),
            host::Error::Unsupported => Error::Unsupported,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(reason) => write!(f, "the alarm was refused: {reason}"),
            Error::Storage(reason) => write!(f, "the alarm was not kept: {reason}"),
            Error::Unsupported => f.write_str("this node does not run alarms"),
        }
    }
}

impl std::error::Error for Error {}
