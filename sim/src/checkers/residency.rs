//! No more actors are resident than there is room for once evictions are done; the least recently used gives
//! way; an actor at rest holds no instance and no file, one that dozes no file; nobody has two of either.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Checker;
use crate::history::{ActorNumber, LifeEnd, Record, Rules, Stillness};

/// See the module.
#[derive(Debug)]
pub struct Residency {
    resident_max: usize,
    /// Resident.
    open: BTreeSet<ActorNumber>,
    /// Resident with its database closed.
    dozing: BTreeSet<ActorNumber>,
    instances: BTreeSet<ActorNumber>,
    /// When each actor was last sent an event, by the number of the record.
    used: BTreeMap<ActorNumber, u64>,
    records: u64,
    crowding: Option<Crowding>,
}

/// An actor wakes while all others rest and there is no room.
#[derive(Debug)]
struct Crowding {
    newcomer: ActorNumber,
    least_used: Option<ActorNumber>,
    slept: Vec<ActorNumber>,
}

impl Residency {
    /// For the room the rules say.
    pub fn new(rules: Rules) -> Self {
        Self {
            resident_max: rules.resident_max,
            open: BTreeSet::new(),
            dozing: BTreeSet::new(),
            instances: BTreeSet::new(),
            used: BTreeMap::new(),
            records: 0,
            crowding: None,
        }
    }

    fn still(&mut self, still: &Stillness) -> Result<(), String> {
        let Stillness { resident, instances, files, .. } = still;
        if *resident > self.resident_max {
            return Err(format!(
                "{resident} actors are resident where there is room for {}",
                self.resident_max
            ));
        }
        if !files.iter().eq(self.open.difference(&self.dozing)) {
            let (open, dozing) = (&self.open, &self.dozing);
            return Err(format!(
                "the open files are those of {files:?}, and not of {open:?} without {dozing:?}"
            ));
        }
        if self.open.len() != *resident {
            return Err(format!("{resident} actors are resident, and {:?} have an open database", self.open));
        }
        if *instances != self.instances.len() {
            return Err(format!("{instances} instances are alive, and not those of {:?}", self.instances));
        }
        let Some(Crowding { newcomer, least_used, slept }) = self.crowding.take() else { return Ok(()) };
        let others: Vec<_> = slept.into_iter().filter(|actor| *actor != newcomer).collect();
        if others.iter().eq(&least_used) {
            return Ok(());
        }
        Err(format!(
            "{others:?} went to rest for actor {newcomer}, and {least_used:?} was the least recently used"
        ))
    }
}

impl Checker for Residency {
    fn name(&self) -> &'static str {
        "residency"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        self.records += 1;
        match record {
            Record::Sent { actor, .. } | Record::AlarmSent { actor } => {
                self.used.insert(*actor, self.records);
            }
            Record::Opened { actor } if !self.open.insert(*actor) => {
                return Err(format!("the database of actor {actor} was opened twice"));
            }
            Record::InstanceMade { actor, .. } if !self.instances.insert(*actor) => {
                return Err(format!("actor {actor} has two instances"));
            }
            Record::InstanceGone { actor } => {
                self.instances.remove(actor);
            }
            Record::Dozed { actor } if !self.open.contains(actor) || !self.dozing.insert(*actor) => {
                return Err(format!("actor {actor} dozes and had no open database"));
            }
            Record::Roused { actor } if !self.dozing.remove(actor) => {
                return Err(format!("actor {actor} was roused and had its database open"));
            }
            Record::Began { actor, .. } | Record::InitBegan { actor, .. } if self.dozing.contains(actor) => {
                return Err(format!("actor {actor} runs and its database is closed"));
            }
            Record::Slept { actor } => {
                self.open.remove(actor);
                self.dozing.remove(actor);
                if self.instances.contains(actor) {
                    return Err(format!("actor {actor} is at rest and keeps an instance"));
                }
                if let Some(crowding) = &mut self.crowding {
                    crowding.slept.push(*actor);
                }
            }
            Record::Trouble { actor, text } if text.contains("still holds") => {
                return Err(format!("actor {actor}: {text}"));
            }
            Record::Crowding { actor } => {
                let least_used = self.open.iter().copied().min_by_key(|actor| self.used.get(actor));
                self.crowding = Some(Crowding { newcomer: *actor, least_used, slept: Vec::new() });
            }
            Record::Still(still) => return self.still(still),
            Record::LifeEnded(end) => {
                let left = !self.open.is_empty() || !self.instances.is_empty();
                self.open.clear();
                self.dozing.clear();
                self.instances.clear();
                if *end == LifeEnd::Stopped && left {
                    return Err("a stopped shard left actors behind".into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
