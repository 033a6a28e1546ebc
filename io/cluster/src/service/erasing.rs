//! The passes over actors' histories in the bucket: what a snapshot made unnecessary is deleted (R-HIST-1), and all that
//! a deletion did (R-DEL-1).

use std::{cell::RefCell, collections::HashSet, rc::Rc};

use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{
    ActorId,
    alarm::Outlook,
    history::{HistoryFile, Point},
    limits::{ERASE_PAUSES, HISTORY_PASSES_MAX},
};
use wasmkeep_replica::{CollectError, Commit, Content, GivenUp, Need, Turns, collect, erase};
use wasmkeep_runtime::Runtime;

use super::{ClusterEvent, ClusterService, Stream};

/// A recorded deletion whose history is still there.
pub(super) struct Erasure<B: Bucket, R: Runtime> {
    /// The uploads that recorded it, which have ended.
    stream: Rc<Stream<B, R>>,
    /// The file that says so.
    deletion: HistoryFile,
}

/// The passes under way: [`HISTORY_PASSES_MAX`] on a node, and one for an actor.
pub(super) struct Passes {
    turns: Turns,
    collecting: RefCell<HashSet<ActorId>>,
}

impl Default for Passes {
    fn default() -> Self {
        Self { turns: Turns::new(HISTORY_PASSES_MAX), collecting: RefCell::default() }
    }
}

impl<B: Bucket + Clone + 'static, R: Runtime> ClusterService<B, R> {
    /// Deletes what a snapshot of the hold `generation` made unnecessary, in the background. While a pass over the
    /// actor's history is under way no second one begins: the next snapshot's finds what is left.
    pub(super) fn collect(self: &Rc<Self>, actor: &ActorId, generation: u64) {
        let is_new = !self.erasing.borrow().contains_key(actor)
            && self.passes.collecting.borrow_mut().insert(actor.clone());
        if !is_new {
            return;
        }
        let (service, actor) = (Rc::clone(self), actor.clone());
        self.runtime.spawn(async move {
            let turn = service.passes.turns.take().await;
            let (bucket, runtime) = (&service.buckets.housekeeping, &service.runtime);
            let (folder, held) = (service.folder(&actor), service.held(&actor, generation));
            let retention = service.config.retention;
            let pass = collect(bucket, runtime, &folder, generation, retention, &held).await;
            drop(turn);
            if let Err(error) = &pass {
                tracing::warn!(folder, %error, "collecting history ended early; the next snapshot tries again");
            }
            service.collected(&pass);
            service.passes.collecting.borrow_mut().remove(&actor);
        });
    }

    fn collected(&self, pass: &Result<u64, CollectError>) {
        self.notify(match pass {
            Ok(deleted) => ClusterEvent::Collected { deleted: *deleted, failed: false },
            Err(error) => ClusterEvent::Collected { deleted: error.deleted(), failed: true },
        });
    }

    /// Records that the actor was deleted, as the transaction that leads to `to`, erases its history in the background
    /// and gives it up once that has ended, unless it has come back (R-DEL-1).
    ///
    /// # Errors
    /// [`GivenUp`]: it may or may not be recorded.
    pub async fn delete(self: &Rc<Self>, actor: &ActorId, to: Point) -> Result<(), GivenUp> {
        let Ok(stream) = self.stream(actor) else {
            self.give_up_unused(actor);
            return Err(GivenUp::Closed);
        };
        let alarm = Outlook::exact(None);
        let mut ended = stream.uploader.push(Commit { to, content: Content::Deleted, alarm });
        if ended.is_ok() {
            ended = stream.uploader.landed(to.txid, Need::Durable).await;
        }
        // Before the history is erased: the actor may come back meanwhile, with uploads of its own.
        if self.is_current(actor, &stream) {
            self.end_stream(actor);
            self.entries.deleted(actor);
        }
        if ended.is_ok() {
            let deletion = HistoryFile::deletion(stream.generation, to.txid);
            self.erase(actor, Erasure { stream, deletion });
        } else {
            self.give_up_unused(actor);
        }
        ended
    }

    fn erase(self: &Rc<Self>, actor: &ActorId, erasure: Erasure<B, R>) {
        let mut erasing = self.erasing.borrow_mut();
        if let Some(more) = erasing.get_mut(actor) {
            return more.push(erasure);
        }
        erasing.insert(actor.clone(), vec![erasure]);
        let (service, actor) = (Rc::clone(self), actor.clone());
        self.runtime.spawn(async move { service.erase_all(&actor).await });
    }

    async fn erase_all(&self, actor: &ActorId) {
        loop {
            let erasures = self.erasing.borrow_mut().get_mut(actor).map(std::mem::take).unwrap_or_default();
            // The last deletion covers what is before it.
            let Some(last) = erasures.last() else { break };
            self.erase_one(actor, last).await;
            for Erasure { stream, .. } in &erasures {
                stream.uploader.clear_up().await;
            }
        }
        self.erasing.borrow_mut().remove(actor);
        self.give_up_unused(actor);
    }

    /// Tries again a few times, while the hold that recorded the deletion stands.
    async fn erase_one(&self, actor: &ActorId, erasure: &Erasure<B, R>) {
        let Erasure { stream, deletion } = erasure;
        let (held, folder) = (self.held(actor, stream.generation), self.folder(actor));
        let mut pauses = ERASE_PAUSES.into_iter();
        loop {
            let turn = self.passes.turns.take().await;
            let pass = erase(&self.buckets.housekeeping, &self.runtime, &folder, deletion, &held).await;
            drop(turn);
            self.collected(&pass);
            let Err(error) = pass else { return };
            let lost = matches!(error, CollectError::NotHeld(_));
            let Some(pause) = pauses.next().filter(|_| !lost) else {
                tracing::warn!(folder, %error,
                    "the history of a deleted actor stays in the bucket until the actor writes again");
                return;
            };
            tracing::warn!(folder, %error, "erasing the history of a deleted actor: trying again in {pause:?}");
            self.runtime.sleep(pause).await;
        }
    }
}
