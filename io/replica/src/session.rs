//! One open actor between its database here and its history in the bucket.
//!
//! Opens the latest state, turns commits into what is uploaded, and lets durable writes wait for the bucket. Owns the
//! order in which commits are read and handed over. Does not own the uploads, which are on the [`BucketSide`], nor when
//! events run. Knows no thread: the database is where the session is, the bucket side may be on another.

use std::{
    cell::Cell,
    fmt,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::{channel::oneshot, lock::Mutex};
use wasmkeep_protocol::{ActorId, alarm::Outlook, history::Point, ownership::Denial};
use wasmkeep_storage::{CommitSink, Config, Database, Error, Offload, OpenError, offloaded};

use crate::{
    commit::{Commit, Content},
    history::HistoryError,
    restore::RestoreError,
    upload_budget::UploadBudget,
    uploader::{GivenUp, Need},
};

/// What was taken, for the session that opens it.
#[derive(Debug)]
pub struct Taken {
    /// Of the hold.
    pub generation: u64,
    /// Where its history stands.
    pub end: Point,
    /// Uploads since its last snapshot.
    pub uploads: u64,
    /// Dropped when it does not begin after all.
    pub opening: Opening,
}

/// Somebody opens an actor that was taken. Dropping it gives the actor up, on whatever thread that happens.
#[derive(Debug)]
pub struct Opening(oneshot::Sender<()>);

/// How an opening ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The actor runs.
    Begun,
    /// It does not.
    GivenUp,
}

impl Opening {
    /// One that begins now, and its end.
    pub fn new() -> (Self, impl Future<Output = Opened>) {
        let (sender, ended) = oneshot::channel();
        let ended = async move { ended.await.map_or(Opened::GivenUp, |()| Opened::Begun) };
        (Self(sender), ended)
    }

    /// The actor runs: whoever runs it ends its uploads.
    pub fn begun(self) {
        // Who is told is gone with the bucket side.
        let _ = self.0.send(());
    }
}

/// Why an actor cannot be opened here.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// It is not to be had here.
    #[error("the actor is not this node's")]
    Denied(Denial),
    /// Its history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// Said by the bucket side, read by the session without asking.
#[derive(Debug, Default)]
pub struct Flags {
    /// A periodic snapshot is due at the end of an event.
    pub snapshot_due: AtomicBool,
    /// Nothing is uploaded any more: the actor has to be given up.
    pub ended: AtomicBool,
}

/// The bucket's side of a node's actors, as their sessions reach it. Cheap to clone.
///
/// What one session says of one actor arrives in the order in which it said it.
#[allow(async_fn_in_trait)] // A session stays on its thread.
pub trait BucketSide: Clone + 'static {
    /// The epoch of the node's lease, if it is valid now (R-LEASE-2).
    fn epoch(&self) -> Option<u64>;

    /// The time of day, in milliseconds since 1970. For dates in files.
    fn unix_ms(&self) -> u64;

    /// Takes the actor and looks at its history.
    async fn take(&self, actor: &ActorId) -> Result<Taken, TakeError>;

    /// Puts the actor's latest state at `path`; the state, and the uploads since its last snapshot.
    async fn rebuild(&self, actor: &ActorId, path: PathBuf) -> Result<(Point, u64), RestoreError>;

    /// Begins the uploads of an actor that is open at `at` with an alarm at `alarm_ms`; refused unless the hold
    /// `generation` stands at that moment.
    async fn begin(
        &self,
        actor: &ActorId,
        generation: u64,
        at: Point,
        uploads: u64,
        alarm_ms: Option<u64>,
    ) -> Result<Arc<Flags>, GivenUp>;

    /// What transaction `txid`, sent before, says of the alarm.
    async fn settled(&self, actor: &ActorId, txid: u64, alarm_ms: Option<u64>);

    /// Sends a commit on its way, behind those of this actor sent before; `need` is what for.
    async fn push(&self, actor: &ActorId, commit: Commit, need: Need) -> Result<(), GivenUp>;

    /// Waits until the transaction, which was pushed, is in the bucket; the last one that is.
    async fn landed(&self, actor: &ActorId, txid: u64, need: Need) -> Result<u64, GivenUp>;

    /// Uploads a periodic snapshot; whether it landed.
    async fn snapshot(&self, actor: &ActorId, at: Point, body: Bytes) -> Result<bool, GivenUp>;

    /// Ends the uploads of an actor that was closed, and gives it up.
    async fn finish(&self, actor: &ActorId);

    /// Records that the actor was deleted, and gives it up.
    async fn delete(&self, actor: &ActorId, to: Point) -> Result<(), GivenUp>;
}

