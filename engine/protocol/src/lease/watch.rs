//! What a node makes of the others' heartbeats: when to list them, whom to fence, which dates to warn about.
//!
//! A fence rests on what this node saw itself: a live write stood unchanged, for ttl plus grace by this node's own
//! clock, from the end of the listing that first showed it. The date in a heartbeat can only delay a fence (a lease
//! dated ahead is left alone until then, R-LEASE-9). The fence says how long its writer watched, so that every
//! reader may rely on it, however little that reader has seen itself.

use std::{collections::BTreeMap, sync::Arc};

use super::{Identity, Timing};
use crate::{
    NodeId,
    clock::{Moment, Now},
    limits::SKEW_WARNING_PERIOD,
    records::{NodeRecord, Nonce, Process, RecordError},
    store::{Condition, Version, Wrote},
    view::{Peer, View},
};

/// One heartbeat as a listing showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whose it is.
    pub node: NodeId,
    /// Its version.
    pub version: Version,
    /// What it says.
    pub record: Result<NodeRecord, RecordError>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchInput {
    /// Time passed.
    Tick,
    /// Answer to [`WatchEffect::List`]: every heartbeat, or `None` when the bucket gave no whole answer in time.
    Listed(Option<Vec<Seen>>),
    /// Answer to [`WatchEffect::Fence`].
    Fenced(NodeId, Wrote),
    /// This node's own lease became valid.
    Valid,
    /// It ran out.
    Lapsed,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEffect {
    /// List the heartbeats and read those whose version is new.
    List,
    /// There is a new view ([`Watch::view`]).
    ViewChanged,
    /// Write a node's heartbeat as this fence.
    Fence(NodeId, NodeRecord, Condition),
    /// Our own heartbeat is not ours: the keeper has to look ([`super::Input::Sighted`]).
    OwnHeartbeatChanged,
    /// Something people should know.
    Notice(Notice),
}

/// Something people should know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Its lease cannot be fenced before that date.
    #[error("the heartbeat of node {node} is dated {} s ahead of this node's clock: one of the two is wrong", .ahead_ms / 1000)]
    DatedAhead {
        /// Whose heartbeat.
        node: NodeId,
        /// How far.
        ahead_ms: u64,
    },
    /// It counts as not live and frees nothing.
    #[error("the heartbeat of node {node} cannot be read: {error}")]
    Unreadable {
        /// Whose heartbeat.
        node: NodeId,
        /// Why.
        error: RecordError,
    },
}

/// This node's watch over the others.
#[derive(Debug)]
pub struct Watch {
    timing: Timing,
    identity: Identity,
    peers: BTreeMap<NodeId, Watched>,
    view: Arc<View>,
    /// Since when our lease is valid.
    valid_since: Option<Moment>,
    /// Since when listings have come without a gap while our lease was valid (R-LEASE-5).
    unbroken_since: Option<Moment>,
    listing: Option<Moment>,
    /// The beginning and the end of the last listing that succeeded.
    listed: Option<(Moment, Moment)>,
    list_due: Moment,
}

#[derive(Debug)]
struct Watched {
    peer: Peer,
    /// The live write it rests on; `None`: unreadable.
    write: Option<(Process, u64)>,
    /// The end of the listing that first showed that write.
    since: Moment,
    fence: Fence,
    warned: Option<Moment>,
}

