//! How SQLite is set up: once for the process, and for each connection. Each setting is read back, SQLite
//! clamps and ignores in silence.

use std::{
    ffi::{CStr, CString, c_int},
    path::{Path, PathBuf},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::ffi;
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::{
    connection::Connection,
    error::{OpenError, VersionError},
    files,
    limits::{RESERVE_PAGES, SQLITE_LIMITS},
    memory,
};

/// The first version without the WAL-reset corruption.
const VERSION_MIN: c_int = 3_051_003;

/// Refuses a SQLite that can corrupt a database in WAL mode.
///
/// # Errors
/// The version linked in is older than 3.51.3.
pub fn check_sqlite_version() -> Result<(), VersionError> {
    // SAFETY: both only answer; the text is a constant of the library.
    let (number, name) = unsafe { (ffi::sqlite3_libversion_number(), ffi::sqlite3_libversion()) };
    // SAFETY: as above.
    let found = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    check_version(number, &found)
}

pub(crate) fn check_version(number: c_int, found: &str) -> Result<(), VersionError> {
    if number < VERSION_MIN { Err(VersionError { found: found.to_owned() }) } else { Ok(()) }
}

/// Sets SQLite up for this process: version, memory. Whoever comes first does it.
pub(crate) fn start() -> Result<(), VersionError> {
    static STARTED: OnceLock<Result<(), VersionError>> = OnceLock::new();
    STARTED
        .get_or_init(|| {
            check_sqlite_version()?;
            if memory::install() == ffi::SQLITE_OK {
                MEMORY_COUNTED.store(true, Ordering::Relaxed);
            } else {
                tracing::error!("SQLite was used before: the memory of actors' statements is not bounded");
            }
            // Should SQLite refuse, it opens no database by that name and says so.
            files::register();
            Ok(())
        })
        .clone()
}

static MEMORY_COUNTED: AtomicBool = AtomicBool::new(false);

/// Whether SQLite's memory is counted and bounded; not so when other code of the process used SQLite first.
pub fn is_memory_counted() -> bool {
    MEMORY_COUNTED.load(Ordering::Relaxed)
}

/// Names the folder for SQLite's temporary files (big sorts, VACUUM), for the whole process and for good.
///
/// It should be on a disk, not in memory: spilling there is what keeps an actor's sort from taking the node's
/// memory. The files have no name while they are in use and vanish with the process. Only the first call counts;
/// returns the folder in force.
pub fn set_temp_folder(folder: PathBuf) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let _ = start();
            if let Ok(name) = CString::new(folder.as_os_str().as_encoded_bytes()) {
                // SAFETY: SQLite reads the variable under this mutex, and expects memory of its own there.
                unsafe {
                    ffi::sqlite3_initialize();
                    let mutex = ffi::sqlite3_mutex_alloc(ffi::SQLITE_MUTEX_STATIC_VFS1);
                    ffi::sqlite3_mutex_enter(mutex);
                    ffi::sqlite3_temp_directory = ffi::sqlite3_mprintf(c"%s".as_ptr(), name.as_ptr());
                    ffi::sqlite3_mutex_leave(mutex);
                }
            }
            folder
        })
        .clone()
}

/// Switches of a connection: `(id, name, wanted)`.
const SWITCHES: &[(c_int, &str, c_int)] = &[
    (ffi::SQLITE_DBCONFIG_DEFENSIVE, "defensive", 1),
    (ffi::SQLITE_DBCONFIG_TRUSTED_SCHEMA, "trusted_schema", 0),
    (ffi::SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, "load_extension", 0),
    (ffi::SQLITE_DBCONFIG_WRITABLE_SCHEMA, "writable_schema", 0),
    // As this SQLite is built. Guests may turn them off, until their actor sleeps.
    (ffi::SQLITE_DBCONFIG_ENABLE_FKEY, "foreign_keys", 1),
    // "text" in double quotes is an identifier, not a string that hides a misspelt column.
    (ffi::SQLITE_DBCONFIG_DQS_DML, "dqs_dml", 0),
    (ffi::SQLITE_DBCONFIG_DQS_DDL, "dqs_ddl", 0),
    // Closing does not checkpoint and sync by itself: it may happen on a shard.
    (ffi::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, "no_ckpt_on_close", 1),
];

