//! A process's own lease, from its start check to its release.
//!
//! One request to the bucket is outstanding at any time. A write without an answer is never believed either way:
//! the heartbeat is read back, and our own process and sequence in it say which of our writes landed (cases L3,
//! L4). The lease counts from when that write *began*, so a slow bucket shortens it and never lengthens it.

use std::sync::Arc;

mod heartbeat;
mod stop;

use self::stop::Stop;
use super::{
    Exit, Identity, Timing,
    start::{StartCheck, Verdict},
};
use crate::{
    clock::{Moment, Now},
    limits::STOP_GRACE,
    records::{NodeRecord, NodeState, Nonce, Presence},
    store::{Condition, Found, Version, Wrote},
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time passed; due at [`Keeper::wake`] and harmless at any other moment.
    Tick,
    /// Answer to [`Effect::Write`]. No answer within the timeout is [`Wrote::Unknown`].
    Wrote(Wrote),
    /// Answer to [`Effect::Read`]. No answer within the timeout is [`Found::Failed`].
    Read(Found<NodeRecord>),
    /// A listing showed another process's heartbeat, or none, in place of ours.
    Sighted,
    /// The process is asked to stop.
    Stop,
    /// While stopping: no event runs and every actor is closed.
    ActorsClosed,
    /// While stopping: every ownership record is released.
    RecordsReleased,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read `nodes/<id>`.
    Read,
    /// Write `nodes/<id>`.
    Write(NodeRecord, Condition),
    /// The lease is valid: actors may be taken and events run.
    Valid,
    /// It is no longer: drop every actor at once and close their sockets with 1012 (R-LEASE-3).
    Lapsed,
    /// The time for events in flight is over: end them and close every actor.
    EndEvents,
    /// Nothing more happens here; the process ends.
    Exit(Exit),
}

/// Proof that the lease was valid at a moment. Only a [`Keeper`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidLease {
    epoch: u64,
    until: Moment,
}

impl ValidLease {
    /// Counts the times the lease became valid: actors taken in one epoch are not held in the next.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When it ends, unless it is renewed.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.until
    }

    /// Whether it still is.
    #[must_use]
    pub fn holds(&self, now: Moment) -> bool {
        now < self.until
    }
}

/// A process's own lease.
#[derive(Debug)]
pub struct Keeper {
    timing: Timing,
    identity: Identity,
    presence: Arc<Presence>,
    phase: Phase,
    /// What the next write replaces. Known once the start check has passed.
    basis: Option<Condition>,
    /// What stands there, as far as it is a heartbeat.
    stands: Option<NodeRecord>,
    /// The last write sent, and its number.
    sent: Option<NodeRecord>,
    sequence: u64,
    /// Live writes sent and not known to have landed, oldest first.
    unsettled: Vec<Sent>,
    /// The latest live write known to have landed.
    landed: Option<Sent>,
    /// The lease was given up: nothing makes it valid again.
    given_up: bool,
    /// How many times the lease became valid.
    epoch: u64,
    /// [`Effect::Valid`] was the last word about it.
    valid: bool,
    outstanding: Option<Request>,
    /// What has to be known before anything is written: the outcome of a write, or who stands in our place.
    read_back: bool,
    /// When the next request is due.
    due: Moment,
}

/// A live write.
#[derive(Debug, Clone, Copy)]
struct Sent {
    sequence: u64,
    began: Moment,
    written_at_ms: u64,
}

#[derive(Debug)]
enum Phase {
    /// Until the first write landed.
    Starting(StartCheck),
    Running,
    Stopping(Stop),
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Read,
    Write,
    /// The write of the release.
    Release,
}

impl Keeper {
    /// The lease of a process that starts at `now`.
    #[must_use]
    pub fn new(timing: Timing, identity: Identity, presence: Presence, now: Moment) -> Self {
        Self {
            timing,
            identity,
            presence: Arc::new(presence),
            phase: Phase::Starting(StartCheck::new()),
            basis: None,
            stands: None,
            sent: None,
            sequence: 0,
            unsettled: Vec::new(),
            landed: None,
            given_up: false,
            epoch: 0,
            valid: false,
            outstanding: None,
            read_back: false,
            due: now,
        }
    }

    /// What the next heartbeat says about the node.
    pub fn set_presence(&mut self, presence: Presence) {
        self.presence = Arc::new(presence);
    }

