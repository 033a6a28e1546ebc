//! Syncing an actor's files, and telling a full disk from a full quota.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::image::beside;

/// Free bytes below which a refused write is put down to the disk: SQLite gives one code for both.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// Whether the disk under `path` is full.
pub(crate) fn is_full(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: statvfs fills the structure it is given; zeros are a valid start.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        libc::statvfs(name.as_ptr(), &raw mut found) == 0
            && found.f_bavail.saturating_mul(found.f_frsize) < FREE_BYTES_MIN
    }
}

/// What is known about the files of one open database being on stable storage. Shared with the threads that
/// sync, and it outlives the connection if need be.
#[derive(Debug)]
pub(crate) struct Durability {
    path: PathBuf,
    /// Folders whose entries lead to the file, the nearest first.
    folders: usize,
    /// The database file was synced since the database was opened.
    has_beginning: AtomicBool,
    /// And so were the folders.
    is_rooted: AtomicBool,
    /// A sync failed. The kernel may have dropped the pages and would call the next sync a success, so nothing
    /// about this file can be called durable any more.
    is_poisoned: AtomicBool,
}

impl Durability {
    /// `folders`: how many folders above the file a sync covers.
    pub(crate) fn new(path: PathBuf, folders: usize) -> Self {
        Self {
            path,
            folders,
            has_beginning: AtomicBool::new(false),
            is_rooted: AtomicBool::new(false),
            is_poisoned: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self) {
        self.is_poisoned.store(true, Ordering::Release);
    }

    /// Puts everything committed so far on stable storage. Blocking. A failure poisons.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.is_poisoned() {
            return Err(io::Error::other("an earlier sync of this file failed"));
        }
        let result = self.sync_files();
        if result.is_err() {
            self.poison();
        }
        result
    }

    /// Puts what the file began with on stable storage, before a checkpoint writes into it: the pages a new database
    /// begins with are in no WAL, and a crash amid the checkpoint could keep others and lose them. Blocking. A failure
    /// poisons.
    pub(crate) fn sync_beginning(&self) -> io::Result<()> {
        if self.has_beginning.load(Ordering::Acquire) {
            return Ok(());
        }
        File::open(&self.path)?.sync_data().inspect_err(|_| self.poison())?;
        self.has_beginning.store(true, Ordering::Release);
        Ok(())
    }

    fn sync_files(&self) -> io::Result<()> {
        self.sync_beginning()?;
        File::open(beside(&self.path, "-wal"))?.sync_data()?;
        if !self.is_rooted.load(Ordering::Acquire) {
            for folder in self.path.ancestors().skip(1).take(self.folders) {
                File::open(folder)?.sync_all()?;
            }
            self.is_rooted.store(true, Ordering::Release);
        }
        Ok(())
    }
}
