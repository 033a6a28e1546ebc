//! What lives on the bucket core: the node's membership, its holds, and one stream of uploads for each actor it
//! holds. Runs on one thread; the shards reach it by jobs.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use wasmkeep_s3::AnyBucket;
use wasmkeep_core::{BucketThreadRuntime, Lane, Laned};
use wasmkeep_membership::{Holds, Member, Standing, Told};
use wasmkeep_protocol::{
    ActorId, Tenant,
    alarm::Outlook,
    history::Point,
    lease::{Exit, Identity, Timing, ValidLease},
    object_keys,
    ownership::Denial,
    records::Presence,
    replication::SnapshotSchedule,
    view::View,
};
use wasmkeep_replica::{
    Commit, Content, Entries, GivenUp, History, HistoryError, Hold, Need, ReadBudget, RestoreError, Restorer,
    Subject, Uploader, Ways, collect,
};
use wasmkeep_s3::AnyBucket;

use super::{Word, lease::LeaseCell};

/// The way to the bucket.
pub(super) type Way = Laned<AnyBucket>;

/// What a station is made of.
pub(super) struct Plan {
    pub(super) identity: Identity,
    pub(super) presence: Presence,
    pub(super) tenant: Tenant,
    pub(super) timing: Timing,
    pub(super) retention: Duration,
    /// Pages of the largest database.
    pub(super) pages_max: u32,
    pub(super) lease: Arc<LeaseCell>,
    pub(super) view: Arc<arc_swap::ArcSwap<View>>,
    pub(super) tell: Arc<dyn Fn(Word) + Send + Sync>,
}

/// An actor's uploads, and what its shard reads of them without asking.
pub(super) struct Stream {
    pub(super) uploader: Uploader<Way, BucketThreadRuntime, Held>,
    flags: Arc<Flags>,
}

/// Said by the station, read by the actor's shard.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// A periodic snapshot is due at the end of an event.
    pub(crate) snapshot_due: AtomicBool,
    /// Nothing is uploaded any more: the actor has to be given up.
    pub(crate) ended: AtomicBool,
}

/// Whether this hold of an actor stands.
pub(super) struct Held {
    holds: Rc<Holds<Way, BucketThreadRuntime, Place>>,
    actor: ActorId,
    generation: u64,
}

impl Hold for Held {
    fn is_held(&self) -> bool {
        self.holds.generation(&self.actor) == Some(self.generation)
    }
}

/// The member, as the holds ask it.
#[derive(Clone)]
pub(super) struct Place(Rc<Member<Way, BucketThreadRuntime>>, Arc<arc_swap::ArcSwap<View>>);

impl Standing for Place {
    fn view(&self) -> Arc<View> {
        self.1.load_full()
    }

    fn lease(&self) -> Option<ValidLease> {
        self.0.lease()
    }
}

/// What was taken, for the shard that opens it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) generation: u64,
    /// Where its history stands.
    pub(crate) end: Point,
    /// Uploads since its last snapshot.
    pub(crate) uploads: u64,
}

/// Why an actor cannot be opened here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("the actor is not this node's")]
    Denied(Denial),
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// The bucket's side of a node.
pub(super) struct Station {
    pub(super) plan: Plan,
    pub(super) way: Way,
    member: Rc<Member<Way, BucketThreadRuntime>>,
    pub(super) holds: Rc<Holds<Way, BucketThreadRuntime, Place>>,
    restorer: Restorer<Way, BucketThreadRuntime>,
    streams: RefCell<HashMap<ActorId, Rc<Stream>>>,
    /// Histories of actors that are being opened.
    looked: RefCell<HashMap<ActorId, History>>,
    /// Waits of failed snapshots of actors that sleep (R-REPL-3).
    schedules: RefCell<HashMap<ActorId, SnapshotSchedule>>,
    pub(super) entries: Entries,
    /// The sweeps, which wait for another view.
    pub(super) viewing: Cell<Option<Waker>>,
    /// Itself, for the tasks it starts.
    this: OnceCell<std::rc::Weak<Self>>,
}

