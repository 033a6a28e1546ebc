//! One actor's data between its database here and its history in the bucket, as its shard sees it.
//!
//! Opens the latest state, turns commits into what is uploaded, and lets durable writes wait for the bucket. The
//! bucket core carries everything out; nothing here blocks a shard.

use std::{
    cell::Cell,
    future::Future,
    path::Path,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use futures::lock::Mutex;
use wasmkeep_actor::{Refusal, alarm::Book};
use wasmkeep_core::BucketThreadRuntime;
use wasmkeep_protocol::{ActorId, alarm::Outlook, durability::Durability, history::Point, ownership::Denial};
use wasmkeep_replica::{Commit, Content, GivenUp, Need};
use wasmkeep_runtime::Runtime;
use wasmkeep_storage::{CommitSink, Config, Database, Error, OpenError};

use super::gate::Gate;
use crate::{
    cluster::{Cluster, Flags, TakeError},
    metrics::ClusterMetrics,
    runtime::OffloadPool,
};

/// An open actor's way to the bucket.
pub(crate) struct Replica {
    cluster: Cluster,
    actor: ActorId,
    generation: u64,
    /// Of the lease it was opened under.
    epoch: u64,
    /// What has been handed to the bucket core leads to this.
    taken: Cell<Point>,
    /// The database has data that no history leads to, from before there was any: all of it has to go.
    seeds: Cell<bool>,
    flags: Arc<Flags>,
    offload: Rc<OffloadPool>,
    metrics: ClusterMetrics,
    /// Held while commits are read and handed over: two at once would mix up their order.
    handing_over: Mutex<()>,
    book: Rc<Book>,
    /// What was handed over last does not say for certain when the alarm is due.
    is_vague: Cell<bool>,
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
    let Some(epoch) = cluster.lease.epoch() else { return Err(no_lease()) };
    let taken = cluster.take(actor).await.map_err(|error| {
        if matches!(error, TakeError::Denied(Denial::Owned(_))) {
            // Its owner keeps the alarm; should that be gone, a sweep comes across it (R-ALM-1).
            book.forget(actor);
        }
        refused_take(error)
    })?;
    let here = local(offload, path, config, taken.end).await?;
    let (database, at, uploads, seeds) = match here {
        Some(Current { database, seeds }) => (database, taken.end, taken.uploads, seeds),
        None => {
            let rebuilt = cluster.rebuild(actor, path.to_owned()).await;
            let (at, uploads) = rebuilt.map_err(|error| {
                tracing::error!(class = %actor.class, name = %actor.name, "restore: {error}");
                metrics.restore_failures.inc();
                match error.is_lossy() {
                    true => Refusal::Damaged(error.to_string()),
                    false => Refusal::NotHeld("the actor could not be restored from the bucket".into()),
                }
            })?;
            let database = Database::open_on(&**offload, path, config).await.map_err(cannot_open)?;
            let checksum = database.begin_capture(&**offload).await.map_err(unreadable)?;
            if !at.is_empty() && checksum.get() != at.checksum {
                return Err(Refusal::Damaged("the restored database is not what its history says".into()));
            }
            (database, at, uploads, false)
        }
    };
    let alarm_ms = alarm_ms(&database).map_err(unreadable)?;
    let begun = cluster.begin(actor, taken.generation, at, uploads, alarm_ms).await;
    let flags = begun.map_err(|_| no_lease())?;
    let replica = Replica {
        cluster: cluster.clone(),
        actor: actor.clone(),
        generation: taken.generation,
        epoch,
        taken: Cell::new(at),
        seeds: Cell::new(seeds),
        flags,
        offload: Rc::clone(offload),
        metrics: metrics.clone(),
        handing_over: Mutex::new(()),
        book: Rc::clone(book),
        is_vague: Cell::new(false),
        gate: (durability == Durability::Gate).then(|| Gate::new(at.txid)),
    };
    let replica = Rc::new(replica);
    database.set_sink(Rc::clone(&replica) as Rc<dyn CommitSink>);
    Ok((database, replica))
}

/// Whether the guest may change the database while what it committed is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    /// It may; a transaction of its own may be open.
    Running,
    /// Its event has ended, or it waits for the commit.
    Idle,
}

/// What the local disk has of the state that the history ends with or, without a history, whatever there is.
struct Current {
    database: Database,
    seeds: bool,
}