/// What actors are opened with.
pub struct SessionConfig<'a> {
    /// Where its database's blocking work goes.
    pub offload: Rc<dyn Offload>,
    /// Of its database.
    pub storage: &'a Config,
    /// What the actor says waits until its writes are in the bucket: its commits go first.
    pub is_gated: bool,
    /// When the alarm wants attention that the node knows of. It is told of an alarm before the database is.
    pub booked_ms: Rc<dyn Fn() -> Option<u64>>,
    /// The node's, for whole databases.
    pub upload_budget: UploadBudget,
}

/// Why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The node's lease is not valid, or ran out meanwhile.
    #[error("the node's lease ran out")]
    NoLease,
    /// The actor was not to be had.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// It was lost or given up while it was opened.
    #[error("the node lost the actor while it was opened")]
    NotHeld,
    /// Its latest state could not be fetched.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Its database could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// It could not be read.
    #[error(transparent)]
    Unreadable(Error),
    /// What was restored is not what the history says.
    #[error("the restored database is not what its history says")]
    NotTheHistory,
}

/// What became of the snapshot at the end of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snapshot {
    /// None was due.
    NotDue,
    /// It is in the bucket.
    Landed,
    /// It may not be; it is tried again as the schedule says, and costs no write (R-REPL-3).
    Failed,
}

/// Whether the guest may change the database while what it committed is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// It may; a transaction of its own may be open.
    Running,
    /// Its event has ended, or it waits for the commit.
    Idle,
}

/// See the module.
pub struct Session<S> {
    bucket: S,
    actor: ActorId,
    generation: u64,
    /// Of the lease it was opened under.
    epoch: u64,
    /// What has been handed to the bucket side leads to this.
    taken: Cell<Point>,
    /// The database has data that no history leads to, from before there was any: all of it has to go.
    seeds: Cell<bool>,
    flags: Arc<Flags>,
    offload: Rc<dyn Offload>,
    /// Held while commits are read and handed over: two at once would mix up their order.
    handing_over: Mutex<()>,
    booked_ms: Rc<dyn Fn() -> Option<u64>>,
    upload_budget: UploadBudget,
    /// What was handed over last does not say for certain when the alarm is due.
    is_vague: Cell<bool>,
    need: Need,
}

impl<S> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { actor, generation, taken, .. } = self;
        let mut debug = f.debug_struct("Session");
        debug.field("actor", actor).field("generation", generation).field("taken", taken);
        debug.finish_non_exhaustive()
    }
}

/// What the local disk has of the state that the history ends with or, without a history, whatever there is.
struct Current {
    database: Database,
    seeds: bool,
}

/// `None`: something else, or nothing.
async fn local(
    offload: &dyn Offload,
    path: &Path,
    config: &Config,
    end: Point,
) -> Result<Option<Current>, SessionError> {
    let file = path.to_owned();
    let exists = offloaded(offload, move || file.exists()).await.unwrap_or(false);
    let has_history = end != Point::START;
    if has_history && (end.is_empty() || !exists) {
        return Ok(None);
    }
    let database = match Database::open_on(offload, path, config).await {
        Ok(database) => database,
        // The bucket has the durable copy: a local file that cannot be read is replaced like an old one.
        Err(error) if has_history && error.is_damage() => return Ok(None),
        Err(error) => return Err(SessionError::Open(error)),
    };
    match database.begin_capture(offload).await {
        Ok(_) if !has_history => Ok(Some(Current { database, seeds: exists })),
        Ok(checksum) if checksum.get() == end.checksum => Ok(Some(Current { database, seeds: false })),
        Ok(_) => {
            database.close(offload).await;
            Ok(None)
        }
        Err(error) if !has_history => Err(SessionError::Unreadable(error)),
        Err(_) => Ok(None),
    }
}

/// A commit, until it is on its way.
struct Next<'a> {
    commit: Commit,
    unsent: Unsent<'a>,
}

/// What was taken out of a database and may never reach the bucket. Dropped before it is [sent](Self::sent), whether by
/// an error or by somebody who waits no more, it ends the actor: what comes after would follow on nothing, and its next
/// opening finds the state in the bucket.
struct Unsent<'a>(Option<&'a Flags>);

impl<'a> Unsent<'a> {
    fn new(flags: &'a Flags) -> Self {
        Self(Some(flags))
    }

    fn sent(mut self) {
        self.0 = None;
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.0 {
            flags.ended.store(true, Ordering::Release);
        }
    }
}

fn alarm_ms(database: &Database) -> Result<Option<u64>, Error> {
    Ok(database.alarm()?.wake().map(|wake| wake.at_ms))
}

fn not_durable(error: GivenUp) -> Error {
    Error::NotDurable(error.to_string())
}