impl Station {
    pub(super) fn new(way: Way, plan: Plan) -> Rc<Self> {
        let (timing, identity) = (plan.timing, plan.identity.clone());
        let lease_way = way.on(Lane::Lease);
        let member = Rc::new(Member::new(
            lease_way,
            BucketThreadRuntime,
            timing,
            identity.clone(),
            plan.presence.clone(),
        ));
        let place = Place(Rc::clone(&member), Arc::clone(&plan.view));
        let durable = way.on(Lane::Durable);
        let holds =
            Rc::new(Holds::new(durable, BucketThreadRuntime, place, timing, identity, plan.tenant.clone()));
        let (reads, lists) = (way.on(Lane::Restore), way.on(Lane::Durable));
        let restorer =
            Restorer::new(reads, lists, BucketThreadRuntime, ReadBudget::default(), plan.pages_max);
        let entries = Entries::new(plan.identity.node.clone());
        let station = Rc::new(Self {
            plan,
            way,
            member,
            holds,
            restorer,
            streams: RefCell::default(),
            looked: RefCell::default(),
            schedules: RefCell::default(),
            entries,
            viewing: Cell::default(),
            this: OnceCell::new(),
        });
        let _ = station.this.set(Rc::downgrade(&station));
        station
    }

    /// The way to the bucket by the first lane.
    pub(super) fn lease_way(&self) -> Way {
        self.way.on(Lane::Lease)
    }

    /// Lives the membership; `told` is called at its first valid lease.
    pub(super) async fn live(&self) -> Exit {
        let holds = Rc::clone(&self.holds);
        let holding = tokio::task::spawn_local(async move { holds.run().await });
        let this = self.this.get().and_then(|this| this.upgrade());
        let sweeping = this.map(|station| tokio::task::spawn_local(station.sweep()));
        let exit = self.member.run(|told| self.told(told)).await;
        self.plan.lease.lapse();
        holding.abort();
        if let Some(sweeping) = sweeping {
            sweeping.abort();
        }
        exit
    }

    fn told(&self, told: Told) {
        match told {
            Told::Valid(lease) => {
                self.plan.lease.renew(lease.epoch(), lease.until().since_boot());
                (self.plan.tell)(Word::Valid);
            }
            Told::Lapsed => {
                self.plan.lease.lapse();
                self.holds.lapsed();
                self.looked.borrow_mut().clear();
                // Their uploads end: whatever lands now is in nobody's history.
                for (_, stream) in self.streams.borrow_mut().drain() {
                    stream.flags.ended.store(true, Ordering::Release);
                    stream.uploader.close();
                }
                (self.plan.tell)(Word::Lapsed);
            }
            Told::EndEvents => (self.plan.tell)(Word::EndEvents),
            Told::View(view) => {
                self.plan.view.store(view);
                if let Some(viewing) = self.viewing.take() {
                    viewing.wake();
                }
            }
            Told::Notice(notice) => tracing::warn!("{notice}"),
        }
    }

    fn folder(&self, actor: &ActorId) -> String {
        object_keys::history_folder(&self.plan.tenant, actor)
    }

    /// Takes the actor without looking at its history.
    pub(super) async fn claim(&self, actor: &ActorId, fresh: bool) -> Result<u64, Denial> {
        self.holds.take(actor, fresh).await
    }

    /// Whether another node has the actor, or had it last, by its record (R-WS-2).
    pub(super) async fn is_elsewhere(&self, actor: &ActorId) -> bool {
        let holder = self.holds.last_holder(&self.way.on(Lane::Housekeeping), actor).await;
        holder.is_some_and(|holder| holder != self.plan.identity.node)
    }

    /// Takes the actor and looks at its history (R-RST-1).
    pub(super) async fn take(&self, actor: &ActorId) -> Result<Taken, TakeError> {
        let folder = self.folder(actor);
        let taking = self.holds.take_and_look(actor, false, || self.restorer.look(&folder));
        let (generation, history) = taking.await.map_err(TakeError::Denied)?;
        let history = history?;
        let end = history.end().unwrap_or(Point::START);
        let uploads = history.uploads_since_snapshot();
        self.looked.borrow_mut().insert(actor.clone(), history);
        Ok(Taken { generation, end, uploads })
    }

