//! The files of a history on their way from the bucket: several at once, in the order they were asked for, each
//! checked against its name.

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use indicatif::ProgressBar;
use wasmkeep_bucket::{Bucket, ReadError};
use wasmkeep_ltx::{Checksum, DecodeError, File, Verified};
use wasmkeep_protocol::{
    history::{HistoryFile, Point},
    limits::RESTORE_READS_PER_ACTOR,
};

use super::history::History;
use crate::{bucket, exit::Failure};

/// Reads `files`, eight at a time.
pub fn read<'a, B: Bucket>(
    bucket: &'a B,
    history: &'a History,
    files: impl IntoIterator<Item = HistoryFile> + 'a,
    progress: &'a ProgressBar,
) -> impl Stream<Item = (HistoryFile, Result<Bytes, ReadFailure>)> + 'a {
    let one = move |file: HistoryFile| async move {
        let read = async {
            let key = history.key(&file)?;
            // One that grew since it was listed is somebody else's.
            let read = bucket::read(bucket, &key, history.size(&file), progress).await;
            match read {
                Ok((_, bytes)) => Ok(bytes),
                Err(ReadError::NotFound) => Err(ReadFailure::Gone),
                Err(error) => Err(bucket::failed(format_args!("reading {key}"), error).into()),
            }
        };
        (file, read.await)
    };
    stream::iter(files).map(one).buffered(RESTORE_READS_PER_ACTOR)
}

/// Why a listed file was not read.
#[derive(Debug)]
pub enum ReadFailure {
    /// It was listed and is not there any more.
    Gone,
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
