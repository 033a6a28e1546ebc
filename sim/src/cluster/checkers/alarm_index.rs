//! Whenever an actor is opened, the bucket lists the alarm that was acknowledged to it, no later than its database says
//! (R-ALM-1, case A1).
//!
//! One that was never acknowledged may be in no listing: its state can land after its owner lost the actor and the next
//! owner, which saw neither, cleared its entry away.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Generation, Record, RequestNumber},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct AlarmIndex {
    owners: BTreeMap<ActorNumber, Generation>,
    set: BTreeMap<(ActorNumber, RequestNumber), u64>,
    acknowledged: BTreeSet<(ActorNumber, u64)>,
}

impl Checker for AlarmIndex {
    fn name(&self) -> &'static str {
        "alarm-index"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Owned { actor, generation, .. } => drop(self.owners.insert(*actor, *generation)),
            Record::Reminded { actor, request, due_ms } => {
                self.set.insert((*actor, *request), *due_ms);
            }
            Record::Durable { actor, request } => {
                let due_ms = self.set.get(&(*actor, *request));
                self.acknowledged.extend(due_ms.map(|due_ms| (*actor, *due_ms)));
            }
            // A later owner may have moved the alarm since.
            Record::FoundAlarm { actor, generation, alarm_ms, listed_ms }
                if self.owners.get(actor) == Some(generation)
                    && self.acknowledged.contains(&(*actor, *alarm_ms))
                    && listed_ms.is_none_or(|listed_ms| listed_ms > *alarm_ms) =>
            {
                return Err(format!(
                    "actor {actor} has an alarm at {alarm_ms}, the bucket one at {listed_ms:?}"
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
