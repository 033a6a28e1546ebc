//! One open actor's way to the bucket, as its shard sees it: the session of `replica` with the actor's gate, and what of
//! it is an answer, a metric or a line in the log.

use std::{path::Path, rc::Rc};

use wasmkeep_actor::{Refusal, alarm::Book};
use wasmkeep_protocol::{ActorId, durability::Durability, ownership::Denial};
use wasmkeep_replica::{GivenUp, Guest, Session, SessionConfig, SessionError, Snapshot, TakeError};
use wasmkeep_storage::{Config, Database, Error};

use super::gate::Gate;
use crate::{
    cluster::{Cluster, LeaseToken},
    metrics::ClusterMetrics,
    runtime::OffloadPool,
};

/// An open actor's way to the bucket.
pub(crate) struct Replica {
    session: Rc<Session<Cluster>>,
    metrics: ClusterMetrics,
    /// It was opened under.
    lease: LeaseToken,
    /// What the actor says waits here, if its class asks for it.
    gate: Option<Rc<Gate>>,
}

/// What actors are opened with.
pub(super) struct Means<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) offload: &'a Rc<OffloadPool>,
    pub(super) config: &'a Config,
    pub(super) metrics: &'a ClusterMetrics,
    pub(super) book: &'a Rc<Book>,
}

/// Takes the actor and opens its latest state (R-OWN-1, R-RST-1, R-REPL-5).
pub(super) async fn open(
    means: Means<'_>,
    actor: &ActorId,
    path: &Path,
    durability: Durability,
) -> Result<(Database, Rc<Replica>), Refusal> {
    let Means { cluster, offload, config, metrics, book } = means;
    // Before it is taken: on a later lease it would have to be taken again.
    let lease = cluster.lease.token().ok_or_else(no_lease)?;
    let is_gated = durability == Durability::Gate;
    let booked_ms = {
        let (book, actor) = (Rc::clone(book), actor.clone());
        Rc::new(move || book.wake(&actor).map(|wake| wake.at_ms))
    };
    let offload = Rc::clone(offload) as Rc<dyn wasmkeep_storage::Offload>;
    let upload_budget = cluster.uploads.clone();
    let config = SessionConfig { offload, storage: config, is_gated, booked_ms, upload_budget };
    match Session::open(cluster, config, actor, path).await {
        Ok((database, session)) => {
            let gate = is_gated.then(|| Gate::new(session.taken().txid));
            Ok((database, Rc::new(Replica { session, metrics: metrics.clone(), lease, gate })))
        }
        Err(error) => {
            if matches!(error, SessionError::Take(TakeError::Denied(Denial::Owned(_)))) {
                // Its owner keeps the alarm; should that be gone, a sweep comes across it (R-ALM-1).
                book.forget(actor);
            }
            if let SessionError::Restore(error) = &error {
                tracing::error!(class = %actor.class, name = %actor.name, "restore: {error}");
                metrics.restore_failures.inc();
            }
            Err(refused(error))
        }
    }
}

fn refused(error: SessionError) -> Refusal {
    match error {
        SessionError::NoLease => no_lease(),
        error @ SessionError::NotHeld => Refusal::NotHeld(error.to_string()),
        SessionError::Take(error) => refused_take(error),
        SessionError::Restore(error) if error.is_lossy() => Refusal::Damaged(error.to_string()),
        SessionError::Restore(_) => {
            Refusal::Unavailable("the actor could not be restored from the bucket".into())
        }
        SessionError::Open(error) => Refusal::from(&error),
        SessionError::Unreadable(error) if error.is_damage() => Refusal::Damaged(error.to_string()),
        SessionError::Unreadable(error) => Refusal::Storage(error.to_string()),
        error @ SessionError::NotTheHistory => Refusal::Damaged(error.to_string()),
    }
}

fn no_lease() -> Refusal {
    Refusal::NotHeld("this node cannot reach the cluster's bucket".into())
}

fn refused_take(error: TakeError) -> Refusal {
    match error {
        TakeError::Denied(Denial::NoLease) => no_lease(),
        TakeError::Denied(Denial::Unreadable(error)) => {
            Refusal::Damaged(format!("its ownership record cannot be read: {error}"))
        }
        TakeError::Denied(Denial::BucketSilent) => {
            Refusal::Unavailable("the cluster's bucket did not answer".into())
        }
        TakeError::Denied(Denial::NotTaking) => Refusal::Stopping,
        TakeError::Denied(Denial::Owned(_)) => Refusal::NotHeld("the actor is on another node".into()),
        TakeError::History(error) if !error.passes() => Refusal::Damaged(error.to_string()),
        TakeError::History(error) => {
            Refusal::Unavailable(format!("the actor's history could not be read: {error}"))
        }
    }
}

impl Replica {
    /// Of this hold.
    pub(crate) fn generation(&self) -> u64 {
        self.session.generation()
    }

    /// The lease it was opened under.
    pub(crate) fn lease(&self) -> &LeaseToken {
        &self.lease
    }

    /// Whether events of the actor may run (R-LEASE-2, R-REPL-4).
    pub(crate) fn stands(&self) -> bool {
        self.session.stands() && self.lease.is_valid()
    }

    /// Sends what was committed on its way, and the snapshot that is due (R-REPL-1).
    pub(crate) async fn replicate(&self, database: &Database) -> Result<(), String> {
        let told = |txid| {
            if let Some(gate) = &self.gate {
                gate.event_ended(txid);
            }
        };
        if self.session.replicate(database, told).await? == Snapshot::Failed {
            self.metrics.snapshot_failures.inc();
        }
        Ok(())
    }

    /// The actor's gate, if it has one.
    pub(crate) fn gate(&self) -> Option<&Rc<Gate>> {
        self.gate.as_ref()
    }

    /// Hands what was committed to the bucket core; the transaction it leads to.
    pub(super) async fn hand_over(&self, database: &Database, guest: Guest) -> Result<u64, Error> {
        self.session.hand_over(database, guest).await
    }

    /// Whether what is committed next goes to the bucket as a whole database, which no open transaction allows.
    pub(super) fn needs_whole(&self) -> bool {
        self.session.needs_whole()
    }

    /// Waits until `txid` is in the bucket; the last transaction that is.
    pub(super) async fn landed(&self, txid: u64) -> Result<u64, GivenUp> {
        self.session.landed(txid).await
    }

    /// The database is about to be closed: waits until all of it is in the bucket. Whether it is.
    pub(crate) async fn settle(&self, database: &Database) -> bool {
        self.session.settle(database).await
    }

    /// Ends its uploads and gives the actor up.
    pub(crate) async fn finish(&self) {
        self.session.finish().await;
    }

    /// Records the deletion (R-DEL-1).
    pub(crate) async fn delete(&self) -> Result<(), GivenUp> {
        self.session.delete().await
    }
}
