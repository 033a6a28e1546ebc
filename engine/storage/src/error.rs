//! What can go wrong: while an actor's database is opened, and while a statement runs.

use std::{
    io,
    path::{Path, PathBuf},
};

/// SQLite's own refusal: constraint, syntax, type, a damaged file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqliteError {
    /// SQLite's extended result code.
    pub extended_code: i32,
    /// SQLite's message, or ours where SQLite's says too little.
    pub message: String,
    /// Byte offset in the SQL text where the error was found.
    pub sql_offset: Option<u32>,
}

/// Why a statement did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// SQLite refused.
    #[error(transparent)]
    Sqlite(SqliteError),
    /// Not allowed here, in a sentence for the author of the guest. Nothing of the statement stands.
    #[error("{0}")]
    Refused(String),
    /// The actor's size limit is reached; reads and deletes still work.
    #[error("the actor's storage limit is reached")]
    Full,
    /// The statement was stopped while it ran and was rolled back.
    #[error("the statement was interrupted")]
    Interrupted,
    /// The write stands locally but is not known to be on stable storage.
    #[error("the write is not known to be durable: {0}")]
    NotDurable(String),
}

impl Error {
    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::Refused(sentence.into())
    }

    /// Whether the database file itself is found damaged: the actor cannot go on with this file.
    /// A damaged full-text or other virtual table does not count, a guest can bring that about.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_damage(error.extended_code) || is_unreadable(error.extended_code))
    }
}

/// Whether a result code speaks of the database file as a whole.
pub(crate) fn is_damage(extended_code: i32) -> bool {
    use rusqlite::ffi::{SQLITE_CORRUPT, SQLITE_CORRUPT_VTAB, SQLITE_NOTADB};
    extended_code != SQLITE_CORRUPT_VTAB && matches!(extended_code & 0xff, SQLITE_CORRUPT | SQLITE_NOTADB)
}

/// Whether a result code says that the file cannot be read, or no longer as it was written.
pub(crate) fn is_unreadable(extended_code: i32) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_CORRUPTFS, SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ};
    matches!(extended_code, SQLITE_IOERR_READ | SQLITE_IOERR_SHORT_READ | SQLITE_IOERR_CORRUPTFS)
}

/// Whether the system says that what the disk holds is at fault, and not how or when it was asked.
pub(crate) fn is_disk_damage(error: &io::Error) -> bool {
    let damage = [libc::EIO, libc::EUCLEAN, libc::EBADMSG, libc::ENODATA];
    error.raw_os_error().is_some_and(|code| damage.contains(&code))
}

/// Why an actor's database could not be opened. The files are left as they were.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system refused.
    #[error("cannot open the database file {path:?}: {source}")]
    Io {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a database or its content contradicts itself.
    #[error("the database file {path:?} is damaged ({message}); it was left untouched")]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        message: String,
    },
    /// Another process holds the file.
    #[error("the database file {path:?} is in use by another process")]
    Locked {
        /// The database file.
        path: PathBuf,
    },
    /// SQLite did not take a setting or a limit that the platform relies on.
    #[error("SQLite did not accept the setting {setting}: it answered {answer}")]
    Setting {
        /// The setting and the value asked for.
        setting: String,
        /// The value read back.
        answer: String,
    },
    /// The linked SQLite must not be used.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// Another answer of SQLite.
    #[error("cannot open the database file {path:?}: {message}")]
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// SQLite's extended result code.
        extended_code: i32,
        /// What SQLite said.
        message: String,
    },
    /// The thread pool dropped the work.
    #[error("opening the database was given up by the thread pool")]
    GivenUp,
}

impl OpenError {
    /// What the file system said of `path`, or that its content is not what it can be.
    pub(crate) fn of_file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::InvalidData => Self::Damaged { path, message: source.to_string() },
            _ => Self::Io { path, source },
        }
    }

    /// Whether the file itself is at fault: a sound copy in its place could be opened.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => is_disk_damage(source),
            Self::Sqlite { extended_code, .. } => is_unreadable(*extended_code),
            _ => false,
        }
    }
}

/// The linked SQLite is older than the first one without the WAL-reset corruption.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("SQLite {found} can corrupt a database in WAL mode; version 3.51.3 or newer is needed")]
pub struct VersionError {
    /// The version linked in.
    pub found: String,
}
