//! A node's sweeps of the overdue alarms in the bucket, carried out (R-ALM-1): lists them, and has each actor looked at
//! that `Sweep` of `protocol` says. Never believes an entry: whether an alarm is due is said by the actor's database.

use std::{convert::Infallible, future::pending, pin::pin, sync::Arc, time::Duration};

use futures::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use wasmkeep_bucket::{Bucket, Key, ListError};
use wasmkeep_protocol::{
    ActorId, NodeId, Tenant,
    alarm::{Due, Keeping, Listed, Outcome, Post, Sweep, Whose},
    clock::Moment,
    lease::Timing,
    limits::ALARM_SWEEP_EVERY,
    view::{Standing, View},
};
use wasmkeep_runtime::Runtime;

use crate::alarms::{forget, overdue, whose};

/// What a node is to its sweeps.
pub trait Looks {
    /// The cluster as this node sees it, while it may take actors.
    fn view(&self) -> Option<Arc<View>>;

    /// Ends when [`Looks::view`] is another than `seen`.
    fn view_after(&self, seen: Option<&Arc<View>>) -> impl Future<Output = ()>;

    /// Whether the actor is open here. Then its alarm is in this node's own timer, and an entry that it does not need
    /// is cleared away.
    fn is_here(&self, actor: &ActorId, post: &Post) -> bool;

    /// Whether this node holds the actor, open or not.
    fn holds(&self, actor: &ActorId) -> bool;

    /// Whether the bucket has data of the actor; `None` when it does not say.
    fn exists(&self, actor: &ActorId) -> impl Future<Output = Option<bool>>;

    /// Sends the actor the event of an alarm, because of this entry, taking it if nobody has it; whether it got there.
    fn ask(&self, actor: &ActorId, post: &Post) -> impl Future<Output = bool>;
}

/// The sweeps of one node.
#[derive(Debug)]
pub struct Sweeps<B, S, L> {
    bucket: B,
    runtime: S,
    looks: L,
    me: NodeId,
    tenant: Tenant,
    timing: Timing,
}

impl<B: Bucket, S: Runtime, L: Looks> Sweeps<B, S, L> {
    /// Of the node `me`. `bucket` is the way of listings.
    pub fn new(bucket: B, runtime: S, looks: L, me: NodeId, tenant: Tenant, timing: Timing) -> Self {
        Self { bucket, runtime, looks, me, tenant, timing }
    }

    /// Sweeps for as long as it is polled, `first` from now for the first time: nodes that start together had better
    /// not list together.
    pub async fn run(&self, first: Duration) -> Infallible {
        let (mut sweep, mut rest, mut under_way) = (Sweep::default(), None, FuturesUnordered::new());
        let mut list_at = self.runtime.now() + first;
        loop {
            let seen = self.looks.view();
            if seen.as_ref().is_some_and(|view| sweep.somebody_left(view)) {
                (list_at, rest) = (self.runtime.now(), None);
            }
            if self.runtime.now() >= list_at {
                list_at = self.runtime.now() + ALARM_SWEEP_EVERY;
                if let Some(view) = &seen
                    && let Err(error) = self.list(view, &mut sweep, &mut rest).await
                {
                    tracing::warn!("the alarms in the bucket could not be listed: {error}");
                }
            }
            while let Some(due) = sweep.next(self.runtime.unix_ms()) {
                under_way.push(self.look(due));
            }
            let time = pin!(self.until(list_at, sweep.next_ms()));
            let another_view = pin!(self.looks.view_after(seen.as_ref()));
            let time = select(time, another_view);
            let ended = pin!(async {
                match under_way.next().await {
                    Some(ended) => ended,
                    None => pending().await,
                }
            });
            if let Either::Left(((whose, outcome), _)) = select(ended, time).await {
                sweep.looked(&whose, outcome, self.moment());
            }
        }
    }

    /// Ends at the next listing, or when the next actor is to be looked at.
    async fn until(&self, list_at: Duration, next_ms: Option<u64>) {
        let list = list_at.saturating_sub(self.runtime.now());
        let now_ms = self.runtime.unix_ms();
        let look = next_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms)));
        self.runtime.sleep(look.map_or(list, |look| look.min(list))).await;
    }

    async fn list(&self, view: &View, sweep: &mut Sweep, rest: &mut Option<Key>) -> Result<(), ListError> {
        let now_ms = self.runtime.unix_ms();
        let (from, until_ms) = (rest.take(), Sweep::horizon_ms(now_ms));
        let is_first = from.is_none();
        let listed = overdue(&self.bucket, &self.runtime, &self.tenant, from, until_ms).await?;
        *rest = listed.rest;
        let keeping = Keeping { me: &self.me, view, timing: &self.timing, now: self.moment(), now_ms };
        sweep.take(keeping, is_first, listed.entries, rest.is_none());
        Ok(())
    }

    /// Has the actor of an entry asked whether its alarm is due.
    async fn look(&self, due: Due) -> (Whose, Outcome) {
        let outcome = match self.looked(&due.listed).await {
            true => Outcome::Looked,
            false => Outcome::NotNow,
        };
        (due.listed.whose, outcome)
    }

    async fn looked(&self, listed: &Listed) -> bool {
        let actor = match whose(&self.bucket, &self.runtime, &self.tenant, listed).await {
            Ok(Some(actor)) => actor,
            // Gone, or not ours.
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!("an alarm in the bucket could not be read: {error}");
                return false;
            }
        };
        if self.looks.is_here(&actor, &listed.post) {
            return true;
        }
        match self.looks.exists(&actor).await {
            Some(true) => self.looks.ask(&actor, &listed.post).await,
            Some(false) => {
                self.without_state(&actor, listed).await;
                false
            }
            None => false,
        }
    }

    /// An entry of an actor that was deleted, or whose first state never reached the bucket. It goes, unless a state
    /// that needs it may still be on its way.
    async fn without_state(&self, actor: &ActorId, listed: &Listed) {
        let node = &listed.post.node;
        let is_over = if *node == self.me {
            !self.looks.holds(actor)
        } else {
            self.looks.view().is_some_and(|view| view.standing(node, self.moment()) == Standing::Gone)
        };
        if is_over {
            // One that could not be deleted is listed again.
            let _ = forget(&self.bucket, &self.runtime, &self.tenant, listed).await;
        }
    }

    fn moment(&self) -> Moment {
        Moment::after_boot(self.runtime.now())
    }
}
