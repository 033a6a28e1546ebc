//! Everything comes to rest; once nothing fails any more every actor answers, and nothing is left behind.

use std::{collections::BTreeSet, time::Duration};

use super::Checker;
use crate::history::{EventNumber, Record};

/// See the module.
#[derive(Debug, Default)]
pub struct Liveness {
    faults_off: bool,
    /// Sent since then and not answered.
    unanswered: BTreeSet<EventNumber>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::Restless { waiting } => {
                return Err(format!("the shard does not come to rest; {waiting} events wait"));
            }
            Record::Still(still) => {
                if still.waiting > 0 {
                    return Err(format!("{} events wait and nothing runs", still.waiting));
                }
                if still.tasks != still.resident {
                    return Err(format!("{} tasks are left for {} residents", still.tasks, still.resident));
                }
                if let Some(event) = self.unanswered.first() {
                    return Err(format!("event {event} was not answered although nothing fails"));
                }
            }
            Record::FaultsOff => self.faults_off = true,
            _ if !self.faults_off => {}
            Record::Sent { event, .. } => {
                self.unanswered.insert(*event);
            }
            Record::Answered { event, .. } => {
                self.unanswered.remove(event);
            }
            Record::Refused { event, refusal } => {
                return Err(format!("event {event} was refused although nothing fails: {refusal}"));
            }
            Record::Failed { event, failure } => {
                return Err(format!("event {event} failed although nothing fails: {failure}"));
            }
            Record::Trouble { actor, text } => {
                return Err(format!("trouble of actor {actor} although nothing fails: {text}"));
            }
            _ => {}
        }
        Ok(())
    }
}
