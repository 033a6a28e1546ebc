//! The bucket as a command sees it that a person waits for: opened from its URL, each read sent again where that may
//! help, every wait bounded.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use indicatif::ProgressBar;
use tokio::time::{sleep, timeout};
use wasmkeep_bucket::{Bucket, Entry, Failure as BucketFailure, Key, ListError, Listing, Meta, ReadError};
use wasmkeep_protocol::limits::{ATTEMPT_BASE, LISTING_SILENCE, RESTORE_PAUSES};
use wasmkeep_s3::{AnyBucket, open_existing};

use crate::{
    args,
    exit::{Failure, Status},
};

/// Runs `work` on the bucket of a command, to its end.
///
/// # Errors
/// The bucket cannot be opened, or those of `work`.
pub fn on<T>(
    flag: &args::Bucket,
    work: impl AsyncFnOnce(&AnyBucket) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Variables that are no text name no credentials.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let bucket =
        open_existing(&flag.url, environment).map_err(|error| Failure::new(Status::Bucket, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Status::Internal, error))?;
    runtime.block_on(work(&bucket))
}

/// A failed request, said in one sentence that begins with what was tried.
pub fn failed(what: impl fmt::Display, error: impl Into<ListError>) -> Failure {
    let error = error.into();
    let next = match &error {
        // A refusal says itself what to do about it.
        ListError::Read(ReadError::Failed(BucketFailure::Refused(_))) => "",
        ListError::Read(_) => "; check the AWS_* variables and the network, then try again",
        ListError::Fault(_) => "; the store does not list as S3 does, so nothing it says can be relied on",
    };
    Failure::new(Status::Bucket, format!("{what}: {error}{next}"))
}

/// Reads an object of `bytes_max` bytes at most. `progress` moves as they arrive.
///
/// # Errors
/// The last of its tries failed, or no other can help.
pub async fn read<B: Bucket>(
    bucket: &B,
    key: &Key,
    bytes_max: u64,
    progress: &ProgressBar,
) -> Result<(Meta, Bytes), ReadError> {
    patiently(ReadError::passes, async || {
        let mut read = 0;
        let ended = read_once(bucket, key, bytes_max, |bytes| {
            read += bytes;
            progress.inc(bytes);
        });
        let ended = ended.await;
        if ended.is_err() {
            progress.dec(read);
        }
        ended
    })
    .await
}

async fn read_once<B: Bucket>(
    bucket: &B,
    key: &Key,
    bytes_max: u64,
    mut arrived: impl FnMut(u64),
) -> Result<(Meta, Bytes), ReadError> {
    let mut object = within(ATTEMPT_BASE, bucket.get(key, None)).await?;
    let size = object.range.end - object.range.start;
    if size > bytes_max {
        return Err(ReadError::TooLarge { size, limit: bytes_max });
    }
    let mut whole = BytesMut::with_capacity(usize::try_from(size).unwrap_or(0));
    while let Some(chunk) = within(ATTEMPT_BASE, async { object.body.next().await.transpose() }).await? {
        whole.extend_from_slice(&chunk);
        arrived(chunk.len() as u64);
    }
    Ok((object.meta, whole.freeze()))
}

/// Reads the first `bytes` bytes of an object, or all there are.
///
/// # Errors
/// As [`read`].
pub async fn read_start<B: Bucket>(bucket: &B, key: &Key, bytes: u64) -> Result<Bytes, ReadError> {
    patiently(ReadError::passes, async || {
        let object = within(ATTEMPT_BASE, bucket.get(key, Some(0..bytes))).await?;
        within(ATTEMPT_BASE, object.bytes(bytes)).await
    })
    .await
}

/// What a listing found.
#[derive(Debug, Default)]
pub struct Listed {
    /// The objects.
    pub entries: Vec<Entry>,
    /// How many more there are whose names no key of ours can have.
    pub unnamed: usize,
}

/// Lists all objects whose keys begin with `prefix`.
///
/// # Errors
/// The last try of a page failed, or the listing cannot be believed.
pub async fn list<B: Bucket>(bucket: &B, prefix: &str) -> Result<Listed, ListError> {
    let mut listing = Listing::new(bucket, prefix);
    let mut entries = Vec::new();
    let passes = |error: &ListError| matches!(error, ListError::Read(error) if error.passes());
    while let Some(page) =
        patiently(passes, async || within(LISTING_SILENCE, listing.next_page()).await).await?
    {
        entries.extend(page);
    }
    Ok(Listed { entries, unnamed: listing.skipped() })
}

/// Tries up to three times (R-RST-2).
async fn patiently<T, E>(
    passes: impl Fn(&E) -> bool,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    for pause in RESTORE_PAUSES {
        match attempt().await {
            Err(error) if passes(&error) => sleep(pause).await,
            ended => return ended,
        }
    }
    attempt().await
}

async fn within<T, E: From<ReadError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        let silent = BucketFailure::Unavailable(format!("nothing came for {limit:?}"));
        Err(ReadError::from(silent).into())
    })
}