    /// Whether the bucket has data of the actor.
    pub(super) async fn exists(&self, actor: &ActorId) -> Result<bool, HistoryError> {
        let history = self.restorer.look(&self.folder(actor)).await?;
        Ok(history.end().is_some_and(|end| !end.is_empty()))
    }

    /// Puts the actor's latest state at `path` (R-RST-4).
    pub(super) async fn rebuild(&self, actor: &ActorId, path: PathBuf) -> Result<(Point, u64), RestoreError> {
        let looked = self.looked.borrow_mut().remove(actor);
        let restored = self.restorer.rebuild(&self.folder(actor), &path, looked).await?;
        Ok((restored.point, restored.history.uploads_since_snapshot()))
    }

    /// Begins the uploads of an actor that is open at `at` with an alarm at `alarm_ms`.
    pub(super) fn begin(
        &self,
        actor: &ActorId,
        generation: u64,
        at: Point,
        uploads: u64,
        alarm_ms: Option<u64>,
    ) -> Arc<Flags> {
        self.looked.borrow_mut().remove(actor);
        let flags = Arc::new(Flags::default());
        let waits = self.schedules.borrow_mut().remove(actor);
        let schedule = waits.unwrap_or_else(|| SnapshotSchedule::new(uploads));
        let ways = Ways {
            urgent: self.way.on(Lane::Durable),
            ordinary: self.way.on(Lane::Upload),
            spare: self.way.on(Lane::Housekeeping),
        };
        let held = Held { holds: Rc::clone(&self.holds), actor: actor.clone(), generation };
        let subject = Subject { tenant: self.plan.tenant.clone(), actor: actor.clone() };
        let posts = self.entries.opened(actor, generation, at, alarm_ms);
        let uploader = Uploader::new(ways, BucketThreadRuntime, held, subject, posts, at, schedule);
        let stream = Rc::new(Stream { uploader, flags: Arc::clone(&flags) });
        self.streams.borrow_mut().insert(actor.clone(), Rc::clone(&stream));
        let (tell, actor) = (Arc::clone(&self.plan.tell), actor.clone());
        tokio::task::spawn_local(async move {
            let why = stream.uploader.run().await;
            stream.flags.ended.store(true, Ordering::Release);
            if why != GivenUp::Closed {
                tell(Word::GivenUp(actor, why.to_string()));
            }
        });
        flags
    }

    /// What transaction `txid`, sent before, says of the alarm.
    pub(super) fn settled(&self, actor: &ActorId, txid: u64, alarm_ms: Option<u64>) {
        if let Ok(stream) = self.stream(actor) {
            stream.uploader.settled(txid, alarm_ms);
        }
    }

    pub(super) fn stream(&self, actor: &ActorId) -> Result<Rc<Stream>, GivenUp> {
        self.streams.borrow().get(actor).cloned().ok_or(GivenUp::Closed)
    }

    /// Takes a commit on its way. One that does not follow the last ends the uploads: the actor has what the bucket
    /// will never have.
    pub(super) fn push(&self, actor: &ActorId, commit: Commit) -> Result<(), GivenUp> {
        let stream = self.stream(actor)?;
        let pushed = stream.uploader.push(commit);
        if let Err(why) = &pushed
            && !stream.flags.ended.swap(true, Ordering::AcqRel)
        {
            stream.uploader.close();
            (self.plan.tell)(Word::GivenUp(actor.clone(), why.to_string()));
        }
        pushed
    }

    /// Waits until the transaction is in the bucket (R-DUR-1); the last one that is.
    pub(super) async fn landed(&self, actor: &ActorId, txid: u64, need: Need) -> Result<u64, GivenUp> {
        let stream = self.stream(actor)?;
        stream.uploader.landed(txid, need).await?;
        stream.flags.snapshot_due.store(stream.uploader.snapshot_due(), Ordering::Release);
        Ok(stream.uploader.landed_up_to())
    }

