//! What was set runs at least once, never before its time, until it succeeds or is replaced; it stands and falls
//! with the transaction it was set in; the index is never later than the database; no attempt runs beside another event of its actor; once nothing fails any
//! more, no alarm is left.

use std::{collections::BTreeMap, time::Duration};

use super::Checker;
use crate::history::{ActorNumber, LifeEnd, Record};

#[derive(Debug)]
struct Actor {
    /// What may be pending; one entry when that is certain.
    pending: Vec<Option<u64>>,
    /// Came due and has not succeeded.
    attempt: Option<u64>,
    /// A crash or a deletion leaves everything open until somebody looks.
    in_doubt: bool,
    /// An event or an attempt runs.
    is_running: bool,
    /// When it wants attention, as its database was last seen to say between two lives.
    wake: Option<u64>,
}

impl Default for Actor {
    fn default() -> Self {
        Self { pending: vec![None], attempt: None, in_doubt: false, is_running: false, wake: None }
    }
}

impl Actor {
    fn certain(&self) -> Option<u64> {
        match self.pending[..] {
            [pending] => pending,
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Alarms {
    actors: BTreeMap<ActorNumber, Actor>,
    faults_off: bool,
    is_over: bool,
}

impl Alarms {
    fn of(&mut self, actor: ActorNumber) -> &mut Actor {
        self.actors.entry(actor).or_default()
    }

    fn begin(&mut self, number: ActorNumber) -> Result<(), String> {
        if std::mem::replace(&mut self.of(number).is_running, true) {
            return Err(format!("actor {number} runs two things at once"));
        }
        Ok(())
    }

    fn seen(
        &mut self,
        number: ActorNumber,
        pending: Option<u64>,
        attempt: Option<u64>,
        wake: Option<u64>,
    ) -> Result<(), String> {
        let is_over = self.is_over;
        let actor = self.of(number);
        if !actor.in_doubt {
            if let Some(due_ms) = actor.attempt.filter(|due_ms| attempt != Some(*due_ms)) {
                return Err(format!("actor {number} lost the attempt for {due_ms}, which did not succeed"));
            }
            if let Some(due_ms) = actor.certain().filter(|due| pending != Some(*due) && attempt != Some(*due))
            {
                return Err(format!("actor {number} lost the alarm for {due_ms}"));
            }
            if let Some(due_ms) = pending.filter(|due| !actor.pending.contains(&Some(*due))) {
                return Err(format!("actor {number} has an alarm for {due_ms}, which was never committed"));
            }
        }
        if is_over && let Some(due_ms) = attempt.or(pending) {
            return Err(format!("the alarm of actor {number} for {due_ms} never ran although nothing fails"));
        }
        *actor = Actor { pending: vec![pending], attempt, wake, ..Actor::default() };
        Ok(())
    }
}

impl Checker for Alarms {
    fn name(&self) -> &'static str {
        "alarms"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::AlarmSetting { actor, due_ms } => self.of(*actor).pending.push(*due_ms),
            Record::AlarmSet { actor, due_ms, in_attempt } => {
                let actor = self.of(*actor);
                actor.pending = vec![*due_ms];
                if !in_attempt {
                    actor.attempt = None;
                }
            }
            Record::AlarmNotSet { actor } => drop(self.of(*actor).pending.pop()),
            Record::AlarmBegan { actor, due_ms, number, now_ms } => {
                self.begin(*actor)?;
                // What came due once is tried again, also when the clock was set back since.
                if now_ms < due_ms && *number == 1 {
                    return Err(format!("the alarm of actor {actor} for {due_ms} ran at {now_ms}"));
                }
                let known = self.of(*actor);
                if known.attempt != Some(*due_ms) {
                    let expected = known.in_doubt || known.pending.contains(&Some(*due_ms));
                    if !expected {
                        return Err(format!("actor {actor} ran for {due_ms}, to which no alarm was set"));
                    }
                    known.pending = vec![None];
                    known.attempt = Some(*due_ms);
                }
            }
            Record::AlarmEnded { actor, ok } => {
                let actor = self.of(*actor);
                actor.is_running = false;
                if *ok {
                    actor.attempt = None;
                }
            }
            Record::Began { actor, .. } => self.begin(*actor)?,
            Record::Ended { actor, .. } => self.of(*actor).is_running = false,
            Record::DeleteAsked { actor } => self.of(*actor).in_doubt = true,
            Record::Erased { actor } => {
                let actor = self.of(*actor);
                *actor = Actor { is_running: actor.is_running, ..Actor::default() };
            }
            Record::AlarmSeen { actor, pending, attempt, wake } => {
                return self.seen(*actor, *pending, *attempt, *wake);
            }
            Record::AlarmKnown { actor, wake } => {
                let truth = self.of(*actor).wake.take();
                if truth.is_some_and(|truth| wake.is_none_or(|wake| wake > truth)) {
                    return Err(format!(
                        "a life begins that looks at actor {actor} at {wake:?}, due {truth:?}"
                    ));
                }
            }
            Record::FaultsOff => self.faults_off = true,
            Record::LifeEnded(end) => {
                self.is_over = self.faults_off;
                for (number, actor) in &mut self.actors {
                    actor.is_running = false;
                    actor.in_doubt |= *end == LifeEnd::Killed { torn: Some(*number) };
                }
            }
            _ => {}
        }
        Ok(())
    }
}
