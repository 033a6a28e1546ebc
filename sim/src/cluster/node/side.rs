//! The bucket's side of the sessions of one process: the service, called as a node calls it by its bucket thread, and
//! what the broken variants make of that.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Listing};
use wasmkeep_cluster::ClusterService;
use wasmkeep_protocol::{ActorId, alarm::Outlook, history::Point, object_keys};
use wasmkeep_replica::{
    BucketSide, Commit, Flags, GivenUp, Need, RestoreError, TakeError, Taken, UploadBudget,
};
use wasmkeep_runtime::within;
use wasmkeep_storage::Inline;

use super::{
    bucket::NetworkBucket,
    runtime::{NodeRuntime, Simulated},
};
use crate::{
    cluster::{flaw::Flaw, stage},
    replica::local,
};

/// The service of a simulated node.
pub(super) type Service = ClusterService<NetworkBucket, Simulated>;

/// See the module.
#[derive(Debug, Clone)]
pub struct Side {
    pub(super) node: Rc<NodeRuntime>,
    pub(super) service: Rc<Service>,
    pub(super) bucket: NetworkBucket,
    /// Where the databases are.
    pub(super) disk: PathBuf,
    /// The node's, for whole databases.
    pub(super) uploads: UploadBudget,
    open: Rc<RefCell<BTreeMap<ActorId, Noted>>>,
}

/// What is known of an open actor.
#[derive(Debug)]
struct Noted {
    flags: Arc<Flags>,
    /// When its alarm was due as it was handed over last.
    alarm_ms: Option<u64>,
    taken: u64,
    /// What the variant that closes early has not sent.
    unsent: Option<Commit>,
}

impl Side {
    pub(super) fn new(
        node: Rc<NodeRuntime>,
        service: Rc<Service>,
        bucket: NetworkBucket,
        disk: PathBuf,
    ) -> Self {
        Self { node, service, bucket, disk, uploads: UploadBudget::default(), open: Rc::default() }
    }

    /// Where an actor's database is.
    pub(super) fn path(&self, actor: &ActorId) -> PathBuf {
        self.disk.join(format!("a{}.db", stage::actor_number(actor)))
    }

    /// A snapshot is due at the end of this event, whatever the schedule says.
    pub(super) fn snapshot_now(&self, actor: &ActorId) {
        if let Some(noted) = self.open.borrow().get(actor) {
            noted.flags.snapshot_due.store(true, Ordering::Release);
        }
    }

    /// What the variant that believes its own disk takes for the end of the history.
    async fn own_disks(&self, actor: &ActorId, taken: Taken) -> Taken {
        let path = self.path(actor);
        if !path.exists() || taken.end == Point::START {
            return taken;
        }
        let Ok(database) = local::open(&path) else { return taken };
        let checksum = database.begin_capture(&Inline).await.map_or(taken.end.checksum, |sum| sum.get());
        Taken { end: Point { checksum, ..taken.end }, ..taken }
    }

    /// The commit as the variants send it.
    async fn broken(&self, actor: &ActorId, mut commit: Commit) -> Commit {
        let before = {
            let mut open = self.open.borrow_mut();
            let Some(noted) = open.get_mut(actor) else { return commit };
            noted.taken = commit.to.txid;
            std::mem::replace(&mut noted.alarm_ms, commit.alarm.at_ms)
        };
        match self.node.flaw {
            Some(Flaw::AlarmsUnannounced) => commit.alarm = Outlook::exact(None),
            // Of a commit that has landed when it is said what it was.
            Some(Flaw::AlarmsListedLate) if commit.alarm.at_ms.is_some() => {
                commit.alarm = Outlook::not_before(None);
            }
            Some(Flaw::AlarmsDeletedEarly) if before != commit.alarm.at_ms => {
                self.delete_entries(actor, before).await;
            }
            _ => {}
        }
        commit
    }

    /// The variant that closes early sends the last commit of an event with the next.
    fn keep_unsent(&self, actor: &ActorId, commit: Commit) {
        if let Some(noted) = self.open.borrow_mut().get_mut(actor) {
            noted.unsent = Some(commit);
        }
    }

