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
    wal,
};

/// A WAL that is longer is not kept in memory.
const WAL_BYTES_MAX: u64 = 256 << 10;

/// What a database that `on-init` ran in has more than an empty one: its WAL. A database made of it is what the actor's
/// own would be after its `on-init`, also for a crash: the file is as all begin, and the WAL says what was written.
pub struct Template {
    version: String,
    frames: u32,
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
        Ok(wal.map(|(frames, wal)| Self { version, frames, wal }))
    }

    pub(crate) fn wal(&self) -> &[u8] {
        &self.wal
    }

    /// Checks that `database`, which was just made of it, took over the whole of it: SQLite found each frame sound.
    pub(crate) fn learn(&self, database: &Database) -> Result<(), OpenError> {
        let damaged = |message: String| OpenError::Damaged { path: database.path().to_owned(), message };
        let connection = database.here().map_err(|error| damaged(error.to_string()))?;
        let (found, wanted) = (connection.wal_frames(), self.frames);
        if found != Some(wanted) {
            return Err(damaged(format!("{found:?} of {wanted} frames were taken over")));
        }
        // The row that says so is in them.
        connection.has_rows.set(true);
        *database.version.borrow_mut() = Some(Some(self.version.clone()));
        Ok(())
    }
}

/// The frames of the WAL and the WAL, if that is all there is and another connection would come to the same.
fn read(connection: &Connection) -> io::Result<Option<(u32, Vec<u8>)>> {
    let hooks = &connection.hooks;
    let Some(frames) = connection.wal_frames() else { return Ok(None) };
    let log = beside(connection.path(), "-wal");
    let is_same = !hooks.depends_on_moment.get() && !hooks.is_personal.get();
    if !is_same || !is_all(connection.path(), &log)? {
        return Ok(None);
    }
    let mut content = fs::read(&log)?;
    content.truncate(wal::offset_of(frames) as usize);
    Ok(Some((frames, content)))
}

/// Nothing of the WAL has been moved into the file.
fn is_all(path: &Path, wal: &Path) -> io::Result<bool> {
    Ok(fs::metadata(wal)?.len() <= WAL_BYTES_MAX && image::is_blank(path)?)
}
