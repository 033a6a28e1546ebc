//! A bucket in a directory, for several processes of one machine.
//!
//! Owns real conditional semantics and durability on a local file system: a lock per key, a write beside, a
//! rename, an fsync of file and directory. Does not own sharing between machines: network file systems keep
//! none of these promises reliably.
//!
//! ```text
//! DIR/FORMAT                    what this directory is
//! DIR/objects/nodes/node-a#     the object nodes/node-a: a header (see `stored`), then the body
//! DIR/locks/<hash of the key>   held with flock during a write of that key
//! DIR/tmp/<random>              a body on its way to its place
//! ```

mod layout;
mod lock;
mod place;
mod stored;
mod walk;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::listing::{ListQuery, Page};
use crate::memory::clip;
use crate::outcome::{Failure, Outcome, Precondition, ReadError, UnknownCause};
use crate::{Bucket, Key, Meta, Object};
use place::Place;

/// A bucket in a directory. Needs a Tokio runtime: files are read and written on its blocking threads.
#[derive(Debug)]
pub struct FileBucket(Arc<Place>);

/// Why a directory is not usable as a bucket.
#[derive(Debug, thiserror::Error)]
pub enum OpenFileError {
    /// It holds something else.
    #[error("{dir} holds {found:?}, so it is no bucket of ours: name an empty or a new directory")]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// A file in it that a bucket does not have.
        found: String,
    },
    /// It is a bucket of a form this program does not know.
    #[error("{dir} is a bucket in the format {found:?}, which this version cannot read")]
    Format {
        /// The directory.
        dir: PathBuf,
        /// The format it names.
        found: String,
    },
    /// It is no bucket, and was to be one.
    #[error("{0} is no bucket: nothing was ever kept there")]
    Missing(PathBuf),
    /// The file system refuses.
    #[error("{dir} cannot be used as a bucket: {error}; name a directory this process may write to")]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

impl FileBucket {
    /// Opens the bucket in `dir`, and makes it when there is none. Blocks for a few file operations.
    pub fn open(dir: &Path) -> Result<Self, OpenFileError> {
        Place::open(dir).map(|place| Self(Arc::new(place)))
    }

    /// Refuses a directory that no bucket was ever opened in.
    ///
    /// # Errors
    /// [`OpenFileError::Missing`].
    pub fn check_exists(dir: &Path) -> Result<(), OpenFileError> {
        if place::is_marked(dir) { Ok(()) } else { Err(OpenFileError::Missing(dir.to_owned())) }
    }

    /// Runs `work` where blocking is allowed. It runs to its end even when the caller stops waiting.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&place)).await;
        done.map_err(|error| Failure::Unavailable(format!("a file operation was cut short: {error}")))
    }
}

impl Bucket for FileBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let key = key.clone();
        let (file, meta) = self.blocking(move |place| place.read(&key)).await??;
        let range = clip(range, meta.size)?;
        let body = stored::body(file, range.clone());
        Ok(Object { meta, range, body })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        let key = key.clone();
        self.blocking(move |place| place.read(&key)).await?.map(|(_, meta)| meta)
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let (key, condition) = (key.clone(), condition.clone());
        match self.blocking(move |place| place.write(&key, &body, &condition)).await {
            Ok(outcome) => outcome,
            Err(failure) => Outcome::Unknown(UnknownCause::NoReply(failure.to_string())),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let key = key.clone();
        self.blocking(move |place| place.remove(&key)).await?
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let query = query.clone();
        self.blocking(move |place| walk::page(place, &query)).await?
    }
}

#[cfg(test)]
mod tests;
