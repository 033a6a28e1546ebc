//! What `on-init` of a version leaves in an empty database, kept so that others of the class can begin with it.
//!
//! Owns what has to hold in the database for that. Whether the code asked for anything that differs from actor to actor,
//! whoever ran it knows.

use std::{fmt, fs, io, path::Path};

use crate::{
    connection::Connection,
    database::Database,
    error::{Error, OpenError},
    image::{self, beside},
    offload::Offload,
};

/// A WAL that is longer is not kept in memory.
const WAL_BYTES_MAX: u64 = 256 << 10;

/// What a database that `on-init` ran in has more than an empty one: its WAL. A database made of it is what the actor's
/// own would be after its `on-init`, also for a crash: the file is as all begin, and the WAL says what was written.
pub struct Template {
    version: String,
    wal: Vec<u8>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Template {
    /// Of a database that was empty and in which `on-init` has run and was committed. `None`: its SQL spoke of time or
    /// chance, so it may come out otherwise for another actor; or there is too much of it. The files stay.
    ///
    /// # Errors
    /// What SQLite and the file system say.
    pub async fn of(database: Database, offload: &dyn Offload) -> Result<Option<Self>, Error> {
        let Some(version) = database.init_version()? else { return Ok(None) };
        let read = |connection: &Connection, _: &_| Ok(read(connection));
        let wal = database.elsewhere(offload, "reading what on-init left", read).await?;
        let wal =
            wal.map_err(|error| Error::refused(format!("what on-init left cannot be read: {error}")))?;
        Ok(wal.map(|wal| Self { version, wal }))
    }

    pub(crate) fn wal(&self) -> &[u8] {
        &self.wal
    }

    /// Whether `database`, which was just made of it, is what it should be.
    pub(crate) fn check(&self, database: &Database) -> Result<(), OpenError> {
        let found = database.init_version();
        if found.as_ref().is_ok_and(|version| version.as_deref() == Some(&*self.version)) {
            return Ok(());
        }
        let message = found.err().map_or_else(|| "on-init has not run".to_owned(), |error| error.to_string());
        Err(OpenError::Damaged { path: database.path().to_owned(), message })
    }
}

/// The WAL, if that is all there is and another connection would come to the same.
fn read(connection: &Connection) -> io::Result<Option<Vec<u8>>> {
    let hooks = &connection.hooks;
    let wal = beside(connection.path(), "-wal");
    let is_same =
        !hooks.depends_on_moment.get() && !hooks.is_personal.get() && is_all(connection.path(), &wal)?;
    if is_same { fs::read(&wal).map(Some) } else { Ok(None) }
}

/// Nothing of the WAL has been moved into the file.
fn is_all(path: &Path, wal: &Path) -> io::Result<bool> {
    Ok(fs::metadata(wal)?.len() <= WAL_BYTES_MAX && image::is_blank(path)?)
}
