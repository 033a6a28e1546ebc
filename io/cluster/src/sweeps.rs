//! What the service is to its sweeps of overdue alarms in the bucket (R-ALM-1): `replica` carries them out, the actors'
//! shards look.

use std::{convert::Infallible, future::poll_fn, rc::Rc, sync::Arc, task::Poll};

use futures::channel::oneshot;
use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{ActorId, alarm::Post, limits::ALARM_SWEEP_EVERY, view::View};
use wasmkeep_replica::{Looks, Sweeps};
use wasmkeep_runtime::Runtime;

use crate::service::{ClusterEvent, ClusterService};

/// A service, as its sweeps see it.
struct Sweeping<B: Bucket, R: Runtime>(Rc<ClusterService<B, R>>);

impl<B: Bucket + Clone + 'static, R: Runtime> Looks for Sweeping<B, R> {
    fn view(&self) -> Option<Arc<View>> {
        self.0.lease().map(|_| self.0.view())
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
        self.0.noticed(actor, post.clone())
    }

    fn holds(&self, actor: &ActorId) -> bool {
        self.0.generation(actor).is_some()
    }

    async fn exists(&self, actor: &ActorId) -> Option<bool> {
        self.0.exists(actor).await.ok()
    }

    async fn ask(&self, actor: &ActorId, post: &Post) -> bool {
        let Self(service) = self;
        service.entries.notice(actor, post);
        let (answer, answered) = oneshot::channel();
        service.notify(ClusterEvent::Look(actor.clone(), answer));
        let asked = answered.await.unwrap_or(false);
        service.entries.unnotice(actor);
        asked
    }
}

impl<B: Bucket + Clone + 'static, R: Runtime> ClusterService<B, R> {
    /// Sweeps for as long as it is polled.
    pub(crate) async fn sweep(self: &Rc<Self>) -> Infallible {
        let (bucket, runtime) = (self.buckets.housekeeping.clone(), self.runtime.clone());
        let (node, tenant) = (self.config.identity.node.clone(), self.config.tenant.clone());
        let part = f64::from(self.runtime.random() as u32) / f64::from(u32::MAX);
        let sweeps =
            Sweeps::new(bucket, runtime, Sweeping(Rc::clone(self)), node, tenant, self.config.timing);
        sweeps.run(ALARM_SWEEP_EVERY.mul_f64(part)).await
    }
}
