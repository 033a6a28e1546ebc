//! What reaches a process, and what it does to the world.

use wasmkeep_bucket::Key;
use wasmkeep_protocol::{
    ActorId,
    alarm::{Listed, Post},
    forwarding::Trouble,
    trust::Fingerprint,
};

use crate::cluster::{
    bucket::{Call, Reply},
    record::{ActorNumber, Generation, Operation, Pid, Record, RequestNumber, Told},
    time::Time,
};

/// A request of this process to the bucket, counted by the process.
pub type CallId = u64;
/// A request forwarded from one process to another, counted over the whole run.
pub type ForwardId = (Pid, u64);
/// An event that runs, counted by the process.
pub type RunId = u64;

/// What happens to a process.
#[derive(Debug, Clone)]
pub enum Input {
    /// Its timer fired.
    Wake,
    /// The bucket answered; `None`: not in time.
    Reply(CallId, Option<Reply>),
    /// A request came in.
    Request(Request),
    /// The client of a request closed its connection.
    Left(RequestNumber),
    /// What a forwarded request came to.
    ForwardEnded(ForwardId, Result<Told, Trouble>),
    /// An actor's database is open, or cannot be had.
    Opened { actor: ActorNumber, generation: Generation, ok: bool },
    /// An event ran to its end, with this answer.
    RunDone(RunId, u64),
    /// What an actor did last may not be in the bucket.
    GivenUp { actor: ActorNumber, generation: Generation },
    /// An actor is closed, and all of it is in the bucket.
    Closed { actor: ActorNumber, generation: Generation },
    /// What an actor's database says of its alarm now.
    Booked { actor: ActorNumber, at_ms: Option<u64> },
    /// What of the bucket's alarms is overdue, and where the listing goes on; `None`: it failed.
    Overdue { is_first: bool, overdue: Option<(Vec<Listed>, Option<Key>)> },
    /// A request was answered from the disk; by a variant only.
    Peeked(RequestNumber, Option<u64>),
    /// Please stop.
    Stop,
}

/// A request for an actor.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its number.
    pub number: RequestNumber,
    /// Whose it is.
    pub actor: ActorId,
    /// What it asks for.
    pub operation: Operation,
    /// `Some`: another process forwarded it.
    pub forward: Option<ForwardId>,
}

/// What a process does.
#[derive(Debug)]
pub enum Out {
    /// Asks the bucket. `heed`: a store that is not broken heeds the condition.
    Call { id: CallId, call: Call, timeout: Time, heed: bool },
    /// Forwards a request to the process with this certificate.
    Forward { id: ForwardId, certificate: Fingerprint, request: Request },
    /// Answers a forwarded one.
    AnswerForward { id: ForwardId, result: Result<Told, Trouble> },
    /// Opens the database of an actor that was taken.
    Open { actor: ActorNumber, generation: Generation },
    /// Runs an event of an open one.
    Run { actor: ActorNumber, run: RunId, request: RequestNumber, operation: Operation },
    /// Uploads what is left of it and closes it.
    Close { actor: ActorNumber },
    /// Lets go of it at once.
    Drop { actor: ActorNumber },
    /// Lists the alarms in the bucket that are due by then.
    ListOverdue { from: Option<Key>, until_ms: u64 },
    /// A sweep came across this entry of an actor's.
    Notice { actor: ActorNumber, post: Post },
    /// Answers from the disk, whoever owns the actor; of a variant only.
    Peek { actor: ActorNumber, request: RequestNumber, operation: Operation },
    /// For the record.
    Record(Record),
    /// The process ends.
    Exit,
}