    fn send_unsent(&self, actor: &ActorId) {
        let unsent = self.open.borrow_mut().get_mut(actor).and_then(|noted| noted.unsent.take());
        if let Some(commit) = unsent {
            self.service.push_noted(actor, commit, Need::Replicated);
        }
    }

    /// The variant that deletes entries before the commit that makes them needless is in the bucket.
    async fn delete_entries(&self, actor: &ActorId, at_ms: Option<u64>) {
        let Some(at_ms) = at_ms else { return };
        let prefix = object_keys::alarms_due(&stage::tenant(), &actor.into(), at_ms);
        let deleting = async {
            for entry in Listing::new(&self.bucket, &prefix).all(100).await.unwrap_or_default() {
                // A deletion that fails breaks nothing.
                let _ = self.bucket.delete(&entry.key).await;
            }
        };
        // An answer may never come.
        within(&Simulated(Rc::clone(&self.node)), Duration::from_secs(5), deleting).await;
        // Time for a node to die in between.
        self.node.linger().await;
    }
}

impl BucketSide for Side {
    fn epoch(&self) -> Option<u64> {
        if self.node.flawed(Flaw::IgnoresLapse) {
            return Some(0);
        }
        self.service.lease().map(|lease| lease.epoch())
    }

    fn unix_ms(&self) -> u64 {
        self.node.wall_ms()
    }

    async fn take(&self, actor: &ActorId) -> Result<Taken, TakeError> {
        let taken = self.service.take(actor).await?;
        self.node.hop().await;
        Ok(if self.node.flawed(Flaw::TrustsDisk) { self.own_disks(actor, taken).await } else { taken })
    }

    async fn rebuild(&self, actor: &ActorId, path: PathBuf) -> Result<(Point, u64), RestoreError> {
        let rebuilt = self.service.rebuild(actor, path).await;
        self.node.hop().await;
        rebuilt
    }

    async fn begin(
        &self,
        actor: &ActorId,
        generation: u64,
        at: Point,
        uploads: u64,
        alarm_ms: Option<u64>,
    ) -> Result<Arc<Flags>, GivenUp> {
        let flags = self.service.begin(actor, generation, at, uploads, alarm_ms)?;
        let noted = Noted { flags: Arc::clone(&flags), alarm_ms, taken: at.txid, unsent: None };
        self.open.borrow_mut().insert(actor.clone(), noted);
        self.node.hop().await;
        Ok(flags)
    }

    async fn settled(&self, actor: &ActorId, txid: u64, alarm_ms: Option<u64>) {
        self.service.settled(actor, txid, alarm_ms);
    }

    async fn push(&self, actor: &ActorId, commit: Commit, need: Need) -> Result<(), GivenUp> {
        let commit = self.broken(actor, commit).await;
        self.send_unsent(actor);
        if need == Need::Replicated && self.node.flawed(Flaw::ClosesEarly) {
            self.keep_unsent(actor, commit);
        } else {
            self.service.push_noted(actor, commit, need);
        }
        Ok(())
    }

    async fn landed(&self, actor: &ActorId, txid: u64, need: Need) -> Result<u64, GivenUp> {
        let closes = need == Need::Replicated;
        if closes && self.node.flawed(Flaw::ClosesEarly) {
            return Ok(txid);
        }
        let landed = self.service.landed(actor, txid, need).await;
        let landed = match landed {
            Err(_) if self.node.flawed(Flaw::AcksWithoutLease) => Ok(txid),
            landed => landed,
        };
        self.node.hop().await;
        landed
    }

    async fn snapshot(&self, actor: &ActorId, at: Point, body: Bytes) -> Result<bool, GivenUp> {
        self.send_unsent(actor);
        self.service.snapshot(actor, at, body).await
    }

    async fn finish(&self, actor: &ActorId) {
        let noted = self.open.borrow_mut().remove(actor);
        if let (Some(noted), true) = (noted, self.node.flawed(Flaw::AlarmsListedLate)) {
            self.service.settled(actor, noted.taken, noted.alarm_ms);
        }
        self.service.finish(actor);
    }

    async fn delete(&self, actor: &ActorId, to: Point) -> Result<(), GivenUp> {
        self.open.borrow_mut().remove(actor);
        if self.node.flawed(Flaw::DeletesHereAlone) {
            self.service.finish(actor);
            return Ok(());
        }
        self.service.delete(actor, to).await
    }
}