impl<S: BucketSide> Session<S> {
    /// Takes the actor and opens its latest state at `path` (R-OWN-1, R-RST-1, R-REPL-5).
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn open(
        bucket: &S,
        config: SessionConfig<'_>,
        actor: &ActorId,
        path: &Path,
    ) -> Result<(Database, Rc<Self>), SessionError> {
        let SessionConfig { offload, storage, is_gated, booked_ms, upload_budget } = config;
        let Some(epoch) = bucket.epoch() else { return Err(SessionError::NoLease) };
        let taken = bucket.take(actor).await?;
        let (database, at, uploads, seeds) = match local(&*offload, path, storage, taken.end).await? {
            Some(Current { database, seeds }) => (database, taken.end, taken.uploads, seeds),
            None => {
                let (at, uploads) = bucket.rebuild(actor, path.to_owned()).await?;
                let database =
                    Database::open_on(&*offload, path, storage).await.map_err(SessionError::Open)?;
                let checksum = database.begin_capture(&*offload).await.map_err(SessionError::Unreadable)?;
                if !at.is_empty() && checksum.get() != at.checksum {
                    return Err(SessionError::NotTheHistory);
                }
                (database, at, uploads, false)
            }
        };
        let alarm_ms = alarm_ms(&database).map_err(SessionError::Unreadable)?;
        let Ok(flags) = bucket.begin(actor, taken.generation, at, uploads, alarm_ms).await else {
            database.close(&*offload).await;
            return Err(SessionError::NotHeld);
        };
        taken.opening.begun();
        let session = Rc::new(Self {
            bucket: bucket.clone(),
            actor: actor.clone(),
            generation: taken.generation,
            epoch,
            taken: Cell::new(at),
            seeds: Cell::new(seeds),
            flags,
            offload,
            handing_over: Mutex::new(()),
            booked_ms,
            upload_budget,
            is_vague: Cell::new(false),
            need: if is_gated { Need::Durable } else { Need::Replicated },
        });
        database.set_sink(Rc::clone(&session) as Rc<dyn CommitSink>);
        Ok((database, session))
    }

    /// Of this hold.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What has been handed to the bucket side leads to this.
    pub fn taken(&self) -> Point {
        self.taken.get()
    }

    /// Whether events of the actor may run (R-LEASE-2, R-REPL-4).
    pub fn stands(&self) -> bool {
        !self.flags.ended.load(Ordering::Acquire) && self.bucket.epoch() == Some(self.epoch)
    }

    /// Sends what was committed on its way, and the snapshot that is due (R-REPL-1). `handed_over` is told in between
    /// to which transaction it leads.
    ///
    /// # Errors
    /// The actor has to be given up.
    pub async fn replicate(
        &self,
        database: &Database,
        handed_over: impl FnOnce(u64),
    ) -> Result<Snapshot, String> {
        if !self.stands() {
            return Err("the actor is no longer this node's".into());
        }
        let txid = self.hand_over(database, Guest::Idle).await.map_err(|error| error.to_string())?;
        handed_over(txid);
        if !self.flags.snapshot_due.load(Ordering::Acquire) {
            return Ok(Snapshot::NotDue);
        }
        self.snapshot(database).await.map_err(|error| error.to_string())
    }

    /// Hands what was committed to the bucket side; the transaction it leads to.
    ///
    /// # Errors
    /// Of the database, or [`Error::NotDurable`].
    pub async fn hand_over(&self, database: &Database, guest: Guest) -> Result<u64, Error> {
        self.hand_over_for(database, guest, self.need).await
    }

    async fn hand_over_for(&self, database: &Database, guest: Guest, need: Need) -> Result<u64, Error> {
        let _alone = self.handing_over.lock().await;
        let Some(next) = self.next_commit(database, guest).await? else { return Ok(self.taken.get().txid) };
        let Next { commit, unsent } = next;
        let (to, is_exact) = (commit.to, commit.alarm.is_exact);
        self.bucket.push(&self.actor, commit, need).await.map_err(not_durable)?;
        // Not before: whoever waits for a transaction must be able to rely on it being on its way.
        self.taken.set(to);
        self.seeds.set(false);
        self.is_vague.set(!is_exact);
        unsent.sent();
        Ok(to.txid)
    }

    /// Whether what is committed next goes to the bucket as a whole database, which no open transaction allows.
    pub fn needs_whole(&self) -> bool {
        self.taken.get().is_empty()
    }

    /// Waits until `txid` is in the bucket; the last transaction that is.
    ///
    /// # Errors
    /// [`GivenUp`].
    pub async fn landed(&self, txid: u64) -> Result<u64, GivenUp> {
        self.bucket.landed(&self.actor, txid, Need::Durable).await
    }

