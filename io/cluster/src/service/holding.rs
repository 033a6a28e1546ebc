//! What is taken is used or given up: a hold that nobody opens, runs or erases under would keep its actor from every
//! other node (R-OWN-1).

use std::{rc::Rc, time::Duration};

use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{ActorId, history::Point, limits::CLAIM_UNUSED_MAX, ownership::Denial};
use wasmkeep_replica::{HistoryError, Opened, Opening, TakeError, Taken};
use wasmkeep_runtime::Runtime;

use super::{ClusterService, Existence};

/// How often claims that nobody has used are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl<B: Bucket + Clone + 'static, R: Runtime> ClusterService<B, R> {
    /// Takes the actor without looking at its history. It is given up again unless it is being opened within
    /// [`CLAIM_UNUSED_MAX`].
    ///
    /// # Errors
    /// [`Denial`].
    pub async fn claim(self: &Rc<Self>, actor: &ActorId, fresh: bool) -> Result<u64, Denial> {
        self.wait_to_take(actor).await;
        let generation = self.ownership.take(actor, fresh).await?;
        self.note_claim(actor);
        Ok(generation)
    }

    /// Takes the actor and looks at its history (R-RST-1). It is given up again unless it
    /// [begins](ClusterService::begin), as soon as the opening is dropped.
    ///
    /// # Errors
    /// [`TakeError`].
    pub async fn take(self: &Rc<Self>, actor: &ActorId) -> Result<Taken, TakeError> {
        let opening = self.opening(actor);
        self.wait_to_take(actor).await;
        let folder = self.folder(actor);
        let taking = self.ownership.take_and_look(actor, false, || self.restorer.look(&folder));
        let (generation, history) = taking.await.map_err(TakeError::Denied)?;
        let history = history?;
        let end = history.end().unwrap_or(Point::START);
        let uploads = history.uploads_since_snapshot();
        self.looked.borrow_mut().put(actor.clone(), history);
        Ok(Taken { generation, end, uploads, opening })
    }

    /// Whether the actor exists. Nothing is taken, so asking for names that do not exist leaves nothing behind (R-ACC-1).
    ///
    /// # Errors
    /// The bucket does not say.
    pub async fn existence(&self, actor: &ActorId) -> Result<Existence, HistoryError> {
        if self.streams.borrow().contains_key(actor) || self.exists(actor).await? {
            return Ok(Existence::Sure);
        }
        match self.ownership.is_others(&self.buckets.durable, actor).await {
            Some(true) => Ok(Existence::Elsewhere),
            Some(false) => Ok(Existence::Not),
            None => Err(HistoryError::Silent),
        }
    }

    /// Whoever claimed the actor has no use for it: it is given up unless somebody else has.
    pub fn unused(&self, actor: &ActorId) {
        self.claimed.borrow_mut().remove(actor);
        self.give_up_unused(actor);
    }

    async fn wait_to_take(&self, actor: &ActorId) {
        loop {
            let wait = self.back_off.wait(actor, self.runtime.now());
            if wait.is_zero() || self.ownership.holds(actor) {
                return;
            }
            self.runtime.sleep(wait).await;
        }
    }

    fn note_claim(self: &Rc<Self>, actor: &ActorId) {
        let is_used = self.streams.borrow().contains_key(actor) || self.openings.borrow().contains_key(actor);
        if is_used {
            return;
        }
        let until = self.runtime.now() + CLAIM_UNUSED_MAX;
        self.claimed.borrow_mut().insert(actor.clone(), until);
        if !self.watching_claims.replace(true) {
            let service = Rc::clone(self);
            self.runtime.spawn(async move { service.watch_claims().await });
        }
    }

    async fn watch_claims(&self) {
        while !self.claimed.borrow().is_empty() {
            self.runtime.sleep(LOOK_EVERY).await;
            let now = self.runtime.now();
            let mut overdue: Vec<ActorId> = {
                let claimed = self.claimed.borrow();
                claimed.iter().filter(|(_, until)| **until <= now).map(|(actor, _)| actor.clone()).collect()
            };
            overdue.sort_unstable();
            for actor in overdue {
                self.unused(&actor);
            }
        }
        self.watching_claims.set(false);
    }

    /// Somebody begins to open the actor; when that ends is told by the value.
    fn opening(self: &Rc<Self>, actor: &ActorId) -> Opening {
        let (opening, ended) = Opening::new();
        let number = self.openings_begun.get() + 1;
        self.openings_begun.set(number);
        self.claimed.borrow_mut().remove(actor);
        self.openings.borrow_mut().entry(actor.clone()).or_default().push(number);
        let (service, actor) = (Rc::clone(self), actor.clone());
        self.runtime.spawn(async move {
            let opened = ended.await;
            service.opening_ended(&actor, number, opened);
        });
        opening
    }

    /// The last opening of the actor that is under way, which is the one that begins.
    pub(super) fn opening_under_way(&self, actor: &ActorId) -> Option<u64> {
        self.openings.borrow().get(actor)?.last().copied()
    }

    fn opening_ended(&self, actor: &ActorId, number: u64, opened: Opened) {
        {
            let mut openings = self.openings.borrow_mut();
            if let Some(numbers) = openings.get_mut(actor) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    openings.remove(actor);
                }
            }
        }
        if opened == Opened::GivenUp {
            // Begun for somebody who has left: nobody would ever end it.
            let is_orphan = self.streams.borrow().get(actor).is_some_and(|stream| stream.opening == number);
            if is_orphan {
                self.end_stream(actor);
            }
        }
        let is_open = self.openings.borrow().contains_key(actor) || self.streams.borrow().contains_key(actor);
        if !is_open {
            self.looked.borrow_mut().pop(actor);
            if opened == Opened::GivenUp && self.ownership.holds(actor) {
                self.back_off.failed(actor, self.runtime.now());
            }
            self.unused(actor);
        }
    }

    /// The actor begins to run.
    pub(super) fn begun(&self, actor: &ActorId) {
        self.looked.borrow_mut().pop(actor);
        self.claimed.borrow_mut().remove(actor);
        self.back_off.succeeded(actor);
    }

    /// Gives the actor up, unless it runs, is being opened, was claimed a moment ago, or its history is being erased.
    /// Whichever of these ends last comes here again.
    pub(super) fn give_up_unused(&self, actor: &ActorId) {
        let is_used = self.streams.borrow().contains_key(actor)
            || self.openings.borrow().contains_key(actor)
            || self.claimed.borrow().contains_key(actor)
            || self.erasing.borrow().contains_key(actor);
        if !is_used && self.ownership.holds(actor) {
            self.ownership.release(actor);
        }
    }

    /// Ends the uploads of an actor that was closed, and gives it up.
    pub fn finish(&self, actor: &ActorId) {
        self.end_stream(actor);
        self.give_up_unused(actor);
    }
}