/// `None`: something else, or nothing.
async fn local(
    offload: &Rc<OffloadPool>,
    path: &Path,
    config: &Config,
    end: Point,
) -> Result<Option<Current>, Refusal> {
    let file = path.to_owned();
    let exists = offload.run(move || file.exists()).await.unwrap_or(false);
    let has_history = end != Point::START;
    if has_history && (end.is_empty() || !exists) {
        return Ok(None);
    }
    let database = match Database::open_on(&**offload, path, config).await {
        Ok(database) => database,
        // The bucket has the durable copy: a local file that cannot be read is replaced like an old one.
        Err(OpenError::Damaged { .. }) if has_history => return Ok(None),
        Err(error) => return Err(cannot_open(error)),
    };
    match database.begin_capture(&**offload).await {
        Ok(_) if !has_history => Ok(Some(Current { database, seeds: exists })),
        Ok(checksum) if checksum.get() == end.checksum => Ok(Some(Current { database, seeds: false })),
        Ok(_) => {
            database.close(&**offload).await;
            Ok(None)
        }
        Err(error) if !has_history => Err(unreadable(error)),
        Err(_) => Ok(None),
    }
}

fn no_lease() -> Refusal {
    Refusal::NotHeld("this node cannot reach the cluster's bucket".into())
}

fn cannot_open(error: OpenError) -> Refusal {
    match error {
        OpenError::Damaged { .. } => Refusal::Damaged(error.to_string()),
        _ => Refusal::Storage(error.to_string()),
    }
}

fn alarm_ms(database: &Database) -> Result<Option<u64>, Error> {
    Ok(database.alarm()?.wake().map(|wake| wake.at_ms))
}

fn unreadable(error: Error) -> Refusal {
    Refusal::Storage(error.to_string())
}

fn refused_take(error: TakeError) -> Refusal {
    match error {
        TakeError::Denied(Denial::NoLease) => no_lease(),
        TakeError::Denied(Denial::Unreadable(error)) => {
            Refusal::Damaged(format!("its ownership record cannot be read: {error}"))
        }
        TakeError::Denied(Denial::BucketSilent) => {
            Refusal::NotHeld("the cluster's bucket did not answer".into())
        }
        TakeError::Denied(Denial::NotTaking) => Refusal::NotHeld("this node takes no actors".into()),
        TakeError::Denied(Denial::Owned(_)) => Refusal::NotHeld("the actor is on another node".into()),
        TakeError::History(error) if !error.passes() => Refusal::Damaged(error.to_string()),
        TakeError::History(error) => {
            Refusal::NotHeld(format!("the actor's history could not be read: {error}"))
        }
    }
}

impl Replica {
    /// Of this hold.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether events of the actor may run (R-LEASE-2, R-REPL-4).
    pub(crate) fn stands(&self) -> bool {
        !self.flags.ended.load(Ordering::Acquire) && self.cluster.lease.epoch() == Some(self.epoch)
    }

