//! Every event is answered exactly once, or its client has left; a refused one never runs; a failure says what
//! truly happened.

use std::{collections::BTreeMap, time::Duration};

use wasmkeep_actor::Failure;

use super::Checker;
use crate::{
    guest::SCRIPTED_PANIC,
    history::{EventNumber, LifeEnd, Record, Rules},
};

#[derive(Debug, Default)]
struct Event {
    answers: u32,
    refused: bool,
    began_at: Option<Duration>,
    abandoned: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Answers {
    event_limit: Duration,
    /// Not yet settled, and those settled in this life.
    events: BTreeMap<EventNumber, Event>,
}

impl Answers {
    /// For the time limit the rules say.
    pub fn new(rules: Rules) -> Self {
        Self { event_limit: rules.event_limit, events: BTreeMap::new() }
    }

    fn answer(&mut self, event: EventNumber) -> Result<&mut Event, String> {
        let known = self.events.entry(event).or_default();
        known.answers += 1;
        if known.answers > 1 {
            return Err(format!("event {event} was answered {} times", known.answers));
        }
        Ok(known)
    }

    fn failed(&mut self, now: Duration, event: EventNumber, failure: &Failure) -> Result<(), String> {
        let limit = self.event_limit;
        let known = self.answer(event)?;
        let Some(began_at) = known.began_at else {
            return Err(format!("event {event} failed and had not begun: {failure}"));
        };
        match failure {
            Failure::TimeLimit(_) if now < began_at + limit => {
                Err(format!("event {event} was ended {:?} after its start, before its limit", now - began_at))
            }
            Failure::Bug(text) if text != SCRIPTED_PANIC => Err(format!("event {event} met a bug: {text}")),
            _ => Ok(()),
        }
    }

    /// With nothing running and nothing waiting, everybody must have an answer.
    fn settle(&mut self) -> Result<(), String> {
        let forgotten = self.events.iter().find(|(_, event)| event.answers == 0 && !event.abandoned);
        match forgotten {
            Some((event, _)) => Err(format!("event {event} was never answered")),
            None => Ok(()),
        }
    }
}

impl Checker for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }

    fn see(&mut self, now: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::Sent { event, .. } => {
                self.events.insert(*event, Event::default());
                Ok(())
            }
            Record::Abandoned { event } => {
                self.events.entry(*event).or_default().abandoned = true;
                Ok(())
            }
            Record::Began { event, .. } => {
                let known = self.events.entry(*event).or_default();
                known.began_at = Some(now);
                if known.refused { Err(format!("event {event} ran after it was refused")) } else { Ok(()) }
            }
            Record::Answered { event, .. } => self.answer(*event).map(drop),
            Record::Failed { event, failure } => self.failed(now, *event, failure),
            Record::Refused { event, .. } => {
                let known = self.answer(*event)?;
                known.refused = true;
                match known.began_at {
                    Some(_) => Err(format!("event {event} was refused after it began")),
                    None => Ok(()),
                }
            }
            Record::Dropped { event } => Err(format!("event {event} was dropped without an answer")),
            Record::Still(_) => self.settle(),
            Record::LifeEnded(end) => {
                let settled = if *end == LifeEnd::Stopped { self.settle() } else { Ok(()) };
                self.events.clear();
                settled
            }
            _ => Ok(()),
        }
    }
}
