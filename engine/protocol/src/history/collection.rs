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
