//! One hold of one actor: from its restore, through its events and their uploads, to its close.
//!
//! Does with the shipped parts what a node does with them, and tells the world. The broken variants of a node's data
//! are here.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    future::{Either, select},
};
use wasmkeep_bucket::{Bucket, Listing};
use wasmkeep_protocol::{
    alarm::{Outlook, Post},
    history::Point,
    object_keys,
    replication::SnapshotSchedule,
};
use wasmkeep_replica::{
    Commit, Content, GivenUp, History, HistoryError, Need, RestoreError, Restorer, Subject, Uploader, Ways,
    collect,
};
use wasmkeep_storage::{Database, Error, Inline};

use super::{
    desk::{Desk, Held, Saying, Simulated},
    way::Way,
};
use crate::{
    cluster::{
        database,
        flaw::Flaw,
        process::{Input, RunId},
        record::{ActorNumber, Generation, Operation, Record, RequestNumber},
        stage,
    },
    replica::local,
};

/// How far ahead alarms are set, in milliseconds.
const AHEAD_MS_MAX: u64 = 40_000;

/// What an open actor is to do.
#[derive(Debug)]
pub(super) enum Job {
    /// An event.
    Run { run: RunId, request: RequestNumber, operation: Operation },
    /// A sweep came across this entry of its.
    Notice(Post),
    /// Upload what is left, and close.
    Close,
}

/// Why a hold stops.
#[derive(Debug)]
enum Stop {
    /// The actor cannot be had.
    Restore { lossy: bool, error: String },
    /// Its uploads have ended.
    Uploads,
    /// SQLite or the disk; never expected.
    Local(String),
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
    fn from(_: GivenUp) -> Self {
        Self::Uploads
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Local(error.to_string())
    }
}

type Uploads = Uploader<Way, Simulated, Held>;

/// An open database, and its way to the bucket.
struct Opened {
    database: Rc<Database>,
    uploads: Uploads,
    /// It has data that no history leads to.
    seeds: Cell<bool>,
    /// When its alarm was due as it was handed over last.
    alarm_ms: Cell<Option<u64>>,
}

/// See the module.
pub(super) struct Hold {
    pub(super) desk: Rc<Desk>,
    pub(super) restorer: Rc<Restorer<Way, Simulated>>,
    pub(super) actor: ActorNumber,
    pub(super) generation: Generation,
    pub(super) path: PathBuf,
    pub(super) retention_ms: u64,
}

impl Hold {
    /// Until it is closed, its uploads end, or `gone`.
    pub(super) async fn run(self, jobs: mpsc::UnboundedReceiver<Job>, gone: oneshot::Receiver<()>) {
        // What is gone does nothing more, so it is looked at first.
        select(gone, pin!(self.live(jobs))).await;
    }

