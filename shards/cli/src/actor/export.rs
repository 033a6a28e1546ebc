//! `wasmkeep actor export`: a state of an actor's database, built from the bucket and put where it was asked for when
//! it is whole.

use std::{collections::BTreeSet, fmt, path::Path};

use futures::StreamExt;
use serde::Serialize;
use wasmkeep_bucket::Bucket;
use wasmkeep_ltx::Header;
use wasmkeep_protocol::history::{HistoryFile, Plan, Point};

use super::{
    history::History,
    inspect::reachable,
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
    if !report.damaged.is_empty() {
        let files = report.damaged.join(", ");
        say::warning(format_args!(
            "damaged: {files}; older files lead to the same state and were read instead"
        ));
    }
    if flags.json { say::answer_json(&report) } else { say::answer(&report.text()) }
}

async fn exported<B: Bucket>(bucket: &B, flags: &Export, target: &Path) -> Result<Report, Failure> {
    let mut damaged = BTreeSet::new();
    for _ in 0..LOOKS_MAX {
        let history = History::look(bucket, &flags.actor).await?;
        let at = point_in_time::choose(bucket, &flags.actor, &history, flags.at).await?;
        match around(bucket, flags, target, (&history, at), &mut damaged).await {
            Ok(report) => return Ok(report),
            Err(ReadFailure::Gone) => {}
            Err(ReadFailure::Damaged(sentence)) => {
                return Err(lost(flags, &history, at, &damaged, &sentence));
            }
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

/// Exports the state at `at` by the files that lead there, around those found to be damaged.
async fn around<B: Bucket>(
    bucket: &B,
    flags: &Export,
    target: &Path,
    (history, at): (&History, usize),
    damaged: &mut BTreeSet<HistoryFile>,
) -> Result<Report, ReadFailure> {
    let Some(state) = history.timeline.states().get(at) else {
        return Err(Failure::new(Status::Internal, "a state that is not there").into());
    };
    let mut why = "the files that lead there are damaged".to_owned();
    while let Some(plan) = history.plan_to(state.point, damaged) {
        let built = match flags.litestream {
            None => build(bucket, flags, history, &plan, || DatabaseFile::begin(target, flags.mode)).await,
            Some(_) => build(bucket, flags, history, &plan, || Replica::begin(target, flags.mode)).await,
        };
        match built {
            Ok(last) => return Ok(Report::new(flags, history, &plan, &last, (target, damaged))),
            Err((Some(file), ReadFailure::Damaged(sentence))) => {
                damaged.insert(file);
                why = sentence;
            }
            Err((_, failure)) => return Err(failure),
        }
    }
    Err(ReadFailure::Damaged(why))
}

/// Why the state at `at` cannot be had, and which can.
fn lost(flags: &Export, history: &History, at: usize, damaged: &BTreeSet<HistoryFile>, why: &str) -> Failure {
    let next = match history.nearest(at, damaged) {
        Some(point) if flags.at.is_none() => reachable(point.txid),
        Some(Point { txid, .. }) => {
            format!(
                "the nearest state that can be had is transaction {txid}: wasmkeep actor export --at {txid}"
            )
        }
        None => "no other state can be had either: look for the objects in a backup of the bucket".to_owned(),
    };
    Failure::new(Status::Damaged, format!("{why}; {next}"))
}

/// Makes the files of a plan into a target; gives the header of the last. A failure names the file it is about.
async fn build<B: Bucket, T: Target>(
    bucket: &B,
    flags: &Export,
    history: &History,
    plan: &Plan,
    begin: impl FnOnce() -> Result<T, Failure>,
) -> Result<Header, (Option<HistoryFile>, ReadFailure)> {
    let failed = |failure: Failure| (None, ReadFailure::from(failure));
    let end = plan.end();
    if end.is_empty() {
        let sentence = format!(
            "{} was deleted as transaction {}: there is no database to write; an earlier state may still be there for \
             --at",
            flags.actor, end.txid
        );
        return Err(failed(Failure::new(Status::NotFound, sentence)));
    }
    let mut target = begin().map_err(failed)?;
    let bytes = plan.files().map(|file| history.size(&file)).sum();
    let progress = say::progress(bytes, flags.quiet);
    let mut files = std::pin::pin!(reading::read(bucket, history, plan.files(), &progress));
    let mut last = None;
    while let Some((name, content)) = files.next().await {
        let content = content.map_err(|failure| match failure {
            ReadFailure::Damaged(reason) => (Some(name), ReadFailure::Damaged(format!("{name}: {reason}"))),
            failure => (Some(name), failure),
        })?;
        // Reads go on while a file is checked and applied.
        let added = tokio::task::spawn_blocking(move || {
            let header = Header::peek(&content.bytes).ok();
            target.add(name, &content.bytes).map(|()| (target, header))
        });
        let added = added.await.map_err(|error| failed(Failure::new(Status::Internal, error)))?;
        (target, last) = added.map_err(|failure| match failure.status {
            Status::Damaged => (Some(name), ReadFailure::Damaged(failure.to_string())),
            _ => (Some(name), ReadFailure::Failed(failure)),
        })?;
    }
    progress.finish_and_clear();
    target.finish().map_err(failed)?;
    last.ok_or_else(|| failed(Failure::new(Status::Internal, "a plan without files")))
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
    /// Files that are not sound, and that others took the place of.
    damaged: Vec<String>,
}

impl Report {
    fn new(
        flags: &Export,
        history: &History,
        plan: &Plan,
        last: &Header,
        (target, damaged): (&Path, &BTreeSet<HistoryFile>),
    ) -> Self {
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
            damaged: damaged.iter().map(ToString::to_string).collect(),
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
