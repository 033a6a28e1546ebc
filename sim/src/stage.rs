//! What the parts of a simulation share: over a whole run, and over one life of the shard.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use wasmkeep_actor::alarm::Book;
use wasmkeep_protocol::ActorId;
use wasmkeep_storage::{Config, Pacer};

use crate::{
    alarms,
    dice::Dice,
    executor::Executor,
    files::{self, WalMark},
    flaw::Flaw,
    history::{ActorNumber, History, Record, Version},
    parameters::Parameters,
};

/// Size an actor's database may reach, in bytes: out of reach of the scripts' ordinary rows.
pub const QUOTA_BYTES: u64 = 4 << 20;

/// Numbers that never repeat within a run.
#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// The next number; the first is 1.
    pub fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// The latest number; 0 before the first.
    pub fn latest(&self) -> u64 {
        self.0.get()
    }
}

/// What one run keeps over all lives.
pub struct Run {
    /// Its parameters.
    pub parameters: Parameters,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// What happened.
    pub history: Rc<History>,
    /// Every actor there is.
    pub cast: Vec<ActorId>,
    /// Chance in the surroundings of the shard.
    pub dice: RefCell<Dice>,
    /// Whether surroundings and scripts may fail.
    pub faults: Cell<bool>,
    /// The version of each class.
    pub versions: RefCell<Vec<Version>>,
    /// What the wall clock said when the virtual time began; setting the clock changes it.
    pub wall_ms: Cell<u64>,
    /// Events sent.
    pub events: Counter,
    /// Units of rows.
    pub units: Counter,
    /// Attempts at `on-init`.
    pub attempts: Counter,
    /// Databases made ahead.
    pub spares: Counter,
}

/// Classes: the first has an `on-init`, the second has none.
pub const CLASSES: [&str; 2] = ["hooked", "plain"];

/// The class of an actor, as an index of [`CLASSES`].
#[must_use]
pub const fn class_of(actor: ActorNumber) -> usize {
    if actor % 3 == 2 { 1 } else { 0 }
}

/// Names that a careless mapping to files would confuse come first.
#[must_use]
pub fn cast(actors: u64) -> Vec<ActorId> {
    const ODD: [&str; 6] = ["a", "A", "a.db", "a/b", "a%2fb", "ä"];
    let name = |number: usize| ODD.get(number).map_or_else(|| format!("a{number}"), ToString::to_string);
    (0..actors as usize)
        .map(|number| ActorId {
            class: CLASSES[class_of(number)].parse().expect("class names are valid"),
            name: name(number).parse().expect("actor names are valid"),
        })
        .collect()
}

fn config(run: &Run, folder: &Path) -> Config {
    let pacer = Pacer::checks(u32::try_from(run.parameters.checks_per_slice).unwrap_or(u32::MAX));
    Config { quota_bytes: QUOTA_BYTES, pacer, root: folder.to_owned() }
}

/// One life of the shard.
pub struct Stage {
    /// The run it is part of.
    pub run: Rc<Run>,
    /// Its executor and clock.
    pub executor: Rc<Executor>,
    /// Where its databases are.
    pub folder: PathBuf,
    /// Instances alive.
    pub instances: Cell<usize>,
    /// Actors that have closed their database and keep their instance.
    pub dozing: RefCell<BTreeSet<ActorNumber>>,
    /// The alarms of this life.
    pub book: Rc<Book>,
    /// Changes of alarms by guests, and attempts begun.
    pub alarm_changes: Counter,
    /// Whether somebody keeps them: a task beside those of the actors.
    pub is_keeping: Cell<bool>,
    /// How long each actor's WAL was when it last acknowledged something.
    pub acknowledged: RefCell<BTreeMap<ActorNumber, WalMark>>,
}

impl Stage {
    /// A life over the data in `folder`; `torn`: of which a crash has lost something that was written.
    pub fn new(run: Rc<Run>, executor: Rc<Executor>, folder: PathBuf, torn: bool) -> Rc<Self> {
        let instances = Cell::new(0);
        let (dozing, acknowledged) = (RefCell::default(), RefCell::default());
        let flawed = |flaw| run.flaw == Some(flaw);
        let look = torn && !flawed(Flaw::TrustsIndex);
        let book =
            alarms::open(&folder, &run.cast, &config(&run, &folder), look, flawed(Flaw::ForgetsAlarms));
        let (is_keeping, alarm_changes) = (Cell::new(false), Counter::default());
        Rc::new(Self {
            run,
            executor,
            folder,
            instances,
            dozing,
            book,
            alarm_changes,
            is_keeping,
            acknowledged,
        })
    }

    /// The wall clock.
    pub fn unix_ms(&self) -> u64 {
        let ahead_ms = if self.flawed(Flaw::FiresEarly) { 3_000 } else { 0 };
        self.true_unix_ms() + ahead_ms
    }

    /// The wall clock as the checkers see it.
    pub fn true_unix_ms(&self) -> u64 {
        self.run.wall_ms.get() + self.executor.now().as_millis() as u64
    }

    /// Adds to the history, at this moment.
    pub fn record(&self, record: Record) {
        self.run.history.record(self.executor.now(), &record);
    }

    /// Whether this is broken on purpose.
    pub fn flawed(&self, flaw: Flaw) -> bool {
        self.run.flaw == Some(flaw)
    }

    /// Whether a fault of this chance, per mille, happens now.
    pub fn strikes(&self, per_mille: u64) -> bool {
        self.run.dice.borrow_mut().chance(per_mille) && self.run.faults.get()
    }

    /// Waits for up to `us_max` microseconds; not at all when that is 0 or once faults are off.
    pub async fn delay(&self, us_max: u64) {
        let us = self.run.dice.borrow_mut().below(us_max + 1);
        if us > 0 && self.run.faults.get() {
            self.executor.sleep(Duration::from_micros(us)).await;
        }
    }

    /// Where an actor's database is.
    pub fn path(&self, actor: ActorNumber) -> PathBuf {
        let actor = if self.flawed(Flaw::SharesFile) { actor / 2 * 2 } else { actor };
        files::path(&self.folder, &self.run.cast[actor])
    }

    /// How databases are opened.
    pub fn config(&self) -> Config {
        config(&self.run, &self.folder)
    }

    /// Notes that what this actor has committed so far was acknowledged.
    pub fn note_acknowledged(&self, actor: ActorNumber) {
        if self.run.parameters.crashes > 0
            && let Some(mark) = WalMark::read(&self.path(actor))
        {
            self.acknowledged.borrow_mut().insert(actor, mark);
        }
    }
}
