//! The bucket's side of the actors of a shard: every call is a job of the bucket core.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use wasmkeep_core::{BucketThreadRuntime, Gone, Lane};
use wasmkeep_protocol::{ActorId, history::Point, ownership::Denial};
use wasmkeep_replica::{BucketSide, Commit, Flags, GivenUp, Need, RestoreError, TakeError, Taken};
use wasmkeep_runtime::Runtime;

use super::Cluster;

impl BucketSide for Cluster {
    fn epoch(&self) -> Option<u64> {
        self.lease.epoch()
    }

    fn unix_ms(&self) -> u64 {
        BucketThreadRuntime.unix_ms()
    }

    async fn take(&self, actor: &ActorId) -> Result<Taken, TakeError> {
        let actor = actor.clone();
        let taken = self.core.run(Lane::Durable, async move |service| service.take(&actor).await).await;
        taken.unwrap_or(Err(TakeError::Denied(Denial::NotTaking)))
    }

    async fn rebuild(&self, actor: &ActorId, path: PathBuf) -> Result<(Point, u64), RestoreError> {
        let actor = actor.clone();
        let rebuilt =
            self.core.run(Lane::Restore, async move |service| service.rebuild(&actor, path).await).await;
        rebuilt.unwrap_or(Err(RestoreError::GivenUp))
    }

    async fn begin(
        &self,
        actor: &ActorId,
        generation: u64,
        at: Point,
        uploads: u64,
        alarm_ms: Option<u64>,
    ) -> Result<Arc<Flags>, GivenUp> {
        let actor = actor.clone();
        let begun = self.core.run(Lane::Durable, async move |service| {
            service.begin(&actor, generation, at, uploads, alarm_ms)
        });
        begun.await.unwrap_or(Err(GivenUp::Closed))
    }

    async fn settled(&self, actor: &ActorId, txid: u64, alarm_ms: Option<u64>) {
        let actor = actor.clone();
        // A core that is gone has no more use for it.
        let _ = self.core.post(Lane::Durable, move |service| service.settled(&actor, txid, alarm_ms)).await;
    }

    async fn push(&self, actor: &ActorId, commit: Commit, need: Need) -> Result<(), GivenUp> {
        let actor = actor.clone();
        let pushed = self.core.post(Lane::Durable, move |service| service.push_noted(&actor, commit, need));
        pushed.await.map_err(|Gone| GivenUp::Closed)
    }

    async fn landed(&self, actor: &ActorId, txid: u64, need: Need) -> Result<u64, GivenUp> {
        let actor = actor.clone();
        let landed =
            self.core.run(Lane::Durable, async move |service| service.landed(&actor, txid, need).await).await;
        landed.unwrap_or(Err(GivenUp::Closed))
    }

    async fn snapshot(&self, actor: &ActorId, at: Point, body: Bytes) -> Result<bool, GivenUp> {
        let actor = actor.clone();
        let sent =
            self.core.run(Lane::Upload, async move |service| service.snapshot(&actor, at, body).await).await;
        sent.unwrap_or(Err(GivenUp::Closed))
    }

    async fn finish(&self, actor: &ActorId) {
        let actor = actor.clone();
        // A core that is gone holds nothing.
        let _ = self.core.post(Lane::Durable, move |service| service.finish(&actor)).await;
    }

    async fn delete(&self, actor: &ActorId, to: Point) -> Result<(), GivenUp> {
        let actor = actor.clone();
        let deleted =
            self.core.run(Lane::Durable, async move |service| service.delete(&actor, to).await).await;
        deleted.unwrap_or(Err(GivenUp::Closed))
    }
}
