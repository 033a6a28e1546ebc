//! Everything that happens in a run of a cluster, in one line of true time: hashed, shown on request, and put before
//! the checkers.

use std::fmt;

use wasmkeep_protocol::forwarding::Trouble;

use super::{
    assumptions::Assumptions,
    checkers::{self, Checker},
    parameters::Parameters,
    time::{SECOND, Time},
};
use crate::{eprintln, history::Violation};

/// A run of the program, counted over the whole run.
pub type Pid = u32;
/// A node id, by its number.
pub type NodeNumber = usize;
/// An actor, by its number.
pub type ActorNumber = usize;
/// A client's request, counted over the whole run.
pub type RequestNumber = u64;
/// From here on they are events that no client asked for.
pub const NODES_EVENTS: RequestNumber = 1 << 48;

/// From here on actors delete themselves and come back; the others never do.
pub const DELETABLE: ActorNumber = 100;

/// A hold of an actor.
pub type Generation = u64;

/// What a client asks an actor for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Raises the counter, durably; answered with what it is then.
    Add,
    /// Writes the number of the request into the register, durably.
    Write,
    /// Writes a row that is not durable before the actor is closed.
    Note,
    /// Sets the alarm, durably.
    Remind,
    /// Reads the counter.
    Count,
    /// Reads the register.
    Read,
    /// Deletes the actor at its end.
    Delete,
    /// Runs the alarm, if it is due. No client asks for that.
    Alarm,
}

impl Operation {
    /// Those with a body that any actor is asked for.
    pub const WRITES: [Self; 4] = [Self::Add, Self::Write, Self::Note, Self::Remind];
    /// Those without.
    pub const READS: [Self; 2] = [Self::Count, Self::Read];

    /// Whether its request has a body.
    pub fn has_body(self) -> bool {
        self == Self::Delete || Self::WRITES.contains(&self)
    }

    /// Whether its answer says that it is in the bucket.
    pub fn is_durable(self) -> bool {
        matches!(self, Self::Add | Self::Write | Self::Remind)
    }
}

