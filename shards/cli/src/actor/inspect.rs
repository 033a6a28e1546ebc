//! `wasmkeep actor inspect`: what the names and sizes of a history tell.

use std::{collections::BTreeMap, fmt::Write};

use indicatif::ProgressBar;
use serde::Serialize;
use wasmkeep_bucket::{Bucket, ReadError};
use wasmkeep_protocol::{
    history::{Broken, HistoryFile, Listed, Plan, Point},
    object_keys,
    records::{Hold, OwnerRecord, RECORD_BYTES_MAX},
};

use super::history::{History, Use};
use crate::{
    args::{ActorPath, Inspect},
    bucket,
    exit::{Failure, Status},
    say,
};

/// Answers what there is of an actor.
///
/// # Errors
/// The bucket does not answer, there is no such actor, or its latest state cannot be restored; in that case the
/// answer is given first.
pub fn inspect(flags: &Inspect) -> Result<(), Failure> {
    let (history, owner) = bucket::on(&flags.bucket, async |bucket| {
        let history = History::look(bucket, &flags.actor).await?;
        let owner = owner(bucket, &flags.actor).await?;
        Ok((history, owner))
    })?;
    let report = Report::new(flags, &history, owner);
    if flags.json {
        say::answer_json(&report)?;
    } else {
        say::answer(&report.text(flags.files))?;
    }
    match &history.plan {
        Ok(_) => Ok(()),
        Err(reason) => Err(broken(&flags.actor, &history, reason)),
    }
}

/// Why the latest state cannot be restored, and what can be had instead.
pub(super) fn broken(actor: &ActorPath, history: &History, reason: &Broken) -> Failure {
    let next = match history.timeline.states().last() {
        Some(state) => reachable(state.point.txid),
        None => {
            "no earlier state can be reached either: look for the missing objects in a backup of the bucket"
                .into()
        }
    };
    let sentence = format!("the latest state of {actor} cannot be restored: {reason}; {next}");
    Failure::new(Status::Damaged, sentence)
}

/// What to do where the latest state is lost and this one is not.
pub(super) fn reachable(txid: u64) -> String {
    format!("the newest state that can be reached is transaction {txid}: wasmkeep actor export --at {txid}")
}

/// Who holds an actor, by its ownership record.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Owner {
    Held { node: String, process: String, generation: u64 },
    Released { node: String, process: String, generation: u64 },
    Unreadable(String),
}

async fn owner<B: Bucket>(bucket: &B, actor: &ActorPath) -> Result<Option<Owner>, Failure> {
    let key = object_keys::owner(&actor.tenant, &actor.actor);
    let key = key.parse().map_err(|error| Failure::new(Status::Internal, error))?;
    let bytes = match bucket::read(bucket, &key, RECORD_BYTES_MAX as u64, &ProgressBar::hidden()).await {
        Ok((_, bytes)) => bytes,
        Err(ReadError::NotFound) => return Ok(None),
        Err(error @ ReadError::TooLarge { .. }) => return Ok(Some(Owner::Unreadable(error.to_string()))),
        Err(error) => return Err(bucket::failed(format_args!("reading {key}"), error)),
    };
    Ok(Some(match OwnerRecord::decode(&bytes) {
        Err(error) => Owner::Unreadable(error.to_string()),
        Ok(OwnerRecord { node, process, generation, hold, .. }) => {
            let (node, process) = (node.to_string(), process.to_string());
            match hold {
                Hold::Held => Owner::Held { node, process, generation },
                Hold::Released => Owner::Released { node, process, generation },
            }
        }
    }))
}

/// The answer. As JSON it only ever gains fields.
#[derive(Debug, Serialize)]
struct Report {
    bucket: String,
    actor: String,
    owner: Option<Owner>,
    deleted: bool,
    latest: Option<State>,
    broken: Option<String>,
    restore: Option<Sum>,
    last_snapshot: Option<File>,
    earliest: Option<State>,
    generations: Vec<Generation>,
    unused: Sum,
    other_objects: usize,
    files: Vec<File>,
}

#[derive(Debug, Serialize)]
struct State {
    txid: u64,
    checksum: String,
}

#[derive(Debug, Serialize)]
struct Sum {
    files: usize,
    bytes: u64,
}

/// What one hold wrote.
#[derive(Debug, Serialize)]
struct Generation {
    generation: u64,
    files: usize,
    snapshots: usize,
    bytes: u64,
    first_txid: u64,
    last_txid: u64,
    first_written_ms: u64,
    last_written_ms: u64,
}

#[derive(Debug, Clone, Serialize)]
struct File {
    name: String,
    kind: &'static str,
    generation: u64,
    first_txid: u64,
    last_txid: u64,
    bytes: u64,
    written_ms: u64,
    r#use: Use,
}

impl Report {
    fn new(flags: &Inspect, history: &History, owner: Option<Owner>) -> Self {
        let used = history.uses();
        let plan = history.plan.as_ref().ok().and_then(Option::as_ref);
        let files: Vec<File> = history.files.iter().map(|listed| file(listed, used(&listed.file))).collect();
        let sum_of = |wanted| {
            let files = history.files.iter().filter(|listed| used(&listed.file) == wanted);
            let (files, bytes) = History::sum(files);
            Sum { files, bytes }
        };
        let base = plan.map(|plan| plan.base().to_string());
        Self {
            bucket: flags.bucket.url.to_string(),
            actor: flags.actor.to_string(),
            owner,
            deleted: plan.is_some_and(|plan| plan.end().is_empty()),
            latest: plan.map(Plan::end).map(state),
            broken: history.plan.as_ref().err().map(ToString::to_string),
            restore: plan.map(|_| sum_of(Use::Restore)),
            last_snapshot: files.iter().find(|file| Some(&file.name) == base.as_ref()).cloned(),
            earliest: history.timeline.states().first().map(|first| state(first.point)),
            generations: generations(&history.files),
            unused: sum_of(Use::Unused),
            other_objects: history.others,
            files,
        }
    }

