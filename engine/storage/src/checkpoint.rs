//! Moving the WAL into the database file.
//!
//! Commits do not sync (`synchronous=OFF`), a checkpoint does: WAL, database file, and the WAL that holds nothing any
//! more. Its header is blanked and synced before anything new is written over the old frames: without a header they
//! are nobody's, and with the next one, whose salts are others, they do not count. A power loss can therefore never
//! bring an old round back, and no sync falls on a shard. The space stays with the file while its actor is awake, since
//! a file that does not grow is cheaper to write; it is given back when there is too much of it, and at a close.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    ptr,
};

use rusqlite::ffi;

use crate::{
    connection::Connection,
    disk::Durability,
    error::Error,
    image::beside,
    limits::{CLOSE_CHECKPOINT_FRAMES, WAL_KEPT_FRAMES},
    wal,
};

/// What becomes of the WAL's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// The next frames are written over the old ones.
    Kept,
    GivenBack,
}

/// Checkpoints a connection that no transaction and no cursor uses. Blocking.
pub(crate) fn run(connection: &Connection, durability: &Durability) -> Result<(), Error> {
    let space = if is_longer_than(connection, WAL_KEPT_FRAMES) { Space::GivenBack } else { Space::Kept };
    run_with(connection, durability, space)
}

fn run_with(connection: &Connection, durability: &Durability, space: Space) -> Result<(), Error> {
    durability.sync_beginning().map_err(|error| Error::NotDurable(error.to_string()))?;
    connection.host(|| {
        connection.host_run(c"PRAGMA synchronous=FULL")?;
        let mode = match space {
            Space::Kept => ffi::SQLITE_CHECKPOINT_RESTART,
            Space::GivenBack => ffi::SQLITE_CHECKPOINT_TRUNCATE,
        };
        let code = checkpoint(connection, mode);
        if code != ffi::SQLITE_OK {
            if is_sync_failure(code) {
                durability.poison();
            }
            // From here on SQLite syncs the header of a WAL it starts over, on the shard if need be: the WAL
            // may hold frames of the old round.
            return Err(connection.error(code));
        }
        if let Err(error) = end_round(connection, space) {
            durability.poison();
            return Err(Error::NotDurable(error.to_string()));
        }
        connection.hooks.wal_grew.set(false);
        connection.hooks.wrote.set(false);
        connection.host_run(c"PRAGMA synchronous=OFF")
    })
}

/// What became of a WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is as it was.
    Untouched,
    /// All of it is in the database file.
    Emptied,
    /// A sync or a checkpoint failed: what the disk has is anybody's guess.
    Unknown,
}

/// Before a close for good: the database file holds everything, so that it is whole without its WAL (to be copied, or
/// found alone). A short WAL stays as it was: what was durable rests on it, and only it is synced. An actor that
/// hibernates so costs a sync or two on this thread, and none when nothing was written since the last time.
pub(crate) fn complete(connection: &Connection, durability: &Durability) -> Fate {
    let is_whole = durability.is_poisoned() || connection.is_damaged.get() || is_whole(connection);
    if !is_whole
        && !connection.is_open()
        && let Err(error) = connection.open(false)
    {
        tracing::warn!(%error, "a database was closed with the last of its content in its WAL");
        return Fate::Unknown;
    }
    let fate = before_close(connection, durability);
    let is_usable = connection.is_open() && !connection.is_busy.get() && !connection.in_transaction();
    if fate == Fate::Untouched
        && !is_whole
        && is_usable
        && let Err(error) = copy(connection, durability)
    {
        tracing::warn!(%error, path = ?connection.path(), "the database file could not be completed; its WAL has the rest");
        return Fate::Unknown;
    }
    fate
}

/// Copies the WAL's content into the database file and keeps the WAL. Until both are synced by another checkpoint, what
/// a power loss makes of the file does not matter: the WAL has all of it.
fn copy(connection: &Connection, durability: &Durability) -> Result<(), Error> {
    let not_durable = |error: io::Error| Error::NotDurable(error.to_string());
    durability.sync_beginning().map_err(not_durable)?;
    let synced = File::open(path(connection)).and_then(|wal| wal.sync_data());
    synced.inspect_err(|_| durability.poison()).map_err(not_durable)?;
    connection.host(|| match checkpoint(connection, ffi::SQLITE_CHECKPOINT_PASSIVE) {
        ffi::SQLITE_OK => Ok(()),
        code => Err(connection.error(code)),
    })?;
    connection.hooks.wrote.set(false);
    Ok(())
}

/// Whether the database file surely holds what its WAL does: nothing was written since it was opened, and the file was
/// written after the WAL was.
fn is_whole(connection: &Connection) -> bool {
    let Ok(wal) = path(connection).metadata() else { return true };
    if wal.len() <= wal::HEADER_BYTES as u64 {
        return true;
    }
    let changed = |found: &Metadata| (found.mtime(), found.mtime_nsec());
    let database = connection.path().metadata();
    !connection.hooks.wrote.get() && database.is_ok_and(|database| changed(&database) >= changed(&wal))
}

/// Before a close: shortens a long WAL so that the next open need not read it and an idle actor does not hold its space.
pub(crate) fn before_close(connection: &Connection, durability: &Durability) -> Fate {
    // A file that was found damaged stays as it is.
    if durability.is_poisoned() || connection.is_damaged.get() {
        return Fate::Unknown;
    }
    if !connection.is_open() || connection.is_busy.get() || connection.in_transaction() {
        return Fate::Untouched;
    }
    connection.shrink();
    if !is_longer_than(connection, CLOSE_CHECKPOINT_FRAMES) {
        return Fate::Untouched;
    }
    match run_with(connection, durability, Space::GivenBack) {
        Ok(()) => Fate::Emptied,
        Err(error) => {
            tracing::warn!(%error, path = ?connection.path(), "checkpoint at close failed; the WAL stays");
            Fate::Unknown
        }
    }
}

fn checkpoint(connection: &Connection, mode: i32) -> i32 {
    // SAFETY: plain call on an open connection; nothing is asked back.
    unsafe {
        ffi::sqlite3_wal_checkpoint_v2(
            connection.raw(),
            c"main".as_ptr(),
            mode,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    }
}

/// Makes sure that no frame of the round just ended can count again, whatever is written next.
fn end_round(connection: &Connection, space: Space) -> io::Result<()> {
    let wal = match space {
        Space::Kept => {
            let wal = OpenOptions::new().write(true).open(path(connection))?;
            if wal.metadata()?.len() > 0 {
                wal.write_all_at(&[0; wal::HEADER_BYTES], 0)?;
            }
            wal
        }
        Space::GivenBack => File::open(path(connection))?,
    };
    wal.sync_data()
}

/// Whether the WAL takes the space of more than so many frames.
fn is_longer_than(connection: &Connection, frames: u32) -> bool {
    path(connection).metadata().is_ok_and(|found| found.len() > wal::offset_of(frames))
}

fn path(connection: &Connection) -> PathBuf {
    beside(connection.path(), "-wal")
}

fn is_sync_failure(code: i32) -> bool {
    matches!(code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}
