//! What runs beside the bucket for one node: its membership, its ownership of actors, and one stream of uploads for each
//! actor it holds.
//!
//! Runs on one thread; whoever is on another reaches it by jobs. Owns which stream belongs to which hold. Decides
//! nothing about leases and records, and runs no event.

mod erasing;
mod holding;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    path::PathBuf,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use futures::{
    channel::oneshot,
    future::{Either, join, select},
};
use lru::LruCache;
use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{
    ActorId, Tenant,
    alarm::Post,
    history::Point,
    lease::{Exit, Identity, Timing, ValidLease},
    object_keys,
    records::Presence,
    view::View,
};
use wasmkeep_replica::{
    Commit, Entries, Flags, GivenUp, History, HistoryError, Hold, Need, ReadBudget, RestoreError, Restorer,
    Subject, Uploader, Ways,
};
use wasmkeep_runtime::Runtime;

use self::erasing::{Erasure, Passes};
use crate::{
    back_off::BackOff,
    member::{Member, Told},
    ownership::{LeaseView, OwnershipManager},
    snapshot_waits::SnapshotWaits,
};

/// Histories of actors being opened that are kept between a look and a restore.
const LOOKED_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not zero");

/// The bucket for each purpose. All of them are ways to the same objects; which requests go first is up to them.
#[derive(Debug, Clone)]
pub struct LaneBuckets<B> {
    /// Heartbeats: nothing else delays them (R-BKT-2).
    pub lease: B,
    /// Owner records, and commits that an actor waits for.
    pub durable: B,
    /// Everything else that is uploaded.
    pub upload: B,
    /// Reads of restores.
    pub restore: B,
    /// Listings and the collection of history.
    pub housekeeping: B,
}

/// What a service is made of.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// The process.
    pub identity: Identity,
    /// What its heartbeat says about it.
    pub presence: Presence,
    /// Whose actors.
    pub tenant: Tenant,
    /// The lease's.
    pub timing: Timing,
    /// Time history stays in the bucket before it may be collected (R-HIST-1).
    pub retention: Duration,
    /// Pages of the largest database.
    pub pages_max: u32,
}

/// Whether an actor exists, as far as a node knows that does not run it (R-ACC-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existence {
    /// It is open here, or the bucket has data of it.
    Sure,
    /// Another node may have it, and knows.
    Elsewhere,
    /// It does not.
    Not,
}

/// What the service tells the node around it.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The lease is valid, or was renewed.
    Valid(ValidLease),
    /// It ran out: every actor is lost.
    Lapsed,
    /// A clean stop: the time for events in flight is over.
    EndEvents,
    /// A request for this node's own heartbeat failed, and why.
    HeartbeatFailed(String),
    /// The cluster as it is seen now.
    View(Arc<View>),
    /// This actor's uploads failed for good (R-REPL-4).
    GivenUp(ActorId, String),
    /// The bucket has an alarm of this actor that is overdue: whether the actor was asked about it.
    Look(ActorId, oneshot::Sender<bool>),
    /// A pass over an actor's history has ended.
    Collected {
        /// Objects deleted.
        deleted: u64,
        /// It ended early.
        failed: bool,
    },
}

/// An actor's uploads, and what its shard reads of them without asking.
struct Stream<B: Bucket, R: Runtime> {
    /// Of its hold.
    generation: u64,
    uploader: Uploader<B, R, Held<B, R>>,
    flags: Arc<Flags>,
    /// The opening that began them.
    opening: u64,
}

impl<B: Bucket, R: Runtime> Stream<B, R> {
    /// Nothing is uploaded any more, and no event of the actor runs.
    fn end(&self) {
        self.flags.ended.store(true, Ordering::Release);
        self.uploader.close();
    }
}

/// Whether this hold of an actor stands.
struct Held<B, R> {
    ownership: Rc<Ownership<B, R>>,
    actor: ActorId,
    generation: u64,
}

type Ownership<B, R> = OwnershipManager<B, R, MemberView<B, R>>;

impl<B: Bucket, R: Runtime> Hold for Held<B, R> {
    fn is_held(&self) -> bool {
        self.ownership.generation(&self.actor) == Some(self.generation)
    }
}

/// The member, as the ownership manager asks it.
struct MemberView<B, R> {
    member: Rc<Member<B, R>>,
    view: Rc<RefCell<Arc<View>>>,
}

impl<B: Bucket, R: Runtime> LeaseView for MemberView<B, R> {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    fn lease(&self) -> Option<ValidLease> {
        self.member.lease()
    }
}

