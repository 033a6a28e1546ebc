//! An event runs on the version that was current when it was sent, or a later one, and no actor goes back to an
//! older one while it lives.

use std::{collections::BTreeMap, time::Duration};

use super::Checker;
use crate::{
    history::{ActorNumber, EventNumber, Record, Version},
    stage::class_of,
};

/// See the module.
#[derive(Debug, Default)]
pub struct NewestCode {
    /// Of each class, once it was deployed again.
    current: BTreeMap<usize, Version>,
    /// What each event that has not begun may run on at least.
    least: BTreeMap<EventNumber, Version>,
    ran: BTreeMap<ActorNumber, Version>,
}

impl Checker for NewestCode {
    fn name(&self) -> &'static str {
        "version"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::Deployed { class, version } => {
                self.current.insert(*class, *version);
            }
            Record::Sent { event, actor } => {
                if let Some(version) = self.current.get(&class_of(*actor)) {
                    self.least.insert(*event, *version);
                }
            }
            Record::Began { event, actor, version, .. } => {
                let least = self.least.remove(event).unwrap_or_default();
                if *version < least {
                    return Err(format!("event {event} of actor {actor} ran on {version}, not on {least}"));
                }
                let before = self.ran.insert(*actor, *version).unwrap_or_default();
                if *version < before {
                    return Err(format!("actor {actor} went back from version {before} to {version}"));
                }
            }
            Record::LifeEnded(_) => self.least.clear(),
            _ => {}
        }
        Ok(())
    }
}
