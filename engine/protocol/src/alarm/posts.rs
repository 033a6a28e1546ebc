//! What the owner of an actor knows of its entries in the bucket's index, and what it does about them (case A1).
//!
//! The rule: for every state of the actor that the bucket may come to call the latest, the bucket has an entry that is
//! due no later than that state's alarm. So an entry is put before a commit that needs it is sent, and one is deleted
//! only when neither the state that has landed nor one that may still land needs it. An entry too many costs one look
//! at the actor; what is deleted late, or not at all, is found by a sweep.
//!
//! Only entries this node put itself, in this hold or in the one right before it, are relied on one by one. Of those
//! of others it knows that there is one for the state it opened, and not which; it never deletes one of a later hold.
//! What a replaced owner sent and what lands when a later hold has begun was promised to nobody, nor was its alarm.

use std::collections::BTreeSet;

use super::Post;
use crate::NodeId;

/// When the alarm of a committed state wants attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Then, or later if it is not exact; never, when absent.
    pub at_ms: Option<u64>,
    /// What was committed is known, and not only what it may be at the earliest.
    pub is_exact: bool,
}

impl Outlook {
    /// The state says so.
    #[must_use]
    pub const fn exact(at_ms: Option<u64>) -> Self {
        Self { at_ms, is_exact: true }
    }

    /// The state says something that is no earlier than `at_ms`.
    #[must_use]
    pub const fn not_before(at_ms: Option<u64>) -> Self {
        Self { at_ms, is_exact: false }
    }
}

/// What brings the index in step with the state that has landed. Nothing waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tidy {
    /// Put this entry, then say [`Posts::posted`].
    Put(Post),
    /// List the actor's entries that are due at this time, then say [`Posts::found`].
    Find(u64),
    /// Say [`Posts::leaving`], delete this entry, then say [`Posts::gone`].
    Delete(Post),
}

/// One that somebody else put.
#[derive(Debug, Clone, Copy)]
struct Unseen {
    due_ms: u64,
    /// It may be relied on.
    covers: bool,
}

/// The entries of one actor, as its owner knows them.
#[derive(Debug, Clone)]
pub struct Posts {
    node: NodeId,
    generation: u64,
    /// In the bucket, and relied on.
    known: BTreeSet<Post>,
    /// Perhaps in the bucket, and relied on by nobody.
    strays: BTreeSet<Post>,
    unseen: Option<Unseen>,
    /// The state that has landed.
    txid: u64,
    landed: Outlook,
    /// Of states that were sent and may land.
    pending: Vec<Outlook>,
    /// What was found out of a state that has not landed.
    said: Option<(u64, Option<u64>)>,
}

impl Posts {
    /// For the hold `generation` of an actor without a history.
    #[must_use]
    pub fn new(node: NodeId, generation: u64) -> Self {
        let (known, strays, pending) = Default::default();
        let landed = Outlook::exact(None);
        Self { node, generation, known, strays, unseen: None, txid: 0, landed, pending, said: None }
    }

    /// For the hold `generation` of an actor that was opened at transaction `txid` with an alarm at `at_ms`. `earlier`
    /// is what this node knew when it held the actor last.
    #[must_use]
    pub fn opened(
        earlier: Option<Self>,
        node: NodeId,
        generation: u64,
        txid: u64,
        at_ms: Option<u64>,
    ) -> Self {
        let landed = Outlook::exact(at_ms);
        // Every take raises the generation by one: nobody had it meanwhile.
        match earlier.filter(|earlier| generation.wrapping_sub(earlier.generation) <= 1) {
            Some(earlier) => Self { generation, txid, landed, pending: Vec::new(), said: None, ..earlier },
            None => {
                let unseen = at_ms.map(|due_ms| Unseen { due_ms, covers: true });
                Self { unseen, txid, landed, ..Self::new(node, generation) }
            }
        }
    }

    /// Of the hold.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A state is about to be sent: the entry to put before, if it needs one that is not there.
    pub fn before(&mut self, txid: u64, outlook: Outlook) -> Option<Post> {
        if outlook != self.landed {
            self.pending.push(outlook);
        }
        let at_ms = outlook.at_ms?;
        let unseen = self.unseen.is_some_and(|unseen| unseen.covers && unseen.due_ms <= at_ms);
        (!unseen && self.cover(at_ms).is_none()).then(|| self.post(at_ms, txid))
    }