/// See the module.
pub struct ClusterService<B: Bucket, R: Runtime> {
    pub(crate) config: ServiceConfig,
    pub(crate) buckets: LaneBuckets<B>,
    pub(crate) runtime: R,
    notify: Rc<dyn Fn(ClusterEvent)>,
    member: Rc<Member<B, R>>,
    view: Rc<RefCell<Arc<View>>>,
    ownership: Rc<Ownership<B, R>>,
    restorer: Restorer<B, R>,
    streams: RefCell<HashMap<ActorId, Rc<Stream<B, R>>>>,
    /// Histories of actors that are being opened. One that is missing when it is wanted is listed again.
    looked: RefCell<LruCache<ActorId, History>>,
    /// Openings under way of each actor: taken, and neither begun nor given up.
    openings: RefCell<HashMap<ActorId, Vec<u64>>>,
    openings_begun: Cell<u64>,
    /// Actors that were taken and that nobody has begun to open, and until when that is waited for.
    claimed: RefCell<HashMap<ActorId, Duration>>,
    watching_claims: Cell<bool>,
    back_off: BackOff,
    /// Deletions whose history is being erased. Their holds stand until that has ended.
    erasing: RefCell<HashMap<ActorId, Vec<Erasure<B, R>>>>,
    passes: Passes,
    snapshot_waits: SnapshotWaits,
    pub(crate) entries: Entries,
    /// The sweeps, which wait for another view.
    pub(crate) viewing: Cell<Option<Waker>>,
}

