//! Nodes in view to which a connection could not be opened, or can be no more (R-WAIT-4).

use std::{collections::BTreeMap, time::Duration};

use crate::{NodeId, clock::Moment, limits::SUSPICION_PAUSE, view::View};

/// Who is suspected of being gone, although its heartbeat says otherwise.
#[derive(Debug, Default)]
pub struct Suspects(BTreeMap<NodeId, Suspicion>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// Since a connection to it could not be opened.
    Since(Moment),
    /// It proved alive; not suspected again before then.
    TrustedUntil(Moment),
}

impl Suspects {
    /// A connection to this node could not be opened. The first failure counts until the node proves alive: later
    /// ones say nothing new.
    pub fn failed(&mut self, node: &NodeId, now: Moment) {
        match self.0.get(node) {
            Some(Suspicion::Since(_)) => {}
            Some(Suspicion::TrustedUntil(until)) if now < *until => {}
            Some(Suspicion::TrustedUntil(_)) | None => {
                self.0.insert(node.clone(), Suspicion::Since(now));
            }
        }
    }

    /// This node said, in an answer, that it stops. Its heartbeat says so too, in a listing that may be some seconds
    /// away; until then this stands for it, with [`Suspects::look`] as the end of both.
    pub fn stops(&mut self, node: &NodeId, now: Moment) {
        self.0.insert(node.clone(), Suspicion::Since(now));
    }

    /// There is a new view: a lease write that is surely later than the failure proves its node alive. `skew` is
    /// what the date of a write may be wrong by, once for each of the two clocks. A node that stops renews its lease as
    /// well, and proves nothing by it: what it gives up is to be had, so it is suspected whether somebody failed or not.
    pub fn look(&mut self, view: &View, skew: Duration, now: Moment) {
        for node in view.stopping() {
            self.0.insert(node.clone(), Suspicion::Since(now));
        }
        self.0.retain(|node, suspicion| {
            let Some(peer) = view.peer(node) else { return false };
            match *suspicion {
                Suspicion::Since(failed) if peer.written > failed + skew * 2 => {
                    *suspicion = Suspicion::TrustedUntil(now + SUSPICION_PAUSE);
                    true
                }
                Suspicion::Since(_) => true,
                Suspicion::TrustedUntil(until) => now < until,
            }
        });
    }

    /// Whether it is suspected.
    #[must_use]
    pub fn suspects(&self, node: &NodeId) -> bool {
        matches!(self.0.get(node), Some(Suspicion::Since(_)))
    }
}
