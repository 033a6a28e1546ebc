//! What a node makes of the others' heartbeats: when to list them, whom to fence, which dates to warn about.
//!
//! A fence rests on what this node saw itself: a live write stood unchanged, for ttl plus grace by this node's own
//! clock, from the end of the listing that first showed it. The date in a heartbeat can only delay a fence (a lease
//! dated ahead is left alone until then, R-LEASE-9). The fence says how long its writer watched, so that every
//! reader may rely on it, however little that reader has seen itself.
//!
//! A heartbeat whose length says that it was only renewed is not read ([`Shape`](crate::records::Shape)). No fence
//! rests on that: one that has stood for two heartbeats is read, and what is fenced was read.

mod look;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub use self::look::Listed;
use self::look::{Look, Sight};
use super::{Identity, Timing};
use crate::{
    NodeId,
    clock::{Moment, Now},
    limits::SKEW_WARNING_PERIOD,
    records::{NodeRecord, Nonce, Process, RecordError},
    store::{Condition, Found, Version, Wrote},
    view::{Peer, View},
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchInput {
    /// Time passed.
    Tick,
    /// Answer to [`WatchEffect::List`]: every heartbeat, or `None` when the bucket gave no whole answer in time.
    Listed(Option<Vec<Listed>>),
    /// Answer to [`WatchEffect::Read`]. No answer within the timeout is [`Found::Failed`].
    Read(NodeId, Found<NodeRecord>),
    /// Answer to [`WatchEffect::Fence`].
    Fenced(NodeId, Wrote),
    /// The version in which this node's own heartbeat stands ([`super::Keeper::version`]).
    Stands(Version),
    /// This node's own lease became valid.
    Valid,
    /// It ran out.
    Lapsed,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEffect {
    /// List the heartbeats.
    List,
    /// Read one.
    Read(NodeId),
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
    /// Every other node's heartbeat that is renewed is dated behind this node's clock.
    #[error(
        "this node's clock is at least {} s ahead of every other node's: it is most likely the wrong one", .by_ms / 1000
    )]
    OwnClockAhead {
        /// How far at least.
        by_ms: u64,
    },
    /// Nodes of one cluster have to agree on it.
    #[error(
        "the lease of node {node} lasts {ttl:?} and this node's {ours:?}: give all nodes of a cluster the same \
         --lease-ttl-ms"
    )]
    OtherTtl {
        /// Whose heartbeat.
        node: NodeId,
        /// What it says.
        ttl: Duration,
        /// What this node's says.
        ours: Duration,
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
    look: Option<Look>,
    /// The beginning and the end of the last listing that succeeded.
    listed: Option<(Moment, Moment)>,
    list_due: Moment,
    /// The versions our last writes gave our own heartbeat.
    written: VecDeque<Version>,
    /// The version of our own heartbeat in the last listing.
    own_seen: Option<Version>,
    /// When it was last said that our own clock is ahead.
    own_clock_warned: Option<Moment>,
}

/// How many of our own writes are remembered: a listing shows one that landed while it was under way, or the one before.
const WRITTEN_KEPT: usize = 4;

#[derive(Debug)]
struct Watched {
    /// Its record is that of a heartbeat this one renewed, unless it was read.
    peer: Peer,
    /// Its version as the listing put it. One that puts versions otherwise than an answer to a read does costs reads.
    listed: Option<Version>,
    /// This very heartbeat was read.
    read: bool,
    /// The date of the live write it rests on, to half a second if that is only known by its length.
    dated_ms: u64,
    /// The live write of the record; `None`: unreadable.
    write: Option<(Process, u64)>,
    /// The end of the listing that first showed the live write it rests on.
    since: Moment,
    fence: Fence,
    warned: Option<Moment>,
    /// How far its last renewal was dated behind this node's clock, at least; none before it was seen to renew.
    behind: Option<Duration>,
}

impl Watched {
    fn is_live(&self) -> bool {
        self.peer.record.as_ref().is_ok_and(|record| record.is_live())
    }

