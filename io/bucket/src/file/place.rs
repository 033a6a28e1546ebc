//! The directory itself: opening it, and the blocking steps of a read, a write and a removal.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::lock::KeyLock;
use super::{OpenFileError, layout, stored};
use crate::memory::holds;
use crate::outcome::{Failure, Outcome, Precondition, ReadError, UnknownCause, Version};
use crate::{Key, Meta, Nonce};

/// Content of `FORMAT`.
const FORMAT: &str = "wasmkeep file bucket 1\n";

/// Age after which a file in `tmp` belongs to a dead process. A writer that slept longer finds its file gone,
/// fails, and has written nothing.
const TMP_AGE_MAX: Duration = Duration::from_secs(3600);

/// Whether a bucket was opened in `dir` before.
pub(super) fn is_marked(dir: &Path) -> bool {
    dir.join("FORMAT").exists()
}

/// A bucket's directory.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) objects: PathBuf,
    locks: PathBuf,
    tmp: PathBuf,
    /// Directories below `objects` whose entry in their parent is known to be on the disk. Directories are
    /// never removed, so one that was durable once stays so.
    durable: Mutex<HashSet<PathBuf>>,
}

impl Place {
    pub(super) fn open(dir: &Path) -> Result<Self, OpenFileError> {
        let failed = |error| OpenFileError::Io { dir: dir.to_owned(), error };
        make_private(dir).map_err(failed)?;
        let dir = dir.canonicalize().map_err(failed)?;
        let place = Self {
            objects: dir.join("objects"),
            locks: dir.join("locks"),
            tmp: dir.join("tmp"),
            durable: Mutex::default(),
        };
        refuse_foreign(&dir)?;
        for part in [&place.objects, &place.locks, &place.tmp] {
            make_private(part).map_err(failed)?;
            close_to_others(part).map_err(failed)?;
        }
        place.mark(&dir)?;
        sync_dir(&dir).map_err(failed)?;
        if let Some(parent) = dir.parent() {
            sync_dir(parent).map_err(failed)?;
        }
        place.discard_old_tmp().map_err(failed)?;
        Ok(place)
    }

