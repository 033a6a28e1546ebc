//! A new database, written in one go.
//!
//! SQLite's own way (create a rollback journal, write page 1, switch to WAL) costs several syncs. The first
//! page of an empty database is the same for all, so SQLite makes it once per process, in memory, and each new
//! file starts as a copy of it.

use std::{
    ffi::c_int,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    ptr, slice,
    sync::OnceLock,
};

use rusqlite::ffi;
use wasmkeep_protocol::limits::PAGE_BYTES;

/// Offsets of the file format's write and read version; 2 says WAL.
const VERSIONS: [usize; 2] = [18, 19];

/// The sums of a database's pages, see `sums`.
pub(crate) const SUMS: &str = "-sums";

/// What is beside a database and means nothing without it.
const COMPANIONS: [&str; 4] = ["-wal", "-shm", "-journal", SUMS];

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

fn unlink(path: &Path) -> io::Result<()> {
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
        Ok(found) if found.len() > u64::from(PAGE_BYTES) => Ok(true),
        Ok(_) => complete(path).map(|()| true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Finishes a file whose first page a crash kept from the disk: nothing in it, or only zeros. The WAL beside
/// it, if any, then holds everything that was ever written, and stays.
fn complete(path: &Path) -> io::Result<()> {
    let content = fs::read(path)?;
    if content.iter().any(|byte| *byte != 0) {
        return Ok(());
    }
    OpenOptions::new().write(true).open(path)?.write_all_at(blank()?, 0)
}

fn create(path: &Path) -> io::Result<()> {
    // A WAL left over from an earlier database of this name must not be replayed into this one. First of all: a
    // crash after the file is there would make the WAL look like its own.
    COMPANIONS.iter().try_for_each(|suffix| unlink(&beside(path, suffix)))?;
    let file = match new_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            new_file(path)?
        }
        other => other?,
    };
    file.write_all_at(blank()?, 0)
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// The first page of an empty database in WAL mode.
fn blank() -> io::Result<&'static [u8]> {
    static BLANK: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(page) = BLANK.get() {
        return Ok(page);
    }
    let page = make_blank().ok_or_else(|| io::Error::other("SQLite could not make an empty database"))?;
    Ok(BLANK.get_or_init(|| page))
}

fn make_blank() -> Option<Vec<u8>> {
    let mut database = ptr::null_mut();
    let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_NOMUTEX | ffi::SQLITE_OPEN_MEMORY;
    let sql = c"PRAGMA page_size=4096; CREATE TABLE t(x); DROP TABLE t; VACUUM;";
    // SAFETY: the handle is made, used and closed here; the serialized copy is freed after it was copied.
    unsafe {
        let mut page = None;
        if ffi::sqlite3_open_v2(c":memory:".as_ptr(), &raw mut database, flags, ptr::null()) == ffi::SQLITE_OK
            && ffi::sqlite3_exec(database, sql.as_ptr(), None, ptr::null_mut(), ptr::null_mut())
                == ffi::SQLITE_OK
        {
            let mut size = 0;
            let bytes = ffi::sqlite3_serialize(database, c"main".as_ptr(), &raw mut size, 0);
            if !bytes.is_null() {
                if size == i64::from(PAGE_BYTES) {
                    page = Some(slice::from_raw_parts(bytes, size as usize).to_vec());
                }
                ffi::sqlite3_free(bytes.cast());
            }
        }
        let _: c_int = ffi::sqlite3_close(database);
        let mut page = page?;
        for offset in VERSIONS {
            page[offset] = 2;
        }
        Some(page)
    }
}