    /// Sends what was committed on its way, and the snapshot that is due (R-REPL-1).
    pub(crate) async fn replicate(&self, database: &Database) -> Result<(), String> {
        if !self.stands() {
            return Err("the actor is no longer this node's".into());
        }
        let txid = self.hand_over(database, Guest::Idle).await.map_err(|error| error.to_string())?;
        if let Some(gate) = &self.gate {
            gate.event_ended(txid);
        }
        if self.flags.snapshot_due.load(Ordering::Acquire) {
            self.snapshot(database).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The actor's gate, if it has one.
    pub(crate) fn gate(&self) -> Option<&Rc<Gate>> {
        self.gate.as_ref()
    }

    /// Hands what was committed to the bucket core; the transaction it leads to.
    pub(super) async fn hand_over(&self, database: &Database, guest: Guest) -> Result<u64, Error> {
        let _alone = self.handing_over.lock().await;
        if let Some(commit) = self.next_commit(database, guest).await? {
            let need = if self.gate.is_some() { Need::Durable } else { Need::Replicated };
            let pushed = self.cluster.push(&self.actor, commit, need).await;
            pushed.map_err(|error| Error::NotDurable(error.to_string()))?;
        }
        Ok(self.taken.get().txid)
    }

    /// Whether what is committed next goes to the bucket as a whole database, which no open transaction allows.
    pub(super) fn needs_whole(&self) -> bool {
        self.taken.get().is_empty()
    }

    /// Waits until `txid` is in the bucket; the last transaction that is.
    pub(super) async fn landed(&self, txid: u64) -> Result<u64, GivenUp> {
        self.cluster.landed(&self.actor, None, txid, Need::Durable).await
    }

    /// The actor is held meanwhile; a snapshot that fails costs no write (R-REPL-3).
    async fn snapshot(&self, database: &Database) -> Result<(), Error> {
        let at = self.taken.get();
        let lost = |error: GivenUp| Error::NotDurable(error.to_string());
        self.cluster.landed(&self.actor, None, at.txid, Need::Replicated).await.map_err(lost)?;
        let made = database.snapshot(&*self.offload, at.txid, now_ms()).await?;
        if !self.cluster.snapshot(&self.actor, at, made.bytes.into()).await.map_err(lost)? {
            self.metrics.snapshot_failures.inc();
        }
        Ok(())
    }

    /// What was committed since the last one, in the form the history needs.
    async fn next_commit(&self, database: &Database, guest: Guest) -> Result<Option<Commit>, Error> {
        let changes = database.take_changes().await?;
        let from = self.taken.get();
        let txid = from.txid + 1;
        if changes.is_none() && !self.seeds.get() {
            if guest == Guest::Idle && self.is_vague.take() {
                self.cluster.settled(&self.actor, from.txid, alarm_ms(database)?).await;
            }
            return Ok(None);
        }
        // Should this be given up while a snapshot is made, the next one makes it.
        self.seeds.set(from.is_empty());
        let (checksum, content) = match changes {
            Some(changes) if !from.is_empty() => (changes.after().get(), Content::Changes(changes)),
            // The first of a history, or after a deletion: it has to stand by itself.
            _ => {
                // Should it fail, the next one has to carry all of it.
                self.seeds.set(true);
                let made = database.snapshot(&*self.offload, txid, now_ms()).await?;
                let checksum = database.checksum().map_or(0, |checksum| checksum.get());
                (checksum, Content::Whole(made.bytes.into()))
            }
        };
        self.seeds.set(false);
        let to = Point { txid, checksum };
        self.taken.set(to);
        let alarm = match guest {
            Guest::Idle => Outlook::exact(alarm_ms(database)?),
            // The book is told of an alarm before the database is, so it is no later than what was committed.
            Guest::Running => Outlook::not_before(self.book.wake(&self.actor).map(|wake| wake.at_ms)),
        };
        self.is_vague.set(!alarm.is_exact);
        Ok(Some(Commit { to, content, alarm }))
    }

    /// The database is about to be closed: waits until all of it is in the bucket. Whether it is.
    pub(crate) async fn settle(&self, database: &Database) -> bool {
        if !self.stands() {
            return false;
        }
        let last = async {
            let _alone = self.handing_over.lock().await;
            let commit = self.next_commit(database, Guest::Idle).await.map_err(|error| error.to_string())?;
            let txid = self.taken.get().txid;
            let landed = self.cluster.landed(&self.actor, commit, txid, Need::Replicated).await;
            landed.map(drop).map_err(|error| error.to_string())
        };
        let settled = last.await;
        if let Err(why) = &settled {
            let (class, name) = (&self.actor.class, &self.actor.name);
            tracing::error!(%class, %name, "the last writes of an actor that was closed may not be in the bucket: {why}");
        }
        settled.is_ok()
    }

    /// Ends its uploads and gives the actor up.
    pub(crate) async fn finish(&self) {
        self.cluster.finish(&self.actor).await;
    }

    /// Records the deletion (R-DEL-1).
    pub(crate) async fn delete(&self) -> Result<(), GivenUp> {
        let from = self.taken.get();
        if from == Point::START {
            // There is nothing in the bucket to delete.
            self.finish().await;
            return Ok(());
        }
        let empty = Point { txid: from.txid + 1, ..Point::START };
        self.cluster.delete(&self.actor, empty).await
    }
}

fn now_ms() -> i64 {
    i64::try_from(BucketThreadRuntime.unix_ms()).unwrap_or(i64::MAX)
}

impl CommitSink for Replica {
    fn flush<'a>(&'a self, database: &'a Database) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
        Box::pin(async move {
            let _alone = self.handing_over.lock().await;
            let commit = self.next_commit(database, Guest::Idle).await?;
            let txid = self.taken.get().txid;
            let landed = self.cluster.landed(&self.actor, commit, txid, Need::Durable).await;
            landed.map(drop).map_err(|error| Error::NotDurable(error.to_string()))
        })
    }
}
