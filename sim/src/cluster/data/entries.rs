//! What a process knows of its actors' entries in the bucket's index of alarms while it does not hold them.

use std::{cell::RefCell, collections::BTreeMap};

use wasmkeep_protocol::{
    NodeId,
    alarm::{Post, Posts},
    history::Point,
};

use crate::cluster::record::{ActorNumber, Generation};

/// See the module.
#[derive(Debug, Default)]
pub struct Entries {
    asleep: RefCell<BTreeMap<ActorNumber, Posts>>,
    noticed: RefCell<BTreeMap<ActorNumber, Post>>,
}

impl Entries {
    /// For a hold that begins at the end of a history, or without one.
    pub(super) fn opened(
        &self,
        node: &NodeId,
        actor: ActorNumber,
        generation: Generation,
        end: Option<Point>,
        at_ms: Option<u64>,
    ) -> Posts {
        let earlier = self.asleep.borrow_mut().remove(&actor);
        let mut posts = match end {
            Some(end) => Posts::opened(earlier, node.clone(), generation, end.txid, at_ms),
            None => Posts::new(node.clone(), generation),
        };
        if let Some(post) = self.noticed.borrow_mut().remove(&actor) {
            posts.noticed(post);
        }
        posts
    }

    /// The hold has ended.
    pub(super) fn closed(&self, actor: ActorNumber, posts: Posts) {
        if !posts.is_empty() {
            self.asleep.borrow_mut().insert(actor, posts);
        }
    }

    /// A sweep came across this entry of an actor that is not held.
    pub(super) fn notice(&self, actor: ActorNumber, post: Post) {
        self.noticed.borrow_mut().insert(actor, post);
    }
}
