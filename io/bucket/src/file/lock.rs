//! One writer per key among all processes. Owns the lock files and their life.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::Key;

/// Longest wait for another writer of the same key. A write holds the lock for one rename and one fsync; who
/// holds it longer is paused or has a stuck disk, and a caller with a lease to keep must hear of it.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause between two tries: short against an fsync, long enough not to burn a core.
const PAUSE: Duration = Duration::from_micros(500);

/// The right to write one key, until dropped. The system takes it back when the process dies.
#[derive(Debug)]
pub(super) struct KeyLock {
    path: PathBuf,
    // Closing the file gives the lock up; it comes after the removal in `drop`.
    _file: File,
}

impl KeyLock {
    /// Waits for the lock of `key`, with an error of kind `TimedOut` after [`WAIT_MAX`].
    pub(super) fn take(locks: &Path, key: &Key) -> io::Result<Self> {
        // Two keys of one hash would only wait for each other.
        let path = locks.join(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(key.as_str().as_bytes())));
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The holder before may have removed the file between our open and our lock: then others
                // lock its successor, and what we hold excludes nobody.
                Ok(()) if is_at(&file, &path)? => return Ok(Self { path, _file: file }),
                Ok(()) => continue,
                Err(error) if error == rustix::io::Errno::WOULDBLOCK => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("another process has held the lock of {key} for {} s", WAIT_MAX.as_secs()),
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        // Removed while still held, so that no two processes can hold "the" lock on two files. A file that
        // stays behind is taken again by the next writer.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_holder_at_a_time_and_no_lock_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, passes) = (AtomicU32::new(0), AtomicU32::new(0));
        let key: Key = "owners/t/c/n".parse().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let lock = KeyLock::take(dir.path(), &key).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        passes.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(passes.into_inner(), 800);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_file_left_by_a_dead_process_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let key: Key = "a".parse().unwrap();
        let lock = KeyLock::take(dir.path(), &key).unwrap();
        let path = lock.path.clone();
        drop(lock);
        std::fs::write(&path, b"").unwrap();
        assert!(KeyLock::take(dir.path(), &key).is_ok());
    }
}
