//! Which files of a listing give the actor's latest state.
//!
//! The end is the last file of the newest generation; from there the chain is followed back by transaction *and*
//! checksum to the nearest file that stands by itself. Two orders of events make this the rule:
//!
//! - An owner is replaced while its last upload is under way. The successor starts from the transaction before
//!   it and writes its own file of that number. The late file has a lower generation and no successor.
//! - Two owners died like that, and the third went on from the late file of the first. When the late file of the
//!   second arrives it has the higher generation of the two; only the checksum tells which one the third follows.

use std::collections::{BTreeMap, BTreeSet};

use super::{HistoryFile, Point};

/// Why a history cannot be restored as it is listed. A listing that overlapped a collection may look so too:
/// list again before believing it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A file needs a state that no file leads to.
    #[error("{file} follows transaction {} with checksum {:016x}, and no file leads there", .needs.txid, .needs.checksum)]
    Missing {
        /// The file that cannot be applied.
        file: HistoryFile,
        /// The state it needs.
        needs: Point,
    },
    /// One hold wrote the same transaction twice with different contents.
    #[error("{one} and {other} are two ends of one history")]
    TwoEnds {
        /// One of the two.
        one: HistoryFile,
        /// The other.
        other: HistoryFile,
    },
}

/// The files that give the latest state, in the order they are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub(super) base: HistoryFile,
    pub(super) changes: Vec<HistoryFile>,
}

impl Plan {
    /// The file the restore begins with.
    #[must_use]
    pub fn base(&self) -> HistoryFile {
        self.base
    }

    /// The files after it.
    #[must_use]
    pub fn changes(&self) -> &[HistoryFile] {
        &self.changes
    }

    /// All files, the base first.
    pub fn files(&self) -> impl Iterator<Item = HistoryFile> {
        std::iter::once(self.base).chain(self.changes.iter().copied())
    }

    /// The last file.
    #[must_use]
    pub fn last(&self) -> HistoryFile {
        self.changes.last().copied().unwrap_or(self.base)
    }

    /// The state the files lead to.
    #[must_use]
    pub fn end(&self) -> Point {
        self.last().end()
    }
}

/// The plan for a listing; `None` when there is no history.
///
/// # Errors
/// [`Broken`]: the latest state cannot be reached, and an earlier one would lose what was acknowledged.
pub fn restore(files: impl IntoIterator<Item = HistoryFile>) -> Result<Option<Plan>, Broken> {
    let files: Vec<HistoryFile> = files.into_iter().collect();
    let Some(last) = last(&files)? else { return Ok(None) };
    match lead_to(files.iter().copied(), last.end()) {
        Some(plan) => Ok(Some(plan)),
        None => Err(missing(&files, last)),
    }
}

/// The plan for the latest state of a listing, without the files of `damaged`: the same state by older files, where
/// there are such. `None` where there are none, or the listing has no latest state.
///
/// The latest state is that of all files: one that cannot be read counts by its name.
#[must_use]
pub fn restore_around(
    files: impl IntoIterator<Item = HistoryFile>,
    damaged: &BTreeSet<HistoryFile>,
) -> Option<Plan> {
    let files: Vec<HistoryFile> = files.into_iter().collect();
    let end = last(&files).ok()??.end();
    lead_to(files.into_iter().filter(|file| !damaged.contains(file)), end)
}

/// The fewest of `files` that give the state `end`; `None` when it cannot be reached.
#[must_use]
pub fn lead_to(files: impl IntoIterator<Item = HistoryFile>, end: Point) -> Option<Plan> {
    let mut files: Vec<HistoryFile> = files.into_iter().filter(|file| file.max_txid <= end.txid).collect();
    // A file's end comes after its start, so by then it is known whether the start is reached.
    files.sort_by_key(|file| file.max_txid);
    let mut reached: BTreeMap<Point, HistoryFile> = BTreeMap::new();
    for file in files {
        if file.start().is_none_or(|start| reached.contains_key(&start)) {
            let by = reached.entry(file.end()).or_insert(file);
            *by = (*by).max_by(file);
        }
    }
    let (mut changes, mut point) = (Vec::new(), end);
    loop {
        let file = *reached.get(&point)?;
        let Some(start) = file.start() else {
            changes.reverse();
            return Some(Plan { base: file, changes });
        };
        changes.push(file);
        point = start;
    }
}

/// The last file of the newest hold.
fn last(files: &[HistoryFile]) -> Result<Option<HistoryFile>, Broken> {
    let mut last: Option<HistoryFile> = None;
    let mut twin = None;
    let rank = |file: &HistoryFile| (file.generation, file.max_txid);
    for &file in files {
        match last {
            Some(known) if rank(&known) > rank(&file) => {}
            Some(known) if rank(&known) == rank(&file) => {
                twin = if known.after == file.after { twin } else { Some(known) };
                last = Some(file);
            }
            _ => (last, twin) = (Some(file), None),
        }
    }
    match (twin, last) {
        (Some(one), Some(other)) => Err(Broken::TwoEnds { one, other }),
        _ => Ok(last),
    }
}

/// Where the chain to `last`, which cannot be reached, breaks off.
fn missing(files: &[HistoryFile], last: HistoryFile) -> Broken {
    let (mut file, mut needs) = (last, last.end());
    loop {
        let ending = files.iter().copied().filter(|other| other.end() == needs);
        let Some(before) = ending.reduce(HistoryFile::max_by) else { return Broken::Missing { file, needs } };
        match before.start() {
            Some(start) => (file, needs) = (before, start),
            None => return Broken::Missing { file, needs },
        }
    }
}

impl HistoryFile {
    /// Of two files that lead to one state: one that stands by itself, of the newest hold.
    fn max_by(self, other: Self) -> Self {
        std::cmp::max_by_key(self, other, |file| (file.stands_alone(), file.generation))
    }
}
