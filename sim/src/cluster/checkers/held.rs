//! A hold exists for every actor that runs: when an event begins, the actor's record names the process that runs it, held,
//! and with the generation by which it was opened (R-OWN-1).

use std::collections::BTreeMap;

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Generation, Pid, Record},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Held {
    /// The records as they stand.
    records: BTreeMap<ActorNumber, (Pid, Generation, bool)>,
}

impl Checker for Held {
    fn name(&self) -> &'static str {
        "held"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Owned { actor, pid, generation, held } => {
                self.records.insert(*actor, (*pid, *generation, *held));
                Ok(())
            }
            Record::RunBegan { pid, actor, generation, .. } => match self.records.get(actor) {
                Some(standing) if *standing == (*pid, *generation, true) => Ok(()),
                standing => Err(format!(
                    "actor {actor} runs in process {pid} at generation {generation}, where its record says {standing:?}"
                )),
            },
            _ => Ok(()),
        }
    }
}
