//! Moving the WAL into the database file.
//!
//! Commits do not sync (`synchronous=OFF`), a checkpoint does: WAL, database file, and the emptied WAL. The WAL
//! is always emptied and never written over: frames of an old round left behind new ones could be replayed
//! after a power loss, and the sync of the WAL's new header that prevents it would fall on a shard.

use std::{fs::File, io, ptr};

use rusqlite::ffi;

use crate::{
    connection::Connection, disk::Durability, error::Error, image::beside, limits::CLOSE_CHECKPOINT_FRAMES,
};

/// Checkpoints a connection that no transaction and no cursor uses. Blocking.
pub(crate) fn run(connection: &Connection, durability: &Durability) -> Result<(), Error> {
    connection.host(|| {
        connection.host_run(c"PRAGMA synchronous=FULL")?;
        let code = truncate(connection);
        if code != ffi::SQLITE_OK {
            if is_sync_failure(code) {
                durability.poison();
            }
            // From here on SQLite syncs the header of a WAL it starts over, on the shard if need be: the WAL
            // may hold frames of the old round.
            return Err(connection.error(code));
        }
        if let Err(error) = sync_wal(connection) {
            durability.poison();
            return Err(Error::NotDurable(error.to_string()));
        }
        connection.host_run(c"PRAGMA synchronous=OFF")
    })
}

/// Before a close: shortens a long WAL so that the next open need not read it.
pub(crate) fn before_close(connection: &Connection, durability: &Durability) {
    let is_idle = connection.is_open() && !connection.is_busy.get() && !connection.in_transaction();
    if durability.is_poisoned() || !is_idle {
        return;
    }
    connection.shrink();
    if connection.wal_frames().is_some_and(|frames| frames > CLOSE_CHECKPOINT_FRAMES)
        && let Err(error) = run(connection, durability)
    {
        tracing::warn!(%error, path = ?connection.path(), "checkpoint at close failed; the WAL stays");
    }
}

fn truncate(connection: &Connection) -> i32 {
    let mode = ffi::SQLITE_CHECKPOINT_TRUNCATE;
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

fn sync_wal(connection: &Connection) -> io::Result<()> {
    File::open(beside(connection.path(), "-wal"))?.sync_data()
}

fn is_sync_failure(code: i32) -> bool {
    matches!(code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}