    /// Uploads a periodic snapshot and, in the background, deletes what it made unnecessary (R-HIST-1).
    pub(super) async fn snapshot(&self, actor: &ActorId, at: Point, body: Bytes) -> Result<bool, GivenUp> {
        let stream = self.stream(actor)?;
        let landed = stream.uploader.snapshot(at, body).await;
        // The actor stood still, so nobody has read what it said meanwhile.
        stream.flags.snapshot_due.store(stream.uploader.snapshot_due(), Ordering::Release);
        if landed {
            self.collect(actor, self.plan.retention);
        }
        Ok(landed)
    }

    fn collect(&self, actor: &ActorId, retention: Duration) {
        let Some(generation) = self.holds.generation(actor) else { return };
        let held = Held { holds: Rc::clone(&self.holds), actor: actor.clone(), generation };
        let (way, folder, tell) =
            (self.way.on(Lane::Housekeeping), self.folder(actor), Arc::clone(&self.plan.tell));
        tokio::task::spawn_local(async move {
            match collect(&way, &BucketThreadRuntime, &folder, generation, retention, &held).await {
                Ok(deleted) => tell(Word::Collected { deleted, failed: false }),
                Err(error) => {
                    tracing::warn!(folder, %error, "collecting history ended early; the next snapshot tries again");
                    tell(Word::Collected { deleted: error.deleted(), failed: true });
                }
            }
        });
    }

    /// Ends the uploads of an actor that was closed, and gives it up.
    pub(super) fn finish(&self, actor: &ActorId) {
        self.end_stream(actor);
        self.holds.release(actor);
    }

    fn end_stream(&self, actor: &ActorId) {
        if let Some(stream) = self.streams.borrow_mut().remove(actor) {
            let schedule = stream.uploader.schedule();
            if schedule.has_wait() {
                self.schedules.borrow_mut().insert(actor.clone(), schedule);
            }
            self.entries.closed(actor, stream.uploader.posts());
            stream.uploader.close();
        }
    }

    /// Records that the actor was deleted as transaction `txid`, erases its history in the background and gives it
    /// up (R-DEL-1).
    pub(super) async fn delete(&self, actor: &ActorId, to: Point) -> Result<(), GivenUp> {
        let deleted = async {
            let stream = self.stream(actor)?;
            let alarm = Outlook::exact(None);
            stream.uploader.push(Commit { to, content: Content::Deleted, alarm })?;
            stream.uploader.landed(to.txid, Need::Durable).await.map(|()| stream)
        };
        let ended = deleted.await;
        // Before the history is erased: the actor may come back meanwhile, with uploads of its own.
        self.end_stream(actor);
        self.entries.deleted(actor);
        let (generation, station) =
            (self.holds.generation(actor), self.this.get().and_then(|this| this.upgrade()));
        match (&ended, generation, station) {
            (Ok(stream), Some(generation), Some(station)) => {
                let (actor, stream) = (actor.clone(), Rc::clone(stream));
                tokio::task::spawn_local(async move {
                    let held = Held { holds: Rc::clone(&station.holds), actor: actor.clone(), generation };
                    let (way, folder) = (station.way.on(Lane::Housekeeping), station.folder(&actor));
                    let erased =
                        collect(&way, &BucketThreadRuntime, &folder, generation, Duration::ZERO, &held).await;
                    if let Err(error) = erased {
                        tracing::warn!(%error, "the history of a deleted actor could not be erased whole");
                    }
                    stream.uploader.clear_up().await;
                    if !station.streams.borrow().contains_key(&actor) {
                        station.holds.release(&actor);
                    }
                });
            }
            _ => self.holds.release(actor),
        }
        ended.map(drop)
    }

    /// A clean stop begins: nothing more is taken (R-LEASE-6).
    pub(super) fn stop(&self) {
        self.holds.stop_taking();
        self.member.stop();
    }

    /// Every actor of every shard is closed: gives up what is still held, then the lease.
    pub(super) async fn closed(&self) {
        self.member.actors_closed();
        self.holds.release_all();
        self.holds.all_released().await;
        self.member.records_released();
    }
}
