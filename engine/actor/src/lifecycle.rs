//! What one actor does next, as a pure step function: inputs in, at most one action out.
//!
//! Owns the mailbox and the order of things: open, start, `on-init`, one event at a time, doze, rest. It knows
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
    /// The actor has been idle for a moment: give back what is cheap to get again, when nothing waits.
    Doze,
    /// Answer to [`Action::Doze`]: whether the database is closed now, and what became of it.
    Dozed(bool, StorageFate),
    /// Answer to [`Action::Wake`].
    Woken(Result<(), Refusal>),
    /// The class has a new version: the next event runs on a new instance.
    Renew,
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
    /// Close the database and give back other memory; the instance stays.
    Doze,
    /// Open the database again after [`Action::Doze`].
    Wake,
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

/// Where the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    Closed,
    Open,
    /// Closed for the time being; the instance still refers to it.
    Dozing,
}

/// The action that was handed out and has not been answered, as far as it matters meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outstanding {
    Nothing,
    /// The actor is on its way to sleep.
    Closing,
    /// It gives back memory and would rather sleep if it were asked to.
    Dozing,
    Other,
}

/// One actor.
#[derive(Debug)]
pub struct Lifecycle<E> {
    mailbox: VecDeque<E>,
    mailbox_events_max: usize,
    storage: Storage,
    instance: Instance,
    /// The version changed since the last [`Action::Start`] was handed out.
    outdated: bool,
    outstanding: Outstanding,
    /// Doze at the next moment nothing waits.
    doze: bool,
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
            storage: Storage::Closed,
            instance: Instance::Absent,
            outdated: false,
            outstanding: Outstanding::Nothing,
            doze: false,
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
        self.outstanding == Outstanding::Nothing
            && self.storage == Storage::Closed
            && self.instance == Instance::Absent
            && self.mailbox.is_empty()
    }

    /// Resident and doing nothing: may be told to [`Input::Rest`].
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let free = match self.outstanding {
            Outstanding::Nothing => true,
            // Told so already, it sleeps as soon as it can.
            Outstanding::Dozing => !self.rest,
            Outstanding::Closing | Outstanding::Other => false,
        };
        free && self.storage != Storage::Closed && self.mailbox.is_empty()
    }

    /// On its way to sleep, with nothing that would wake it again.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        let leaving = match self.outstanding {
            Outstanding::Closing => true,
            Outstanding::Dozing => self.rest,
            Outstanding::Nothing | Outstanding::Other => false,
        };
        leaving && self.mailbox.is_empty()
    }

    /// Takes one input. Answers to actions must match the action outstanding.
    pub fn step(&mut self, input: Input<E>) -> Effects<E> {
        let mut refused = Vec::new();
        match input {
            Input::Arrive(event) => self.arrive(event, &mut refused),
            Input::Opened(result) => {
                self.answered();
                match result {
                    Ok(()) => self.storage = Storage::Open,
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
                if end != TurnEnd::Ready {
                    self.instance = Instance::Absent;
                }
                self.learn(fate);
            }
            Input::Lost(refusal) => {
                self.refuse_waiting(&refusal, &mut refused);
                let holds = self.storage != Storage::Closed || self.outstanding != Outstanding::Nothing;
                if holds && self.outstanding != Outstanding::Closing {
                    self.fate = StorageFate::Reopen;
                }
            }
            Input::Doze => self.doze = true,
            Input::Dozed(closed, fate) => {
                self.answered();
                self.storage = if closed { Storage::Dozing } else { Storage::Open };
                self.learn(fate);
            }
            Input::Woken(result) => {
                self.answered();
                match result {
                    Ok(()) => self.storage = Storage::Open,
                    Err(refusal) => {
                        self.refuse_waiting(&refusal, &mut refused);
                        // From the beginning at the next event: the files may be others by then.
                        self.rest = true;
                    }
                }
            }
            Input::Renew => self.outdated = true,
            Input::Rest => {
                self.rest = true;
                if self.outstanding == Outstanding::Dozing {
                    // Its place may be another's from now on: an event that comes before the doze has ended must not
                    // keep it, but finds an actor that closes.
                    self.learn(StorageFate::Reopen);
                }
            }
            Input::Stop => self.stopping = true,
            Input::GiveUp => {
                self.stopping = true;
                self.refuse_waiting(&Refusal::Stopping, &mut refused);
            }
            Input::Closed => {
                self.answered();
                self.storage = Storage::Closed;
                self.instance = Instance::Absent;
                self.fate = StorageFate::Keep;
                self.rest = false;
                self.doze = false;
            }
        }
        Effects { refused, next: self.settle() }
    }

    fn arrive(&mut self, event: E, refused: &mut Vec<(E, Refusal)>) {
        if self.stopping {
            refused.push((event, Refusal::Stopping));
        } else if self.mailbox.len() >= self.mailbox_events_max
            && !event.is_alarm()
            && let waiting = self.mailbox.iter().filter(|event| !event.is_alarm()).count()
            && waiting >= self.mailbox_events_max
        {
            refused.push((event, Refusal::MailboxFull(waiting)));
        } else {
            self.rest = false;
            self.doze = false;
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
        debug_assert!(self.outstanding != Outstanding::Nothing, "an answer without an action outstanding");
        self.outstanding = Outstanding::Nothing;
    }

    /// What became of the database, unless it was told meanwhile that the connection cannot be trusted.
    fn learn(&mut self, fate: StorageFate) {
        if self.fate == StorageFate::Keep {
            self.fate = fate;
        }
    }

    fn refuse_waiting(&mut self, refusal: &Refusal, refused: &mut Vec<(E, Refusal)>) {
        refused.extend(self.mailbox.drain(..).map(|event| (event, refusal.clone())));
    }

    /// The same upkeep after every input: with nothing outstanding, hand out what the state calls for.
    fn settle(&mut self) -> Option<Action<E>> {
        if self.outstanding != Outstanding::Nothing {
            return None;
        }
        let action = self.wanted()?;
        self.outstanding = match action {
            Action::Close | Action::Erase => Outstanding::Closing,
            Action::Doze => Outstanding::Dozing,
            _ => Outstanding::Other,
        };
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
            return self.wanted_when_idle();
        }
        match self.storage {
            Storage::Closed => return Some(Action::Open),
            Storage::Dozing => return Some(Action::Wake),
            Storage::Open => {}
        }
        // Only now that an event waits; and since what is handed out next is a start, it is of the new version.
        if std::mem::replace(&mut self.outdated, false) {
            self.instance = Instance::Absent;
        }
        match self.instance {
            Instance::Absent => Some(Action::Start),
            Instance::Uninitialised => Some(Action::Init),
            Instance::Ready => self.mailbox.pop_front().map(Action::Run),
        }
    }

    fn wanted_when_idle(&mut self) -> Option<Action<E>> {
        let doze = std::mem::take(&mut self.doze);
        match self.storage {
            Storage::Open | Storage::Dozing if self.rest || self.stopping => Some(Action::Close),
            Storage::Open if doze => Some(Action::Doze),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
