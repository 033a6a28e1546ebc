//! A history as a Litestream replica: the same files without database checksums, which Litestream does not take.
//!
//! The chain is checked on the way, since what is written can no longer prove it.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use wasmkeep_ltx::{CompactOptions, FileName, Tracking, Verified, compact};
use wasmkeep_protocol::history::HistoryFile;

use super::{
    chain::Chain,
    export::{Target, not_written},
    pages::{folder_of, pages_max},
    reading::sound,
};
use crate::{
    args::FileMode,
    exit::{Failure, Status},
};

/// Where Litestream keeps whole databases, and where single files.
const SNAPSHOT_LEVEL: u32 = 9;
const CHANGES_LEVEL: u32 = 0;

/// A replica on its way to its folder. Dropped before its end, nothing stays.
#[derive(Debug)]
pub struct Replica {
    folder: TempDir,
    target: PathBuf,
    mode: FileMode,
    chain: Option<Chain>,
    /// A deletion the history begins with: Litestream has none, so it becomes one file with what follows it.
    deletion: Option<(HistoryFile, Vec<u8>)>,
}

impl Replica {
    /// Begins beside `target`.
    ///
    /// # Errors
    /// The folder it is in cannot be written to.
    pub fn begin(target: &Path, mode: FileMode) -> Result<Self, Failure> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".partial");
        let folder = builder.tempdir_in(folder_of(target)).map_err(|error| not_written(target, error))?;
        Ok(Self { folder, target: target.to_owned(), mode, chain: None, deletion: None })
    }

    /// Proves that a file follows the ones before it.
    fn follow(&mut self, name: HistoryFile, file: &Verified<'_>) -> Result<(), Failure> {
        let unfitting = |error| damaged(name, error);
        match &mut self.chain {
            None => self.chain = Some(Chain::begin(file).map_err(unfitting)?),
            Some(chain) => chain.follow(file).map_err(unfitting)?,
        }
        Ok(())
    }

    fn write(&self, name: HistoryFile, files: &[Verified<'_>]) -> Result<(), Failure> {
        let damaged = |error: &dyn std::fmt::Display| damaged(name, error);
        let last = files.last().ok_or_else(|| Failure::new(Status::Internal, "no file to write"))?;
        let options =
            CompactOptions { tracking: Tracking::Drop, pages_max: pages_max(last.header().page_size) };
        let merged = compact(files, options).map_err(|error| damaged(&error))?;
        let first = files[0].header();
        let level = if first.is_snapshot() { SNAPSHOT_LEVEL } else { CHANGES_LEVEL };
        let file_name =
            FileName::new(first.min_txid, last.header().max_txid).map_err(|error| damaged(&error))?;
        let folder = self.folder.path().join("ltx").join(level.to_string());
        let written = fs::create_dir_all(&folder)
            .and_then(|()| write_synced(&folder.join(file_name.to_string()), self.mode, &merged.bytes));
        written.map_err(|error| not_written(&self.target, error))
    }
}

fn damaged(name: HistoryFile, error: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Damaged, format!("{name}: {error}"))
}

fn write_synced(path: &Path, mode: FileMode, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, bytes)?;
    file.set_permissions(Permissions::from_mode(mode.0))?;
    file.sync_all()
}

impl Target for Replica {
    fn add(&mut self, name: HistoryFile, bytes: &[u8]) -> Result<(), Failure> {
        let file = sound(name, bytes).map_err(|error| damaged(name, error))?;
        self.follow(name, &file)?;
        if name.is_deletion() {
            self.deletion = Some((name, bytes.to_vec()));
            return Ok(());
        }
        match self.deletion.take() {
            None => self.write(name, &[file]),
            Some((deleted, bytes)) => {
                let deletion = sound(deleted, &bytes).map_err(|error| damaged(deleted, error))?;
                self.write(name, &[deletion, file])
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { folder, target, mode, .. } = self;
        let ltx = folder.path().join("ltx");
        let levels = [SNAPSHOT_LEVEL, CHANGES_LEVEL].map(|level| ltx.join(level.to_string()));
        for folder in levels.iter().chain([&ltx, &folder.path().to_owned()]).filter(|folder| folder.exists())
        {
            let permitted = fs::set_permissions(folder, Permissions::from_mode(mode.of_folder()));
            permitted.map_err(|error| not_written(&target, error))?;
        }
        // A folder that appeared meanwhile is replaced only when it is empty.
        fs::rename(folder.path(), &target).map_err(|error| not_written(&target, error))?;
        // It stands under its own name now.
        let _ = folder.keep();
        let parent = folder_of(&target);
        fs::File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(|error| not_written(parent, error))
    }
}