    /// The actor is held meanwhile; a snapshot that fails costs no write (R-REPL-3).
    async fn snapshot(&self, database: &Database) -> Result<Snapshot, Error> {
        let at = self.taken.get();
        // It stays due: the actor is not held for the uploads of others.
        let Some(place) = self.upload_budget.try_enter(database.size_bytes()) else {
            return Ok(Snapshot::NotDue);
        };
        self.bucket.landed(&self.actor, at.txid, Need::Replicated).await.map_err(not_durable)?;
        let made = database.snapshot(&*self.offload, at.txid, self.now_ms()).await?;
        let landed =
            self.bucket.snapshot(&self.actor, at, place.hold(made.bytes)).await.map_err(not_durable)?;
        Ok(if landed { Snapshot::Landed } else { Snapshot::Failed })
    }

    /// What was committed since the last one, in the form the history needs.
    async fn next_commit(&self, database: &Database, guest: Guest) -> Result<Option<Next<'_>>, Error> {
        let from = self.taken.get();
        let txid = from.txid + 1;
        let changes = database.take_changes().await?;
        if changes.is_none() && !self.seeds.get() {
            if guest == Guest::Idle && self.is_vague.get() {
                self.bucket.settled(&self.actor, from.txid, alarm_ms(database)?).await;
                self.is_vague.set(false);
            }
            return Ok(None);
        }
        let (checksum, content, unsent) = match changes {
            Some(changes) if !from.is_empty() => {
                let unsent = Unsent::new(&self.flags);
                (changes.after().get(), Content::Changes(changes), unsent)
            }
            // The first of a history, or after a deletion: it has to stand by itself.
            _ => {
                // Should it fail, or be given up while it is made, the next one has to carry all of it.
                self.seeds.set(true);
                let place = self.upload_budget.enter(database.size_bytes()).await;
                // What was committed during the wait is part of it.
                drop(database.take_changes().await?);
                let made = database.snapshot(&*self.offload, txid, self.now_ms()).await?;
                // Its own, and not the database's: more may have been committed since the files were read.
                let checksum = made.trailer.post_apply.map_or(0, |checksum| checksum.get());
                (checksum, Content::Whole(place.hold(made.bytes)), Unsent::new(&self.flags))
            }
        };
        let alarm = match guest {
            Guest::Idle => Outlook::exact(alarm_ms(database)?),
            // The book is told of an alarm before the database is, so it is no later than what was committed.
            Guest::Running => Outlook::not_before((self.booked_ms)()),
        };
        Ok(Some(Next { commit: Commit { to: Point { txid, checksum }, content, alarm }, unsent }))
    }

    /// The database is about to be closed: waits until all of it is in the bucket. Whether it is.
    ///
    /// What was handed over earlier may have been answered: it lands also when what came last cannot be handed over.
    pub async fn settle(&self, database: &Database) -> bool {
        let need = Need::Replicated;
        if !self.stands() {
            // At once, unless the uploads go on.
            let _ = self.bucket.landed(&self.actor, self.taken.get().txid, need).await;
            return false;
        }
        let last = self.hand_over_for(database, Guest::Idle, need).await;
        let landed = self.bucket.landed(&self.actor, self.taken.get().txid, need).await;
        let settled = last.and(landed.map_err(not_durable));
        if let Err(why) = &settled {
            let (class, name) = (&self.actor.class, &self.actor.name);
            tracing::error!(%class, %name, "the last writes of an actor that was closed may not be in the bucket: {why}");
        }
        settled.is_ok()
    }

    async fn flush_all(&self, database: &Database, need: Need) -> Result<(), Error> {
        let txid = self.hand_over_for(database, Guest::Idle, need).await?;
        self.bucket.landed(&self.actor, txid, need).await.map(drop).map_err(not_durable)
    }

    /// Ends its uploads and gives the actor up.
    pub async fn finish(&self) {
        self.bucket.finish(&self.actor).await;
    }

    /// Records the deletion (R-DEL-1).
    ///
    /// # Errors
    /// [`GivenUp`]: it may or may not be recorded.
    pub async fn delete(&self) -> Result<(), GivenUp> {
        let from = self.taken.get();
        // Else the first may be on its way without this having been told.
        let is_sure = !self.flags.ended.load(Ordering::Acquire);
        if from == Point::START && is_sure {
            // There is nothing in the bucket to delete.
            self.finish().await;
            return Ok(());
        }
        let empty = Point { txid: from.txid + 1, ..Point::START };
        self.bucket.delete(&self.actor, empty).await
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.bucket.unix_ms()).unwrap_or(i64::MAX)
    }
}

impl<S: BucketSide> CommitSink for Session<S> {
    fn flush<'a>(&'a self, database: &'a Database) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
        Box::pin(self.flush_all(database, Need::Durable))
    }
}
