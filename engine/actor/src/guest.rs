//! The two sides an actor's life stands between: the events that come in and the code that takes them.

use std::{future::Future, time::Duration};

use wasmkeep_storage::OpenError;

/// Why an event was answered without running. Nothing of it ran; a client may send it again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The mailbox is full.
    #[error("the actor has {0} events waiting; retry")]
    MailboxFull(usize),
    /// The node takes no more events.
    #[error("the node is stopping; retry")]
    Stopping,
    /// No room for another resident actor.
    #[error("the node has no room for another actor; retry")]
    NoRoom,
    /// The database could not be opened now; it may work later.
    #[error("the actor's storage cannot be opened: {0}")]
    Storage(String),
    /// The database cannot be used until somebody looks after it.
    #[error("the actor's database is damaged: {0}")]
    Damaged(String),
    /// The instance could not be made.
    #[error("the actor could not be started: {0}")]
    Start(String),
    /// This node does not hold the actor, or no longer.
    #[error("{0}; retry")]
    NotHeld(String),
    /// Its data cannot be had now, and this node gives the actor up: another one may try.
    #[error("{0}; retry")]
    Unavailable(String),
    /// `on-init` failed; it is tried again at the next event.
    #[error("the actor's on-init failed: {0}")]
    Init(String),
}

impl From<&OpenError> for Refusal {
    fn from(error: &OpenError) -> Self {
        match error {
            damage if damage.is_damage() => Self::Damaged(error.to_string()),
            _ => Self::Storage(error.to_string()),
        }
    }
}

/// Why an event that began did not end well. What it committed stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The guest trapped.
    #[error("the actor trapped: {0}")]
    Trap(String),
    /// The event ran longer than its wall-clock limit.
    #[error("the event ran longer than its limit of {0:?}")]
    TimeLimit(Duration),
    /// The node lost the actor while the event ran.
    #[error("the node lost the actor while the event ran")]
    Lost,
    /// A fault of the host, caught at the event boundary.
    #[error("the node failed while the event ran: {0}")]
    Bug(String),
}

/// How a turn left the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// It may take the next event.
    Ready,
    /// It ended without an answer where one was due, and is not asked again: a language's runtime may have lost its
    /// way and would do so each time. The next event gets a new one.
    Retired,
    /// It must not be entered again: the next event gets a new one.
    Poisoned(Failure),
}

/// Why `on-init` did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// It returned an error; the instance may be used again.
    #[error("{0}")]
    Refused(String),
    /// It trapped or ran out of time; the instance may not.
    #[error("{0}")]
    Poisoned(Failure),
}

/// Why an attempt at an alarm did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlarmError {
    /// The code has no `on-alarm`.
    #[error("there is no on-alarm hook")]
    Absent,
    /// It returned an error; the instance may be used again.
    #[error("{0}")]
    Refused(String),
    /// It trapped or ran out of time; the instance may not.
    #[error("{0}")]
    Poisoned(Failure),
}

/// Something that arrived for an actor and expects one answer.
pub trait Event: 'static {
    /// The way to answer an event whose turn did not.
    type Ticket: 'static;

    /// Kept by the actor while the event runs.
    fn ticket(&self) -> Self::Ticket;

    /// Answers the event of `ticket` if its turn has not answered it yet.
    fn fail(ticket: Self::Ticket, failure: &Failure);

    /// Answers without running.
    fn refuse(self, refusal: &Refusal);

    /// Whether whoever sent it has left: such an event is dropped instead of run.
    fn is_abandoned(&self) -> bool;

    /// Whether it says that the actor's alarm may be due. There is one at a time, and it has a place of its own in
    /// the mailbox.
    fn is_alarm(&self) -> bool {
        false
    }

    /// Answers an alarm that was taken.
    fn done(_ticket: Self::Ticket) {}

    /// The moment, on the clock of the actor's world, by which whoever sent it wants it ended, when that may be
    /// earlier than the limit of every event.
    fn deadline(&self) -> Option<Duration> {
        None
    }
}

/// One live instance of an actor's code.
///
/// Dropping a future of [`Guest::deliver`] or [`Guest::init`] before its end poisons the instance.
pub trait Guest: 'static {
    /// What it takes.
    type Event: Event;

    /// Whether this version of the code has an `on-init` hook.
    fn has_init(&self) -> bool;

    /// Runs `on-init`.
    fn init(&mut self) -> impl Future<Output = Result<(), InitError>>;

    /// Told before each event by when it will be ended.
    fn ends_at(&mut self, _moment: Duration) {}

    /// The actor is idle: gives back memory that the next event gets again at once.
    fn doze(&mut self) {}

    /// Runs `on-alarm`.
    fn alarm(&mut self, due_ms: u64, attempt: u32) -> impl Future<Output = Result<(), AlarmError>>;

    /// Runs one event that is no alarm to its end, answering it on the way.
    fn deliver(&mut self, event: Self::Event) -> impl Future<Output = TurnEnd>;
}
