//! Everything that happens in a run, in one line of time: hashed, shown on request, and put before the checkers.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    time::Duration,
};

use wasmkeep_actor::{Failure, Refusal};

use crate::{
    checkers::{self, Checker},
    eprintln,
};

/// An actor, by its place in the cast.
pub type ActorNumber = usize;
/// An event, counted over the whole run.
pub type EventNumber = u64;
/// A set of rows that commit together, counted over the whole run.
pub type Unit = u64;
/// A version of a class; a later one is greater.
pub type Version = u64;
/// One attempt at an `on-init`, counted over the whole run.
pub type Attempt = u64;

/// What a reader found in an actor's database, outside any transaction.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// `(unit, part, owner)` of each row, in the order of insertion.
    pub rows: Vec<(Unit, u64, String)>,
    /// The counter that a trigger keeps beside the rows.
    pub counter: u64,
    /// `(version, attempt)` of each `on-init` that left its row.
    pub inits: Vec<(Version, Attempt)>,
}

impl fmt::Debug for Found {
    /// The rows as a number: there may be thousands of them at each look.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.rows.iter().fold(FNV_BASIS, |hash, (unit, part, owner)| {
            let hash = (hash ^ unit).wrapping_mul(FNV_PRIME) ^ part;
            (hash.wrapping_mul(FNV_PRIME) ^ owner.len() as u64).wrapping_mul(FNV_PRIME)
        });
        let (rows, counter, inits) = (self.rows.len(), self.counter, &self.inits);
        write!(f, "{rows} rows {digest:016x}, counter {counter}, on-init {inits:?}")
    }
}

/// The offset basis of FNV-1a with 64 bits.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
/// The prime of FNV-1a with 64 bits.
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// How a life of the shard ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeEnd {
    /// It was stopped and everything went to rest.
    Stopped,
    /// It was killed. The actor named, if any, lost the tail of a commit that was being written.
    Killed {
        /// Whose WAL ends early.
        torn: Option<ActorNumber>,
    },
}

/// The state of a shard in which nothing runs and nothing waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stillness {
    /// Resident actors, as the shard counts them.
    pub resident: usize,
    /// Waiting events, as the shard counts them.
    pub waiting: usize,
    /// Instances alive.
    pub instances: usize,
    /// Actors whose database file this process holds open, in order.
    pub files: Vec<ActorNumber>,
    /// Tasks that have not ended.
    pub tasks: usize,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A life begins; clients and faults follow.
    LifeBegan,
    /// A life ended.
    LifeEnded(LifeEnd),
    /// Faults and hostile scripts end here: from now on everything must go well.
    FaultsOff,
    /// A client sends an event.
    Sent { event: EventNumber, actor: ActorNumber },
    /// Its client left.
    Abandoned { event: EventNumber },
    /// Answered without running.
    Refused { event: EventNumber, refusal: Refusal },
    /// An instance takes the event.
    Began { event: EventNumber, actor: ActorNumber, version: Version, has_init: bool },
    /// The instance answered it.
    Answered { event: EventNumber, actor: ActorNumber },
    /// It was answered with a failure.
    Failed { event: EventNumber, failure: Failure },
    /// It was dropped and nobody answered it.
    Dropped { event: EventNumber },
    /// Its turn is over, however it ended.
    Ended { event: EventNumber, actor: ActorNumber },
    /// An instance was made.
    InstanceMade { actor: ActorNumber, version: Version },
    /// It is gone.
    InstanceGone { actor: ActorNumber },
    /// `on-init` begins.
    InitBegan { actor: ActorNumber, version: Version, attempt: Attempt },
    /// `on-init` is over; `ok`: it returned success, and the host goes on to commit it.
    InitEnded { actor: ActorNumber, version: Version, attempt: Attempt, ok: bool },
    /// A database was opened.
    Opened { actor: ActorNumber },
    /// An actor went to rest: its database is closed.
    Slept { actor: ActorNumber },
    /// An idle actor closed its database and stays.
    Dozed { actor: ActorNumber },
    /// It opened it again.
    Roused { actor: ActorNumber },
    /// Closing, a checkpoint or the like went wrong.
    Trouble { actor: ActorNumber, text: String },
    /// A statement that would commit `unit` starts.
    Committing { actor: ActorNumber, unit: Unit, parts: u64 },
    /// It did commit.
    Committed { actor: ActorNumber, unit: Unit },
    /// It did not.
    NotCommitted { actor: ActorNumber, unit: Unit },
    /// A reader looked.
    Seen { actor: ActorNumber, found: Found },
    /// The version on record as initialised, read while the actor sleeps.
    SeenVersion { actor: ActorNumber, version: Option<Version> },
    /// The database is not sound.
    Unsound { actor: ActorNumber, text: String },
    /// A statement that would set or clear the alarm starts, or the transaction it is in would commit.
    AlarmSetting { actor: ActorNumber, due_ms: Option<u64> },
    /// It stands.
    AlarmSet { actor: ActorNumber, due_ms: Option<u64>, in_attempt: bool },
    /// It does not.
    AlarmNotSet { actor: ActorNumber },
    /// The alarm of an actor is due: an event goes on its way.
    AlarmSent { actor: ActorNumber },
    /// `on-alarm` begins.
    AlarmBegan { actor: ActorNumber, due_ms: u64, number: u32, now_ms: u64 },
    /// `on-alarm` is over; `ok`: it returned success.
    AlarmEnded { actor: ActorNumber, ok: bool },
    /// What is kept of the alarm, read while the actor sleeps: what is pending, and what came due.
    AlarmSeen { actor: ActorNumber, pending: Option<u64>, attempt: Option<u64>, wake: Option<u64> },
    /// When a life that begins will look at the alarm.
    AlarmKnown { actor: ActorNumber, wake: Option<u64> },
    /// The wall clock was set.
    ClockSet { by_ms: i64 },
    /// An event asked for its actor to be forgotten.
    DeleteAsked { actor: ActorNumber },
    /// The files are gone.
    Erased { actor: ActorNumber },
    /// A new version of a class is in place.
    Deployed { class: usize, version: Version },
    /// With all at rest and no room left, an event is about to wake this actor.
    Crowding { actor: ActorNumber },
    /// Everything came to rest.
    Still(Stillness),
    /// Everything should have come to rest and did not.
    Restless { waiting: usize },
    /// An SQL answer that the contract rules out.
    Wrong { actor: ActorNumber, text: String },
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which checker noticed.
    pub checker: &'static str,
    /// What it saw.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.text)
    }
}

