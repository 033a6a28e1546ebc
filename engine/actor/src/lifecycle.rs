//! What one actor does next, as a pure step function: inputs in, at most one action out.
//!
//! Owns the mailbox and the order of things: open, start, `on-init`, one event at a time, rest. It knows
//! neither time nor storage nor wasm; whoever drives it carries the action out and reports back. At most one
//! action is ever outstanding, which is what "one event at a time" rests on.

use std::collections::VecDeque;

use crate::{Event, InitError, Refusal, TurnEnd};

/// What happened.
#[derive(Debug)]
pub enum Input<E> {
    /// An event came in.
    Arrive(E),
    /// Answer to [`Action::Open`].
    Opened(Result<(), Refusal>),
    /// Answer to [`Action::Start`]: whether `on-init` of this version has yet to run.
    Started(Result<NeedsInit, Refusal>),
    /// Answer to [`Action::Init`].
    Initialised(Result<(), InitError>),
    /// Answer to [`Action::Run`].
    Ended(TurnEnd, StorageFate),
    /// The actor has been idle long enough, or its place is wanted: sleep when nothing waits.
    Rest,
    /// The node stops: take nothing new, finish what waits, then sleep.
    Stop,
    /// The time for finishing is over: what still waits is refused.
    GiveUp,
    /// The node lost the actor: what waits is refused, and the database is closed before anything else.
    Lost(Refusal),
    /// Answer to [`Action::Close`] and [`Action::Erase`].
    Closed,
}

/// Whether `on-init` must run before the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsInit {
    /// It has not succeeded yet for this version.
    Yes,
    /// It has, or the component has none.
    No,
}

/// What a turn means for the actor's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFate {
    /// It stays open.
    Keep,
    /// Its connection cannot be trusted any more: close it and open it again.
    Reopen,
    /// The guest asked for `delete-self`.
    Erase,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action<E> {
    /// Open the database.
    Open,
    /// Make an instance.
    Start,
    /// Run `on-init`.
    Init,
    /// Run this event.
    Run(E),
    /// Drop the instance and close the database.
    Close,
    /// As [`Action::Close`], and remove the data.
    Erase,
}

/// The outcome of a step.
#[derive(Debug)]
pub struct Effects<E> {
    /// Events to answer without running, in order.
    pub refused: Vec<(E, Refusal)>,
    /// What to do next; `None`: wait for the next input.
    pub next: Option<Action<E>>,
}

/// How far the instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instance {
    Absent,
    Uninitialised,
    Ready,
}

/// One actor.
#[derive(Debug)]
pub struct Lifecycle<E> {
    mailbox: VecDeque<E>,
    mailbox_events_max: usize,
    storage_open: bool,
    instance: Instance,
    /// An action was handed out and has not been answered.
    outstanding: bool,
    /// That action closes the database.
    closing: bool,
    /// Sleep at the next moment nothing waits.
    rest: bool,
    stopping: bool,
    /// Close before anything else: the connection or the data are gone.
    fate: StorageFate,
}

impl<E: Event> Lifecycle<E> {
    /// An actor asleep, with room for `mailbox_events_max` waiting events besides the running one.
    #[must_use]
    pub fn new(mailbox_events_max: usize) -> Self {
        Self {
            mailbox: VecDeque::new(),
            mailbox_events_max,
            storage_open: false,
            instance: Instance::Absent,
            outstanding: false,
            closing: false,
            rest: false,
            stopping: false,
            fate: StorageFate::Keep,
        }
    }

