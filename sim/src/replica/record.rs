//! Everything that happens in a run, in one line of time: hashed, shown on request, and put before the checkers.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    time::Duration,
};

use wasmkeep_protocol::history::Point;

use super::checkers::{self, Checker, Rules};
use crate::{eprintln, history::Violation};

/// An actor, by number.
pub(crate) type Actor = usize;
/// A hold of an actor.
pub(crate) type Generation = u64;

/// How a hold found its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// There is no history.
    New,
    /// The history ends in a deletion.
    Deleted,
    /// The local file is what the history leads to.
    Current,
    /// It was rebuilt.
    Rebuilt,
}

/// The rows of a database, by the number each commit wrote.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Rows(pub(crate) Vec<u64>);

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.0.iter().fold(FNV_BASIS, |hash, unit| (hash ^ unit).wrapping_mul(FNV_PRIME));
        write!(f, "{} rows {digest:016x}", self.0.len())
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A node took an actor.
    HoldBegan { actor: Actor, generation: Generation },
    /// It has a database. `checksum` was computed from the files, `bytes` is another hash of a rebuilt file.
    Found {
        actor: Actor,
        generation: Generation,
        way: Way,
        point: Point,
        checksum: u64,
        bytes: Option<u64>,
        rows: Rows,
    },
    /// SQLite finds the database unsound.
    Unsound { actor: Actor, text: String },
    /// It could not be had.
    RestoreFailed { actor: Actor, generation: Generation, lossy: bool, error: String },
    /// Commits were handed to the uploader.
    Pushed { actor: Actor, generation: Generation, point: Point, rows: Rows },
    /// A durable write was acknowledged.
    Durable { actor: Actor, generation: Generation, unit: u64 },
    /// A deletion was handed to the uploader.
    DeletePushed { actor: Actor, generation: Generation, point: Point },
    /// It is in the bucket.
    Deleted { actor: Actor, generation: Generation },
    /// A periodic snapshot was tried.
    Snapshot { actor: Actor, point: Point, landed: bool },
    /// A collection ended.
    Collected { actor: Actor, objects: u64, complete: bool },
    /// An object was deleted from the bucket on behalf of a collection with this retention.
    Removed { key: String, age_ms: u64, retention_ms: u64 },
    /// Reads under way when another one began.
    Reads { reads: usize, bytes: u64 },
    /// The lease ran out; the hold may go on without knowing.
    Lost { actor: Actor, generation: Generation },
    /// The process died.
    Crashed { actor: Actor, generation: Generation, disk: bool },
    /// The uploads of a hold ended.
    GaveUp { actor: Actor, generation: Generation, why: String },
    /// The actor sleeps; its file hashes to this.
    Slept { actor: Actor, generation: Generation, point: Point, bytes: u64 },
    /// From here on nothing fails.
    FaultsOff,
    /// A hold went from restore to sleep without any failure.
    Served { actor: Actor },
    /// Everything should have ended.
    Ended { tasks: usize },
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// A hash of bytes that shares nothing with the checksums it is compared beside.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// The line of time of one run.
pub(crate) struct Line {
    checkers: RefCell<Vec<Box<dyn Checker>>>,
    first: RefCell<Option<Violation>>,
    hash: Cell<u64>,
    count: Cell<u64>,
    verbose: bool,
}

impl Line {
    pub(crate) fn new(rules: Rules, verbose: bool) -> Rc<Self> {
        Rc::new(Self {
            checkers: RefCell::new(checkers::all(rules)),
            first: RefCell::default(),
            hash: Cell::new(FNV_BASIS),
            count: Cell::new(0),
            verbose,
        })
    }

    /// Adds what happened at the virtual time `now`.
    pub(crate) fn record(&self, now: Duration, record: &Record) {
        let line = format!("{:>10} {record:?}", now.as_millis());
        self.hash.set((self.hash.get() ^ fnv(line.as_bytes())).wrapping_mul(FNV_PRIME));
        self.count.set(self.count.get() + 1);
        if self.verbose {
            eprintln!("{line}");
        }
        for checker in self.checkers.borrow_mut().iter_mut() {
            if let Err(text) = checker.see(record) {
                let text = format!("{text} (record {}, at {now:?})", self.count.get());
                let violation = Violation { checker: checker.name(), text };
                if self.verbose {
                    eprintln!("VIOLATION {violation}");
                }
                self.first.borrow_mut().get_or_insert(violation);
            }
        }
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.first.borrow().clone()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }
}
