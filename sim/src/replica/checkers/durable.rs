//! A durable write that was acknowledged is in every database any later hold has, until the actor is deleted; what
//! an acknowledged deletion took does not come back.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::replica::record::{Actor, Generation, Record};

#[derive(Debug, Default)]
struct Kept {
    /// Acknowledged units, with the hold that wrote each.
    units: BTreeMap<u64, Generation>,
    /// Acknowledged or found before a deletion that may or may not stand.
    doubtful: BTreeMap<u64, Generation>,
    /// Gone for good, with the hold that deleted each: one before it, left behind, may still see them.
    gone: BTreeMap<u64, Generation>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Durable(BTreeMap<Actor, Kept>);

impl Checker for Durable {
    fn name(&self) -> &'static str {
        "durable"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Durable { actor, generation, unit } => {
                self.0.entry(*actor).or_default().units.insert(*unit, *generation);
            }
            Record::DeletePushed { actor, .. } => {
                let kept = self.0.entry(*actor).or_default();
                kept.doubtful.append(&mut kept.units);
            }
            Record::Deleted { actor, generation } => {
                let kept = self.0.entry(*actor).or_default();
                let gone = std::mem::take(&mut kept.doubtful).into_keys();
                kept.gone.extend(gone.map(|unit| (unit, *generation)));
            }
            Record::Found { actor, generation, rows, .. } => {
                let kept = self.0.entry(*actor).or_default();
                let found: BTreeSet<u64> = rows.0.iter().copied().collect();
                let lost = kept.units.iter().find(|(unit, by)| *by < generation && !found.contains(unit));
                if let Some((unit, by)) = lost {
                    return Err(format!(
                        "actor {actor} lost unit {unit}, acknowledged as durable by hold {by}: hold {generation} does not have it"
                    ));
                }
                let is_back = |unit: &&u64| kept.gone.get(unit).is_some_and(|by| by < generation);
                if let Some(unit) = found.iter().find(is_back) {
                    return Err(format!("unit {unit} of actor {actor} is back after its deletion"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
