//! One actor from its opening, through its events, to its close: the shipped session, and events over a real database.

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
    rc::Rc,
};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    future::{Either, select},
};
use wasmkeep_protocol::ActorId;
use wasmkeep_replica::{Session, SessionConfig, SessionError, Snapshot, TakeError};
use wasmkeep_storage::{CommitSink, Database, Error, Inline};

use super::side::Side;
use crate::{
    cluster::{
        database,
        flaw::Flaw,
        process::{Input, Residency, RunId},
        record::{Operation, Record, RequestNumber},
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
    /// Upload what is left, and close.
    Close,
}

/// See the module.
pub(super) struct Resident {
    pub(super) side: Side,
    pub(super) actor: ActorId,
    pub(super) residency: Residency,
}

/// Why its events are over.
enum Ended {
    /// It is closed.
    Closed,
    /// It deletes itself, as this request wanted.
    Deleted(RequestNumber),
}

/// An open actor.
struct Opened {
    database: Database,
    session: Rc<Session<Side>>,
}

impl Resident {
    /// Until it is closed; `lost` cuts the event that runs off first.
    pub(super) async fn run(self, jobs: mpsc::UnboundedReceiver<Job>, lost: oneshot::Receiver<()>) {
        let opened = self.open().await;
        // The node's answer to whoever waits.
        self.side.node.hop().await;
        let residency = self.residency;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.complain(&error);
                let denial = match error {
                    SessionError::Take(TakeError::Denied(denial)) => Some(denial),
                    _ => None,
                };
                return self.side.node.tell(Input::OpenFailed { residency, denial });
            }
        };
        let generation = opened.session.generation();
        self.side.node.tell(Input::Opened { residency, generation });
        let ended = {
            let events = pin!(self.events(&opened, jobs));
            match select(lost, events).await {
                Either::Left(_) => Ok(Ended::Closed),
                Either::Right((ended, _)) => ended,
            }
        };
        let ended = ended.unwrap_or_else(|trouble| {
            self.unsound(trouble);
            Ended::Closed
        });
        match ended {
            Ended::Deleted(request) => self.erase(opened, request).await,
            Ended::Closed => self.close(opened).await,
        }
        self.side.node.tell(Input::Closed { residency });
    }

    fn number(&self) -> usize {
        stage::actor_number(&self.actor)
    }

    fn path(&self) -> PathBuf {
        self.side.path(&self.actor)
    }

    fn unsound(&self, text: String) {
        self.side.node.record(Record::Unsound { actor: self.number(), text });
    }

    fn complain(&self, error: &SessionError) {
        let (pid, actor) = (self.side.node.pid, self.number());
        let (lossy, text) = match error {
            SessionError::NoLease | SessionError::NotHeld | SessionError::Take(TakeError::Denied(_)) => {
                return;
            }
            SessionError::Take(TakeError::History(history)) => (!history.passes(), history.to_string()),
            SessionError::Restore(restore) => (restore.is_lossy(), restore.to_string()),
            SessionError::NotTheHistory => (true, error.to_string()),
            SessionError::Open(_) | SessionError::Unreadable(_) => return self.unsound(error.to_string()),
        };
        self.side.node.record(Record::RestoreFailed { pid, actor, lossy, error: text });
    }

    async fn open(&self) -> Result<Opened, SessionError> {
        let path = self.path();
        if let Some(Err(error)) = path.parent().map(fs::create_dir_all) {
            self.unsound(error.to_string());
        }
        let storage = local::config();
        let config = SessionConfig {
            offload: Rc::new(Inline),
            storage: &storage,
            is_gated: false,
            booked_ms: Rc::new(|| None),
            upload_budget: self.side.uploads.clone(),
        };
        let (database, session) = Session::open(&self.side, config, &self.actor, &path).await?;
        let opened = Opened { database, session };
        self.found(&opened).await.map_err(SessionError::Unreadable)?;
        Ok(opened)
    }

    async fn found(&self, opened: &Opened) -> Result<(), Error> {
        let Opened { database, session } = opened;
        let (pid, actor, generation) = (self.side.node.pid, self.number(), session.generation());
        let contents = database::contents(database).await?;
        self.side.node.record(Record::Found { pid, actor, generation, contents });
        if let Some(text) = local::unsound(database).await {
            self.unsound(text);
        }
        let alarm_ms = database.alarm()?.wake().map(|wake| wake.at_ms);
        if let (Some(alarm_ms), false) = (alarm_ms, session.taken().is_empty()) {
            // What the bucket lists is for the world to say.
            let found = Record::FoundAlarm { actor, generation, alarm_ms, listed_ms: None };
            self.side.node.record(found);
        }
        self.book(opened)
    }

    async fn events(&self, opened: &Opened, mut jobs: mpsc::UnboundedReceiver<Job>) -> Result<Ended, String> {
        while let Some(job) = jobs.next().await {
            let Job::Run { run, request, operation } = job else { break };
            let runs_on = [Flaw::IgnoresLapse, Flaw::ReleasesEarly].map(|flaw| self.side.node.flawed(flaw));
            if !opened.session.stands() && !runs_on.contains(&true) {
                self.side.node.tell(Input::RunRefused(run));
                continue;
            }
            let (pid, actor, generation) = (self.side.node.pid, self.number(), opened.session.generation());
            self.side.node.record(Record::RunBegan { pid, actor, request, generation });
            let ran = match operation {
                Operation::Alarm => self.alarm(opened, run).await,
                operation => self.event(opened, run, request, operation).await,
            };
            match ran {
                Ok(()) if operation == Operation::Delete => return Ok(Ended::Deleted(request)),
                Ok(()) => {}
                // The uploads have ended, and the process is told so.
                Err(Error::NotDurable(_)) => self.side.node.tell(Input::RunFailed(run)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(Ended::Closed)
    }

    async fn event(
        &self,
        opened: &Opened,
        run: RunId,
        request: RequestNumber,
        operation: Operation,
    ) -> Result<(), Error> {
        let (Opened { database, session }, actor, node) = (opened, self.number(), &self.side.node);
        let ended = |told| node.tell(Input::RunDone(run, told));
        node.linger().await;
        let told = if operation == Operation::Remind {
            self.remind(opened, request).await?
        } else {
            database::carry_out(database, request, operation).await?
        };
        node.linger().await;
        if operation == Operation::Delete {
            ended(told);
            return Ok(());
        }
        if operation.is_durable() {
            if !node.flawed(Flaw::AcksEarly) {
                session.flush(database).await?;
            }
            node.record(Record::Durable { actor, request });
            if node.flawed(Flaw::WritesTwice) && node.chance(100) {
                database::carry_out(database, request, operation).await?;
            }
        }
        // An answer may leave before what the event committed is handed over.
        let leaves_early = node.chance(500);
        if leaves_early {
            ended(told);
        }
        self.replicate(opened).await?;
        if !leaves_early {
            ended(told);
        }
        Ok(())
    }

    async fn replicate(&self, opened: &Opened) -> Result<(), Error> {
        let (Opened { database, session }, node) = (opened, &self.side.node);
        let eager = node.eager_snapshots;
        if eager > 0 && !session.needs_whole() && node.chance(1_000 / eager) {
            self.side.snapshot_now(&self.actor);
        }
        let replicated: Result<Snapshot, String> = session.replicate(database, |_| ()).await;
        replicated.map(drop).map_err(Error::NotDurable)
    }

    async fn remind(&self, opened: &Opened, request: RequestNumber) -> Result<u64, Error> {
        let node = &self.side.node;
        let due_ms = node.wall_ms() + node.below(AHEAD_MS_MAX);
        node.record(Record::Reminded { actor: self.number(), request, due_ms });
        database::remind(&opened.database, request, due_ms).await?;
        self.book(opened)?;
        Ok(0)
    }

    /// Runs the alarm, if it is due.
    async fn alarm(&self, opened: &Opened, run: RunId) -> Result<(), Error> {
        let (database, actor, node) = (&opened.database, self.number(), &self.side.node);
        node.linger().await;
        let is_due = database.begin_alarm(node.wall_ms())?.is_some();
        if !is_due && node.flawed(Flaw::TrustsEntries) {
            let request = database::reminder(database).await?;
            node.record(Record::Fired { actor, request });
        }
        if is_due {
            node.linger().await;
            let request = database::reminder(database).await?;
            database.end_alarm(node.wall_ms(), true)?;
            node.record(Record::Fired { actor, request });
        }
        self.book(opened)?;
        node.tell(Input::RunDone(run, 0));
        self.replicate(opened).await
    }

    /// Tells the process when the actor wants to be looked at.
    fn book(&self, opened: &Opened) -> Result<(), Error> {
        let at_ms = opened.database.alarm()?.wake().map(|wake| wake.at_ms);
        self.side.node.tell(Input::Booked { actor: self.actor.clone(), at_ms });
        Ok(())
    }

    /// The event that asked for it has ended.
    async fn erase(&self, opened: Opened, request: RequestNumber) {
        let Opened { database, session } = opened;
        database.close(&Inline).await;
        let deleted = session.delete().await;
        self.side.node.record(Record::Erased { request, ok: deleted.is_ok() });
        if deleted.is_err() {
            self.side.node.record(Record::UploadsEnded { pid: self.side.node.pid, actor: self.number() });
        }
        if let Err(error) = wasmkeep_storage::remove(&self.path()) {
            self.unsound(error.to_string());
        }
    }

    async fn close(&self, opened: Opened) {
        let Opened { database, session } = opened;
        // What a cut event left open is undone.
        database.end_event().await;
        let (actor, generation) = (self.number(), session.generation());
        if session.settle(&database).await {
            self.side.node.record(Record::Closed { actor, generation });
        } else {
            self.side.node.record(Record::UploadsEnded { pid: self.side.node.pid, actor });
        }
        database.close(&Inline).await;
        session.finish().await;
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