    async fn live(&self, jobs: mpsc::UnboundedReceiver<Job>) {
        let (actor, generation) = (self.actor, self.generation);
        let tell = |input| self.desk.say(Saying::Tell(input));
        let opened = match self.open().await {
            Ok(opened) => opened,
            Err(stop) => {
                self.complain(stop);
                return tell(Input::Opened { actor, generation, ok: false });
            }
        };
        tell(Input::Opened { actor, generation, ok: true });
        let ended = {
            let (events, uploading) = (pin!(self.events(&opened, jobs)), pin!(opened.uploads.run()));
            match select(events, uploading).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => Err(Stop::Uploads),
            }
        };
        self.desk.entries.closed(&stage::actor(actor), opened.uploads.posts());
        match ended {
            Ok(()) => tell(Input::Closed { actor, generation }),
            Err(stop) => {
                self.complain(stop);
                tell(Input::GivenUp { actor, generation });
            }
        }
    }

    fn complain(&self, stop: Stop) {
        let (pid, actor) = (self.desk.pid, self.actor);
        match stop {
            Stop::Restore { lossy, error } => {
                self.desk.record(Record::RestoreFailed { pid, actor, lossy, error });
            }
            Stop::Local(text) => self.desk.record(Record::Unsound { actor, text }),
            Stop::Uploads => self.desk.record(Record::UploadsEnded { pid, actor }),
        }
    }

    fn folder(&self) -> String {
        stage::history_folder(self.actor)
    }

    fn held(&self) -> Held {
        Held { desk: self.desk.clone(), actor: self.actor, generation: self.generation }
    }

    /// Looks at the bucket, then uses the local file or rebuilds it.
    async fn open(&self) -> Result<Opened, Stop> {
        let history = self.restorer.look(&self.folder()).await?;
        let exists = fs::exists(&self.path).unwrap_or(false);
        let Some(end) = history.end() else { return self.opened(&history, exists).await };
        if exists {
            let database = self.database()?;
            let checksum = database.begin_capture(&Inline).await?.get();
            drop(database);
            if checksum == end.checksum || self.desk.flawed(Flaw::TrustsDisk) {
                return self.opened(&history, false).await;
            }
        }
        let rebuilt = self.restorer.rebuild(&self.folder(), &self.path, Some(history)).await?;
        self.opened(&rebuilt.history, false).await
    }

    fn database(&self) -> Result<Rc<Database>, Stop> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(|error| Stop::Local(error.to_string()))?;
        }
        local::open(&self.path).map_err(|error| Stop::Local(error.to_string()))
    }

    async fn opened(&self, history: &History, seeds: bool) -> Result<Opened, Stop> {
        let database = self.database()?;
        database.begin_capture(&Inline).await?;
        let contents = database::contents(&database).await?;
        let (pid, actor, generation) = (self.desk.pid, self.actor, self.generation);
        self.desk.record(Record::Found { pid, actor, generation, contents });
        if let Some(text) = local::unsound(&database).await {
            self.desk.record(Record::Unsound { actor, text });
        }
        let at_ms = database.alarm()?.wake().map(|wake| wake.at_ms);
        let end = history.end().unwrap_or(Point::START);
        let posts = self.desk.entries.opened(&stage::actor(actor), generation, end, at_ms);
        if let (Some(alarm_ms), false) = (at_ms, end.is_empty()) {
            // What the bucket lists is for the world to say.
            self.desk.record(Record::FoundAlarm { actor, generation, alarm_ms, listed_ms: None });
        }
        let way = || Way::new(&self.desk);
        let uploads = Uploader::new(
            Ways { urgent: way(), ordinary: way(), spare: way() },
            Simulated(self.desk.clone()),
            self.held(),
            stage::subject(actor),
            posts,
            end,
            SnapshotSchedule::new(history.uploads_since_snapshot()),
        );
        let opened = Opened { database, uploads, seeds: seeds.into(), alarm_ms: at_ms.into() };
        self.book(&opened)?;
        Ok(opened)
    }

    async fn events(&self, opened: &Opened, mut jobs: mpsc::UnboundedReceiver<Job>) -> Result<(), Stop> {
        while let Some(job) = jobs.next().await {
            match job {
                Job::Run { run, operation: Operation::Alarm, .. } => self.alarm(opened, run).await?,
                Job::Run { run, request, operation } => self.event(opened, run, request, operation).await?,
                Job::Notice(post) => opened.uploads.noticed(post),
                Job::Close => return self.close(opened).await,
            }
        }
        Ok(())
    }

    async fn event(
        &self,
        opened: &Opened,
        run: RunId,
        request: RequestNumber,
        operation: Operation,
    ) -> Result<(), Stop> {
        let (database, actor) = (&opened.database, self.actor);
        let ended = |told| self.desk.say(Saying::Tell(Input::RunDone(run, told)));
        self.desk.linger().await;
        let told = if operation == Operation::Remind {
            self.remind(opened, request).await?
        } else {
            database::carry_out(database, request, operation).await?
        };
        self.desk.linger().await;
        if self.desk.flawed(Flaw::AcksEarly) && operation.is_durable() {
            self.desk.record(Record::Durable { actor, request });
            ended(told);
            return self.push(opened).await;
        }
        self.push(opened).await?;
        if operation.is_durable() {
            opened.uploads.landed(opened.uploads.taken().txid, Need::Durable).await?;
            self.desk.record(Record::Durable { actor, request });
        }
        if self.desk.flawed(Flaw::WritesTwice) && operation.is_durable() && self.desk.chance(100) {
            database::carry_out(database, request, operation).await?;
        }
        ended(told);
        self.housekeeping(opened).await
    }

    async fn remind(&self, opened: &Opened, request: RequestNumber) -> Result<u64, Stop> {
        let due_ms = self.desk.wall_ms() + self.desk.below(AHEAD_MS_MAX);
        self.desk.record(Record::Reminded { actor: self.actor, request, due_ms });
        database::remind(&opened.database, request, due_ms).await?;
        self.book(opened)?;
        Ok(0)
    }

    /// Runs the alarm, if it is due.
    async fn alarm(&self, opened: &Opened, run: RunId) -> Result<(), Stop> {
        let database = &opened.database;
        self.desk.linger().await;
        let is_due = database.begin_alarm(self.desk.wall_ms())?.is_some();
        if !is_due && self.desk.flawed(Flaw::TrustsEntries) {
            let request = database::reminder(database).await?;
            self.desk.record(Record::Fired { actor: self.actor, request });
        }
        if is_due {
            self.push(opened).await?;
            self.desk.linger().await;
            let request = database::reminder(database).await?;
            database.end_alarm(self.desk.wall_ms(), true)?;
            self.push(opened).await?;
            self.desk.record(Record::Fired { actor: self.actor, request });
        }
        self.book(opened)?;
        self.desk.say(Saying::Tell(Input::RunDone(run, 0)));
        self.housekeeping(opened).await
    }

    /// Tells the process when the actor wants to be looked at.
    fn book(&self, opened: &Opened) -> Result<(), Stop> {
        let at_ms = opened.database.alarm()?.wake().map(|wake| wake.at_ms);
        self.desk.say(Saying::Tell(Input::Booked { actor: self.actor, at_ms }));
        Ok(())
    }

    /// Hands over what was committed.
    async fn push(&self, opened: &Opened) -> Result<(), Stop> {
        let (database, uploads) = (&opened.database, &opened.uploads);
        let changes = database.take_changes().await?;
        if changes.is_none() && !opened.seeds.get() {
            return Ok(());
        }
        let txid = uploads.taken().txid + 1;
        let (checksum, content) = match changes {
            Some(changes) if !uploads.needs_whole() => (changes.after().get(), Content::Changes(changes)),
            _ => {
                let whole = database.snapshot(&Inline, txid, self.now_ms()).await?;
                let checksum = database.checksum().map_or(0, |checksum| checksum.get());
                (checksum, Content::Whole(whole.bytes.into()))
            }
        };
        opened.seeds.set(false);
        let at_ms = database.alarm()?.wake().map(|wake| wake.at_ms);
        let before = opened.alarm_ms.replace(at_ms);
        if before != at_ms && self.desk.flawed(Flaw::AlarmsDeletedEarly) {
            self.delete_entries(before).await;
        }
        let alarm = match at_ms {
            // Of a commit that has landed when it is said what it was.
            Some(_) if self.desk.flawed(Flaw::AlarmsListedLate) => Outlook::not_before(None),
            at_ms => Outlook::exact(at_ms.filter(|_| !self.desk.flawed(Flaw::AlarmsUnannounced))),
        };
        Ok(uploads.push(Commit { to: Point { txid, checksum }, content, alarm })?)
    }

    /// The variant that deletes entries before the commit that makes them needless is in the bucket.
    async fn delete_entries(&self, at_ms: Option<u64>) {
        let (Some(at_ms), Subject { tenant, actor }) = (at_ms, stage::subject(self.actor)) else { return };
        let way = Way::new(&self.desk);
        let prefix = object_keys::alarms_due(&tenant, &(&actor).into(), at_ms);
        for entry in Listing::new(&way, &prefix).all(100).await.unwrap_or_default() {
            // A deletion that fails breaks nothing.
            let _ = way.delete(&entry.key).await;
        }
        // Time for a node to die in between.
        self.desk.linger().await;
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.desk.wall_ms()).unwrap_or(i64::MAX)
    }

    /// A periodic snapshot when it is due, and a collection after it.
    async fn housekeeping(&self, opened: &Opened) -> Result<(), Stop> {
        let uploads = &opened.uploads;
        let eager = self.desk.eager_snapshots;
        let is_eager = eager > 0 && !uploads.needs_whole() && self.desk.chance(1_000 / eager);
        if !is_eager && !uploads.snapshot_due() {
            return Ok(());
        }
        uploads.landed(uploads.taken().txid, Need::Replicated).await?;
        let point = uploads.taken();
        let file = opened.database.snapshot(&Inline, point.txid, self.now_ms()).await?;
        if uploads.snapshot(point, file.bytes.into()).await {
            self.collect();
        }
        Ok(())
    }

    /// In the background: no write waits for it.
    fn collect(&self) {
        let (desk, folder, held) = (self.desk.clone(), self.folder(), self.held());
        let (generation, retention) = (self.generation, Duration::from_millis(self.retention_ms));
        self.desk.executor().spawn(async move {
            let runtime = Simulated(desk.clone());
            // One that ends early is made up for by the next.
            drop(collect(&Way::new(&desk), &runtime, &folder, generation, retention, &held).await);
        });
    }

    async fn close(&self, opened: &Opened) -> Result<(), Stop> {
        self.push(opened).await?;
        if self.desk.flawed(Flaw::AlarmsListedLate) {
            opened.uploads.settled(opened.uploads.taken().txid, opened.alarm_ms.get());
        }
        if !self.desk.flawed(Flaw::ClosesEarly) {
            let txid = opened.uploads.taken().txid;
            opened.uploads.landed(txid, Need::Replicated).await?;
        }
        self.desk.record(Record::Closed { actor: self.actor, generation: self.generation });
        opened.uploads.close();
        Ok(())
    }
}

/// What a file on a disk has, whoever owns the actor.
pub(super) async fn peek(path: &Path, operation: Operation) -> Option<u64> {
    if !fs::exists(path).unwrap_or(false) {
        return Some(0);
    }
    let database = local::open(path).ok()?;
    database::carry_out(&database, 0, operation).await.ok()
}
