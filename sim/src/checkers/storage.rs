//! Commits stand exactly once, whatever ends the life after them; rolled back and open transactions leave
//! nothing; each actor holds its own rows only; a deleted actor starts empty; SQL answers as the contract says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Checker;
use crate::history::{ActorNumber, Found, LifeEnd, Record, Unit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its commit was begun: the next look decides.
    Maybe,
    /// It stood, and a crash may have cut it off, with everything after it.
    Torn,
    Stands,
    Absent,
}

#[derive(Debug)]
struct Entry {
    unit: Unit,
    parts: u64,
    fate: Fate,
}

#[derive(Debug, Default)]
struct Actor {
    /// In the order their commits were begun.
    units: Vec<Entry>,
    /// How many of them were begun when something was last acknowledged.
    acknowledged: usize,
    /// `delete-self` was asked for and not carried out.
    delete_due: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Storage {
    cast: Vec<String>,
    actors: BTreeMap<ActorNumber, Actor>,
}

impl Storage {
    /// `cast` names the actors as their rows do.
    pub fn new(cast: Vec<String>) -> Self {
        Self { cast, actors: BTreeMap::new() }
    }

    fn of(&mut self, actor: ActorNumber) -> &mut Actor {
        self.actors.entry(actor).or_default()
    }

    fn set(&mut self, actor: ActorNumber, unit: Unit, fate: Fate) {
        if let Some(entry) = self.of(actor).units.iter_mut().rev().find(|entry| entry.unit == unit) {
            entry.fate = fate;
        }
    }

    fn seen(&mut self, number: ActorNumber, found: &Found) -> Result<(), String> {
        let owner = &self.cast[number];
        if let Some((unit, _, other)) = found.rows.iter().find(|(_, _, other)| other != owner) {
            return Err(format!("{owner} holds a row of {other} (unit {unit})"));
        }
        if found.counter != found.rows.len() as u64 {
            return Err(format!("{owner} counts {} rows and holds {}", found.counter, found.rows.len()));
        }
        let mut parts: BTreeMap<Unit, Vec<u64>> = BTreeMap::new();
        for (unit, part, _) in &found.rows {
            parts.entry(*unit).or_default().push(*part);
        }
        let actor = self.actors.entry(number).or_default();
        let mut cut_at = None;
        for entry in &mut actor.units {
            let whole = match parts.remove(&entry.unit) {
                None => false,
                Some(there) if there.iter().copied().eq(0..entry.parts) => true,
                Some(there) => {
                    let Entry { unit, parts, .. } = entry;
                    return Err(format!(
                        "{owner} holds the parts {there:?} of unit {unit} with {parts} parts"
                    ));
                }
            };
            match (entry.fate, whole) {
                (Fate::Stands, false) => return Err(format!("{owner} lost unit {}", entry.unit)),
                (Fate::Absent, true) => {
                    return Err(format!("{owner} holds unit {}, whose commit failed", entry.unit));
                }
                (Fate::Torn, true) => {
                    if let Some(cut_at) = cut_at {
                        return Err(format!("{owner} lost unit {cut_at} and kept {} after it", entry.unit));
                    }
                    entry.fate = Fate::Stands;
                }
                (Fate::Torn, false) => {
                    cut_at.get_or_insert(entry.unit);
                    entry.fate = Fate::Absent;
                }
                (Fate::Maybe, true) => entry.fate = Fate::Stands,
                (Fate::Maybe, false) => entry.fate = Fate::Absent,
                (Fate::Stands, true) | (Fate::Absent, false) => {}
            }
        }
        if let Some(unit) = parts.keys().next() {
            return Err(format!("{owner} holds unit {unit}, which was never committed"));
        }
        in_order(owner, actor, found)
    }

    fn began(&mut self, number: ActorNumber) -> Result<(), String> {
        if self.of(number).delete_due {
            return Err(format!(
                "an event of {} ran before its delete-self was carried out",
                self.cast[number]
            ));
        }
        Ok(())
    }

    /// The tail of this actor's last commits may be gone.
    fn torn(&mut self, number: ActorNumber) {
        let actor = self.of(number);
        for entry in actor.units.iter_mut().skip(actor.acknowledged) {
            if entry.fate == Fate::Stands {
                entry.fate = Fate::Torn;
            }
        }
    }
}

/// What stands must have been inserted in the order it was committed.
fn in_order(owner: &str, actor: &Actor, found: &Found) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let there = found.rows.iter().map(|(unit, _, _)| *unit).filter(|unit| seen.insert(*unit));
    let expected = actor.units.iter().filter(|entry| entry.fate == Fate::Stands).map(|entry| entry.unit);
    if there.eq(expected) {
        Ok(())
    } else {
        Err(format!("the rows of {owner} are not in the order of their commits"))
    }
}

impl Checker for Storage {
    fn name(&self) -> &'static str {
        "storage"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::Committing { actor, unit, parts } => {
                self.of(*actor).units.push(Entry { unit: *unit, parts: *parts, fate: Fate::Maybe });
            }
            Record::Committed { actor, unit } => self.set(*actor, *unit, Fate::Stands),
            Record::NotCommitted { actor, unit } => self.set(*actor, *unit, Fate::Absent),
            Record::Answered { actor, .. } => {
                let actor = self.of(*actor);
                actor.acknowledged = actor.units.len();
            }
            Record::DeleteAsked { actor } => self.of(*actor).delete_due = true,
            Record::Began { actor, .. } => return self.began(*actor),
            Record::Erased { actor } => {
                self.actors.remove(actor);
            }
            Record::LifeEnded(end) => {
                if let LifeEnd::Killed { torn: Some(actor) } = end {
                    self.torn(*actor);
                }
                // The wish dies with the process if it was not carried out.
                self.actors.values_mut().for_each(|actor| actor.delete_due = false);
            }
            Record::Seen { actor, found } => return self.seen(*actor, found),
            Record::Unsound { actor, text } | Record::Wrong { actor, text } => {
                return Err(format!("{}: {text}", self.cast[*actor]));
            }
            _ => {}
        }
        Ok(())
    }
}
