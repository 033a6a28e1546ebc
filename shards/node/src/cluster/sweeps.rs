//! The node's sweeps of the overdue alarms in the bucket (R-ALM-1). `protocol` decides which actors are looked at and
//! when; this lists them, and has each looked at by its shard.

use std::{convert::Infallible, pin::pin, rc::Rc, time::Duration};

use futures::{
    StreamExt,
    channel::mpsc,
    future::{Either, select},
};
use wasmkeep_bucket::{Key, ListError};
use wasmkeep_core::{Lane, OnThread};
use wasmkeep_protocol::{
    ActorId,
    alarm::{Due, Keeping, Listed, Outcome, Sweep, Whose},
    clock::Moment,
    limits::ALARM_SWEEP_EVERY,
    view,
};
use wasmkeep_replica::{Surroundings, forget, overdue, whose};

use super::{Word, station::Station};

/// A look that has ended.
type Looked = (Whose, Outcome);

impl Station {
    /// Sweeps for as long as it is polled, and has what is due looked at.
    pub(super) async fn sweep(self: Rc<Self>) -> Infallible {
        let mut sweep = Sweep::default();
        let mut rest = None;
        let (ended, mut looks) = mpsc::unbounded::<Looked>();
        // Nodes that start together do not list together.
        let mut list_at = OnThread.now() + ALARM_SWEEP_EVERY.mul_f64(rand::random());
        loop {
            if OnThread.now() >= list_at {
                list_at = OnThread.now() + ALARM_SWEEP_EVERY;
                if self.plan.lease.epoch().is_some()
                    && let Err(error) = self.list(&mut sweep, &mut rest).await
                {
                    tracing::warn!("the alarms in the bucket could not be listed: {error}");
                }
            }
            while let Some(due) = sweep.next(OnThread.unix_ms()) {
                let (station, ended) = (Rc::clone(&self), ended.clone());
                tokio::task::spawn_local(async move {
                    let outcome = station.look(&due).await;
                    // A sweeper that is gone needs none.
                    let _ = ended.unbounded_send((due.listed.whose, outcome));
                });
            }
            let time = pin!(self.until(list_at, sweep.next_ms()));
            if let Either::Left((Some((whose, outcome)), _)) = select(looks.next(), time).await {
                sweep.looked(&whose, outcome, moment());
            }
        }
    }

    /// Ends at the next listing, or when the next actor is to be looked at.
    async fn until(&self, list_at: Duration, next_ms: Option<u64>) {
        let look = next_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(OnThread.unix_ms())));
        let list = list_at.saturating_sub(OnThread.now());
        OnThread.sleep(look.map_or(list, |look| look.min(list))).await;
    }

    async fn list(&self, sweep: &mut Sweep, rest: &mut Option<Key>) -> Result<(), ListError> {
        let (way, now_ms) = (self.way.on(Lane::Housekeeping), OnThread.unix_ms());
        let from = rest.take();
        let is_first = from.is_none();
        let listed = overdue(&way, &OnThread, &self.plan.tenant, from, Sweep::horizon_ms(now_ms)).await?;
        if is_first {
            sweep.begin();
        }
        let view = self.plan.view.load_full();
        let keeping = Keeping {
            me: &self.plan.identity.node,
            view: &view,
            timing: &self.plan.timing,
            now: moment(),
            now_ms,
        };
        for entry in listed.entries {
            sweep.listed(keeping, entry);
        }
        *rest = listed.rest;
        if rest.is_none() {
            sweep.ended();
        }
        Ok(())
    }

    /// Has the actor of an entry asked whether its alarm is due.
    async fn look(&self, due: &Due) -> Outcome {
        let Listed { post, .. } = &due.listed;
        let way = self.way.on(Lane::Housekeeping);
        let actor = match whose(&way, &OnThread, &self.plan.tenant, &due.listed).await {
            Ok(Some(actor)) => actor,
            // Gone, or not ours: nothing to look at.
            Ok(None) => return Outcome::NotNow,
            Err(error) => {
                tracing::warn!("an alarm in the bucket could not be read: {error}");
                return Outcome::NotNow;
            }
        };
        if let Ok(stream) = self.stream(&actor) {
            // It is here, and its alarm in its shard's book. What its database does not need is cleared away.
            stream.uploader.noticed(post.clone());
            return Outcome::Looked;
        }
        match self.exists(&actor).await {
            Ok(true) => {}
            Ok(false) => return self.without_state(&actor, &due.listed).await,
            Err(_) => return Outcome::NotNow,
        }
        self.entries.notice(&actor, post);
        let (answer, answered) = flume::bounded(1);
        (self.plan.tell)(Word::Look(actor.clone(), answer));
        let taken = answered.recv_async().await.unwrap_or(false);
        self.entries.unnotice(&actor);
        if taken { Outcome::Looked } else { Outcome::NotNow }
    }

    /// An entry of an actor that was deleted, or whose first state never reached the bucket. It goes, unless a state
    /// that needs it may still be on its way.
    async fn without_state(&self, actor: &ActorId, listed: &Listed) -> Outcome {
        let node = &listed.post.node;
        let is_over = if *node == self.plan.identity.node {
            self.holds.generation(actor).is_none()
        } else {
            self.plan.view.load().standing(node, moment()) == view::Standing::Gone
        };
        if is_over {
            let way = self.way.on(Lane::Housekeeping);
            // One that could not be deleted is listed again.
            let _ = forget(&way, &OnThread, &self.plan.tenant, listed).await;
        }
        Outcome::NotNow
    }
}

fn moment() -> Moment {
    Moment::after_boot(OnThread.now())
}
