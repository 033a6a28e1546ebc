//! Whenever an actor is opened, the bucket lists its alarm, no later than the actor's database says (R-ALM-1, case A1).

use std::collections::BTreeMap;

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Generation, Record},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct AlarmIndex {
    owners: BTreeMap<ActorNumber, Generation>,
}

impl Checker for AlarmIndex {
    fn name(&self) -> &'static str {
        "alarm-index"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Owned { actor, generation, .. } => drop(self.owners.insert(*actor, *generation)),
            // A later owner may have moved the alarm since.
            Record::FoundAlarm { actor, generation, alarm_ms, listed_ms }
                if self.owners.get(actor) == Some(generation)
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
