//! Every hold of an actor has a generation above all before, in the bucket and among those who believe they hold it
//! (R-OWN-2).

use std::collections::BTreeMap;

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Pid, Record},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Generations {
    written: BTreeMap<ActorNumber, (u64, Pid)>,
    taken: BTreeMap<(ActorNumber, u64), Pid>,
}

impl Checker for Generations {
    fn name(&self) -> &'static str {
        "generations"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Owned { actor, pid, generation, held: true } => {
                let before = self.written.insert(*actor, (*generation, *pid));
                match before {
                    Some((before, _)) if before >= *generation => {
                        Err(format!("actor {actor} was taken at generation {generation} after {before}"))
                    }
                    _ => Ok(()),
                }
            }
            Record::Owned { actor, pid, generation, held: false } => match self.written.get(actor) {
                Some(standing) if *standing == (*generation, *pid) => Ok(()),
                standing => Err(format!(
                    "process {pid} released actor {actor} at generation {generation} where {standing:?} stood"
                )),
            },
            Record::Taken { pid, actor, generation } => {
                match self.taken.insert((*actor, *generation), *pid) {
                    // It may hear of its own hold once more.
                    Some(other) if other != *pid => Err(format!(
                        "the processes {other} and {pid} both hold actor {actor} at generation {generation}"
                    )),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
