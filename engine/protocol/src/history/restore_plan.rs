//! Which files of a listing give the actor's latest state.
//!
//! The end is the last file of the newest generation; from there the chain is followed back by transaction *and*
//! checksum to the nearest file that stands by itself. Two orders of events make this the rule:
//!
//! - An owner is replaced while its last upload is under way. The successor starts from the transaction before
//!   it and writes its own file of that number. The late file has a lower generation and no successor.
//! - Two owners died like that, and the third went on from the late file of the first. When the late file of the
//!   second arrives it has the higher generation of the two; only the checksum tells which one the third follows.

use std::collections::BTreeMap;

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
    let mut by_end: BTreeMap<Point, Vec<HistoryFile>> = BTreeMap::new();
    let mut last: Option<HistoryFile> = None;
    let mut twin = None;
    let rank = |file: &HistoryFile| (file.generation, file.max_txid);
    for file in files {
        by_end.entry(file.end()).or_default().push(file);
        match last {
            Some(known) if rank(&known) > rank(&file) => {}
            Some(known) if rank(&known) == rank(&file) => {
                twin = if known.after == file.after { twin } else { Some(known) };
                last = Some(file);
            }
            _ => (last, twin) = (Some(file), None),
        }
    }
    let Some(last) = last else { return Ok(None) };
    if let Some(one) = twin {
        return Err(Broken::TwoEnds { one, other: last });
    }
    let mut changes = Vec::new();
    let mut needed_by = last;
    let mut point = last.end();
    loop {
        let Some(file) = by_end.get(&point).and_then(|ending| best(ending)) else {
            return Err(Broken::Missing { file: needed_by, needs: point });
        };
        let Some(start) = file.start() else {
            changes.reverse();
            return Ok(Some(Plan { base: file, changes }));
        };
        changes.push(file);
        (needed_by, point) = (file, start);
    }
}

/// Of files that lead to one state: one that stands by itself, of the newest hold.
fn best(ending: &[HistoryFile]) -> Option<HistoryFile> {
    ending.iter().copied().max_by_key(|file| (file.stands_alone(), file.generation))
}
