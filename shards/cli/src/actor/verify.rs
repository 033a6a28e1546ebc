//! `wasmkeep actor verify`: every file of a history read and checked, and the chain they form followed.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Write,
};

use bytes::Bytes;
use futures::StreamExt;
use serde::Serialize;
use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::history::{self, HistoryFile, Plan};

use super::{
    chain::Chain,
    history::{History, Use},
    inspect::{broken, reachable},
    reading::{self, ReadFailure, sound},
};
use crate::{
    args::Verify,
    bucket,
    exit::{Failure, Status},
    say,
};

/// Times a history that changes while it is read is read anew.
const LOOKS_MAX: usize = 3;

/// Checks a history and answers what is wrong with it.
///
/// # Errors
/// The bucket does not answer, there is no such actor, or something is wrong; in that case the answer is given first.
pub fn verify(flags: &Verify) -> Result<(), Failure> {
    let (history, checks) = bucket::on(&flags.bucket, async |bucket| checked(bucket, flags).await)?;
    let report = Report::new(flags, &history, checks);
    if flags.json {
        say::answer_json(&report)?
    } else {
        say::answer(&report.text())?
    }
    report.verdict(flags, &history)
}

/// Looks and checks; again when files were collected meanwhile.
async fn checked<B: Bucket>(bucket: &B, flags: &Verify) -> Result<(History, Checks), Failure> {
    let mut looks = 0;
    loop {
        looks += 1;
        let history = History::look(bucket, &flags.actor).await?;
        let mut checks = check(bucket, &history, flags.quiet).await?;
        if checks.gone.is_empty() {
            return Ok((history, checks));
        }
        if looks == LOOKS_MAX {
            checks.tell_missing(&History::look(bucket, &flags.actor).await?);
            return Ok((history, checks));
        }
    }
}

/// What a file is to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Leads from the state before.
    Changes,
    /// Holds a state whole.
    Base,
    /// Stands beside the chain.
    Aside,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Checks {
    chain: Option<Chain>,
    problems: Vec<(HistoryFile, String)>,
    /// Sound in themselves; where they lead is not known, since what they follow is not sound.
    unproven: Vec<HistoryFile>,
    /// Were listed and were not there any more.
    gone: Vec<HistoryFile>,
}

/// Reads and checks every file, those of the chain in its order.
async fn check<B: Bucket>(bucket: &B, history: &History, quiet: bool) -> Result<Checks, Failure> {
    let files = in_order(history);
    let (_, bytes) = History::sum(&history.files);
    let progress = say::progress(bytes, quiet);
    let names = files.iter().map(|(file, _)| *file);
    let mut reads = std::pin::pin!(reading::read(bucket, history, names, &progress));
    let mut checks = Checks::default();
    for (file, role) in &files {
        let (file, role) = (*file, *role);
        match reads.next().await {
            Some((_, Ok(content))) => {
                // Reads go on while a file is checked.
                let checked = tokio::task::spawn_blocking(move || {
                    checks.file(file, role, &content.bytes);
                    checks
                });
                checks = checked.await.map_err(|error| Failure::new(Status::Internal, error))?;
            }
            Some((_, Err(ReadFailure::Gone))) => checks.gone(file, role),
            Some((_, Err(ReadFailure::Damaged(reason)))) => checks.problem(file, role, reason),
            Some((_, Err(ReadFailure::Failed(failure)))) => return Err(failure),
            None => break,
        }
    }
    progress.finish_and_clear();
    Ok(checks)
}

fn in_order(history: &History) -> Vec<(HistoryFile, Role)> {
    let mut files = Vec::new();
    for state in history.timeline.states() {
        files.extend(state.changes.map(|file| (file, Role::Changes)));
        files.extend(state.base.map(|file| (file, Role::Base)));
    }
    let of_chain: HashSet<HistoryFile> = files.iter().map(|(file, _)| *file).collect();
    let aside = history.files.iter().map(|listed| listed.file).filter(|file| !of_chain.contains(file));
    files.extend(aside.map(|file| (file, Role::Aside)));
    files
}

impl Checks {
    fn file(&mut self, name: HistoryFile, role: Role, bytes: &Bytes) {
        let file = match sound(name, bytes) {
            Ok(file) => file,
            Err(error) => return self.problem(name, role, error.to_string()),
        };
        let followed = match (role, &mut self.chain) {
            (Role::Aside, _) => Ok(()),
            // Its checksum was computed from its pages, and its name is that of the state the chain is at.
            (Role::Base, Some(_)) => Ok(()),
            (Role::Base, None) => Chain::begin(&file).map(|chain| self.chain = Some(chain)),
            (Role::Changes, Some(chain)) => chain.follow(&file),
            (Role::Changes, None) => {
                self.unproven.push(name);
                Ok(())
            }
        };
        if let Err(error) = followed {
            self.problem(name, role, error.to_string());
        }
    }

    fn gone(&mut self, name: HistoryFile, role: Role) {
        self.gone.push(name);
        self.cut(role);
    }

    fn problem(&mut self, name: HistoryFile, role: Role, problem: String) {
        self.problems.push((name, problem));
        self.cut(role);
    }

    /// What follows a file that cannot be used leads nowhere known.
    fn cut(&mut self, role: Role) {
        if role == Role::Changes {
            self.chain = None;
        }
    }

