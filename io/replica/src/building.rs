//! The database a restore builds beside the actor's own, and the moment it takes its place (R-RST-4).
//!
//! Everything here blocks. Nothing is synced: the bucket is the durable copy, and a local file is used only after
//! its checksum was compared with the bucket's history.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use wasmkeep_ltx::{
    ApplyError, Checksum, DecodeError, File as LtxFile, PageSize, PageStore, Position, apply,
};
use wasmkeep_protocol::{
    history::{HistoryFile, Point},
    limits::PAGE_BYTES,
};

/// Why a restore cannot go on with what it has read.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The local disk.
    #[error("{path}: {source}")]
    Disk {
        /// The file concerned.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The object is no sound file.
    #[error("{file} is damaged: {error}")]
    Damaged {
        /// The object.
        file: HistoryFile,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The object is sound and not what its name says: two objects were swapped.
    #[error("{0} does not hold what its name says")]
    Misnamed(HistoryFile),
    /// The object does not fit the database before it.
    #[error("{file} does not follow the files before it: {reason}")]
    Unfitting {
        /// The object.
        file: HistoryFile,
        /// Why.
        reason: String,
    },
}

impl LocalError {
    /// The file of the history that cannot be used.
    pub(crate) fn file(&self) -> Option<HistoryFile> {
        match self {
            Self::Disk { .. } => None,
            Self::Damaged { file, .. } | Self::Misnamed(file) | Self::Unfitting { file, .. } => Some(*file),
        }
    }

    /// Whether the history itself is at fault, so that no other node can restore it either.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        !matches!(self, Self::Disk { .. })
    }
}

/// The path beside `path` with `suffix` after its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn disk(path: &Path) -> impl Fn(io::Error) -> LocalError {
    move |source| LocalError::Disk { path: path.to_owned(), source }
}

/// A database file as a store of pages.
struct FilePages {
    file: File,
    pages: u32,
    pages_max: u32,
}

fn offset(pgno: u32) -> u64 {
    u64::from(pgno - 1) * u64::from(PAGE_BYTES)
}

impl PageStore for FilePages {
    type Error = io::Error;

    fn page_size(&self) -> PageSize {
        PageSize::new(PAGE_BYTES).expect("the platform's page size is one of SQLite's")
    }

    fn page_count(&self) -> u32 {
        self.pages
    }

    fn pages_max(&self) -> u32 {
        self.pages_max
    }

    fn read_page(&self, pgno: u32, page: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(page, offset(pgno))
    }

    fn write_page(&mut self, pgno: u32, page: &[u8]) -> io::Result<()> {
        self.file.write_all_at(page, offset(pgno))
    }

    fn resize(&mut self, pages: u32) -> io::Result<()> {
        self.file.set_len(u64::from(pages) * u64::from(PAGE_BYTES))?;
        self.pages = pages;
        Ok(())
    }
}

/// A database being built beside the actor's own. Dropped before its end, it is removed.
pub(crate) struct Building {
    store: FilePages,
    at: Position,
    target: PathBuf,
    path: PathBuf,
    is_done: bool,
}

impl Building {
    /// Begins with no pages, in place of what an earlier restore may have left.
    pub(crate) fn begin(target: PathBuf, pages_max: u32) -> Result<Self, LocalError> {
        let path = beside(&target, ".restoring");
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).map_err(disk(folder))?;
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = options.map_err(disk(&path))?;
        let store = FilePages { file, pages: 0, pages_max };
        Ok(Self { store, at: Position::START, target, path, is_done: false })
    }

    /// Applies the next file of the plan, after checking that it is sound, what its name says, and the next.
    pub(crate) fn apply(&mut self, name: HistoryFile, bytes: &[u8]) -> Result<(), LocalError> {
        let damaged = |error| LocalError::Damaged { file: name, error };
        let file = LtxFile::parse(bytes).and_then(LtxFile::verify).map_err(damaged)?;
        let (header, trailer) = (file.header(), file.trailer());
        let end = Point { txid: header.max_txid, checksum: trailer.post_apply.map_or(0, Checksum::get) };
        if header.min_txid != name.min_txid() || end != name.end() {
            return Err(LocalError::Misnamed(name));
        }
        match apply(&file, &self.at, &mut self.store) {
            Ok(at) => {
                self.at = at;
                Ok(())
            }
            Err(ApplyError::Store(source)) => Err(LocalError::Disk { path: self.path.clone(), source }),
            Err(error) => Err(LocalError::Unfitting { file: name, reason: error.to_string() }),
        }
    }

    /// Puts the built database in the actor's place. What was there stays as `<name>.replaced`, its log with it.
    pub(crate) fn finish(mut self) -> Result<(), LocalError> {
        set_aside(&self.target)?;
        fs::rename(&self.path, &self.target).map_err(disk(&self.target))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.is_done {
            // Left behind it only takes space, until the next restore of this actor.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Moves the database at `path`, if any, to `<name>.replaced` in place of an earlier one.
pub(crate) fn set_aside(path: &Path) -> Result<(), LocalError> {
    let (replaced, wal) = (beside(path, ".replaced"), beside(path, "-wal"));
    let replaced_wal = beside(&replaced, "-wal");
    if fs::exists(path).map_err(disk(path))? {
        // The database first: a log without its database is nothing, a database without its log is old.
        unlink(&replaced_wal)?;
        fs::rename(path, &replaced).map_err(disk(&replaced))?;
    }
    match fs::rename(&wal, &replaced_wal) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(&replaced_wal)(error)),
        _ => Ok(()),
    }
}

fn unlink(path: &Path) -> Result<(), LocalError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(path)(error)),
        _ => Ok(()),
    }
}