    /// Whether a heartbeat that was read rests on the same live write.
    fn rests_on(&self, write: Option<(Process, u64)>, version: &Version) -> bool {
        self.peer.version == *version || self.read && self.write == write
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

impl Fence {
    /// A look says what stands there, unless the answer to a fence is yet to come.
    fn after_a_look(self) -> Self {
        if matches!(self, Self::Sent(_)) { self } else { Self::Idle }
    }
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
            look: None,
            listed: None,
            list_due: now,
            written: VecDeque::new(),
            own_seen: None,
            own_clock_warned: None,
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
        let list = self.look.is_none().then_some(self.list_due);
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
            WatchInput::Listed(listed) => self.listed(now, listed, &mut effects),
            WatchInput::Read(node, found) => self.read(now, &node, found, &mut effects),
            WatchInput::Fenced(node, outcome) => self.fenced(&node, outcome, &mut effects),
            WatchInput::Stands(version) => self.stands(version),
            WatchInput::Valid => self.valid_since = Some(now.moment),
            WatchInput::Lapsed => {
                self.valid_since = None;
                self.unbroken_since = None;
            }
        }
        self.upkeep(now, nonces, &mut effects);
        effects
    }

    /// What every heartbeat is, at the end of a look that succeeded.
    fn seen(&mut self, now: Now, look: Look, effects: &mut Vec<WatchEffect>) {
        let before = self.listed.replace((look.began, now.moment));
        let gap = before.map(|(_, ended)| now.moment.since(ended));
        if gap.is_none_or(|gap| gap > self.timing.listing_gap_max()) {
            self.unbroken_since = None;
        }
        if self.valid_since.is_some() {
            self.unbroken_since.get_or_insert(now.moment);
        }
        let mut gone = std::mem::take(&mut self.peers);
        for (Listed { node, version, .. }, sight) in look.sights {
            let (began, known) = (before.map(|(began, _)| began), gone.remove(&node));
            let behind = known.as_ref().and_then(|known| known.behind);
            let Some(mut watched) = self.judge(now, began, known, version, sight) else { continue };
            watched.behind = match began {
                // Its write began a timeout before the listing before this one at the earliest.
                Some(began) if watched.since == now.moment => {
                    let old = now.moment.since(began) + self.timing.timeout;
                    Some(now.age_of(watched.dated_ms).saturating_sub(old))
                }
                _ => behind,
            };
            self.warn(now, &node, &mut watched, effects);
            self.peers.insert(node, watched);
        }
        self.warn_of_own_clock(now, effects);
        self.check_own(look.began, effects);
        self.publish(effects);
    }

    /// What one heartbeat means in a look that ends now. `before`: when the listing before it began.
    fn judge(
        &self,
        now: Now,
        before: Option<Moment>,
        known: Option<Watched>,
        listed: Option<Version>,
        sight: Sight,
    ) -> Option<Watched> {
        match sight {
            Sight::Read(version, record) => {
                Some(self.judge_read(now, before, known, listed, (version, record)))
            }
            Sight::Renewed { version, dated_ms } => known.map(|known| match known.is_live() {
                true => Watched {
                    peer: Peer { version, written: self.dated(now, before, dated_ms), ..known.peer },
                    listed,
                    read: false,
                    dated_ms,
                    since: now.moment,
                    fence: Fence::Idle,
                    ..known
                },
                // Our own fence landed meanwhile, and a lease that ended stays ended.
                false => known,
            }),
            Sight::Same => known.map(|known| Watched { fence: known.fence.after_a_look(), ..known }),
        }
    }

