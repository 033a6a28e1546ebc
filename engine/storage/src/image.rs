//! A new database, written in one go.
//!
//! SQLite's own way (create a rollback journal, write page 1, switch to WAL) costs several syncs. What a database
//! begins with is the same for all, the empty table of the platform's own rows, so SQLite makes it once per process,
//! in memory, and each new file starts as a copy of it.

use std::{
    ffi::{CStr, c_int},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    ptr, slice,
    sync::OnceLock,
};

use rusqlite::ffi;
use rustix::{
    fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with},
    io::Errno,
};
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::rows;

const PAGE: usize = PAGE_BYTES as usize;

/// The schema and the one table.
const PAGES: usize = 2;

/// Offsets of the file format's write and read version; 2 says WAL.
const VERSIONS: [usize; 2] = [18, 19];

/// The sums of a database's pages, see `sums`.
pub(crate) const SUMS: &str = "-sums";

/// What is beside a database and means nothing without it.
const COMPANIONS: [&str; 5] = ["-wal", "-shm", "-journal", SUMS, NEW];

/// A new database until it has its content.
const NEW: &str = "-new";

/// The path of a companion of `path`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes an actor's database and everything beside it. Files that are not there are no error, so an
/// interrupted removal is simply repeated.
///
/// # Errors
/// What the file system says. The database itself goes first: what is left behind then belongs to nothing,
/// and a new database of that name clears it away.
pub fn remove(path: &Path) -> io::Result<()> {
    unlink(path)?;
    COMPANIONS.iter().try_for_each(|suffix| unlink(&beside(path, suffix)))
}

pub(crate) fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes sure that a database file is at `path`; folders are made as needed. A file with content is left alone. Says
/// whether there was none.
pub(crate) fn ensure(path: &Path) -> io::Result<bool> {
    if ensure_if_there(path)? { Ok(false) } else { create(path).map(|()| true) }
}

/// As [`ensure`] for a file that is there; says whether it is.
pub(crate) fn ensure_if_there(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(found) if found.len() > (PAGES * PAGE) as u64 => Ok(true),
        // A crash leaves none like it: a new file has its content before its name, and its length before that.
        Ok(found) if found.len() == 0 && found.is_file() => {
            Err(io::Error::new(ErrorKind::InvalidData, "it is empty, which no database of an actor ever is"))
        }
        Ok(_) => complete(path).map(|()| true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Finishes a file whose pages a crash kept from the disk, whole or from some byte on. The WAL beside it, if any, then
/// holds everything that was ever written, and stays.
fn complete(path: &Path) -> io::Result<()> {
    let (content, image) = (fs::read(path)?, blank()?);
    for (at, own) in (0..).step_by(PAGE).zip(image.chunks(PAGE)) {
        let found = content.get(at..).unwrap_or_default();
        let found = &found[..found.len().min(PAGE)];
        let kept = found.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if !own.starts_with(&found[..kept]) {
            // Used, or made by an earlier version: what follows is not ours to fill in.
            break;
        }
        if found != own {
            OpenOptions::new().write(true).open(path)?.write_all_at(own, at as u64)?;
        }
    }
    Ok(())
}

fn create(path: &Path) -> io::Result<()> {
    // A WAL left over from an earlier database of this name must not be replayed into this one. First of all: a
    // crash after the file is there would make the WAL look like its own.
    COMPANIONS.iter().try_for_each(|suffix| unlink(&beside(path, suffix)))?;
    create_alone(path)
}

/// Makes a database at `path`, where nothing of its name is; folders are made as needed. It has its name once it is
/// whole, so whatever ends the process leaves no part of it.
pub(crate) fn create_alone(path: &Path) -> io::Result<()> {
    let new = beside(path, NEW);
    unlink(&new)?;
    let made = write_new(&new).and_then(|()| rename_to_free(&new, path));
    // No empty file is left where the disk is full.
    made.inspect_err(|_| drop(unlink(&new)))
}

fn write_new(path: &Path) -> io::Result<()> {
    let file = match new_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            new_file(path)?
        }
        other => other?,
    };
    reserve(&file)?;
    file.write_all_at(blank()?, 0)
}

/// Renames a file to where none is.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to).and_then(|()| unlink(from)),
        renamed => Ok(renamed?),
    }
}

/// Gives a new file its length at once, so that a power loss leaves zeros to be filled in and not an empty file, which
/// is what a truncated database looks like. A file system that cannot does without.
fn reserve(file: &File) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, (PAGES * PAGE) as u64) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(()),
        reserved => Ok(reserved?),
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Whether the file is as [`create_alone`] made it.
pub(crate) fn is_blank(path: &Path) -> io::Result<bool> {
    Ok(fs::read(path)? == blank()?)
}

/// A database in WAL mode with nothing but the table of the platform's own rows.
fn blank() -> io::Result<&'static [u8]> {
    static BLANK: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(pages) = BLANK.get() {
        return Ok(pages);
    }
    let pages = make_blank().ok_or_else(|| io::Error::other("SQLite could not make an empty database"))?;
    Ok(BLANK.get_or_init(|| pages))
}

fn make_blank() -> Option<Vec<u8>> {
    let mut database = ptr::null_mut();
    let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_NOMUTEX | ffi::SQLITE_OPEN_MEMORY;
    let run = |database, sql: &CStr| {
        // SAFETY: the handle is open, and nothing is asked back.
        unsafe {
            ffi::sqlite3_exec(database, sql.as_ptr(), None, ptr::null_mut(), ptr::null_mut())
                == ffi::SQLITE_OK
        }
    };
    // SAFETY: the handle is made, used and closed here; the serialized copy is freed after it was copied.
    unsafe {
        let mut pages = None;
        if ffi::sqlite3_open_v2(c":memory:".as_ptr(), &raw mut database, flags, ptr::null()) == ffi::SQLITE_OK
            && run(database, c"PRAGMA page_size=4096")
            && run(database, rows::CREATE)
        {
            let mut size = 0;
            let bytes = ffi::sqlite3_serialize(database, c"main".as_ptr(), &raw mut size, 0);
            if !bytes.is_null() {
                if size == (PAGES * PAGE) as i64 {
                    pages = Some(slice::from_raw_parts(bytes, size as usize).to_vec());
                }
                ffi::sqlite3_free(bytes.cast());
            }
        }
        let _: c_int = ffi::sqlite3_close(database);
        let mut pages = pages?;
        for offset in VERSIONS {
            pages[offset] = 2;
        }
        Some(pages)
    }
}