    fn text(&self, with_files: bool) -> String {
        let mut text = format!("{} in {}\n", self.actor, self.bucket);
        let mut line = |name: &str, value: String| {
            // A String takes everything written to it.
            let _ = writeln!(text, "  {name:<15}{value}");
        };
        line("owner", self.owner_text());
        line("latest", self.latest_text());
        if let Some(snapshot) = &self.last_snapshot {
            let File { kind, last_txid, generation, bytes, written_ms, .. } = snapshot;
            let written = written(*written_ms);
            let size = say::size(*bytes);
            line(
                "last snapshot",
                format!(
                    "{kind} at transaction {last_txid}, generation {generation}, {size}, written {written}"
                ),
            );
        }
        if let Some(Sum { files, bytes }) = &self.restore {
            line("restore reads", format!("{}, {}", say::count(*files, "file"), say::size(*bytes)));
        }
        if let Some(State { txid, .. }) = &self.earliest {
            line("goes back to", format!("transaction {txid}"));
        }
        if self.unused.files > 0 {
            let Sum { files, bytes } = self.unused;
            line("unused", format!("{}, {}", say::count(files, "file"), say::size(bytes)));
        }
        if self.other_objects > 0 {
            line("not ours", say::count(self.other_objects, "object"));
        }
        text.push('\n');
        text.push_str(&self.generations_text());
        if with_files {
            text.push('\n');
            text.push_str(&self.files_text());
        }
        text
    }

    fn owner_text(&self) -> String {
        match &self.owner {
            None => "nobody yet: there is no ownership record".into(),
            Some(Owner::Held { node, generation, .. }) => format!("{node} holds it, generation {generation}"),
            Some(Owner::Released { node, generation, .. }) => {
                format!("nobody: {node} gave it up, generation {generation}")
            }
            Some(Owner::Unreadable(error)) => format!("its ownership record cannot be read: {error}"),
        }
    }

    fn latest_text(&self) -> String {
        match (&self.latest, &self.broken) {
            (Some(State { txid, .. }), _) if self.deleted => format!("deleted, as transaction {txid}"),
            (Some(State { txid, checksum }), _) => format!("transaction {txid}, checksum {checksum}"),
            (None, Some(broken)) => format!("cannot be restored: {broken}"),
            (None, None) => "none".into(),
        }
    }

    fn generations_text(&self) -> String {
        let rows = self.generations.iter().map(|of| {
            [
                of.generation.to_string(),
                of.files.to_string(),
                of.snapshots.to_string(),
                say::size(of.bytes),
                range(of.first_txid, of.last_txid),
                written(of.first_written_ms),
                written(of.last_written_ms),
            ]
        });
        let heads =
            ["GENERATION", "FILES", "SNAPSHOTS", "SIZE", "TRANSACTIONS", "FIRST WRITTEN", "LAST WRITTEN"];
        say::table(heads, rows)
    }

    fn files_text(&self) -> String {
        let rows = self.files.iter().map(|file| {
            let used = match file.r#use {
                Use::Restore => "restore",
                Use::Earlier => "earlier",
                Use::Unused => "unused",
            };
            [
                file.name.clone(),
                file.kind.to_owned(),
                range(file.first_txid, file.last_txid),
                say::size(file.bytes),
                written(file.written_ms),
                used.to_owned(),
            ]
        });
        say::table(["FILE", "KIND", "TRANSACTIONS", "SIZE", "WRITTEN", "USE"], rows)
    }
}

fn state(point: Point) -> State {
    State { txid: point.txid, checksum: format!("{:016x}", point.checksum) }
}

fn file(listed: &Listed, r#use: Use) -> File {
    let file = &listed.file;
    File {
        name: file.to_string(),
        kind: kind(file),
        generation: file.generation(),
        first_txid: file.min_txid(),
        last_txid: file.end().txid,
        bytes: listed.size_bytes,
        written_ms: listed.modified_ms,
        r#use,
    }
}

fn kind(file: &HistoryFile) -> &'static str {
    match (file.is_deletion(), file.stands_alone()) {
        (true, _) => "deletion",
        (false, true) => "snapshot",
        (false, false) => "changes",
    }
}

fn generations(files: &[Listed]) -> Vec<Generation> {
    let mut holds: BTreeMap<u64, Vec<&Listed>> = BTreeMap::new();
    for listed in files {
        holds.entry(listed.file.generation()).or_default().push(listed);
    }
    let of = |(generation, files): (u64, Vec<&Listed>)| {
        let least = |of: fn(&Listed) -> u64| files.iter().map(|listed| of(listed)).min().unwrap_or(0);
        let most = |of: fn(&Listed) -> u64| files.iter().map(|listed| of(listed)).max().unwrap_or(0);
        Generation {
            generation,
            files: files.len(),
            snapshots: files.iter().filter(|listed| listed.file.stands_alone()).count(),
            bytes: files.iter().map(|listed| listed.size_bytes).sum(),
            first_txid: least(|listed| listed.file.min_txid()),
            last_txid: most(|listed| listed.file.end().txid),
            first_written_ms: least(|listed| listed.modified_ms),
            last_written_ms: most(|listed| listed.modified_ms),
        }
    };
    holds.into_iter().map(of).collect()
}

fn range(first: u64, last: u64) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn written(ms: u64) -> String {
    i64::try_from(ms).map_or_else(|_| ms.to_string(), say::time)
}
