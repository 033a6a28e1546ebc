//! At every instant at most one process runs an event of an actor, and one event of it at a time. A process that
//! stands still runs nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Pid, Record, RequestNumber},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct SingleOwner {
    runs: BTreeMap<ActorNumber, BTreeMap<Pid, RequestNumber>>,
    still: BTreeSet<Pid>,
}

impl SingleOwner {
    fn check(&self, actor: ActorNumber) -> Result<(), String> {
        let Some(runs) = self.runs.get(&actor) else { return Ok(()) };
        let moving: Vec<_> = runs.keys().filter(|pid| !self.still.contains(pid)).collect();
        if moving.len() > 1 {
            return Err(format!("actor {actor} runs in the processes {moving:?} at once"));
        }
        Ok(())
    }
}

impl Checker for SingleOwner {
    fn name(&self) -> &'static str {
        "single-owner"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::RunBegan { pid, actor, request, .. } => {
                self.still.remove(pid);
                if let Some(other) = self.runs.entry(*actor).or_default().insert(*pid, *request) {
                    return Err(format!(
                        "process {pid} runs the requests {other} and {request} of actor {actor} at once"
                    ));
                }
                self.check(*actor)
            }
            Record::RunEnded { pid, actor, .. } => {
                self.runs.entry(*actor).or_default().remove(pid);
                Ok(())
            }
            Record::Paused { pid } => {
                self.still.insert(*pid);
                Ok(())
            }
            Record::Resumed { pid } => {
                self.still.remove(pid);
                self.runs.keys().try_for_each(|actor| self.check(*actor))
            }
            _ => Ok(()),
        }
    }
}
