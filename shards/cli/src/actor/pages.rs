//! A database file that files of a history are applied to, beside the place where it will stand.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use wasmkeep_ltx::{ApplyError, PageSize, PageStore, Position, apply};
use wasmkeep_protocol::history::HistoryFile;

use super::{
    export::{Target, not_written},
    reading::sound,
};
use crate::{
    args::FileMode,
    exit::{Failure, Status},
};

/// Largest database of an actor, in bytes: the most `--actor-storage-mib` takes.
const DATABASE_BYTES_MAX: u64 = 1 << 40;

/// Most pages of an actor's database.
pub fn pages_max(size: PageSize) -> u32 {
    u32::try_from(DATABASE_BYTES_MAX / u64::from(u32::from(size))).unwrap_or(u32::MAX)
}

/// A database on its way to its file. Dropped before its end, nothing stays.
#[derive(Debug)]
pub struct DatabaseFile {
    file: NamedTempFile,
    target: PathBuf,
    mode: FileMode,
    pages: u32,
    page_size: PageSize,
    at: Position,
}

impl DatabaseFile {
    /// Begins beside `target`.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn begin(target: &Path, mode: FileMode) -> Result<Self, Failure> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".partial");
        let file = builder.tempfile_in(folder_of(target)).map_err(|error| not_written(target, error))?;
        Ok(Self {
            file,
            target: target.to_owned(),
            mode,
            pages: 0,
            page_size: PageSize::DEFAULT,
            at: Position::START,
        })
    }
}

/// The folder a path is in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

impl Target for DatabaseFile {
    fn add(&mut self, name: HistoryFile, bytes: &[u8]) -> Result<(), Failure> {
        let damaged = |reason: String| Failure::new(Status::Damaged, format!("{name}: {reason}"));
        let file = sound(name, bytes).map_err(|error| damaged(error.to_string()))?;
        if file.header().is_snapshot() {
            self.page_size = file.header().page_size;
        }
        let at = self.at;
        self.at = apply(&file, &at, self).map_err(|error| match error {
            ApplyError::Store(error) => not_written(&self.target, error),
            error => damaged(error.to_string()),
        })?;
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { file, target, mode, .. } = self;
        let permitted = file.as_file().set_permissions(Permissions::from_mode(mode.0));
        permitted.map_err(|error| not_written(&target, error))?;
        file.as_file().sync_all().map_err(|error| not_written(&target, error))?;
        file.persist_noclobber(&target).map_err(|error| not_written(&target, error.error))?;
        let folder = folder_of(&target);
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| not_written(folder, error))
    }
}

impl DatabaseFile {
    fn offset(&self, pgno: u32) -> u64 {
        u64::from(pgno - 1) * u64::from(u32::from(self.page_size))
    }
}

impl PageStore for DatabaseFile {
    type Error = io::Error;

    fn page_size(&self) -> PageSize {
        self.page_size
    }

    fn page_count(&self) -> u32 {
        self.pages
    }

    fn pages_max(&self) -> u32 {
        pages_max(self.page_size)
    }

    fn read_page(&self, pgno: u32, page: &mut [u8]) -> io::Result<()> {
        self.file.as_file().read_exact_at(page, self.offset(pgno))
    }

    fn write_page(&mut self, pgno: u32, page: &[u8]) -> io::Result<()> {
        self.file.as_file().write_all_at(page, self.offset(pgno))
    }

    fn resize(&mut self, pages: u32) -> io::Result<()> {
        self.file.as_file().set_len(u64::from(pages) * u64::from(u32::from(self.page_size)))?;
        self.pages = pages;
        Ok(())
    }
}
