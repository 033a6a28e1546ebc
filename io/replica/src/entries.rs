//! What the node remembers of alarms in the bucket while their actors sleep, so that the next hold need not list them.

use std::{cell::RefCell, collections::HashMap, num::NonZeroUsize};

use lru::LruCache;
use wasmkeep_protocol::{
    ActorId, NodeId,
    alarm::{Post, Posts},
    history::Point,
};

/// Sleeping actors whose entries are remembered one by one. Of others they are listed when they matter.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(64 << 10).expect("it is not zero");

/// See the module.
#[derive(Debug)]
pub struct Entries {
    node: NodeId,
    asleep: RefCell<LruCache<ActorId, Posts>>,
    /// Because of which actors are looked at now.
    noticed: RefCell<HashMap<ActorId, Post>>,
}

impl Entries {
    /// Of this node; nothing is known.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self { node, asleep: RefCell::new(LruCache::new(REMEMBERED_MAX)), noticed: RefCell::default() }
    }

    /// For the hold of an actor that was opened at `at` with an alarm at `alarm_ms`.
    pub fn opened(&self, actor: &ActorId, generation: u64, at: Point, alarm_ms: Option<u64>) -> Posts {
        let earlier = self.asleep.borrow_mut().pop(actor);
        let node = self.node.clone();
        let mut posts = match at.is_empty() {
            // Whatever alarm there is, it was never in the bucket.
            true => Posts::new(node, generation),
            false => Posts::opened(earlier, node, generation, at.txid, alarm_ms),
        };
        if let Some(post) = self.noticed.borrow_mut().remove(actor) {
            posts.noticed(post);
        }
        posts
    }

    /// The hold has ended.
    pub fn closed(&self, actor: &ActorId, posts: Posts) {
        if !posts.is_empty() {
            self.asleep.borrow_mut().put(actor.clone(), posts);
        }
    }

    /// The actor was deleted: what there is of it is cleared away, and nobody may rely on it.
    pub fn deleted(&self, actor: &ActorId) {
        self.asleep.borrow_mut().pop(actor);
    }

    /// The actor is about to be looked at because of this entry: should it not need it, it clears it away.
    pub fn notice(&self, actor: &ActorId, post: &Post) {
        self.noticed.borrow_mut().insert(actor.clone(), post.clone());
    }

    /// The look has ended.
    pub fn unnotice(&self, actor: &ActorId) {
        self.noticed.borrow_mut().remove(actor);
    }
}
