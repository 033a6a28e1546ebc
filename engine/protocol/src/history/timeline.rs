//! Which states the files of a listing still give: the latest one and those on the way to it.
//!
//! Beside [`restore`](super::restore), which gives the latest state or nothing, this is for people who look back:
//! it says what can be had also where the latest state is lost.

use std::collections::{BTreeMap, BTreeSet};

use super::{HistoryFile, Plan, Point};

/// The states that can be restored, oldest first, each the next after the one before.
///
/// Where [`restore`](super::restore) gives a plan, the last state is that plan's. Where it does not, the last
/// state is the newest one that can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    states: Vec<State>,
}

/// One state, and the files that end in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The state.
    pub point: Point,
    /// Leads here from the state before. The first state has none.
    pub changes: Option<HistoryFile>,
    /// Holds this state whole, where there is such a file.
    pub base: Option<HistoryFile>,
}

impl State {
    /// The files that end here.
    pub fn files(&self) -> impl Iterator<Item = HistoryFile> {
        self.changes.into_iter().chain(self.base)
    }
}

impl Timeline {
    /// The states, oldest first.
    #[must_use]
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The files that give the state at `index`, counted from the oldest; `None` for no such state.
    #[must_use]
    pub fn plan(&self, index: usize) -> Option<Plan> {
        let states = self.states.get(..=index)?;
        let (first, base) =
            states.iter().enumerate().rev().find_map(|(at, state)| Some((at, state.base?)))?;
        Some(Plan { base, changes: states[first + 1..].iter().filter_map(|state| state.changes).collect() })
    }
}

/// The timeline of a listing.
#[must_use]
pub fn timeline(files: impl IntoIterator<Item = HistoryFile>) -> Timeline {
    let mut files: Vec<HistoryFile> = files.into_iter().collect();
    // A file's end comes after its start, so by then it is known whether the start is reached.
    files.sort_by_key(|file| (file.max_txid, !file.stands_alone()));
    let mut reached: BTreeMap<Point, Vec<HistoryFile>> = BTreeMap::new();
    for file in &files {
        if file.start().is_none_or(|start| reached.contains_key(&start)) {
            reached.entry(file.end()).or_default().push(*file);
        }
    }
    let mut states = Vec::new();
    let mut next = newest(files.iter().filter(|file| reached.contains_key(&file.end())));
    while let Some(ending) = next.and_then(|point| reached.get(&point)) {
        let state = state(ending);
        states.extend(state);
        next = state.and_then(|state| state.changes).and_then(|changes| changes.start());
    }
    states.reverse();
    Timeline { states }
}

/// The end of the newest hold's last file. Where one hold has two last files, neither can be believed.
fn newest<'a>(files: impl Iterator<Item = &'a HistoryFile>) -> Option<Point> {
    let mut ends: BTreeMap<(u64, u64), BTreeSet<Point>> = BTreeMap::new();
    for file in files {
        ends.entry((file.generation, file.max_txid)).or_default().insert(file.end());
    }
    ends.into_values().rev().find(|points| points.len() == 1)?.pop_first()
}

/// What files that end in one state make of it.
fn state(ending: &[HistoryFile]) -> Option<State> {
    let newest = |stands_alone: bool| {
        let files = ending.iter().copied().filter(|file| file.stands_alone() == stands_alone);
        files.max_by_key(HistoryFile::generation)
    };
    let (changes, base) = (newest(false), newest(true));
    Some(State { point: changes.or(base)?.end(), changes, base })
}

#[cfg(test)]
mod tests;
