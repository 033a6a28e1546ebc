//! One event of a client, and the one answer it expects.

use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use wasmkeep_actor::{Event, Failure, Refusal};

use crate::{
    flaw::Flaw,
    history::{ActorNumber, EventNumber, Record},
    script::Step,
    stage::Stage,
};

/// What the client and the shard share of an event.
pub struct Slot {
    /// Its number.
    pub event: EventNumber,
    /// Whom it is for.
    pub actor: ActorNumber,
    stage: Rc<Stage>,
    answered: Cell<bool>,
    abandoned: Cell<bool>,
    /// Of an event that says the alarm is due.
    alarm: Option<Rc<AlarmAnswer>>,
}

/// Whether an event that says the alarm is due was taken, once that is known.
#[derive(Default)]
pub struct AlarmAnswer {
    taken: Cell<Option<bool>>,
    waker: Cell<Option<Waker>>,
}

impl AlarmAnswer {
    fn set(&self, taken: bool) {
        self.taken.set(self.taken.get().or(Some(taken)));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ends when it is known.
    pub async fn taken(&self) -> bool {
        poll_fn(|context| match self.taken.get() {
            Some(taken) => Poll::Ready(taken),
            None => {
                self.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

impl Slot {
    /// The client leaves.
    pub fn abandon(&self) {
        if !self.answered.get() && !self.abandoned.replace(true) {
            self.stage.record(Record::Abandoned { event: self.event });
        }
    }

    /// The guest answers.
    pub fn answer(&self) {
        self.answered.set(true);
        self.stage.record(Record::Answered { event: self.event, actor: self.actor });
        self.stage.note_acknowledged(self.actor);
    }

    /// Whether somebody answered it already.
    pub fn is_answered(&self) -> bool {
        self.answered.get()
    }
}

/// An event on its way.
pub struct SimEvent {
    slot: Rc<Slot>,
    /// What its handler will do.
    pub script: Vec<Step>,
    taken: bool,
}

impl SimEvent {
    /// A new event for `actor` and what its client holds of it.
    pub fn new(stage: &Rc<Stage>, event: EventNumber, actor: ActorNumber, script: Vec<Step>) -> Self {
        let stage = stage.clone();
        let (answered, abandoned) = (Cell::new(false), Cell::new(false));
        let slot = Slot { event, actor, stage, answered, abandoned, alarm: None };
        Self { slot: Rc::new(slot), script, taken: false }
    }

    /// An event that says the alarm of somebody is due.
    pub fn alarm(stage: &Rc<Stage>) -> (Self, Rc<AlarmAnswer>) {
        let answer = Rc::new(AlarmAnswer::default());
        let (answered, abandoned) = (Cell::new(false), Cell::new(false));
        let alarm = Some(answer.clone());
        let slot = Slot { event: 0, actor: 0, stage: stage.clone(), answered, abandoned, alarm };
        (Self { slot: Rc::new(slot), script: Vec::new(), taken: false }, answer)
    }

    /// An event that nobody sent and whose client has left: only a broken variant dispatches it.
    pub fn ghost(stage: &Rc<Stage>, actor: ActorNumber) -> Self {
        let ghost = Self::new(stage, 0, actor, Vec::new());
        ghost.slot.abandoned.set(true);
        ghost
    }

    /// What the client holds.
    pub fn slot(&self) -> Rc<Slot> {
        self.slot.clone()
    }

    /// The instance takes it: from here on the turn answers.
    pub fn take(mut self) -> (Rc<Slot>, Vec<Step>) {
        self.taken = true;
        (self.slot.clone(), std::mem::take(&mut self.script))
    }
}

impl Event for SimEvent {
    type Ticket = Rc<Slot>;

    fn ticket(&self) -> Rc<Slot> {
        self.slot.clone()
    }

    fn fail(slot: Rc<Slot>, failure: &Failure) {
        if !slot.answered.replace(true) || slot.stage.flawed(Flaw::AnswersTwice) {
            slot.stage.record(Record::Failed { event: slot.event, failure: failure.clone() });
        }
    }

    fn is_alarm(&self) -> bool {
        self.slot.alarm.is_some()
    }

    fn done(slot: Rc<Slot>) {
        if let Some(alarm) = &slot.alarm {
            alarm.set(true);
        }
    }

    fn refuse(mut self, refusal: &Refusal) {
        if let Some(alarm) = &self.slot.alarm {
            return alarm.set(false);
        }
        self.taken = true;
        self.slot.answered.set(true);
        let event = self.slot.event;
        self.slot.stage.record(Record::Refused { event, refusal: refusal.clone() });
    }

    fn is_abandoned(&self) -> bool {
        self.slot.abandoned.get() && !self.slot.stage.flawed(Flaw::RunsAbandoned)
    }
}

impl Drop for SimEvent {
    fn drop(&mut self) {
        if let Some(alarm) = &self.slot.alarm {
            // Unless it was taken.
            alarm.set(false);
        } else if !self.taken && !self.slot.abandoned.get() {
            self.slot.stage.record(Record::Dropped { event: self.slot.event });
        }
    }
}
