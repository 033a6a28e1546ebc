//! The files behind the actors: where they are, what a killed process leaves of them, which are open.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use wasmkeep_protocol::ActorId;

/// The database file of an actor.
#[must_use]
pub fn path(folder: &Path, id: &ActorId) -> PathBuf {
    folder.join(id.class.as_str()).join(format!("{}.db", id.name.file_stem()))
}

/// The WAL beside a database.
#[must_use]
pub fn wal_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// A place in a WAL: how long it was, and which round of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalMark {
    salts: [u8; 8],
    length: u64,
}

impl WalMark {
    /// The end of the WAL beside `database`; none while it has no header.
    #[must_use]
    pub fn read(database: &Path) -> Option<Self> {
        let mut header = [0; 24];
        let mut file = File::open(wal_of(database)).ok()?;
        file.read_exact(&mut header).ok()?;
        let length = file.metadata().ok()?.len();
        Some(Self { salts: header[16..24].try_into().ok()?, length })
    }

    /// How many bytes the WAL has grown beyond this mark in the same round.
    #[must_use]
    pub fn growth(&self, database: &Path) -> Option<u64> {
        let now = Self::read(database)?;
        (now.salts == self.salts).then(|| now.length.saturating_sub(self.length))
    }

    /// Cuts the WAL to this mark and `beyond` bytes more.
    ///
    /// # Errors
    /// What the file system says.
    pub fn cut(&self, database: &Path, beyond: u64) -> io::Result<()> {
        OpenOptions::new().write(true).open(wal_of(database))?.set_len(self.length + beyond)
    }
}

/// Copies what the operating system holds of `source`, as it would stand after a kill.
///
/// # Errors
/// What the file system says.
pub fn copy(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let to = target.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// The files below `folder` that this process holds open.
#[must_use]
pub fn open_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|path| path.starts_with(folder)).collect()
}

/// A folder in memory where there is one: nothing here outlives the process.
///
/// # Errors
/// What the file system says.
pub fn scratch() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