/// What checkers know of the run beside the records.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// See [`crate::parameters::Parameters`].
    pub mailbox_events_max: usize,
    /// See [`crate::parameters::Parameters`].
    pub resident_max: usize,
    /// See [`crate::parameters::Parameters`].
    pub event_limit: Duration,
}

/// The history of one run.
pub struct History {
    checkers: RefCell<Vec<Box<dyn Checker>>>,
    first: RefCell<Option<Violation>>,
    hash: Cell<u64>,
    count: Cell<u64>,
    verbose: bool,
    /// The life that is over by a crash still drops its tasks: nothing of that is seen by anyone.
    sealed: Cell<bool>,
}

impl History {
    /// An empty history. `verbose`: each record goes to stderr as it happens.
    #[must_use]
    pub fn new(rules: Rules, cast: Vec<String>, verbose: bool) -> Rc<Self> {
        Rc::new(Self {
            checkers: RefCell::new(checkers::all(rules, cast)),
            first: RefCell::default(),
            hash: Cell::new(FNV_BASIS),
            count: Cell::new(0),
            verbose,
            sealed: Cell::new(false),
        })
    }

    /// Adds what happened at the virtual time `now`.
    pub fn record(&self, now: Duration, record: &Record) {
        if self.sealed.get() {
            return;
        }
        let line = format!("{:>10} {record:?}", now.as_micros());
        let hash =
            line.bytes().fold(self.hash.get(), |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        self.hash.set(hash);
        self.count.set(self.count.get() + 1);
        if self.verbose {
            eprintln!("{line}");
        }
        for checker in self.checkers.borrow_mut().iter_mut() {
            let name = checker.name();
            if let Err(text) = checker.see(now, record) {
                self.violate(name, format!("{text} (record {}, at {now:?})", self.count.get()));
            }
        }
    }

    /// Notes a broken promise; the first one is kept.
    pub fn violate(&self, checker: &'static str, text: String) {
        let violation = Violation { checker, text };
        if self.verbose {
            eprintln!("VIOLATION {violation}");
        }
        self.first.borrow_mut().get_or_insert(violation);
    }

    /// The first broken promise, if any.
    pub fn violation(&self) -> Option<Violation> {
        self.first.borrow().clone()
    }

    /// A number that stands for the whole history.
    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Records so far.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Until opened again, nothing more is recorded.
    pub fn seal(&self, sealed: bool) {
        self.sealed.set(sealed);
    }
}