impl Watched {
    fn is_live(&self) -> bool {
        self.peer.record.as_ref().is_ok_and(|record| record.is_live())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fence {
    /// None is under way.
    Idle,
    /// Sent, not answered.
    Sent(NodeRecord),
    /// Answered, and not as written: the next listing says what stands there now.
    Unclear,
}

impl Watch {
    /// The watch of a process that starts at `now`.
    #[must_use]
    pub fn new(timing: Timing, identity: Identity, now: Moment) -> Self {
        Self {
            timing,
            identity,
            peers: BTreeMap::new(),
            view: Arc::new(View::unknown(&timing)),
            valid_since: None,
            unbroken_since: None,
            listing: None,
            listed: None,
            list_due: now,
        }
    }

    /// What the last listing showed, our own fences included. Shared, never changed.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// When [`WatchInput::Tick`] is next due.
    #[must_use]
    pub fn wake(&self, now: Now) -> Option<Moment> {
        let list = self.listing.is_none().then_some(self.list_due);
        let fences = self.peers.iter().filter_map(|(node, watched)| self.fence_due(node, watched, now));
        list.into_iter().chain(fences).min()
    }

    /// Takes one input. `nonces` gives a fresh one at every call.
    pub fn step(
        &mut self,
        now: Now,
        nonces: &mut dyn FnMut() -> Nonce,
        input: WatchInput,
    ) -> Vec<WatchEffect> {
        let mut effects = Vec::new();
        match input {
            WatchInput::Tick => {}
            WatchInput::Listed(heartbeats) => self.listed(now, heartbeats, &mut effects),
            WatchInput::Fenced(node, outcome) => self.fenced(&node, outcome, &mut effects),
            WatchInput::Valid => self.valid_since = Some(now.moment),
            WatchInput::Lapsed => {
                self.valid_since = None;
                self.unbroken_since = None;
            }
        }
        self.upkeep(now, nonces, &mut effects);
        effects
    }

    fn listed(&mut self, now: Now, heartbeats: Option<Vec<Seen>>, effects: &mut Vec<WatchEffect>) {
        let Some(began) = self.listing.take() else { return };
        self.list_due = began + self.timing.period;
        let Some(heartbeats) = heartbeats else { return };
        let before = self.listed.replace((began, now.moment));
        let gap = before.map(|(_, ended)| now.moment.since(ended));
        if gap.is_none_or(|gap| gap > self.timing.listing_gap_max()) {
            self.unbroken_since = None;
        }
        if self.valid_since.is_some() {
            self.unbroken_since.get_or_insert(now.moment);
        }
        let mut gone = std::mem::take(&mut self.peers);
        for seen in heartbeats {
            let known = gone.remove(&seen.node);
            let mut watched = self.look(now, before.map(|(began, _)| began), known, &seen);
            self.warn(now, &seen.node, &mut watched, effects);
            self.peers.insert(seen.node, watched);
        }
        self.check_own(began, effects);
        self.publish(effects);
    }

    /// What one heartbeat of a listing that ended now means. `before`: when the listing before it began.
    fn look(&self, now: Now, before: Option<Moment>, known: Option<Watched>, seen: &Seen) -> Watched {
        let warned = known.as_ref().and_then(|known| known.warned);
        let fresh = |write, written| {
            let peer =
                Peer { version: seen.version.clone(), record: seen.record.clone().map(Arc::new), written };
            Watched { peer, write, since: now.moment, fence: Fence::Idle, warned }
        };
        let Ok(record) = &seen.record else { return fresh(None, now.moment) };
        let write = Some((record.process, record.sequence));
        match known {
            // A lease that ended stays ended: this listing began before our own fence landed.
            Some(known) if known.write == write && record.is_live() && !known.is_live() => known,
            Some(known) if known.write == write => Watched {
                since: known.since,
                fence: if matches!(known.fence, Fence::Sent(_)) { known.fence } else { Fence::Idle },
                ..fresh(write, known.peer.written)
            },
            Some(_) | None => fresh(write, self.dated(now, before, record)),
        }
    }

    /// When a write that this listing is the first to show began, on our clock. It landed after the listing before
    /// began, so it began a timeout earlier than that at most. A date outside those bounds comes from a clock that
    /// is wrong, and then the write is as old as this listing.
    fn dated(&self, now: Now, before: Option<Moment>, record: &NodeRecord) -> Moment {
        let dated = now.moment.before(now.age_of(record.written_at_ms));
        let possible = before.is_none_or(|before| dated >= before.before(self.timing.timeout));
        if possible { dated } else { now.moment }
    }

    fn warn(&self, now: Now, node: &NodeId, watched: &mut Watched, effects: &mut Vec<WatchEffect>) {
        let notice = match &watched.peer.record {
            Err(error) => Notice::Unreadable { node: node.clone(), error: error.clone() },
            Ok(record) => {
                let ahead = now.ahead_of(record.written_at_ms);
                if ahead <= self.timing.skew {
                    return;
                }
                Notice::DatedAhead {
                    node: node.clone(),
                    ahead_ms: u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX),
                }
            }
        };
        if watched.warned.is_none_or(|warned| now.moment.since(warned) >= SKEW_WARNING_PERIOD) {
            watched.warned = Some(now.moment);
            effects.push(WatchEffect::Notice(notice));
        }
    }

    /// A listing that began while our lease was valid shows our own heartbeat as ours, or somebody took our id.
    fn check_own(&self, began: Moment, effects: &mut Vec<WatchEffect>) {
        let ours = self.peers.get(&self.identity.node).and_then(|watched| watched.peer.record.as_ref().ok());
        let stands = ours.is_some_and(|record| record.process == self.identity.process && record.is_live());
        if self.valid_since.is_some_and(|since| since <= began) && !stands {
            effects.push(WatchEffect::OwnHeartbeatChanged);
        }
    }

    fn fenced(&mut self, node: &NodeId, outcome: Wrote, effects: &mut Vec<WatchEffect>) {
        let Some(watched) = self.peers.get_mut(node) else { return };
        let Fence::Sent(fence) = std::mem::replace(&mut watched.fence, Fence::Unclear) else {
            // Its heartbeat moved on while the fence was under way.
            watched.fence = Fence::Idle;
            return;
        };
        if let Wrote::Written(version) = outcome {
            watched.peer = Peer { version, record: Ok(Arc::new(fence)), written: watched.peer.written };
            self.publish(effects);
        }
    }

    fn publish(&mut self, effects: &mut Vec<WatchEffect>) {
        let peers = self.peers.iter().map(|(node, watched)| (node.clone(), watched.peer.clone())).collect();
        self.view = Arc::new(View::new(&self.timing, peers));
        effects.push(WatchEffect::ViewChanged);
    }

    /// The same after every input: fence who is due, list when it is time.
    fn upkeep(&mut self, now: Now, nonces: &mut dyn FnMut() -> Nonce, effects: &mut Vec<WatchEffect>) {
        let due: Vec<NodeId> = self
            .peers
            .iter()
            .filter(|(node, watched)| self.fence_due(node, watched, now).is_some_and(|due| due <= now.moment))
            .map(|(node, _)| node.clone())
            .collect();
        for node in due {
            let Some(watched) = self.peers.get_mut(&node) else { continue };
            let Ok(record) = &watched.peer.record else { continue };
            let fence =
                record.fence(now.moment.since(watched.since), Some(self.identity.node.clone()), nonces());
            let condition = Condition::Unchanged(watched.peer.version.clone());
            watched.fence = Fence::Sent(fence.clone());
            effects.push(WatchEffect::Fence(node, fence, condition));
        }
        if self.listing.is_none() && now.moment >= self.list_due {
            self.listing = Some(now.moment);
            effects.push(WatchEffect::List);
        }
    }

    /// When this node may be fenced, should its heartbeat not change until then. `None`: nothing to fence, or it is
    /// not ours to judge now.
    fn fence_due(&self, node: &NodeId, watched: &Watched, now: Now) -> Option<Moment> {
        let record = watched.peer.record.as_ref().ok()?;
        let (_, listed) = self.listed?;
        let blind = now.moment.since(listed) > self.timing.listing_gap_max();
        if *node == self.identity.node
            || record.is_gone(self.timing.grace)
            || blind
            || watched.fence != Fence::Idle
        {
            return None;
        }
        let lapse = self.timing.lapse(record.ttl);
        let dated = now.ahead_of(record.written_at_ms).saturating_add(lapse);
        let dated = now.moment + dated.saturating_sub(now.age_of(record.written_at_ms));
        // Others that were cut off together with us get the time to renew first (case L9).
        let regained = self.unbroken_since? + self.timing.watch();
        Some((watched.since + lapse).max(regained).max(dated))
    }
}

#[cfg(test)]
mod tests;