/// What an actor has.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// The requests that raised the counter.
    pub added: Vec<RequestNumber>,
    /// The notes.
    pub noted: Vec<RequestNumber>,
    /// The counter.
    pub counter: u64,
    /// The register: the request that wrote it.
    pub register: RequestNumber,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest =
            self.added.iter().chain(&self.noted).fold(0, |hash: u64, row| hash.wrapping_mul(31) ^ row);
        let (counter, register, notes) = (self.counter, self.register, self.noted.len());
        write!(f, "counter {counter}, register {register}, {notes} notes, rows {digest:016x}")
    }
}

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
    /// 200, with this.
    Served(u64),
    /// An error that says the request did not run.
    NotRun(u16),
    /// An error that leaves it open whether it ran.
    MayHaveRun(u16),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A process starts under a node id.
    Started { pid: Pid, node: NodeNumber, skew_ms: i64, drift_ppm: i64 },
    /// Its machine's wall clock is set.
    ClockSet { pid: Pid, skew_ms: i64 },
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
    /// A heartbeat was deleted from the bucket.
    Deleted { node: NodeNumber },
    /// A process begins to look at the heartbeats.
    LookBegan { pid: Pid },
    /// It has seen them all.
    LookEnded { pid: Pid },
    /// A process lets another in, or sends it something, for the certificate it has.
    Trusted { pid: Pid, peer: Pid },
    /// A process knows that it holds an actor.
    Taken { pid: Pid, actor: ActorNumber, generation: u64 },
    /// A process opened an actor's database, restored or as it was on its disk.
    Found { pid: Pid, actor: ActorNumber, generation: Generation, contents: Contents },
    /// It could not. `lossy`: nobody can without losing data.
    RestoreFailed { pid: Pid, actor: ActorNumber, lossy: bool, error: String },
    /// A durable change is acknowledged to the actor that made it.
    Durable { actor: ActorNumber, request: RequestNumber },
    /// An actor sets its alarm; what it set before is replaced.
    Reminded { actor: ActorNumber, request: RequestNumber, due_ms: u64 },
    /// The alarm that a request set ran.
    Fired { actor: ActorNumber, request: RequestNumber },
    /// A process opened an actor whose alarm is at `alarm_ms`; the first that the bucket listed then was at `listed_ms`.
    FoundAlarm { actor: ActorNumber, generation: Generation, alarm_ms: u64, listed_ms: Option<u64> },
    /// The uploads of an actor ended; it is given up.
    UploadsEnded { pid: Pid, actor: ActorNumber },
    /// An actor was closed, everything it had being in the bucket.
    Closed { actor: ActorNumber, generation: Generation },
    /// The deletion that a request asked for is in the bucket, or may not be.
    Erased { request: RequestNumber, ok: bool },
    /// A database is not sound.
    Unsound { actor: ActorNumber, text: String },
    /// A client sends a request.
    Asked { request: RequestNumber, pid: Pid, actor: ActorNumber, operation: Operation },
    /// Its client is gone.
    Left { request: RequestNumber },
    /// It was kept for a takeover.
    Kept { request: RequestNumber, pid: Pid },
    /// It is kept no longer.
    WaitEnded { request: RequestNumber, pid: Pid, how: &'static str },
    /// It is sent on to a node.
    SentOn { request: RequestNumber, pid: Pid, to: NodeNumber },
    /// What that came to.
    SentOnEnded { request: RequestNumber, pid: Pid, trouble: Option<Trouble> },
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
    assumptions: Assumptions,
    first: Option<Violation>,
    outside: Option<Violation>,
    hash: u64,
    count: u64,
    verbose: bool,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Told {
    /// 200.
    pub fn is_served(self) -> bool {
        matches!(self, Self::Served(_))
    }
}

impl History {
    /// An empty history.
    pub fn new(parameters: &Parameters, verbose: bool) -> Self {
        Self {
            checkers: checkers::all(parameters),
            assumptions: Assumptions::default(),
            first: None,
            outside: None,
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
        self.assumptions.see(record);
        for checker in &mut self.checkers {
            if let Err(text) = checker.see(time, record) {
                let text = format!("{text} (record {}, at {:.3} s)", self.count, time as f64 / SECOND as f64);
                let (checker, broken) = (checker.name(), self.assumptions.broken(checker.rests_on()));
                let text = broken.map_or(text.clone(), |broken| format!("{text}; but {broken}"));
                let violation = Violation { checker, text };
                if self.verbose {
                    eprintln!("VIOLATION {violation}");
                }
                let kept = if broken.is_some() { &mut self.outside } else { &mut self.first };
                kept.get_or_insert(violation);
            }
        }
    }

    /// The first promise that broke where what it rests on does not hold.
    pub fn outside(&self) -> Option<Violation> {
        self.outside.clone()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// What a history says that begins with a machine whose wall clock is this far off.
    fn history(skew_ms: i64, records: &[Record]) -> (Option<Violation>, Option<Violation>) {
        let mut history = History::new(&Parameters::draw(0, &mut Dice::new(0)), false);
        history.record(0, &Record::Started { pid: 12, node: 2, skew_ms, drift_ppm: 0 });
        records.iter().for_each(|record| history.record(SECOND, record));
        (history.violation(), history.outside())
    }

    /// A node that starts with such a clock takes its peers for silent until its second look.
    #[test]
    fn a_request_refused_where_a_wall_clock_is_hours_off_is_told_with_that_clock_and_is_no_violation() {
        let refused = [
            Record::MustServe,
            Record::Asked { request: 278, pid: 11, actor: 0, operation: Operation::Count },
            Record::Told { request: 278, told: Told::NotRun(503) },
        ];
        let (violation, outside) = history(7_200_092, &refused);
        assert_eq!(violation, None);
        let outside = outside.unwrap();
        assert_eq!(outside.checker, "liveness");
        assert!(outside.text.ends_with("; but the wall clock of process 12 is 7200092 ms off"), "{outside}");
        let (violation, outside) = history(-1_000, &refused);
        assert_eq!(violation.unwrap().checker, "liveness");
        assert_eq!(outside, None);
    }

    #[test]
    fn no_wall_clock_excuses_two_owners_at_once() {
        let owned = |pid, generation| Record::Owned { actor: 0, pid, generation, held: true };
        let began = |pid, generation| Record::RunBegan { pid, actor: 0, request: generation, generation };
        let records = [owned(11, 1), began(11, 1), owned(12, 2), began(12, 2)];
        let (violation, outside) = history(7_200_092, &records);
        assert_eq!(violation.unwrap().checker, "single-owner");
        assert_eq!(outside, None);
    }
}
