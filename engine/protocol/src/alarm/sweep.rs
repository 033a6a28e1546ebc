//! What a node makes of the overdue part of the bucket's index: which actors it looks at, and when (R-ALM-1).
//!
//! Pure: no request is sent here. The index is never believed to say more than "look": whether an alarm is due is
//! said by the actor's database, once this node holds the actor.
//!
//! An alarm is left alone for a lease period and the grace, because the node that put it has it in its own timer. Of a
//! node that is known to hold nothing any more it is taken when it is due. Nodes take turns: the one that put it, then
//! the others in an order of their own for every actor, each a sweep later than the one before.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::Xxh3;

use super::{Post, Whose, millis, pause_after};
use crate::{
    NodeId,
    clock::Moment,
    lease::Timing,
    limits::{ALARM_SWEEP_AT_ONCE, ALARM_SWEEP_EVERY},
    view::{Standing, View},
};

/// One entry of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Whose it is.
    pub whose: Whose,
    /// The entry.
    pub post: Post,
}

/// What a sweep sees of its surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Keeping<'a> {
    /// This node.
    pub me: &'a NodeId,
    /// The cluster.
    pub view: &'a View,
    /// Of its leases.
    pub timing: &'a Timing,
    /// The time.
    pub now: Moment,
    /// The time of day, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// An actor to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Why.
    pub listed: Listed,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The actor was asked: if its alarm was due, an attempt was made.
    Looked,
    /// It was not: another node has it, this one does not serve it, or something failed.
    NotNow,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    times: u32,
    until: Moment,
    seen: bool,
}

/// The sweeps of one node.
#[derive(Debug, Default)]
pub struct Sweep {
    queue: BTreeMap<(u64, Whose), Due>,
    under_way: BTreeSet<Whose>,
    refused: BTreeMap<Whose, Refused>,
    /// Who had gone by the last view.
    gone: Option<BTreeSet<NodeId>>,
}

impl Sweep {
    /// Up to when entries are due that a sweep begun now looks at: those that come due before the next one too, for
    /// they may be of a node that is gone.
    #[must_use]
    pub fn horizon_ms(now_ms: u64) -> u64 {
        now_ms.saturating_add(millis(ALARM_SWEEP_EVERY))
    }

    /// Whether a node has gone since the view before this: its alarms are the others' now, and a listing is due.
    pub fn somebody_left(&mut self, view: &View) -> bool {
        let gone: BTreeSet<NodeId> = view.gone().cloned().collect();
        let before = self.gone.replace(gone);
        before.is_some_and(|before| view.gone().any(|node| !before.contains(node)))
    }

    /// One listing's worth of entries that are due, which began with the first of all or went on behind the one before.
    /// `is_last`: none comes behind them.
    pub fn take(
        &mut self,
        keeping: Keeping<'_>,
        is_first: bool,
        entries: impl IntoIterator<Item = Listed>,
        is_last: bool,
    ) {
        if is_first {
            self.begin();
        }
        for listed in entries {
            self.listed(keeping, listed);
        }
        if is_last {
            self.ended();
        }
    }

    /// A listing from the first entry on begins.
    fn begin(&mut self) {
        self.queue.clear();
        for refused in self.refused.values_mut() {
            refused.seen = false;
        }
    }

    /// An entry that was listed.
    fn listed(&mut self, keeping: Keeping<'_>, listed: Listed) {
        if let Some(refused) = self.refused.get_mut(&listed.whose) {
            refused.seen = true;
            if refused.until > keeping.now {
                return;
            }
        }
        let at_ms = turn_ms(keeping, &listed);
        if at_ms <= Self::horizon_ms(keeping.now_ms) && !self.under_way.contains(&listed.whose) {
            self.queue.insert((at_ms, listed.whose.clone()), Due { listed, at_ms });
        }
    }

    /// The listing that began with the first entry ended with the last that is due.
    fn ended(&mut self) {
        self.refused.retain(|_, refused| refused.seen);
    }

    /// The next actor to look at now.
    pub fn next(&mut self, now_ms: u64) -> Option<Due> {
        if self.under_way.len() >= ALARM_SWEEP_AT_ONCE {
            return None;
        }
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= now_ms)?;
        let due = entry.remove();
        // Another entry of one that is being looked at: the next sweep sees whether it is still there.
        if !self.under_way.insert(due.listed.whose.clone()) {
            return self.next(now_ms);
        }
        Some(due)
    }

    /// When [`Sweep::next`] has one to give, while fewer than the most are under way.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let has_room = self.under_way.len() < ALARM_SWEEP_AT_ONCE;
        self.queue.first_key_value().filter(|_| has_room).map(|((at_ms, _), _)| *at_ms)
    }

    /// A look has ended. One that came to nothing is not repeated at once, and each time after a longer wait.
    pub fn looked(&mut self, whose: &Whose, outcome: Outcome, now: Moment) {
        self.under_way.remove(whose);
        match outcome {
            Outcome::Looked => drop(self.refused.remove(whose)),
            Outcome::NotNow => {
                let times = self.refused.get(whose).map_or(0, |refused| refused.times).saturating_add(1);
                let refused = Refused { times, until: now + pause_after(times), seen: true };
                self.refused.insert(whose.clone(), refused);
            }
        }
    }
}

/// When this node looks at the actor of an entry.
fn turn_ms(keeping: Keeping<'_>, listed: &Listed) -> u64 {
    let Keeping { me, view, timing, now, .. } = keeping;
    let Post { due_ms, node, .. } = &listed.post;
    let patience = match view.standing(node, now) {
        Standing::Gone if node != me => 0,
        _ => millis(timing.ttl + timing.grace),
    };
    if node == me {
        return due_ms.saturating_add(patience);
    }
    let mine = weight(me, &listed.whose);
    let is_before = |other: &NodeId| other == node || weight(other, &listed.whose) > mine;
    let others = view.live(now).map(|(other, _)| other).filter(|other| *other != me);
    let turn = others.filter(|other| is_before(other)).count() as u64;
    due_ms.saturating_add(patience).saturating_add(turn * millis(ALARM_SWEEP_EVERY))
}

fn weight(node: &NodeId, whose: &Whose) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [node.as_str(), whose.class.as_str(), &whose.stem] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.digest()
}

#[cfg(test)]
mod tests;
