//! Everything that happens in a run of a cluster, in one line of true time: hashed, shown on request, and put before
//! the checkers.

use std::fmt;

use super::{
    checkers::{self, Checker},
    parameters::Parameters,
    time::{SECOND, Time},
};
use crate::history::Violation;

/// A run of the program, counted over the whole run.
pub type Pid = u32;
/// A node id, by its number.
pub type NodeNumber = usize;
/// An actor, by its number.
pub type ActorNumber = usize;
/// A client's request, counted over the whole run.
pub type RequestNumber = u64;

/// How a heartbeat stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// Live.
    Live,
    /// Fenced by a node.
    FencedByPeer,
    /// Fenced by an operator.
    FencedByOperator,
    /// Released.
    Released,
}

/// What a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// 200.
    Served,
    /// An error that says the request did not run.
    NotRun(u16),
    /// An error that leaves it open whether it ran.
    MayHaveRun(u16),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A process starts under a node id.
    Started { pid: Pid, node: NodeNumber, skew_ms: i64 },
    /// It was asked to stop.
    StopAsked { pid: Pid },
    /// It ended by itself.
    Exited { pid: Pid, why: String },
    /// It was killed.
    Killed { pid: Pid },
    /// It stands still, with its machine or without.
    Paused { pid: Pid },
    /// It goes on.
    Resumed { pid: Pid },
    /// Its lease became valid.
    Valid { pid: Pid },
    /// Its lease ran out, or was given up.
    Lapsed { pid: Pid },
    /// A heartbeat was applied in the bucket. `pid` is the process it is about.
    Heartbeat { node: NodeNumber, pid: Option<Pid>, sequence: u64, beat: Beat },
    /// An ownership record was applied in the bucket.
    Owned { actor: ActorNumber, pid: Pid, generation: u64, held: bool },
    /// A process knows that it holds an actor.
    Taken { pid: Pid, actor: ActorNumber, generation: u64 },
    /// A client sends a request.
    Asked { request: RequestNumber, pid: Pid, actor: ActorNumber, body: bool },
    /// Its client is gone.
    Left { request: RequestNumber },
    /// It was kept for a takeover.
    Kept { request: RequestNumber, pid: Pid },
    /// It is kept no longer.
    WaitEnded { request: RequestNumber, pid: Pid, how: &'static str },
    /// An event begins.
    RunBegan { pid: Pid, actor: ActorNumber, request: RequestNumber, generation: u64 },
    /// It is over; `done`: to its end.
    RunEnded { pid: Pid, actor: ActorNumber, request: RequestNumber, done: bool },
    /// A client was answered.
    Told { request: RequestNumber, told: Told },
    /// Something bad is done to the cluster, or undone.
    Trouble(String),
    /// Nobody reaches the bucket.
    BucketAway,
    /// Everybody does again, as far as nothing else is in the way.
    BucketBack,
    /// No trouble from here on.
    Calm,
    /// From here on every request must be served.
    MustServe,
    /// A node dies in a calm cluster and does not come back; its clock is right.
    Dies { node: NodeNumber, pid: Pid },
    /// The run is over.
    Over,
}

/// The history of one run.
pub struct History {
    checkers: Vec<Box<dyn Checker>>,
    first: Option<Violation>,
    hash: u64,
    count: u64,
    verbose: bool,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("count", &self.count).finish_non_exhaustive()
    }
}

impl History {
    /// An empty history.
    pub fn new(parameters: &Parameters, verbose: bool) -> Self {
        Self {
            checkers: checkers::all(parameters),
            first: None,
            hash: 0xcbf2_9ce4_8422_2325,
            count: 0,
            verbose,
        }
    }

    /// Adds what happened.
    pub fn record(&mut self, time: Time, record: &Record) {
        let line = format!("{:>11.6} {record:?}", time as f64 / SECOND as f64);
        self.hash = line
            .bytes()
            .fold(self.hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.count += 1;
        if self.verbose {
            eprintln!("{line}");
        }
        for checker in &mut self.checkers {
            if let Err(text) = checker.see(time, record) {
                let text = format!("{text} (record {}, at {:.3} s)", self.count, time as f64 / SECOND as f64);
                let violation = Violation { checker: checker.name(), text };
                if self.verbose {
                    eprintln!("VIOLATION {violation}");
                }
                self.first.get_or_insert(violation);
            }
        }
    }

    /// The first broken promise.
    pub fn violation(&self) -> Option<Violation> {
        self.first.clone()
    }

    /// Stands for the whole history.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Records so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}