impl<B: Bucket, R: Runtime> fmt::Debug for ClusterService<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterService").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<B: Bucket + Clone + 'static, R: Runtime> ClusterService<B, R> {
    /// A process that starts now and holds nothing. `notify` is called on this thread.
    pub fn new(
        buckets: LaneBuckets<B>,
        runtime: R,
        config: ServiceConfig,
        notify: impl Fn(ClusterEvent) + 'static,
    ) -> Rc<Self> {
        let ServiceConfig { identity, presence, tenant, timing, pages_max, .. } = config.clone();
        let view = Rc::new(RefCell::new(Arc::new(View::unknown(&timing))));
        let entries = Entries::new(identity.node.clone());
        let lease = buckets.lease.clone();
        let member = Rc::new(Member::new(lease, runtime.clone(), timing, identity.clone(), presence));
        let member_view = MemberView { member: Rc::clone(&member), view: Rc::clone(&view) };
        let durable = buckets.durable.clone();
        let ownership =
            OwnershipManager::new(durable, runtime.clone(), member_view, timing, identity, tenant);
        let (reads, lists) = (buckets.restore.clone(), buckets.durable.clone());
        let restorer = Restorer::new(reads, lists, runtime.clone(), ReadBudget::default(), pages_max);
        Rc::new(Self {
            config,
            buckets,
            runtime,
            notify: Rc::new(notify),
            member,
            view,
            ownership: Rc::new(ownership),
            restorer,
            streams: RefCell::default(),
            looked: RefCell::new(LruCache::new(LOOKED_MAX)),
            openings: RefCell::default(),
            openings_begun: Cell::default(),
            claimed: RefCell::default(),
            watching_claims: Cell::default(),
            back_off: BackOff::default(),
            erasing: RefCell::default(),
            passes: Passes::default(),
            snapshot_waits: SnapshotWaits::new(),
            entries,
            viewing: Cell::default(),
        })
    }

    /// The bucket, by purpose.
    pub fn buckets(&self) -> &LaneBuckets<B> {
        &self.buckets
    }

    /// The lease, if it is valid now.
    pub fn lease(&self) -> Option<ValidLease> {
        self.member.lease()
    }

    /// The cluster as it was last seen.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// The generation of the hold of an actor, while it stands.
    pub fn generation(&self, actor: &ActorId) -> Option<u64> {
        self.ownership.generation(actor)
    }

    pub(crate) fn notify(&self, event: ClusterEvent) {
        (self.notify)(event);
    }

    /// Lives the membership to its end.
    pub async fn live(self: &Rc<Self>) -> Exit {
        let membership = pin!(self.member.run(|told| self.told(told)));
        let beside = pin!(join(self.ownership.run(), self.sweep()));
        match select(membership, beside).await {
            Either::Left((exit, _)) => exit,
            Either::Right((((), never), _)) => match never {},
        }
    }

    fn told(&self, told: Told) {
        match told {
            Told::Valid(lease) => self.notify(ClusterEvent::Valid(lease)),
            Told::Lapsed => {
                self.ownership.lapsed();
                self.looked.borrow_mut().clear();
                // Their uploads end: whatever lands now is in nobody's history.
                let mut streams: Vec<_> = self.streams.borrow_mut().drain().collect();
                streams.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                for (actor, stream) in streams {
                    self.snapshot_waits.keep(&actor, stream.generation, stream.uploader.schedule());
                    stream.end();
                }
                self.claimed.borrow_mut().clear();
                self.notify(ClusterEvent::Lapsed);
            }
            Told::EndEvents => self.notify(ClusterEvent::EndEvents),
            Told::View(view) => {
                self.view.replace(Arc::clone(&view));
                self.notify(ClusterEvent::View(view));
                if let Some(viewing) = self.viewing.take() {
                    viewing.wake();
                }
            }
            Told::Notice(notice) => tracing::warn!("{notice}"),
            Told::HeartbeatFailed(reason) => self.notify(ClusterEvent::HeartbeatFailed(reason)),
        }
    }

    fn held(&self, actor: &ActorId, generation: u64) -> Held<B, R> {
        Held { ownership: Rc::clone(&self.ownership), actor: actor.clone(), generation }
    }

    fn folder(&self, actor: &ActorId) -> String {
        object_keys::history_folder(&self.config.tenant, actor)
    }

    /// Whether another node has the actor, or had it last, by its record (R-WS-2).
    pub async fn is_elsewhere(&self, actor: &ActorId) -> bool {
        let holder = self.ownership.last_holder(&self.buckets.housekeeping, actor).await;
        holder.is_some_and(|holder| holder != self.config.identity.node)
    }

    /// Whether the bucket has data of the actor.
    ///
    /// # Errors
    /// The bucket does not say.
    pub async fn exists(&self, actor: &ActorId) -> Result<bool, HistoryError> {
        let history = self.restorer.look(&self.folder(actor)).await?;
        Ok(history.end().is_some_and(|end| !end.is_empty()))
    }

    /// Puts the actor's latest state at `path` (R-RST-4).
    ///
    /// # Errors
    /// [`RestoreError`].
    pub async fn rebuild(&self, actor: &ActorId, path: PathBuf) -> Result<(Point, u64), RestoreError> {
        let looked = self.looked.borrow_mut().pop(actor);
        let restored = self.restorer.rebuild(&self.folder(actor), &path, looked).await?;
        Ok((restored.point, restored.history.uploads_since_snapshot()))
    }

    /// Begins the uploads of an actor that is open at `at` with an alarm at `alarm_ms`.
    ///
    /// # Errors
    /// [`GivenUp::NotHeld`]: the hold `generation` has ended meanwhile, so the actor must not run (R-OWN-1).
    pub fn begin(
        self: &Rc<Self>,
        actor: &ActorId,
        generation: u64,
        at: Point,
        uploads: u64,
        alarm_ms: Option<u64>,
    ) -> Result<Arc<Flags>, GivenUp> {
        let opening = self.opening_under_way(actor);
        let (Some(opening), true) = (opening, self.ownership.generation(actor) == Some(generation)) else {
            return Err(GivenUp::NotHeld);
        };
        // There is none, unless an earlier opening of the same hold left it.
        self.end_stream(actor);
        self.begun(actor);
        let schedule = self.snapshot_waits.resume(actor, generation, uploads);
        let ways = Ways {
            urgent: self.buckets.durable.clone(),
            ordinary: self.buckets.upload.clone(),
            spare: self.buckets.housekeeping.clone(),
        };
        let held = self.held(actor, generation);
        let subject = Subject { tenant: self.config.tenant.clone(), actor: actor.clone() };
        let posts = self.entries.opened(actor, generation, at, alarm_ms);
        let uploader = Uploader::new(ways, self.runtime.clone(), held, subject, posts, at, schedule);
        // What is due is made at the actor's first event, whatever that does (R-REPL-3).
        let snapshot_due = uploader.snapshot_due().into();
        let flags = Arc::new(Flags { snapshot_due, ..Flags::default() });
        let stream = Rc::new(Stream { generation, opening, uploader, flags: Arc::clone(&flags) });
        self.streams.borrow_mut().insert(actor.clone(), Rc::clone(&stream));
        let (service, actor) = (Rc::clone(self), actor.clone());
        self.runtime.spawn(async move {
            let why = stream.uploader.run().await;
            let had_ended = stream.flags.ended.swap(true, Ordering::AcqRel);
            if why != GivenUp::Closed && !had_ended {
                service.notify(ClusterEvent::GivenUp(actor, why.to_string()));
            }
        });
        Ok(flags)
    }

    /// What transaction `txid`, sent before, says of the alarm.
    pub fn settled(&self, actor: &ActorId, txid: u64, alarm_ms: Option<u64>) {
        if let Ok(stream) = self.stream(actor) {
            stream.uploader.settled(txid, alarm_ms);
        }
    }

    /// A sweep came across this entry; whether the actor is open here.
    pub(crate) fn noticed(&self, actor: &ActorId, post: Post) -> bool {
        let stream = self.stream(actor);
        stream.is_ok_and(|stream| {
            stream.uploader.noticed(post);
            true
        })
    }

    /// The snapshot schedule of an actor that is open.
    #[cfg(test)]
    pub(crate) fn snapshot_schedule(
        &self,
        actor: &ActorId,
    ) -> Option<wasmkeep_protocol::replication::SnapshotSchedule> {
        self.stream(actor).ok().map(|stream| stream.uploader.schedule())
    }

    fn stream(&self, actor: &ActorId) -> Result<Rc<Stream<B, R>>, GivenUp> {
        self.streams.borrow().get(actor).cloned().ok_or(GivenUp::Closed)
    }

    /// Takes a commit on its way. One that does not follow the last ends the uploads: the actor has what the bucket
    /// will never have.
    ///
    /// # Errors
    /// [`GivenUp`]: nothing is taken any more.
    pub fn push(&self, actor: &ActorId, commit: Commit) -> Result<(), GivenUp> {
        let stream = self.stream(actor)?;
        let pushed = stream.uploader.push(commit);
        if let Err(why) = &pushed
            && !stream.flags.ended.swap(true, Ordering::AcqRel)
        {
            stream.uploader.close();
            self.notify(ClusterEvent::GivenUp(actor.clone(), why.to_string()));
        }
        pushed
    }

    /// As [`push`](Self::push); the flags of the stream follow what becomes of it.
    pub fn push_noted(self: &Rc<Self>, actor: &ActorId, commit: Commit, need: Need) {
        let txid = commit.to.txid;
        if self.push(actor, commit).is_ok() {
            let (service, actor) = (Rc::clone(self), actor.clone());
            self.runtime.spawn(async move {
                // Told by the flags; the wait only keeps them up to date.
                let _ = service.landed(&actor, txid, need).await;
            });
        }
    }

    /// Waits until the transaction is in the bucket (R-DUR-1); the last one that is.
    ///
    /// # Errors
    /// [`GivenUp`]: it may or may not be there.
    pub async fn landed(&self, actor: &ActorId, txid: u64, need: Need) -> Result<u64, GivenUp> {
        let stream = self.stream(actor)?;
        stream.uploader.landed(txid, need).await?;
        stream.flags.snapshot_due.store(stream.uploader.snapshot_due(), Ordering::Release);
        Ok(stream.uploader.landed_up_to())
    }

    /// Uploads a periodic snapshot and, in the background, deletes what it made unnecessary (R-HIST-1).
    ///
    /// # Errors
    /// [`GivenUp`].
    pub async fn snapshot(self: &Rc<Self>, actor: &ActorId, at: Point, body: Bytes) -> Result<bool, GivenUp> {
        let stream = self.stream(actor)?;
        let landed = stream.uploader.snapshot(at, body).await;
        // The actor stood still, so nobody has read what it said meanwhile.
        stream.flags.snapshot_due.store(stream.uploader.snapshot_due(), Ordering::Release);
        if landed {
            self.collect(actor, stream.generation);
        }
        Ok(landed)
    }

    fn end_stream(&self, actor: &ActorId) {
        if let Some(stream) = self.streams.borrow_mut().remove(actor) {
            self.snapshot_waits.keep(actor, stream.generation, stream.uploader.schedule());
            self.entries.closed(actor, stream.uploader.posts());
            stream.end();
        }
    }

    fn is_current(&self, actor: &ActorId, stream: &Rc<Stream<B, R>>) -> bool {
        self.streams.borrow().get(actor).is_some_and(|current| Rc::ptr_eq(current, stream))
    }

    /// A clean stop begins: nothing more is taken (R-LEASE-6).
    pub fn stop(&self) {
        self.ownership.stop_taking();
        self.member.stop();
    }

    /// Every actor of every shard is closed: gives up what is still held, then the lease.
    pub async fn closed(&self) {
        self.member.actors_closed();
        let mut open: Vec<ActorId> = self.streams.borrow().keys().cloned().collect();
        open.sort_unstable();
        for actor in open {
            self.end_stream(&actor);
        }
        self.ownership.release_all();
        self.ownership.all_released().await;
        self.member.records_released();
    }
}

#[cfg(test)]
mod tests;