    /// Events waiting, the running one not counted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.mailbox.len()
    }

    /// Nothing resident, nothing running, nothing waiting.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        !self.outstanding
            && !self.storage_open
            && self.instance == Instance::Absent
            && self.mailbox.is_empty()
    }

    /// Resident and doing nothing: may be told to [`Input::Rest`].
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.outstanding && self.storage_open && self.mailbox.is_empty()
    }

    /// On its way to sleep, with nothing that would wake it again.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.closing && self.mailbox.is_empty()
    }

    /// Takes one input. Answers to actions must match the action outstanding.
    pub fn step(&mut self, input: Input<E>) -> Effects<E> {
        let mut refused = Vec::new();
        match input {
            Input::Arrive(event) => self.arrive(event, &mut refused),
            Input::Opened(result) => {
                self.answered();
                match result {
                    Ok(()) => self.storage_open = true,
                    Err(refusal) => self.refuse_waiting(&refusal, &mut refused),
                }
            }
            Input::Started(result) => {
                self.answered();
                match result {
                    Ok(NeedsInit::Yes) => self.instance = Instance::Uninitialised,
                    Ok(NeedsInit::No) => self.instance = Instance::Ready,
                    Err(refusal) => {
                        self.refuse_waiting(&refusal, &mut refused);
                        // Keeping a database open that no instance could be made for helps nobody.
                        self.rest = true;
                    }
                }
            }
            Input::Initialised(result) => {
                self.answered();
                self.initialised(result, &mut refused);
            }
            Input::Ended(end, fate) => {
                self.answered();
                if matches!(end, TurnEnd::Poisoned(_)) {
                    self.instance = Instance::Absent;
                }
                // Told meanwhile that the connection cannot be trusted: that stands.
                if self.fate == StorageFate::Keep {
                    self.fate = fate;
                }
            }
            Input::Lost(refusal) => {
                self.refuse_waiting(&refusal, &mut refused);
                if (self.storage_open || self.outstanding) && !self.closing {
                    self.fate = StorageFate::Reopen;
                }
            }
            Input::Rest => self.rest = true,
            Input::Stop => self.stopping = true,
            Input::GiveUp => {
                self.stopping = true;
                self.refuse_waiting(&Refusal::Stopping, &mut refused);
            }
            Input::Closed => {
                self.answered();
                self.storage_open = false;
                self.instance = Instance::Absent;
                self.fate = StorageFate::Keep;
                self.rest = false;
            }
        }
        Effects { refused, next: self.settle() }
    }

    fn arrive(&mut self, event: E, refused: &mut Vec<(E, Refusal)>) {
        if self.stopping {
            refused.push((event, Refusal::Stopping));
        } else if self.mailbox.len() >= self.mailbox_events_max {
            refused.push((event, Refusal::MailboxFull(self.mailbox.len())));
        } else {
            self.rest = false;
            self.mailbox.push_back(event);
        }
    }

    fn initialised(&mut self, result: Result<(), InitError>, refused: &mut Vec<(E, Refusal)>) {
        let Err(error) = result else {
            self.instance = Instance::Ready;
            return;
        };
        if matches!(error, InitError::Poisoned(_)) {
            self.instance = Instance::Absent;
        }
        // Only the event that asked for it: the next one tries on-init again.
        if let Some(event) = self.mailbox.pop_front() {
            refused.push((event, Refusal::Init(error.to_string())));
        }
    }

    fn answered(&mut self) {
        debug_assert!(self.outstanding, "an answer without an action outstanding");
        self.outstanding = false;
        self.closing = false;
    }

    fn refuse_waiting(&mut self, refusal: &Refusal, refused: &mut Vec<(E, Refusal)>) {
        refused.extend(self.mailbox.drain(..).map(|event| (event, refusal.clone())));
    }

    /// The same upkeep after every input: with nothing outstanding, hand out what the state calls for.
    fn settle(&mut self) -> Option<Action<E>> {
        if self.outstanding {
            return None;
        }
        let action = self.wanted()?;
        self.outstanding = true;
        self.closing = matches!(action, Action::Close | Action::Erase);
        Some(action)
    }

    fn wanted(&mut self) -> Option<Action<E>> {
        match self.fate {
            StorageFate::Keep => {}
            StorageFate::Reopen => return Some(Action::Close),
            StorageFate::Erase => return Some(Action::Erase),
        }
        // Nobody waits for these answers any more; running them would be work for no one.
        while self.mailbox.front().is_some_and(Event::is_abandoned) {
            self.mailbox.pop_front();
        }
        if self.mailbox.is_empty() {
            let close = (self.rest || self.stopping) && self.storage_open;
            return close.then_some(Action::Close);
        }
        if !self.storage_open {
            return Some(Action::Open);
        }
        match self.instance {
            Instance::Absent => Some(Action::Start),
            Instance::Uninitialised => Some(Action::Init),
            Instance::Ready => self.mailbox.pop_front().map(Action::Run),
        }
    }
}

#[cfg(test)]
mod tests;
