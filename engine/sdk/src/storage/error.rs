//! Why a statement or the reading of its rows failed.

use std::fmt;

use super::{SqliteError, host};

/// Why the database did not do what it was asked.
#[derive(Debug, Clone)]
pub enum Error {
    /// Refused by SQLite: syntax, constraint, type, size.
    Sqlite(SqliteError),
    /// Refused by the platform before it ran.
    Refused(String),
    /// The actor's database has reached its size limit; reads and deletes still work.
    Full,
    /// The event was ended while the statement ran; it was rolled back.
    Interrupted,
    /// The write stands locally; whether it outlives this node is not known.
    NotDurable(String),
    /// A row was expected, and there is none.
    NoRow,
    /// A row does not have the shape the program asked for.
    Shape(String),
}

impl Error {
    /// SQLite's extended result code, for instance 2067 for a broken UNIQUE constraint.
    #[must_use]
    pub fn sqlite_code(&self) -> Option<i32> {
        match self {
            Error::Sqlite(error) => Some(error.extended_code),
            _ => None,
        }
    }

    /// Whether a constraint of the schema refused the write (SQLITE_CONSTRAINT, whichever it was).
    #[must_use]
    pub fn is_constraint(&self) -> bool {
        const SQLITE_CONSTRAINT: i32 = 19;
        self.sqlite_code().is_some_and(|code| code & 0xff == SQLITE_CONSTRAINT)
    }
}

impl From<host::Error> for Error {
    fn from(error: host::Error) -> Error {
        match error {
            host::Error::Sqlite(error) => Error::Sqlite(error),
            host::Error::Refused(reason) => Error::Refused(reason),
            host::Error::Full => Error::Full,
            host::Error::Interrupted => Error::Interrupted,
            host::Error::NotDurable(reason) => Error::NotDurable(reason),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sqlite(SqliteError { extended_code, message, sql_offset }) => {
                write!(f, "SQLite error {extended_code}: {message}")?;
                sql_offset.map_or(Ok(()), |offset| write!(f, " (at byte {offset} of the SQL)"))
            }
            Error::Refused(reason) => write!(f, "refused: {reason}"),
            Error::Full => f.write_str("the actor's database has reached its size limit"),
            Error::Interrupted => f.write_str("the event ended while the statement ran"),
            Error::NotDurable(reason) => write!(f, "the write was not confirmed durable: {reason}"),
            Error::NoRow => f.write_str("the statement returned no row"),
            Error::Shape(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_is_told_by_its_primary_code() {
        let sqlite = |extended_code| {
            Error::from(host::Error::Sqlite(SqliteError {
                extended_code,
                message: "m".to_owned(),
                sql_offset: Some(7),
            }))
        };
        assert!(sqlite(2067).is_constraint() && sqlite(19).is_constraint());
        assert!(!sqlite(1).is_constraint() && !Error::Full.is_constraint());
        assert_eq!(sqlite(1).to_string(), "SQLite error 1: m (at byte 7 of the SQL)");
    }
}
