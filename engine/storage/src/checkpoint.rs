//! Moving the WAL into the database file.
//!
//! Commits do not sync (`synchronous=OFF`), a checkpoint does: WAL, database file, and the WAL that holds nothing any
//! more. Its header is blanked and synced before anything new is written over the old frames: without a header they
//! are nobody's, and with the next one, whose salts are others, they do not count. A power loss can therefore never
//! bring an old round back, and no sync falls on a shard. The space stays with the file while its actor is awake, since
//! a file that does not grow is cheaper to write; it is given back when there is too much of it, and at a close.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
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
        let code = checkpoint(connection, space);
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

fn checkpoint(connection: &Connection, space: Space) -> i32 {
    let mode = match space {
        Space::Kept => ffi::SQLITE_CHECKPOINT_RESTART,
        Space::GivenBack => ffi::SQLITE_CHECKPOINT_TRUNCATE,
    };
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
