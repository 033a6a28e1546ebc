//! What reaches a process, and what it does to the world.

use wasmkeep_cluster::ClusterEvent;
use wasmkeep_protocol::{ActorId, forwarding::Trouble, lease::Exit, ownership::Denial, trust::Fingerprint};

use crate::cluster::{
    bucket::Reply,
    record::{Generation, Operation, Pid, Record, RequestNumber, Told},
};

/// A request of this process to the bucket, counted by the process.
pub type CallId = u64;
/// A request forwarded from one process to another, counted over the whole run.
pub type ForwardId = (Pid, u64);
/// An event that runs, counted by the process.
pub type RunId = u64;

/// An actor from its opening to its close, counted by the process.
pub type Residency = u64;

/// What happens to a process.
#[derive(Debug)]
pub enum Input {
    /// Its timer fired.
    Wake,
    /// The bucket answered.
    Reply(CallId, Reply),
    /// The cluster service says so.
    Cluster(ClusterEvent),
    /// The membership has ended.
    Exited(Exit),
    /// The claim of a request, or of all that are kept for the actor, came to this.
    Claimed { actor: ActorId, request: Option<RequestNumber>, claimed: Result<Generation, Denial> },
    /// A request came in.
    Request(Request),
    /// The client of a request closed its connection.
    Left(RequestNumber),
    /// What a forwarded request came to.
    ForwardEnded(ForwardId, Result<Told, Trouble>),
    /// An actor is open.
    Opened { residency: Residency, generation: Generation },
    /// It could not be opened; with the reason when it was not to be had.
    OpenFailed { residency: Residency, denial: Option<Denial> },
    /// An event ran to its end, with this answer.
    RunDone(RunId, u64),
    /// An event did not begin: its actor is no longer the node's.
    RunRefused(RunId),
    /// What an event wrote may not be in the bucket.
    RunFailed(RunId),
    /// An actor is closed, and given up.
    Closed { residency: Residency },
    /// What an actor's database says of its alarm now.
    Booked { actor: ActorId, at_ms: Option<u64> },
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
    /// Takes an actor, for a request or for all that are kept for it.
    Claim { actor: ActorId, request: Option<RequestNumber>, fresh: bool },
    /// Forwards a request to the process with this certificate.
    Forward { id: ForwardId, certificate: Fingerprint, request: Request },
    /// Answers a forwarded one.
    AnswerForward { id: ForwardId, result: Result<Told, Trouble> },
    /// Takes and opens an actor.
    Open { actor: ActorId, residency: Residency },
    /// Runs an event of an open one.
    Run { residency: Residency, run: RunId, request: RequestNumber, operation: Operation },
    /// Uploads what is left of it and closes it.
    Close { residency: Residency },
    /// Cuts its event off and closes it.
    Lose { residency: Residency },
    /// It is open no more.
    Gone { residency: Residency },
    /// A clean stop begins.
    StopTaking,
    /// No actor is open any more.
    ActorsClosed,
    /// Answers from the disk, whoever owns the actor; of a variant only.
    Peek { actor: ActorId, request: RequestNumber, operation: Operation },
    /// For the record.
    Record(Record),
    /// The process ends.
    Exit,
}
