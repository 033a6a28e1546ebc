//! `wasmkeep actor export`: a state of an actor's database, built from the bucket and put where it was asked for when
//! it is whole.

use std::{fmt, path::Path};

use futures::StreamExt;
use serde::Serialize;
use wasmkeep_bucket::Bucket;
use wasmkeep_ltx::Header;
use wasmkeep_protocol::history::{HistoryFile, Plan};

use super::{
    history::History,
    litestream::Replica,
    pages::DatabaseFile,
    point_in_time,
    reading::{self, ReadFailure},
};
use crate::{
    args::Export,
    bucket,
    exit::{Failure, Status},
    say,
};

/// Times a history that changes while it is read is read anew (case R3).
const LOOKS_MAX: usize = 3;

/// What the files of a plan are made into, one after the other.
pub trait Target: Send + Sized + 'static {
    /// Takes the next file, after checking it.
    ///
    /// # Errors
    /// The file is not sound or does not follow, or the local disk.
    fn add(&mut self, name: HistoryFile, bytes: &[u8]) -> Result<(), Failure>;

    /// Puts the whole where it belongs.
    ///
    /// # Errors
    /// The local disk, or something stands there.
    fn finish(self) -> Result<(), Failure>;
}

/// What could not be written, and why.
pub fn not_written(path: &Path, error: impl fmt::Display) -> Failure {
    let sentence = format!("{} cannot be written: {error}; name another place, or make room", path.display());
    Failure::new(Status::Output, sentence)
}

/// Writes what was asked for and says what it is.
///
/// # Errors
/// Nothing is written then.
pub fn export(flags: &Export) -> Result<(), Failure> {
    let target = flags.output.as_deref().or(flags.litestream.as_deref());
    let Some(target) = target else {
        return Err(Failure::new(
            Status::Usage,
            "nowhere to write to: add --output FILE.db or --litestream DIR",
        ));
    };
    if target.symlink_metadata().is_ok() {
        let sentence = format!("{} is there already: name another place, or move it away", target.display());
        return Err(Failure::new(Status::Output, sentence));
    }
    let report = bucket::on(&flags.bucket, async |bucket| exported(bucket, flags, target).await)?;
    if flags.json { say::answer_json(&report) } else { say::answer(&report.text()) }
}

async fn exported<B: Bucket>(bucket: &B, flags: &Export, target: &Path) -> Result<Report, Failure> {
    for _ in 0..LOOKS_MAX {
        let history = History::look(bucket, &flags.actor).await?;
        let at = point_in_time::choose(bucket, &flags.actor, &history, flags.at).await?;
        let Some(plan) = history.timeline.plan(at) else {
            return Err(Failure::new(Status::Internal, "a state without a plan"));
        };
        let built = match flags.litestream {
            None => build(bucket, flags, &history, &plan, || DatabaseFile::begin(target, flags.mode)).await,
            Some(_) => build(bucket, flags, &history, &plan, || Replica::begin(target, flags.mode)).await,
        };
        match built {
            Ok(last) => return Ok(Report::new(flags, &history, &plan, &last, target)),
            Err(ReadFailure::Gone) => {}
            Err(ReadFailure::Failed(failure)) => return Err(failure),
        }
    }
    let sentence = format!(
        "files of {} were collected while they were read, {LOOKS_MAX} times in a row: run the command again, or give \
         a later --at",
        flags.actor
    );
    Err(Failure::new(Status::NotFound, sentence))
}

/// Makes the files of a plan into a target; gives the header of the last.
async fn build<B: Bucket, T: Target>(
    bucket: &B,
    flags: &Export,
    history: &History,
    plan: &Plan,
    begin: impl FnOnce() -> Result<T, Failure>,
) -> Result<Header, ReadFailure> {
    let end = plan.end();
    if end.is_empty() {
        let sentence = format!(
            "{} was deleted as transaction {}: there is no database to write; an earlier state may still be there for \
             --at",
            flags.actor, end.txid
        );
        return Err(Failure::new(Status::NotFound, sentence).into());
    }
    let mut target = begin()?;
    let bytes = plan.files().map(|file| history.size(&file)).sum();
    let progress = say::progress(bytes, flags.quiet);
    let mut files = std::pin::pin!(reading::read(bucket, history, plan.files(), &progress));
    let mut last = None;
    while let Some((name, content)) = files.next().await {
        let content = content?;
        // Reads go on while a file is checked and applied.
        let added = tokio::task::spawn_blocking(move || {
            let header = Header::peek(&content.bytes).ok();
            target.add(name, &content.bytes).map(|()| (target, header))
        });
        (target, last) = added.await.map_err(|error| Failure::new(Status::Internal, error))??;
    }
    progress.finish_and_clear();
    target.finish()?;
    last.ok_or_else(|| Failure::new(Status::Internal, "a plan without files").into())
}

/// The answer. As JSON it only ever gains fields.
#[derive(Debug, Serialize)]
struct Report {
    actor: String,
    output: String,
    txid: u64,
    checksum: String,
    committed_ms: i64,
    page_bytes: u32,
    pages: u32,
    files: usize,
    bytes: u64,
}

impl Report {
    fn new(flags: &Export, history: &History, plan: &Plan, last: &Header, target: &Path) -> Self {
        Self {
            actor: flags.actor.to_string(),
            output: target.display().to_string(),
            txid: plan.end().txid,
            checksum: format!("{:016x}", plan.end().checksum),
            committed_ms: last.timestamp_ms,
            page_bytes: last.page_size.into(),
            pages: last.commit,
            files: plan.files().count(),
            bytes: plan.files().map(|file| history.size(&file)).sum(),
        }
    }

    fn text(&self) -> String {
        let Self { actor, output, txid, committed_ms, files, bytes, .. } = self;
        let (committed, files, size) =
            (say::time(*committed_ms), say::count(*files, "file"), say::size(*bytes));
        format!("{output}: {actor} after transaction {txid}, committed {committed}; {files}, {size} read\n")
    }
}

#[cfg(test)]
mod tests;
