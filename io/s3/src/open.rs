//! From a URL to a bucket. Owns the choice of the backend; the environment is read by the caller.

use std::ops::Range;

use bytes::Bytes;
use wasmkeep_bucket::{
    Bucket, BucketUrl, Failure, FileBucket, Key, ListQuery, Meta, Object, OpenFileError, Outcome, Page,
    Precondition, ReadError,
};

use crate::{OpenS3Error, S3Bucket, S3Limits};

/// A bucket of whichever kind the URL named.
#[derive(Debug)]
pub enum AnyBucket {
    /// A directory.
    File(FileBucket),
    /// An S3-compatible server.
    S3(Box<S3Bucket>),
}

/// Why a bucket could not be opened. Nothing was asked of a server yet: an unreachable one is found by the probe.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be a bucket.
    #[error(transparent)]
    File(#[from] OpenFileError),
    /// The settings cannot work.
    #[error(transparent)]
    S3(#[from] OpenS3Error),
}

/// Opens the bucket at `url`. `environment` is the process's variables, of which the `AWS_*` are used
/// (R-FLAG-4).
pub fn open(
    url: &BucketUrl,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<AnyBucket, OpenError> {
    Ok(match url {
        BucketUrl::File(dir) => AnyBucket::File(FileBucket::open(dir)?),
        BucketUrl::S3 { bucket, prefix } => {
            let limits = S3Limits::default();
            AnyBucket::S3(Box::new(S3Bucket::open(bucket, prefix.clone(), environment, limits)?))
        }
    })
}

/// As [`open`], for a bucket that is there already: a directory without one is refused, and nothing is made.
pub fn open_existing(
    url: &BucketUrl,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<AnyBucket, OpenError> {
    if let BucketUrl::File(dir) = url {
        FileBucket::check_exists(dir)?;
    }
    open(url, environment)
}

impl Bucket for AnyBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        match self {
            Self::File(bucket) => bucket.get(key, range).await,
            Self::S3(bucket) => bucket.get(key, range).await,
        }
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        match self {
            Self::File(bucket) => bucket.head(key).await,
            Self::S3(bucket) => bucket.head(key).await,
        }
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        match self {
            Self::File(bucket) => bucket.put(key, body, condition).await,
            Self::S3(bucket) => bucket.put(key, body, condition).await,
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        match self {
            Self::File(bucket) => bucket.delete(key).await,
            Self::S3(bucket) => bucket.delete(key).await,
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        match self {
            Self::File(bucket) => bucket.list(query).await,
            Self::S3(bucket) => bucket.list(query).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_to_be_a_bucket_and_is_none_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("mistyped");
        let open = || open_existing(&BucketUrl::File(missing.clone()), []);
        assert!(open().unwrap_err().to_string().contains("is no bucket"));
        assert!(!missing.exists());
        FileBucket::open(&missing).unwrap();
        assert!(open().is_ok());
    }
}