    /// A file that is still listed was not collected: the bucket lost it.
    fn tell_missing(&mut self, now: &History) {
        let listed: HashSet<HistoryFile> = now.files.iter().map(|listed| listed.file).collect();
        let gone = std::mem::take(&mut self.gone);
        let (lost, collected) = gone.into_iter().partition(|file| listed.contains(file));
        self.gone = collected;
        let lost: Vec<HistoryFile> = lost;
        self.problems.extend(lost.into_iter().map(|file| (file, "it is listed and not there".to_owned())));
    }
}

/// The answer. As JSON it only ever gains fields.
#[derive(Debug, Serialize)]
struct Report {
    bucket: String,
    actor: String,
    is_sound: bool,
    files: usize,
    bytes: u64,
    latest_txid: Option<u64>,
    latest_checksum: Option<String>,
    /// The newest state that sound files give.
    reachable_txid: Option<u64>,
    restore: Restore,
    broken: Option<String>,
    problems: Vec<Problem>,
    unproven: Vec<String>,
    /// Files that were collected before they could be read.
    collected: Vec<String>,
    other_objects: usize,
}

/// What a node does that restores the latest state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Restore {
    /// It reads the files of its plan, and all of them are sound.
    Plain,
    /// It comes across damaged ones and goes around them, by so many files.
    Around(usize),
    /// It fails.
    Fails,
}

impl Restore {
    fn of(history: &History, damaged: &BTreeSet<HistoryFile>) -> Self {
        let Ok(Some(plan)) = &history.plan else { return Self::Fails };
        if !plan.files().any(|file| damaged.contains(&file)) {
            return Self::Plain;
        }
        let around = history::restore_around(history.files.iter().map(|listed| listed.file), damaged);
        around.map_or(Self::Fails, |plan| Self::Around(plan.files().count()))
    }
}

#[derive(Debug, Serialize)]
struct Problem {
    file: String,
    r#use: Use,
    problem: String,
}

impl Report {
    fn new(flags: &Verify, history: &History, checks: Checks) -> Self {
        let (files, bytes) = History::sum(&history.files);
        let used = history.uses();
        let bad: BTreeSet<HistoryFile> = checks.problems.iter().map(|(file, _)| *file).collect();
        let end = history.plan.as_ref().ok().and_then(Option::as_ref).map(Plan::end);
        let problems = checks.problems.into_iter().map(|(file, problem)| Problem {
            file: file.to_string(),
            r#use: used(&file),
            problem,
        });
        Self {
            bucket: flags.bucket.url.to_string(),
            actor: flags.actor.to_string(),
            is_sound: bad.is_empty() && checks.gone.is_empty() && history.plan.is_ok(),
            files,
            bytes,
            latest_txid: end.map(|end| end.txid),
            latest_checksum: end.map(|end| format!("{:016x}", end.checksum)),
            reachable_txid: history.nearest(usize::MAX, &bad).map(|point| point.txid),
            restore: Restore::of(history, &bad),
            broken: history.plan.as_ref().err().map(ToString::to_string),
            problems: problems.collect(),
            unproven: checks.unproven.iter().map(ToString::to_string).collect(),
            collected: checks.gone.iter().map(ToString::to_string).collect(),
            other_objects: history.others,
        }
    }

    fn text(&self) -> String {
        let Self { bucket, actor, files, bytes, .. } = self;
        let mut text =
            format!("{actor} in {bucket}: {}, {} read\n", say::count(*files, "file"), say::size(*bytes));
        // A String takes everything written to it.
        if self.is_sound {
            let (txid, checksum) =
                (self.latest_txid.unwrap_or(0), self.latest_checksum.as_deref().unwrap_or(""));
            let _ = writeln!(
                text,
                "every file is sound, and they lead to transaction {txid}, checksum {checksum}"
            );
        }
        if let Some(broken) = &self.broken {
            let _ = writeln!(text, "the chain is broken: {broken}");
        }
        for Problem { file, r#use, problem } in &self.problems {
            let why = match r#use {
                Use::Restore if matches!(self.restore, Restore::Around(_)) => "restores go around it",
                Use::Restore => "needed by a restore",
                Use::Earlier => "needed for an earlier state",
                Use::Unused => "needed by nothing",
            };
            let _ = writeln!(text, "{file} ({why}): {problem}");
        }
        for file in &self.unproven {
            let _ = writeln!(text, "{file}: sound in itself; what it follows is not");
        }
        for file in &self.collected {
            let _ = writeln!(text, "{file}: collected before it was read");
        }
        text
    }

    /// How the command ends.
    fn verdict(&self, flags: &Verify, history: &History) -> Result<(), Failure> {
        if self.is_sound {
            return Ok(());
        }
        if let Err(reason) = &history.plan {
            return Err(broken(&flags.actor, history, reason));
        }
        let actor = &self.actor;
        if self.problems.is_empty() {
            let sentence = format!(
                "files of {actor} were collected while they were read, {LOOKS_MAX} times in a row: nothing is known to be \
                 wrong, and a longer --history-retention-secs on its nodes leaves time to read"
            );
            return Err(Failure::new(Status::NotFound, sentence));
        }
        let next = match (self.restore, self.reachable_txid) {
            (Restore::Plain, _) => {
                "the latest state can be restored, and no node reads these for it".to_owned()
            }
            (Restore::Around(around), _) => {
                let files = say::count(around, "file");
                format!(
                    "the latest state can be restored: nodes go around the damaged ones, by {files} in all"
                )
            }
            (_, Some(txid)) => reachable(txid),
            (_, None) => "no state can be reached: look for the objects in a backup of the bucket".to_owned(),
        };
        let count = say::count(self.problems.len(), "file");
        Err(Failure::new(Status::Damaged, format!("{count} of {actor} cannot be used; {next}")))
    }
}

#[cfg(test)]
mod tests;
