//! Once nothing fails any more every actor is served, and nothing is left behind.

use std::collections::BTreeSet;

use super::Checker;
use crate::replica::record::{Actor, Record};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    faults_off: bool,
    waiting: BTreeSet<Actor>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::FaultsOff => self.faults_off = true,
            Record::HoldBegan { actor, .. } if self.faults_off => {
                self.waiting.insert(*actor);
            }
            Record::Served { actor } => {
                self.waiting.remove(actor);
            }
            Record::RestoreFailed { actor, error, .. } if self.faults_off => {
                return Err(format!("actor {actor} cannot be had although nothing fails: {error}"));
            }
            Record::GaveUp { actor, generation, why } if self.faults_off && self.waiting.contains(actor) => {
                return Err(format!(
                    "hold {generation} of actor {actor} ended although nothing fails: {why}"
                ));
            }
            Record::Ended { tasks } => {
                if let Some(actor) = self.waiting.first() {
                    return Err(format!("actor {actor} was not served"));
                }
                if *tasks > 0 {
                    return Err(format!("{tasks} tasks are left"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
