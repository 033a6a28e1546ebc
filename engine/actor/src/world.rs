//! What the actors of a shard stand on: the executor, databases and instances they are given, and their limits.

use std::{future::Future, rc::Rc, time::Duration};

use wasmkeep_protocol::ActorId;
use wasmkeep_storage::{Database, Offload};

use crate::{
    AlarmError, Failure, Guest, Refusal,
    alarm::{Book, Target},
};

/// What the actors of a shard need from whatever runs them.
pub trait World: 'static {
    /// What runs an actor's code.
    type Guest: Guest;

    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Ends after `duration`; may be late by the coarseness of the executor's timers.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// Runs the task of an actor on this thread; it may be polled before this returns.
    fn spawn(&self, id: &ActorId, task: impl Future<Output = ()> + 'static);

    /// Where blocking work goes.
    fn offload(&self) -> &dyn Offload;

    /// Opens the actor's database, creating it on first use. What it gives may still be under way: an instance is
    /// made meanwhile, and [`Database::opened`] is asked before anything runs.
    fn open(&self, id: &ActorId) -> impl Future<Output = Result<Database, Refusal>>;

    /// Makes an instance of a version of the class that is current at some moment until it is done.
    fn start(
        &self,
        id: &ActorId,
        database: &Rc<Database>,
    ) -> impl Future<Output = Result<Started<Self::Guest>, Refusal>>;

    /// Whether an event may run now: the node holds the actor.
    ///
    /// # Errors
    /// Why not; the event is refused and the database closed.
    fn may_run(&self, _id: &ActorId) -> Result<(), Refusal> {
        Ok(())
    }

    /// Sends what an event committed on its way to where it outlives this machine. Not told of an event that
    /// deleted its actor.
    ///
    /// # Errors
    /// Why the actor has to be given up; the database is closed.
    fn replicate(&self, _id: &ActorId, _database: &Rc<Database>) -> impl Future<Output = Result<(), String>> {
        std::future::ready(Ok(()))
    }

    /// Closes the database; `erasing` when [`World::erase`] follows.
    fn close(&self, _id: &ActorId, database: Database, _erasing: bool) -> impl Future<Output = ()> {
        database.close(self.offload())
    }

    /// An actor was not let in: it is not opened, whoever prepared for that.
    fn not_admitted(&self, _id: &ActorId) {}

    /// Removes a deleted actor's files; its database is closed already.
    fn erase(&self, id: &ActorId) -> impl Future<Output = ()>;

    /// The wall clock, in milliseconds since the Unix epoch. It may be set at any time.
    fn unix_ms(&self) -> u64;

    /// The alarms of its actors.
    fn alarms(&self) -> &Book;

    /// What an alarm of `id` that is due finds.
    fn alarm_target(&self, id: &ActorId) -> Target;

    /// An event that says the alarm may be due; its answer, once it was taken and has ended, or was not taken.
    fn alarm_event(&self) -> (<Self::Guest as Guest>::Event, impl Future<Output = bool> + 'static);

    /// Told of everything worth counting or logging.
    fn observe(&self, id: &ActorId, happening: Happening<'_>);
}

/// A live instance, and what it was made of.
#[derive(Debug)]
pub struct Started<G> {
    /// The instance.
    pub guest: G,
    /// Of its code.
    pub version: String,
}

/// What an actor's life shows to the outside.
#[derive(Debug)]
pub enum Happening<'a> {
    /// It became resident, after this long.
    Woke(Duration),
    /// It went to sleep.
    Slept,
    /// Idle for a moment, it closed its database; its instance stays.
    Dozed,
    /// Its database is open again.
    Roused,
    /// An event ran.
    Turn {
        /// From its start to its end, waits included.
        elapsed: Duration,
        /// The part of it SQLite worked.
        sql: Duration,
    },
    /// An attempt at an alarm ended.
    Alarm {
        /// 1 the first time.
        attempt: u32,
        /// How.
        ended: &'a Result<(), AlarmError>,
    },
    /// An event failed; its instance was dropped.
    Failed(&'a Failure),
    /// An event ended with a transaction open, which was rolled back.
    RolledBack,
    /// Closing or erasing the database did not go well.
    StorageTrouble(String),
}

/// Limits of a shard's actors.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Waiting events per actor.
    pub mailbox_events_max: usize,
    /// Resident actors.
    pub resident_max: usize,
    /// Wall clock of one event.
    pub event_wall_clock: Duration,
    /// Idle time before an actor dozes: its database is closed, its instance stays.
    pub doze_after: Duration,
    /// Idle time before an actor hibernates.
    pub hibernate_after: Duration,
}
