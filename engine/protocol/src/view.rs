//! The cluster as one node sees it: an immutable snapshot of one listing of the heartbeats.
//!
//! Owns who counts as live. Ages run on between listings, so a node leaves the view at its time also while the
//! bucket is silent (R-TLS-4).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    NodeId,
    clock::Moment,
    lease::Timing,
    records::{NodeRecord, RecordError},
    store::Version,
};

/// One node's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its version.
    pub version: Version,
    /// What it says.
    pub record: Result<Arc<NodeRecord>, RecordError>,
    /// When its last live write began, as this node's own clock saw it. Good enough to choose whom to talk to;
    /// nothing is ever taken from a node by it.
    pub written: Moment,
}

/// A snapshot of the heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    peers: BTreeMap<NodeId, Peer>,
    in_view: Duration,
    grace: Duration,
    /// There was a listing. Before it, nobody is known to be absent.
    listed: bool,
    /// Those of the peers that say so, since this is asked for every request that goes to another node.
    stopping: Vec<NodeId>,
}

/// What a view says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It renews its lease.
    Live,
    /// It should have renewed it and did not, its heartbeat cannot be read, or nothing was listed yet.
    Silent,
    /// It was fenced, and nobody has watched for long enough since to say that it holds nothing.
    Ending,
    /// It was fenced and holds nothing any more, or it released its lease.
    Gone,
    /// It has no heartbeat: never started, or deleted, which frees nothing (R-LEASE-7).
    Absent,
}

impl View {
    /// The view before the first listing.
    #[must_use]
    pub fn unknown(timing: &Timing) -> Self {
        Self { listed: false, ..Self::new(timing, BTreeMap::new()) }
    }

    /// The view of a listing.
    #[must_use]
    pub fn new(timing: &Timing, peers: BTreeMap<NodeId, Peer>) -> Self {
        let says_so = |peer: &Peer| {
            peer.record.as_ref().is_ok_and(|record| record.is_live() && record.presence.stopping)
        };
        let stopping = peers.iter().filter(|(_, peer)| says_so(peer)).map(|(node, _)| node.clone()).collect();
        Self { peers, in_view: timing.in_view(), grace: timing.grace, listed: true, stopping }
    }

    /// A node's heartbeat.
    #[must_use]
    pub fn peer(&self, node: &NodeId) -> Option<&Peer> {
        self.peers.get(node)
    }

    /// What a node is at `now`.
    #[must_use]
    pub fn standing(&self, node: &NodeId, now: Moment) -> Standing {
        match self.peers.get(node) {
            None if !self.listed => Standing::Silent,
            None => Standing::Absent,
            Some(Peer { record: Err(_), .. }) => Standing::Silent,
            Some(peer @ Peer { record: Ok(record), .. }) => self.judge(record, now.since(peer.written)),
        }
    }

    /// What a node is whose heartbeat was just read.
    #[must_use]
    pub fn standing_of(&self, record: &NodeRecord) -> Standing {
        self.judge(record, Duration::ZERO)
    }

    fn judge(&self, record: &NodeRecord, age: Duration) -> Standing {
        if record.is_gone(self.grace) {
            Standing::Gone
        } else if !record.is_live() {
            Standing::Ending
        } else if age < self.in_view {
            Standing::Live
        } else {
            Standing::Silent
        }
    }

    /// The nodes that renew their leases only until their actors are given up.
    pub fn stopping(&self) -> impl Iterator<Item = &NodeId> {
        self.stopping.iter()
    }

    /// The nodes that hold nothing any more.
    pub fn gone(&self) -> impl Iterator<Item = &NodeId> {
        let is_gone = |peer: &Peer| peer.record.as_ref().is_ok_and(|record| record.is_gone(self.grace));
        self.peers.iter().filter(move |(_, peer)| is_gone(peer)).map(|(node, _)| node)
    }

    /// The nodes live at `now`, in the order of their ids.
    pub fn live(&self, now: Moment) -> impl Iterator<Item = (&NodeId, &NodeRecord)> {
        self.peers.iter().filter_map(move |(node, peer)| {
            let record = peer.record.as_ref().ok()?;
            (self.judge(record, now.since(peer.written)) == Standing::Live).then_some((node, &**record))
        })
    }

    /// Whether there was a listing.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// A node live at `now` whose lease has another ttl than `ttl`, and which. All nodes of a cluster have to have the
    /// same, so that all agree on when an actor is free.
    #[must_use]
    pub fn other_ttl(&self, ttl: Duration, now: Moment) -> Option<(&NodeId, Duration)> {
        self.live(now).map(|(node, record)| (node, record.ttl)).find(|(_, of_node)| *of_node != ttl)
    }

    /// Whether this is still the certificate of this node, and the node live.
    #[must_use]
    pub fn trusts(&self, node: &NodeId, fingerprint: &str, now: Moment) -> bool {
        self.peers.get(node).is_some_and(|peer| match &peer.record {
            Ok(record) => {
                record.presence.fingerprint.as_deref() == Some(fingerprint)
                    && self.judge(record, now.since(peer.written)) == Standing::Live
            }
            Err(_) => false,
        })
    }

    /// The live node that published the certificate with this fingerprint. A peer with any other is refused: one
    /// that was fenced or released, whose heartbeat is gone or old, or that has a new key (R-TLS-4).
    #[must_use]
    pub fn trusted(&self, fingerprint: &str, now: Moment) -> Option<&NodeId> {
        self.live(now)
            .find(|(_, record)| record.presence.fingerprint.as_deref() == Some(fingerprint))
            .map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests;
