//! Which files of a listing no restore needs any more (R-HIST-1).

use std::{collections::BTreeSet, time::Duration};

use super::{HistoryFile, Listed, restore};

/// The files an owner may delete right after a snapshot of its own, of the hold `generation`, has landed.
///
/// Nothing unless the latest state begins with a file of this very hold. That makes a delete safe that is carried
/// out late, when the actor has a new owner: every listing since that file landed shows it, so no successor
/// reads anything before it, and what successors write has a greater generation.
///
/// Kept: what a restore needs, and whatever is younger than `retention`, by the bucket's times against `now_ms`.
#[must_use]
pub fn collect(listed: &[Listed], generation: u64, now_ms: u64, retention: Duration) -> Vec<HistoryFile> {
    let Ok(Some(plan)) = restore(listed.iter().map(|listed| listed.file)) else { return Vec::new() };
    if plan.base().generation != generation || plan.last().generation != generation {
        return Vec::new();
    }
    let needed: BTreeSet<HistoryFile> = plan.files().collect();
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let is_old = |listed: &Listed| listed.modified_ms.saturating_add(retention_ms) <= now_ms;
    let unneeded = listed.iter().filter(|listed| is_old(listed) && !needed.contains(&listed.file));
    unneeded.map(|listed| listed.file).collect()
}

/// The files that a recorded `deletion` of the actor made unnecessary, whatever their age: everything of earlier holds,
/// and what its own hold wrote up to it. What was written since stays.
///
/// A file of an earlier hold that lands later than this is taken by the next pass; no restore uses it.
///
/// That makes a delete safe that is carried out late, when the actor has come back: every listing since the deletion
/// landed shows it, so nobody reads anything before it.
#[must_use]
pub fn erase(listed: &[Listed], deletion: &HistoryFile) -> Vec<HistoryFile> {
    if !listed.iter().any(|listed| listed.file == *deletion) {
        return Vec::new();
    }
    let is_before = |file: &HistoryFile| {
        file.generation < deletion.generation
            || (file.generation == deletion.generation && file.max_txid <= deletion.max_txid)
    };
    let files = listed.iter().map(|listed| listed.file);
    files.filter(|file| file != deletion && is_before(file)).collect()
}