    /// The lease, if it is valid at `now`. Asked before every event and every take.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<ValidLease> {
        let lease = ValidLease { epoch: self.epoch, until: self.until()? };
        (self.valid && lease.holds(now)).then_some(lease)
    }

    /// The version in which our heartbeat is known to stand. [`super::WatchInput::Stands`] tells the watch.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        match &self.basis {
            Some(Condition::Unchanged(version)) if self.landed.is_some() => Some(version),
            _ => None,
        }
    }

    /// The end of the lease by the writes known to have landed.
    fn until(&self) -> Option<Moment> {
        self.landed.filter(|_| !self.given_up).map(|sent| sent.began + self.timing.validity())
    }

    /// When [`Input::Tick`] is next due.
    #[must_use]
    pub fn wake(&self) -> Option<Moment> {
        let stop = match &self.phase {
            Phase::Ended => return None,
            Phase::Stopping(stop) => Some(stop.wake(&self.timing)),
            Phase::Starting(_) | Phase::Running => None,
        };
        let request = self.outstanding.is_none().then_some(self.due);
        let lapse = if self.valid { self.until() } else { None };
        [stop, request, lapse].into_iter().flatten().min()
    }

    /// Takes one input. `nonce` is fresh at every step.
    pub fn step(&mut self, now: Now, nonce: Nonce, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if matches!(self.phase, Phase::Ended) {
            return effects;
        }
        // First what time alone did: an answer that comes after a pause must not hide that the lease ran out in it.
        self.note_lapse(now.moment, &mut effects);
        match input {
            Input::Tick => {}
            Input::Wrote(outcome) => self.wrote(now, outcome, &mut effects),
            Input::Read(found) => self.read(now, found, &mut effects),
            Input::Sighted if self.landed.is_some() => {
                self.read_back = true;
                self.due = now.moment;
            }
            Input::Sighted => {}
            Input::Stop => self.stop(now.moment, &mut effects),
            Input::ActorsClosed => self.while_stopping(|stop| stop.closed = true),
            Input::RecordsReleased => self.while_stopping(|stop| stop.records_released = true),
        }
        self.upkeep(now, nonce, &mut effects);
        effects
    }

    fn note_lapse(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.valid && self.until().is_none_or(|until| now >= until) {
            self.valid = false;
            effects.push(Effect::Lapsed);
        }
    }

    fn while_stopping(&mut self, change: impl FnOnce(&mut Stop)) {
        if let Phase::Stopping(stop) = &mut self.phase {
            change(stop);
        }
    }

    fn stop(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        match self.phase {
            // It never held anything. Should its first write still land, nobody renews it.
            Phase::Starting(_) => self.exit(Exit::Stopped { released: false }, effects),
            Phase::Running => {
                self.phase = Phase::Stopping(Stop::at(now));
                self.presence = Arc::new(Presence { stopping: true, ..Presence::clone(&self.presence) });
                // Said now and not at the next heartbeat, which others would take for a sign of life.
                self.due = self.due.min(now);
            }
            Phase::Stopping(_) | Phase::Ended => {}
        }
    }

    fn wrote(&mut self, now: Now, outcome: Wrote, effects: &mut Vec<Effect>) {
        let releasing = self.outstanding == Some(Request::Release);
        self.outstanding = None;
        match outcome {
            Wrote::Written(_) if releasing => self.exit(Exit::Stopped { released: true }, effects),
            Wrote::Written(version) => {
                self.basis = Some(Condition::Unchanged(version));
                self.stands = self.sent.take();
                self.land(self.sequence, now.moment);
            }
            // Believed only after a read: our own first copy may have made the second one fail.
            Wrote::ConditionFailed | Wrote::Unknown => {
                self.read_back = true;
                self.due = now.moment;
            }
            Wrote::Failed => {
                self.unsettled.retain(|sent| releasing || sent.sequence != self.sequence);
                self.due = now.moment + self.timing.retry();
            }
        }
    }

    /// Our live write with this sequence is the one that stands.
    fn land(&mut self, sequence: u64, now: Moment) {
        if let Some(sent) = self.unsettled.iter().find(|sent| sent.sequence == sequence) {
            self.landed = Some(*sent);
        }
        self.unsettled.retain(|sent| sent.sequence > sequence);
        if matches!(self.phase, Phase::Starting(_)) {
            self.phase = Phase::Running;
        }
        let renewed = self.landed.filter(|_| !self.given_up && self.has_said_that_it_stops());
        self.due = renewed.map_or(now, |sent| sent.began + self.timing.period);
    }

    fn read(&mut self, now: Now, found: Found<NodeRecord>, effects: &mut Vec<Effect>) {
        self.outstanding = None;
        if found == Found::Failed {
            self.due = now.moment + self.timing.retry();
            return;
        }
        self.read_back = false;
        self.due = now.moment;
        let condition = found.condition();
        match &found {
            Found::Object(_, Ok(record)) if record.process == self.identity.process => match &record.state {
                NodeState::Live if self.stands_again(record.sequence, &condition) => {
                    self.exit(Exit::Deleted, effects);
                }
                NodeState::Live
                    if self.basis == Some(Condition::Absent) && self.is_late_to_start(now.moment) =>
                {
                    self.exit(Exit::Unsettled, effects);
                }
                NodeState::Live => {
                    self.basis = condition;
                    self.stands = Some(record.clone());
                    self.land(record.sequence, now.moment);
                }
                NodeState::Fenced { by, .. } => self.exit(Exit::Fenced { by: by.clone() }, effects),
                NodeState::Released => self.exit(Exit::Stopped { released: true }, effects),
            },
            _ if matches!(self.phase, Phase::Starting(_)) => self.check_start(now, &found, effects),
            Found::Object(_, Ok(record)) => {
                let address = record.presence.advertise.clone();
                let exit = match &record.state {
                    // A fence for a heartbeat that was deleted names no process of ours.
                    NodeState::Fenced { by, .. } => Exit::Fenced { by: by.clone() },
                    NodeState::Live | NodeState::Released => Exit::Replaced { address },
                };
                self.exit(exit, effects);
            }
            Found::Object(_, Err(error)) => self.exit(Exit::Overwritten(error.clone()), effects),
            Found::Absent | Found::Failed => self.exit(Exit::Deleted, effects),
        }
    }

    /// Whether a live write of ours stands there again, after it was deleted. Only a first write can: it asks that
    /// there be nothing, so a copy of it that was under way for long may land once more.
    fn stands_again(&self, sequence: u64, found: &Option<Condition>) -> bool {
        let unsettled = self.unsettled.iter().any(|sent| sent.sequence == sequence);
        let same = self.landed.is_some_and(|landed| landed.sequence == sequence) && *found == self.basis;
        !unsettled && !same
    }

    /// Whether a first write is out for so long that it may have landed, been fenced, and been deleted, all unknown
    /// to us. For one process a lease ends once; another process has to begin the next.
    fn is_late_to_start(&self, now: Moment) -> bool {
        let lapse = self.timing.lapse(self.timing.ttl);
        self.landed.is_none() && self.unsettled.first().is_some_and(|sent| now.since(sent.began) >= lapse)
    }

    fn check_start(&mut self, now: Now, found: &Found<NodeRecord>, effects: &mut Vec<Effect>) {
        // A version that still stands proves that no write of ours has replaced it.
        let untouched =
            matches!(self.basis, Some(Condition::Unchanged(_))) && found.condition() == self.basis;
        if !untouched && self.is_late_to_start(now.moment) {
            return self.exit(Exit::Unsettled, effects);
        }
        let Phase::Starting(check) = &mut self.phase else { return };
        match check.read(&self.timing, now, found) {
            Verdict::Wait => {
                self.basis = None;
                self.due = now.moment + self.timing.period / 2;
            }
            Verdict::Pass(condition) => {
                self.basis = Some(condition);
                self.stands = match found {
                    Found::Object(_, Ok(record)) => Some(record.clone()),
                    _ => None,
                };
            }
            Verdict::Refuse(refused) => self.exit(Exit::Refused(refused), effects),
        }
    }

    fn exit(&mut self, exit: Exit, effects: &mut Vec<Effect>) {
        if self.valid {
            self.valid = false;
            effects.push(Effect::Lapsed);
        }
        self.phase = Phase::Ended;
        effects.push(Effect::Exit(exit));
    }

    /// The same after every input: announce the lease, meet the bounds of a stop, send what is due.
    fn upkeep(&mut self, now: Now, nonce: Nonce, effects: &mut Vec<Effect>) {
        let moment = now.moment;
        if !self.valid
            && self.until().is_some_and(|until| moment < until)
            && !matches!(self.phase, Phase::Ended)
        {
            self.valid = true;
            self.epoch += 1;
            effects.push(Effect::Valid);
        }
        match &mut self.phase {
            Phase::Ended => return,
            Phase::Starting(_) | Phase::Running => {}
            Phase::Stopping(stop) => {
                if moment >= stop.began + STOP_GRACE && !stop.closed && !stop.told_to_end {
                    stop.told_to_end = true;
                    effects.push(Effect::EndEvents);
                }
                if moment >= stop.over(&self.timing) {
                    return self.exit(Exit::Stopped { released: false }, effects);
                }
                // Said as soon as it is true, and not at the next heartbeat.
                if stop.may_release(moment) && !stop.hurried && self.outstanding.is_none() {
                    stop.hurried = true;
                    self.due = self.due.min(moment);
                }
            }
        }
        if self.outstanding.is_none() && moment >= self.due {
            self.send(now, nonce, effects);
        }
    }

    fn send(&mut self, now: Now, nonce: Nonce, effects: &mut Vec<Effect>) {
        let basis = match &self.basis {
            Some(basis) if !self.read_back => basis.clone(),
            _ => {
                self.outstanding = Some(Request::Read);
                return effects.push(Effect::Read);
            }
        };
        let release = matches!(&self.phase, Phase::Stopping(stop) if stop.may_release(now.moment));
        let (record, request) = if release {
            // From here on no event may run, whatever becomes of this write.
            self.given_up = true;
            self.note_lapse(now.moment, effects);
            (self.released(now, nonce), Request::Release)
        } else {
            self.sequence += 1;
            let sent = Sent { sequence: self.sequence, began: now.moment, written_at_ms: now.wall_ms };
            self.unsettled.push(sent);
            (self.record(now, sent, NodeState::Live, nonce), Request::Write)
        };
        self.outstanding = Some(request);
        self.sent = Some(record.clone());
        effects.push(Effect::Write(record, basis));
    }
}

#[cfg(test)]
mod tests;
