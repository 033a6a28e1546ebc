//! What the node is to its sweeps of overdue alarms in the bucket (R-ALM-1): `replica` carries them out, the actors'
//! shards look.

use std::{future::poll_fn, rc::Rc, sync::Arc, task::Poll};

use wasmkeep_core::{BucketThreadRuntime, Lane};
use wasmkeep_protocol::{ActorId, alarm::Post, limits::ALARM_SWEEP_EVERY, view::View};
use wasmkeep_replica::{Looks, Sweeps};

use super::{Word, station::Station};

/// A station, as its sweeps see it.
struct Sweeping(Rc<Station>);

impl Looks for Sweeping {
    fn view(&self) -> Option<Arc<View>> {
        self.0.plan.lease.epoch().map(|_| self.0.plan.view.load_full())
    }

    async fn view_after(&self, seen: Option<&Arc<View>>) {
        poll_fn(|cx| {
            let is_same = match (self.view(), seen) {
                (Some(now), Some(seen)) => Arc::ptr_eq(&now, seen),
                (now, seen) => now.is_none() && seen.is_none(),
            };
            if !is_same {
                return Poll::Ready(());
            }
            self.0.viewing.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn is_here(&self, actor: &ActorId, post: &Post) -> bool {
        let stream = self.0.stream(actor);
        stream.is_ok_and(|stream| {
            stream.uploader.noticed(post.clone());
            true
        })
    }

    fn holds(&self, actor: &ActorId) -> bool {
        self.0.holds.generation(actor).is_some()
    }

    async fn exists(&self, actor: &ActorId) -> Option<bool> {
        self.0.exists(actor).await.ok()
    }

    async fn ask(&self, actor: &ActorId, post: &Post) -> bool {
        let Self(station) = self;
        station.entries.notice(actor, post);
        let (answer, answered) = flume::bounded(1);
        (station.plan.tell)(Word::Look(actor.clone(), answer));
        let asked = answered.recv_async().await.unwrap_or(false);
        station.entries.unnotice(actor);
        asked
    }
}

impl Station {
    /// Sweeps for as long as it is polled.
    pub(super) async fn sweep(self: Rc<Self>) {
        let way = self.way.on(Lane::Housekeeping);
        let (node, tenant) = (self.plan.identity.node.clone(), self.plan.tenant.clone());
        let timing = self.plan.timing;
        let sweeps = Sweeps::new(way, BucketThreadRuntime, Sweeping(self), node, tenant, timing);
        sweeps.run(ALARM_SWEEP_EVERY.mul_f64(rand::random())).await;
    }
}