/// Sets switches, limits and pragmas of a fresh connection. A file that was just made (`is_new`) need not be asked what
/// it is.
pub(crate) fn apply(connection: &Connection, is_new: bool) -> Result<(), OpenError> {
    for (id, name, wanted) in SWITCHES {
        let mut found = -1;
        // SAFETY: these switches take an int and a pointer to an int.
        unsafe { ffi::sqlite3_db_config(connection.raw(), *id, *wanted, &raw mut found) };
        check(name, i64::from(*wanted), i64::from(found))?;
    }
    for (id, name, wanted) in SQLITE_LIMITS {
        // SAFETY: plain calls on an open connection; −1 only asks.
        let found = unsafe {
            ffi::sqlite3_limit(connection.raw(), *id, *wanted);
            ffi::sqlite3_limit(connection.raw(), *id, -1)
        };
        check(name, i64::from(*wanted), i64::from(found))?;
    }
    crate::functions::install(connection).map_err(|code| connection.open_error(code))?;
    let ask = |sql| connection.host_text(sql).map_err(|code| connection.open_error(code));
    expect("locking_mode", "exclusive", ask(c"PRAGMA locking_mode=EXCLUSIVE")?)?;
    ask(c"PRAGMA synchronous=OFF")?;
    expect("synchronous", "0", ask(c"PRAGMA synchronous")?)?;
    if !is_new {
        // Reads the first page: a damaged or locked file shows here.
        if ask(c"PRAGMA journal_mode")?.as_deref() != Some("wal") {
            expect("journal_mode", "wal", ask(c"PRAGMA journal_mode=WAL")?)?;
        }
        expect("page_size", &PAGE_BYTES.to_string(), ask(c"PRAGMA page_size")?)?;
    }
    // SAFETY: plain call on an open connection; it takes the automatic checkpoint away.
    unsafe { ffi::sqlite3_wal_autocheckpoint(connection.raw(), 0) };
    // Reads the first page of a new file, and takes its lock.
    connection.set_reserve(false).map_err(|code| connection.open_error(code))?;
    Ok(())
}

/// The quota in whole pages, so that the reserve can be added to it.
pub(crate) fn quota_pages(quota_bytes: u64) -> u32 {
    let pages = u32::try_from(quota_bytes / u64::from(PAGE_BYTES)).unwrap_or(u32::MAX);
    pages.clamp(1, u32::MAX - 1 - RESERVE_PAGES)
}

fn check(name: &str, wanted: i64, found: i64) -> Result<(), OpenError> {
    expect(name, &wanted.to_string(), Some(found.to_string()))
}

fn expect(name: &str, wanted: &str, found: Option<String>) -> Result<(), OpenError> {
    if found.as_deref() == Some(wanted) {
        return Ok(());
    }
    Err(OpenError::Setting { setting: format!("{name}={wanted}"), answer: found.unwrap_or_default() })
}

/// Opens the file. The handle exists even when opening failed, to be asked why and closed.
pub(crate) fn open_handle(path: &Path) -> (*mut ffi::sqlite3, c_int) {
    let Ok(name) = CString::new(path.as_os_str().as_encoded_bytes()) else {
        return (ptr::null_mut(), ffi::SQLITE_CANTOPEN);
    };
    let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_NOMUTEX | ffi::SQLITE_OPEN_EXRESCODE;
    let mut handle = ptr::null_mut();
    // SAFETY: the name and the out parameter live through the call.
    let code = unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &raw mut handle, flags, files::VFS.as_ptr()) };
    (handle, code)
}

#[cfg(test)]
mod tests {
    use super::*;

    // case R10
    #[test]
    fn a_sqlite_that_can_corrupt_its_wal_is_refused() {
        for (number, name, good) in
            [(3_051_002, "3.51.2", false), (3_050_004, "3.50.4", false), (3_051_003, "3.51.3", true)]
        {
            assert_eq!(check_version(number, name).is_ok(), good, "{name}");
        }
        let error = check_version(3_051_002, "3.51.2").expect_err("too old");
        assert!(error.to_string().contains("3.51.2"), "{error}");
    }

    #[test]
    fn a_setting_sqlite_did_not_take_is_an_error_that_names_it() {
        let error = check("EXPR_DEPTH", 500, 100).expect_err("clamped");
        assert!(error.to_string().contains("EXPR_DEPTH=500") && error.to_string().contains("100"), "{error}");
    }
}
