//! Which node had an actor when its record was last read, so that a request to it costs no read of the bucket.
//!
//! - A hint is learned from a record, proved by an answer of its node, and forgotten as soon as that node did not serve
//!   the actor or cannot be expected to.
//! - Using a hint proves nothing: one that is wrong would otherwise live as long as it is used.
//! - It does not decide where a request goes when there is no hint: [`super::route`] does.

use std::{num::NonZeroUsize, time::Duration};

use lru::LruCache;

use crate::{
    ActorId, NodeId,
    clock::Moment,
    failover::Suspects,
    view::{Standing, View},
};

/// What came of sending something for an actor to the node of its hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The node answered for the actor.
    Served,
    /// It answered 503 and did not say that the actor is another's: it may be busy with it, or about to give it up.
    Unavailable,
    /// It says that it does not have the actor, or it did not answer.
    NotServed,
}

impl Heard {
    /// What an answer with this status says. `elsewhere`: the node says that it does not have the actor.
    #[must_use]
    pub fn of_answer(status: u16, elsewhere: bool) -> Self {
        match status {
            _ if elsewhere => Self::NotServed,
            503 => Self::Unavailable,
            _ => Self::Served,
        }
    }
}

/// The hints of one shard. The least recently used one makes room for a new one.
#[derive(Debug)]
pub struct Hints {
    nodes: LruCache<ActorId, Hint>,
    life: Duration,
}

#[derive(Debug)]
struct Hint {
    node: NodeId,
    /// When the record was read, or the node last answered for the actor.
    proved: Moment,
}

impl Hints {
    /// None yet, and never more than `hints_max`. `life`: how long an actor stays awake without a request. One that
    /// sleeps is nobody's, and whoever is asked takes it (R-WS-2), so a hint proves nothing for longer.
    #[must_use]
    pub fn new(hints_max: NonZeroUsize, life: Duration) -> Self {
        Self { nodes: LruCache::new(hints_max), life }
    }

    /// The actor's record, read by `now`, names this node, which is live.
    pub fn learn(&mut self, actor: &ActorId, node: &NodeId, now: Moment) {
        self.nodes.put(actor.clone(), Hint { node: node.clone(), proved: now });
    }

    /// The node to send something for this actor to. `None`: its record is to be read. A node that is not live, or that
    /// is suspected, has no actors for long: its hint is forgotten.
    pub fn find(&mut self, actor: &ActorId, view: &View, suspects: &Suspects, now: Moment) -> Option<NodeId> {
        let hint = self.nodes.get(actor)?;
        let is_young = now.since(hint.proved) < self.life;
        if is_young && view.standing(&hint.node, now) == Standing::Live && !suspects.suspects(&hint.node) {
            return Some(hint.node.clone());
        }
        self.nodes.pop(actor);
        None
    }

    /// What came of it, told by whoever sent something: a request, a call or an upgrade.
    pub fn heard(&mut self, actor: &ActorId, node: &NodeId, heard: Heard, now: Moment) {
        // What was learned meanwhile of another node is newer than this.
        let Some(hint) = self.nodes.get_mut(actor).filter(|hint| hint.node == *node) else { return };
        match heard {
            Heard::Served => hint.proved = now,
            Heard::Unavailable => {}
            Heard::NotServed => {
                self.nodes.pop(actor);
            }
        }
    }
}

#[cfg(test)]
mod tests;