    /// This entry is in the bucket.
    pub fn posted(&mut self, post: Post) {
        self.strays.remove(&post);
        self.known.insert(post);
    }

    /// The state sent last is in the bucket, while the node held the actor.
    pub fn landed(&mut self, txid: u64, outlook: Outlook) {
        let said = self.said.take_if(|(of, _)| *of <= txid).filter(|(of, _)| *of == txid);
        (self.txid, self.landed) = (txid, said.map_or(outlook, |(_, at_ms)| Outlook::exact(at_ms)));
        // Whatever of this or an earlier hold lands now is not the latest.
        self.pending.clear();
    }

    /// What the state at `txid` says turns out to be this. It has landed, or will.
    pub fn settled(&mut self, txid: u64, at_ms: Option<u64>) {
        match self.txid == txid {
            true => self.landed = Outlook::exact(at_ms),
            false => self.said = Some((txid, at_ms)),
        }
    }

    /// A sweep listed this entry. It may be gone since.
    pub fn noticed(&mut self, post: Post) {
        let is_unseen = self.unseen.is_some_and(|unseen| unseen.due_ms == post.due_ms);
        // What this hold puts after a deletion is another's to know: the actor came back.
        let is_earlier = post.generation < self.generation
            || (post.generation == self.generation && post.txid <= self.txid);
        if is_earlier && !is_unseen && !self.known.contains(&post) {
            self.strays.insert(post);
        }
    }

    /// Answer to [`Tidy::Find`].
    pub fn found(&mut self, posts: impl IntoIterator<Item = Post>) {
        self.unseen = None;
        for post in posts {
            self.noticed(post);
        }
    }

    /// This entry is about to be deleted.
    pub fn leaving(&mut self, post: &Post) {
        self.known.remove(post);
        self.strays.insert(post.clone());
        // It may be the very one.
        if let Some(unseen) = self.unseen.as_mut().filter(|unseen| post.due_ms <= unseen.due_ms) {
            unseen.covers = false;
        }
    }

    /// It is deleted.
    pub fn gone(&mut self, post: &Post) {
        self.strays.remove(post);
    }

    /// What to do next about the index, if anything.
    #[must_use]
    pub fn tidy(&self) -> Option<Tidy> {
        if !self.landed.is_exact {
            return None;
        }
        if let Some(at_ms) = self.landed.at_ms
            && self.pending.is_empty()
            && self.cover(at_ms).is_none_or(|post| post.due_ms != at_ms)
            && (!self.strays.is_empty()
                || self.unseen.is_none_or(|unseen| !unseen.covers || unseen.due_ms != at_ms))
        {
            return Some(Tidy::Put(self.post(at_ms, self.txid)));
        }
        let wanted = || self.pending.iter().chain([&self.landed]).filter_map(|outlook| outlook.at_ms);
        let needed: Vec<_> = wanted().filter_map(|at_ms| self.cover(at_ms)).collect();
        if let Some(post) = self.known.iter().find(|post| !needed.contains(post)) {
            return Some(Tidy::Delete(post.clone()));
        }
        if needed.len() < wanted().count() {
            // One of somebody else's is relied on.
            return None;
        }
        let stray = self.strays.first().map(|post| Tidy::Delete(post.clone()));
        stray.or_else(|| self.unseen.map(|unseen| Tidy::Find(unseen.due_ms)))
    }

    /// Whether the next hold on this node gains by knowing this.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.strays.is_empty() && self.unseen.is_none()
    }

    /// The entry relied on for an alarm at `at_ms`: the latest that is not later.
    fn cover(&self, at_ms: u64) -> Option<&Post> {
        self.known.iter().rev().find(|post| post.due_ms <= at_ms)
    }

    fn post(&self, due_ms: u64, txid: u64) -> Post {
        Post { due_ms, generation: self.generation, txid, node: self.node.clone() }
    }
}

#[cfg(test)]
mod tests;
