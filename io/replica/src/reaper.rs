//! Deleting history that no restore needs (R-HIST-1), and the whole of a deleted actor's (R-DEL-1).

use std::time::Duration;

use wasmkeep_bucket::{Bucket, Failure, Key};
use wasmkeep_protocol::{
    history::{self, HistoryFile},
    limits::{BUCKET_REQUEST_MAX, RESTORE_PAUSES},
    object_keys,
};
use wasmkeep_runtime::{Runtime, within};

use crate::{
    history::{HistoryError, list},
    hold::Hold,
};

/// Why a pass ended early. What is left stays until the next pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The history could not be listed.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// An object could not be deleted.
    #[error("deleting {key} after {deleted} others: {failure}")]
    Delete {
        /// The object.
        key: String,
        /// Objects deleted before it.
        deleted: u64,
        /// What the bucket said.
        failure: Failure,
    },
    /// The actor is no longer this node's.
    #[error("the actor was given up after {0} objects were deleted")]
    NotHeld(u64),
}

impl CollectError {
    /// Objects deleted before the end.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        match self {
            Self::History(_) => 0,
            Self::Delete { deleted, .. } | Self::NotHeld(deleted) => *deleted,
        }
    }
}

/// Deletes what the latest snapshot of the hold `generation` made unnecessary and is older than `retention`; the
/// number of objects deleted.
///
/// # Errors
/// [`CollectError`]; a pass may be repeated at any time.
pub async fn collect<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    folder: &str,
    generation: u64,
    retention: Duration,
    hold: &impl Hold,
) -> Result<u64, CollectError> {
    let files = list(bucket, runtime, folder).await?;
    let unneeded = history::collect(&files, generation, runtime.unix_ms(), retention);
    delete_all(bucket, runtime, folder, unneeded, hold).await
}

/// Deletes everything that the recorded `deletion` made unnecessary, whatever its age; the number of objects deleted.
///
/// # Errors
/// [`CollectError`]; a pass may be repeated at any time.
pub async fn erase<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    folder: &str,
    deletion: &HistoryFile,
    hold: &impl Hold,
) -> Result<u64, CollectError> {
    let files = list(bucket, runtime, folder).await?;
    delete_all(bucket, runtime, folder, history::erase(&files, deletion), hold).await
}

async fn delete_all<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    folder: &str,
    files: Vec<HistoryFile>,
    hold: &impl Hold,
) -> Result<u64, CollectError> {
    let mut deleted = 0;
    for file in files {
        let text = object_keys::history_file(folder, &file);
        let Ok(key) = text.parse::<Key>() else { continue };
        if !hold.is_held() {
            return Err(CollectError::NotHeld(deleted));
        }
        if let Err(failure) = delete(bucket, runtime, &key).await {
            return Err(CollectError::Delete { key: text, deleted, failure });
        }
        deleted += 1;
    }
    Ok(deleted)
}

/// Deletes an object, trying again after errors that pass.
pub(crate) async fn delete<B: Bucket, S: Runtime>(bucket: &B, runtime: &S, key: &Key) -> Result<(), Failure> {
    let once = async || {
        let silent = || Failure::Unavailable(format!("no answer within {BUCKET_REQUEST_MAX:?}"));
        within(runtime, BUCKET_REQUEST_MAX, bucket.delete(key)).await.unwrap_or_else(|| Err(silent()))
    };
    for pause in RESTORE_PAUSES {
        match once().await {
            Err(failure) if failure.passes() => runtime.sleep(pause).await,
            ended => return ended,
        }
    }
    once().await
}
