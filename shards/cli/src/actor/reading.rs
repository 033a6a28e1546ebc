//! The files of a history on their way from the bucket: several at once, in the order they were asked for, each
//! checked against its name.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use indicatif::ProgressBar;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmkeep_bucket::{Bucket, ReadError};
use wasmkeep_ltx::{Checksum, DecodeError, File, Verified};
use wasmkeep_protocol::{
    history::{HistoryFile, Point},
    limits::{RESTORE_BYTES_MAX, RESTORE_READS_PER_ACTOR},
};

use super::history::History;
use crate::{
    bucket,
    exit::{Failure, Status},
};

/// A file that was read, and its share of the memory for files. It is given back when dropped.
#[derive(Debug)]
pub struct Content {
    /// The whole object.
    pub bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

/// Reads `files`, eight at a time and 256 MiB at a time; a larger one goes alone.
///
/// Shares are given out in the order of the files, which is that in which they are used, so none waits for a share
/// that a later one has.
pub fn read<'a, B: Bucket>(
    bucket: &'a B,
    history: &'a History,
    files: impl IntoIterator<Item = HistoryFile> + 'a,
    progress: &'a ProgressBar,
) -> impl Stream<Item = (HistoryFile, Result<Content, ReadFailure>)> + 'a {
    let memory = Arc::new(Semaphore::new(MEMORY_KIB as usize));
    let one = move |file: HistoryFile| {
        let memory = Arc::clone(&memory);
        async move { (file, read_one(bucket, history, file, memory, progress).await) }
    };
    stream::iter(files).map(one).buffered(RESTORE_READS_PER_ACTOR)
}

/// Memory for files, in the unit shares are counted in.
const MEMORY_KIB: u32 = (RESTORE_BYTES_MAX >> 10) as u32;

async fn read_one<B: Bucket>(
    bucket: &B,
    history: &History,
    file: HistoryFile,
    memory: Arc<Semaphore>,
    progress: &ProgressBar,
) -> Result<Content, ReadFailure> {
    let key = history.key(&file)?;
    let size = history.size(&file);
    let kib = u32::try_from(size.div_ceil(1 << 10)).unwrap_or(u32::MAX).min(MEMORY_KIB);
    let share = memory.acquire_many_owned(kib).await;
    let _share = share.map_err(|error| Failure::new(Status::Internal, error))?;
    // One that grew since it was listed is somebody else's.
    match bucket::read(bucket, &key, size, progress).await {
        Ok((_, bytes)) => Ok(Content { bytes, _share }),
        Err(ReadError::NotFound) => Err(ReadFailure::Gone),
        Err(ReadError::Damaged(reason)) => Err(ReadFailure::Damaged(reason)),
        Err(error) => Err(bucket::failed(format_args!("reading {key}"), error).into()),
    }
}

/// Why a listed file was not read.
#[derive(Debug)]
pub enum ReadFailure {
    /// It was listed and is not there any more.
    Gone,
    /// The bucket has it and cannot give it, or what it gives is not that file.
    Damaged(String),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for ReadFailure {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Why an object is not the file it is named as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    /// It is no sound file.
    #[error("it is damaged: {0}")]
    Damaged(#[from] DecodeError),
    /// It is sound and holds something else: two objects were swapped (case S9).
    #[error("it does not hold what its name says")]
    Misnamed,
}

/// Checks the bytes of the object named `name`.
///
/// # Errors
/// They are not that file.
pub fn sound(name: HistoryFile, bytes: &[u8]) -> Result<Verified<'_>, Unsound> {
    let file = File::parse(bytes).and_then(File::verify)?;
    let (header, trailer) = (file.header(), file.trailer());
    let sum = |checksum: Option<Checksum>| checksum.map_or(0, Checksum::get);
    let end = Point { txid: header.max_txid, checksum: sum(trailer.post_apply) };
    let before = match header.chain {
        wasmkeep_ltx::Chain::After(checksum) => checksum.get(),
        wasmkeep_ltx::Chain::Snapshot | wasmkeep_ltx::Chain::Untracked => 0,
    };
    let named = (name.min_txid(), name.end(), name.start().map_or(0, |start| start.checksum));
    if (header.min_txid, end, before) == named { Ok(file) } else { Err(Unsound::Misnamed) }
}