    fn judge_read(
        &self,
        now: Now,
        before: Option<Moment>,
        known: Option<Watched>,
        listed: Option<Version>,
        (version, record): (Version, Result<NodeRecord, RecordError>),
    ) -> Watched {
        let record = record.map(Arc::new);
        let warned = known.as_ref().and_then(|known| known.warned);
        let fresh = |write, dated_ms, written| {
            let peer = Peer { version: version.clone(), record: record.clone(), written };
            let (since, fence) = (now.moment, Fence::Idle);
            Watched { peer, listed, read: true, dated_ms, write, since, fence, warned, behind: None }
        };
        let Ok(read) = &record else { return fresh(None, 0, now.moment) };
        let write = Some((read.process, read.sequence));
        match known {
            Some(known) if known.rests_on(write, &version) => {
                // A lease that ended stays ended: this was read before our own fence landed.
                if read.is_live() && !known.is_live() {
                    return known;
                }
                let fence = known.fence.after_a_look();
                Watched { since: known.since, fence, ..fresh(write, read.written_at_ms, known.peer.written) }
            }
            Some(_) | None => {
                let written = self.dated(now, before, read.written_at_ms);
                fresh(write, read.written_at_ms, written)
            }
        }
    }

    /// When a write that this listing is the first to show began, on our clock. It landed after the listing before
    /// began, so it began a timeout earlier than that at most. A date outside those bounds comes from a clock that
    /// is wrong, and then the write is as old as this listing.
    fn dated(&self, now: Now, before: Option<Moment>, written_at_ms: u64) -> Moment {
        let dated = now.moment.before(now.age_of(written_at_ms));
        let possible = before.is_none_or(|before| dated >= before.before(self.timing.timeout));
        if possible { dated } else { now.moment }
    }

    fn warn(&self, now: Now, node: &NodeId, watched: &mut Watched, effects: &mut Vec<WatchEffect>) {
        let notice = match &watched.peer.record {
            Err(error) => Notice::Unreadable { node: node.clone(), error: error.clone() },
            Ok(record) if record.is_live() && record.ttl != self.timing.ttl => {
                Notice::OtherTtl { node: node.clone(), ttl: record.ttl, ours: self.timing.ttl }
            }
            Ok(_) => {
                let ahead = now.ahead_of(watched.dated_ms);
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

    /// A clock that is ahead of one other node's may be right. One that is ahead of all of them is not.
    fn warn_of_own_clock(&mut self, now: Now, effects: &mut Vec<WatchEffect>) {
        let others = self.peers.iter().filter(|(node, watched)| {
            **node != self.identity.node && watched.is_live() && watched.behind.is_some()
        });
        let Some(least) = others.filter_map(|(_, watched)| watched.behind).min() else { return };
        let is_due =
            self.own_clock_warned.is_none_or(|warned| now.moment.since(warned) >= SKEW_WARNING_PERIOD);
        if least > self.timing.skew && is_due {
            self.own_clock_warned = Some(now.moment);
            let by_ms = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
            effects.push(WatchEffect::Notice(Notice::OwnClockAhead { by_ms }));
        }
    }

    fn stands(&mut self, version: Version) {
        if self.written.back() != Some(&version) {
            self.written.push_back(version);
            if self.written.len() > WRITTEN_KEPT {
                self.written.pop_front();
            }
        }
    }

    /// A listing that began while our lease was valid shows our own heartbeat as ours, or somebody took our id. The
    /// answer to a write of ours may still be under way: until the next listing.
    fn check_own(&mut self, began: Moment, effects: &mut Vec<WatchEffect>) {
        let own = self.peers.get(&self.identity.node);
        let record = own.and_then(|watched| watched.peer.record.as_ref().ok());
        let stands = record.is_some_and(|record| record.process == self.identity.process && record.is_live());
        let foreign = self.own_seen.take().is_some_and(|version| !self.written.contains(&version));
        self.own_seen = own.map(|watched| watched.peer.version.clone());
        if self.valid_since.is_some_and(|since| since <= began) && (!stands || foreign) {
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
            let record = Ok(Arc::new(fence));
            watched.peer = Peer { version, record, written: watched.peer.written };
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
        if self.look.is_none() && now.moment >= self.list_due {
            self.look = Some(Look::new(now.moment));
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
            || !watched.read
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
