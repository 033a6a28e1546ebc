//! What an owner hands over, and the file it becomes.

use bytes::Bytes;
use wasmkeep_ltx::{Chain, Changes, EncodeError, Header, PageSize, WalSource, encode_deletion};
use wasmkeep_protocol::{
    alarm::Outlook,
    history::{HistoryFile, Point},
};
use wasmkeep_runtime::Runtime;

use crate::send::UploadError;

/// Page data up to which a file is made on the spot: about a millisecond. More goes to another thread.
const ENCODED_HERE_BYTES_MAX: u64 = 512 << 10;

/// One step of the actor's database.
#[derive(Debug)]
pub struct Commit {
    /// The state it leads to: the transaction after the last one, or a later one.
    pub to: Point,
    /// How.
    pub content: Content,
    /// When the actor's alarm wants attention in that state.
    pub alarm: Outlook,
}

/// What a commit carries.
#[derive(Debug)]
pub enum Content {
    /// The pages that changed.
    Changes(Changes),
    /// The whole database as a snapshot file: the first of an actor, and the first after a deletion (case R1).
    Whole(Bytes),
    /// The database was deleted (R-DEL-1).
    Deleted,
}

/// A file on its way: made once, so that each attempt sends the same bytes under the same name.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) file: HistoryFile,
    pub(crate) body: Bytes,
}

/// The file of a commit that leads on from `from`, for the hold `generation`.
pub(crate) async fn make<S: Runtime>(
    runtime: &S,
    generation: u64,
    from: Point,
    commit: Commit,
) -> Result<Ready, UploadError> {
    let Commit { to, content, .. } = commit;
    let timestamp_ms = i64::try_from(runtime.unix_ms()).unwrap_or(i64::MAX);
    let impossible = |error: String| UploadError::Impossible(error);
    match content {
        Content::Whole(body) => Ok(Ready { file: HistoryFile::snapshot(generation, to), body }),
        Content::Deleted => {
            let file = HistoryFile::deletion(generation, to.txid);
            let body = deletion(to.txid, timestamp_ms).map_err(|error| impossible(error.to_string()))?;
            Ok(Ready { file, body })
        }
        Content::Changes(changes) => {
            let is_small = changes.bytes() <= ENCODED_HERE_BYTES_MAX;
            let encode = move || changes.encode(from.txid + 1, to.txid, timestamp_ms);
            let encoded = if is_small {
                encode()
            } else {
                let given_up = || impossible("making the file was given up".to_owned());
                runtime.work(encode).await.ok_or_else(given_up)?
            };
            let body = encoded.map_err(|error| impossible(error.to_string()))?.bytes;
            Ok(Ready { file: HistoryFile::changes(generation, from, to), body: body.into() })
        }
    }
}

/// The file that says a database was deleted: a snapshot of nothing.
fn deletion(txid: u64, timestamp_ms: i64) -> Result<Bytes, EncodeError> {
    let header = Header {
        page_size: PageSize::DEFAULT,
        commit: 0,
        min_txid: 1,
        max_txid: txid,
        timestamp_ms,
        chain: Chain::Snapshot,
        wal: WalSource::default(),
        node_id: 0,
    };
    Ok(encode_deletion(header)?.bytes.into())
}