    fn mark(&self, dir: &Path) -> Result<(), OpenFileError> {
        let failed = |error| OpenFileError::Io { dir: dir.to_owned(), error };
        let format = dir.join("FORMAT");
        match fs::read(&format) {
            Ok(found) if found == FORMAT.as_bytes() => Ok(()),
            Ok(found) => {
                let found = String::from_utf8_lossy(&found).trim_end().chars().take(80).collect();
                Err(OpenFileError::Format { dir: dir.to_owned(), found })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = self.tmp.join(Nonce::random().as_str());
                write_synced(&beside, &[FORMAT.as_bytes()]).map_err(failed)?;
                fs::rename(&beside, &format).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn discard_old_tmp(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.tmp)? {
            let entry = entry?;
            // Another process may be tidying at the same moment.
            let Ok(modified) = entry.metadata().and_then(|attributes| attributes.modified()) else {
                continue;
            };
            if SystemTime::now().duration_since(modified).is_ok_and(|age| age > TMP_AGE_MAX) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Opens an object's file and reads its header.
    pub(super) fn read(&self, key: &Key) -> Result<(File, Meta), ReadError> {
        match File::open(layout::object_path(&self.objects, key)) {
            Ok(file) => stored::meta(&file).map(|meta| (file, meta)),
            Err(error) if is_absence(&error) => Err(ReadError::NotFound),
            Err(error) => Err(Failure::Unavailable(error.to_string()).into()),
        }
    }

    pub(super) fn write(&self, key: &Key, body: &[u8], condition: &Precondition) -> Outcome {
        let beside = self.tmp.join(Nonce::random().as_str());
        let outcome = self.write_beside(key, body, condition, &beside);
        if !matches!(outcome, Outcome::Written(_)) {
            let _ = fs::remove_file(&beside);
        }
        outcome
    }

    /// The long part, writing the body to the disk, comes before the lock. From the lock on nothing can be
    /// seen of the write before the rename, and all of it after.
    fn write_beside(&self, key: &Key, body: &[u8], condition: &Precondition, beside: &Path) -> Outcome {
        let version = Nonce::random();
        let path = layout::object_path(&self.objects, key);
        let header = stored::header(&version, body.len() as u64);
        let prepared = Version::new(version.as_str()).map_err(io::Error::other).and_then(|version| {
            write_synced(beside, &[&header, body])?;
            self.make_dirs(&path)?;
            Ok((version, KeyLock::take(&self.locks, key)?))
        });
        let (version, _lock) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Outcome::Failed(Failure::Unavailable(error.to_string())),
        };
        if *condition != Precondition::None {
            match self.read(key) {
                Ok((_, meta)) if holds(condition, Some(&meta.version)) => {}
                Err(ReadError::NotFound) if holds(condition, None) => {}
                Ok(_) | Err(ReadError::NotFound) => return Outcome::ConditionFailed,
                Err(ReadError::Failed(failure)) => return Outcome::Failed(failure),
                Err(error) => return Outcome::Failed(Failure::Refused(error.to_string())),
            }
        }
        if let Err(error) = fs::rename(beside, &path) {
            return Outcome::Failed(Failure::Unavailable(error.to_string()));
        }
        match sync_parent(&path) {
            Ok(()) => Outcome::Written(version),
            // Visible to all, and nobody knows whether it survives a power cut.
            Err(error) => Outcome::Unknown(UnknownCause::NoReply(error.to_string())),
        }
    }

    pub(super) fn remove(&self, key: &Key) -> Result<(), Failure> {
        let path = layout::object_path(&self.objects, key);
        let removed = KeyLock::take(&self.locks, key).and_then(|_lock| match fs::remove_file(&path) {
            Ok(()) => sync_parent(&path),
            Err(error) if is_absence(&error) => Ok(()),
            Err(error) => Err(error),
        });
        removed.map_err(|error| Failure::Unavailable(error.to_string()))
    }

    /// Makes the directories above `path`, and makes sure that a power cut leaves them.
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        let Some(dir) = path.parent() else { return Ok(()) };
        if self.durable().contains(dir) {
            return Ok(());
        }
        make_private(dir)?;
        // One that was there already may be another process's, made a moment ago and not on the disk yet.
        for made in dir.ancestors().take_while(|above| *above != self.objects) {
            sync_parent(made)?;
        }
        let above = dir.ancestors().take_while(|above| *above != self.objects);
        self.durable().extend(above.map(Path::to_owned));
        Ok(())
    }

    fn durable(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // The set only grows, so a panic while it was held left it whole.
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refuse_foreign(dir: &Path) -> Result<(), OpenFileError> {
    let failed = |error| OpenFileError::Io { dir: dir.to_owned(), error };
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !["FORMAT", "objects", "locks", "tmp"].iter().any(|ours| name == *ours) {
            return Err(OpenFileError::Foreign { dir: dir.to_owned(), found: name.to_string_lossy().into() });
        }
    }
    Ok(())
}

fn write_synced(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    // Objects are databases and secrets: for the user that writes them alone.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_data()
}

/// Makes a directory, and those above it, for this user alone. One that is there is left as it is.
fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Takes what all users may do with a directory away, which an earlier version let them. One that belongs to another
/// user stays as its owner has it.
fn close_to_others(dir: &Path) -> io::Result<()> {
    let mode = fs::metadata(dir)?.permissions().mode() & 0o7777;
    if mode & 0o007 == 0 {
        return Ok(());
    }
    match fs::set_permissions(dir, Permissions::from_mode(mode & !0o007)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        closed => closed,
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// `NotADirectory` cannot come from our own layout, only from a stranger's file in the way; then the object is
/// just as absent.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
