//! One hold of one actor by one node: restore, events with their uploads, snapshots and collection, and sleep.
//!
//! It does with the shipped parts what a node does, and tells the checkers. The broken variants that are a node's
//! are here.

use std::{cell::Cell, fs, path::PathBuf, pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use wasmkeep_protocol::{
    ActorId, NodeId,
    alarm::{Outlook, Posts},
    history::Point,
    object_keys,
    replication::SnapshotSchedule,
};
use wasmkeep_replica::{
    Commit, Content, GivenUp, History, HistoryError, Need, RestoreError, Subject, Uploader, Ways, collect,
};
use wasmkeep_storage::{Database, Error, Inline};

use super::{
    bucket::SimBucket,
    flaw::ReplicaFlaw,
    local,
    record::{Actor, Generation, Record, Way},
    runtime::Simulated,
    world::World,
};

/// Whether the actor is this node's, as the uploader and the collector ask.
#[derive(Clone)]
pub(crate) struct Held {
    held: Rc<Cell<bool>>,
    ignores: bool,
}

impl wasmkeep_replica::Hold for Held {
    fn is_held(&self) -> bool {
        self.held.get() || self.ignores
    }
}

/// Whose data an actor's is.
pub(crate) fn subject(actor: Actor) -> Subject {
    let checked = "names of this module's own are checked";
    let name = format!("a{actor}").parse().expect(checked);
    Subject {
        tenant: "sim".parse().expect(checked),
        actor: ActorId { class: "room".parse().expect(checked), name },
    }
}

type Uploads = Uploader<SimBucket, Simulated, Held>;

/// One hold.
pub(crate) struct Hold {
    pub(crate) world: Rc<World>,
    pub(crate) actor: Actor,
    pub(crate) generation: Generation,
    /// Set to false when the lease runs out or the process dies.
    pub(crate) held: Rc<Cell<bool>>,
    pub(crate) path: PathBuf,
    /// Only what always goes well: a short visit at the end of the run.
    pub(crate) is_last: bool,
}

/// Why a hold has no database, or stops.
#[derive(Debug)]
enum Stop {
    /// It cannot be had.
    Restore { lossy: bool, error: String },
    /// Its uploads have ended.
    Uploads(GivenUp),
    /// SQLite or the disk.
    Local(String),
    /// The actor was deleted: there is nothing more to hold.
    Deleted,
}

impl From<RestoreError> for Stop {
    fn from(error: RestoreError) -> Self {
        Self::Restore { lossy: error.is_lossy(), error: error.to_string() }
    }
}

impl From<HistoryError> for Stop {
    fn from(error: HistoryError) -> Self {
        Self::Restore { lossy: !error.passes(), error: error.to_string() }
    }
}

impl From<GivenUp> for Stop {
    fn from(ended: GivenUp) -> Self {
        Self::Uploads(ended)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Local(error.to_string())
    }
}

/// A database that was found, and where its history stands.
struct Found {
    database: Rc<Database>,
    point: Point,
    schedule: SnapshotSchedule,
}

impl Hold {
    fn folder(&self) -> String {
        let Subject { tenant, actor } = self.subject();
        object_keys::history_folder(&tenant, &actor)
    }

    fn subject(&self) -> Subject {
        subject(self.actor)
    }

    fn node(&self) -> NodeId {
        "node".parse().expect("a node id")
    }

    fn held(&self) -> Held {
        Held { held: self.held.clone(), ignores: self.world.flawed(ReplicaFlaw::IgnoresLostHold) }
    }

    /// From restore to sleep.
    pub(crate) async fn run(self) {
        let (actor, generation) = (self.actor, self.generation);
        self.world.record(&Record::HoldBegan { actor, generation });
        match self.serve().await {
            Ok(()) | Err(Stop::Deleted) => self.world.record(&Record::Served { actor }),
            Err(Stop::Restore { lossy, error }) => {
                self.world.record(&Record::RestoreFailed { actor, generation, lossy, error });
            }
            Err(Stop::Uploads(why)) => {
                self.world.record(&Record::GaveUp { actor, generation, why: why.to_string() });
            }
            Err(Stop::Local(why)) => self.world.record(&Record::GaveUp { actor, generation, why }),
        }
    }

    async fn serve(&self) -> Result<(), Stop> {
        let Found { database, point, schedule } = self.find().await?;
        let way = || SimBucket::new(&self.world);
        let uploads: Uploads = Uploader::new(
            Ways { urgent: way(), ordinary: way(), spare: way() },
            Simulated(self.world.clone()),
            self.held(),
            self.subject(),
            Posts::new(self.node(), self.generation),
            point,
            schedule,
        );
        {
            let (events, uploading) = (pin!(self.events(&database, &uploads)), pin!(uploads.run()));
            match select(events, uploading).await {
                Either::Left((ended, _)) => ended?,
                Either::Right((ended, _)) => return Err(ended.into()),
            }
        }
        self.sleep(database, uploads.taken()).await
    }

    /// Looks at the bucket, then uses the local file or rebuilds it.
    async fn find(&self) -> Result<Found, Stop> {
        let restorer = self.world.restorer();
        let mut history = restorer.look(&self.folder()).await?;
        let local = fs::exists(&self.path).unwrap_or(false);
        let trusts = self.world.flawed(ReplicaFlaw::TrustsLocalFiles);
        match history.end() {
            None => self.found(&history, Way::New, None).await,
            Some(end) => {
                if local && !end.is_empty() {
                    let database = local::open(&self.path).map_err(|error| Stop::Local(error.to_string()))?;
                    let checksum = database.begin_capture(&Inline).await?.get();
                    drop(database);
                    if checksum == end.checksum || trusts {
                        return self.found(&history, Way::Current, None).await;
                    }
                }
                history = restorer.rebuild(&self.folder(), &self.path, Some(history)).await?.history;
                if history.is_deleted() {
                    return self.found(&history, Way::Deleted, None).await;
                }
                let file = fs::read(&self.path).map_err(|error| Stop::Local(error.to_string()))?;
                self.found(&history, Way::Rebuilt, Some(super::record::fnv(&file))).await
            }
        }
    }

    async fn found(&self, history: &History, way: Way, bytes: Option<u64>) -> Result<Found, Stop> {
        let database = local::open(&self.path).map_err(|error| Stop::Local(error.to_string()))?;
        let checksum = database.begin_capture(&Inline).await?.get();
        let mut point = history.end().unwrap_or(Point::START);
        let (actor, generation) = (self.actor, self.generation);
        let rows = local::rows(&database).await?;
        self.world.record(&Record::Found { actor, generation, way, point, checksum, bytes, rows });
        if let Some(text) = local::unsound(&database).await {
            self.world.record(&Record::Unsound { actor, text });
        }
        if self.world.flawed(ReplicaFlaw::CountsAnew) && point.txid > 1 {
            point.txid = 1;
        }
        Ok(Found { database, point, schedule: SnapshotSchedule::new(history.uploads_since_snapshot()) })
    }

    async fn events(&self, database: &Rc<Database>, uploads: &Uploads) -> Result<(), Stop> {
        let world = &self.world;
        // Often only a few: then a late write of the hold before may reach further than this one.
        let most = if world.chance(400) { 3 } else { world.parameters.events_max };
        let events = if self.is_last { 2 } else { world.below(most) + 1 };
        let mut unacknowledged = Vec::new();
        for _ in 0..events {
            let pause = world.below(world.parameters.event_pause_ms_max + 1);
            world.executor.sleep(Duration::from_millis(pause)).await;
            if !self.is_last && world.chance(world.parameters.deletes) {
                return self.delete(uploads).await;
            }
            self.event(database, uploads, &mut unacknowledged).await?;
            self.housekeeping(database, uploads).await?;
        }
        if uploads.taken().txid > 0 {
            uploads.landed(uploads.taken().txid, Need::Replicated).await?;
        }
        Ok(())
    }

    async fn event(
        &self,
        database: &Database,
        uploads: &Uploads,
        written: &mut Vec<u64>,
    ) -> Result<(), Stop> {
        let world = &self.world;
        let (actor, generation) = (self.actor, self.generation);
        let (before, after) = (self.reshapes(), self.reshapes());
        if before {
            local::reshape(database, world.below(1_000)).await;
        }
        let unit = world.unit();
        match local::write(database, unit, world.parameters.row_bytes).await {
            Ok(()) => written.push(unit),
            // Full: what could not be written is promised to nobody.
            Err(_) => drop(database.end_event().await),
        }
        if after {
            local::reshape(database, world.below(1_000)).await;
        }
        let is_durable = self.is_last || world.chance(world.parameters.durable);
        if world.flawed(ReplicaFlaw::AcksEarly) && is_durable {
            written.drain(..).for_each(|unit| world.record(&Record::Durable { actor, generation, unit }));
        }
        self.push(database, uploads).await?;
        if is_durable {
            uploads.landed(uploads.taken().txid, Need::Durable).await?;
            written.drain(..).for_each(|unit| world.record(&Record::Durable { actor, generation, unit }));
        } else if world.chance(300) {
            uploads.landed(uploads.taken().txid, Need::Replicated).await?;
        }
        Ok(())
    }

    fn reshapes(&self) -> bool {
        self.world.chance(self.world.parameters.reshapes)
    }

    /// Hands over what was committed.
    async fn push(&self, database: &Database, uploads: &Uploads) -> Result<(), Stop> {
        let (actor, generation) = (self.actor, self.generation);
        let Some(changes) = database.take_changes().await? else { return Ok(()) };
        let txid = uploads.taken().txid + 1;
        let point = Point { txid, checksum: changes.after().get() };
        let content = if uploads.needs_whole() {
            let now = i64::try_from(self.world.unix_ms()).unwrap_or(i64::MAX);
            Content::Whole(database.snapshot(&Inline, txid, now).await?.bytes.into())
        } else {
            Content::Changes(changes)
        };
        let rows = local::rows(database).await?;
        self.world.record(&Record::Pushed { actor, generation, point, rows });
        let alarm = Outlook::exact(None);
        Ok(uploads.push(Commit { to: point, content, alarm })?)
    }

    /// A periodic snapshot when it is due, and a collection after it.
    async fn housekeeping(&self, database: &Database, uploads: &Uploads) -> Result<(), Stop> {
        let world = &self.world;
        let eager = world.parameters.eager_snapshots;
        let is_eager = eager > 0 && !uploads.needs_whole() && world.chance(1_000 / eager);
        if !is_eager && !uploads.snapshot_due() {
            return Ok(());
        }
        uploads.landed(uploads.taken().txid, Need::Replicated).await?;
        let point = uploads.taken();
        let now = i64::try_from(world.unix_ms()).unwrap_or(i64::MAX);
        let file = database.snapshot(&Inline, point.txid, now).await?;
        let landed = uploads.snapshot(point, file.bytes.into()).await;
        world.record(&Record::Snapshot { actor: self.actor, point, landed });
        if landed {
            let retention_ms = world.parameters.retention_ms;
            let carried_out = if world.flawed(ReplicaFlaw::ForgetsRetention) { 0 } else { retention_ms };
            self.collect(retention_ms, carried_out);
        }
        if landed && world.flawed(ReplicaFlaw::CollectsTheBase) {
            let file = wasmkeep_protocol::history::HistoryFile::snapshot(self.generation, point);
            if let Ok(key) = format!("{}{file}", self.folder()).parse() {
                let _ = wasmkeep_bucket::Bucket::delete(&world.memory, &key).await;
            }
        }
        Ok(())
    }

    /// In the background: no write waits for it.
    fn collect(&self, recorded_ms: u64, retention_ms: u64) {
        let (world, folder, held) = (self.world.clone(), self.folder(), self.held());
        let (actor, generation) = (self.actor, self.generation);
        self.world.executor.spawn(async move {
            let bucket = SimBucket::collecting(&world, recorded_ms);
            let retention = Duration::from_millis(retention_ms);
            let ended =
                collect(&bucket, &Simulated(world.clone()), &folder, generation, retention, &held).await;
            let objects =
                ended.as_ref().map_or_else(wasmkeep_replica::CollectError::deleted, |objects| *objects);
            world.record(&Record::Collected { actor, objects, complete: ended.is_ok() });
        });
    }

    async fn delete(&self, uploads: &Uploads) -> Result<(), Stop> {
        let (actor, generation) = (self.actor, self.generation);
        if uploads.taken().is_empty() {
            return Ok(());
        }
        let point = Point { txid: uploads.taken().txid + 1, ..Point::START };
        self.world.record(&Record::DeletePushed { actor, generation, point });
        uploads.push(Commit { to: point, content: Content::Deleted, alarm: Outlook::exact(None) })?;
        uploads.landed(point.txid, Need::Replicated).await?;
        self.world.record(&Record::Deleted { actor, generation });
        self.collect(0, 0);
        // An actor's file is of no use any more; the next hold sets it aside.
        Err(Stop::Deleted)
    }

    async fn sleep(&self, database: Rc<Database>, point: Point) -> Result<(), Stop> {
        let (actor, generation) = (self.actor, self.generation);
        let Ok(database) = Rc::try_unwrap(database) else {
            return Err(Stop::Local("something still uses the database".to_owned()));
        };
        database.close(&Inline).await;
        let bytes = local::whole_file(&self.path).await.map_err(|error| Stop::Local(error.to_string()))?;
        if !point.is_empty() {
            self.world.record(&Record::Slept { actor, generation, point, bytes });
        }
        Ok(())
    }
}
