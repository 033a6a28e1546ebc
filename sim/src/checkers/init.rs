//! `on-init` succeeds for a version before any other event of it, once; what it wrote and the record that it
//! ran stand or fall together.

use std::{collections::BTreeMap, time::Duration};

use super::Checker;
use crate::history::{ActorNumber, Attempt, Found, LifeEnd, Record, Version};

/// What is known of an attempt that returned success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The host went on to commit it.
    Maybe,
    /// An event ran after it, or it was seen.
    Stands,
}

#[derive(Debug)]
struct Success {
    version: Version,
    attempt: Attempt,
    fate: Fate,
    /// Something was acknowledged after it.
    acknowledged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Init {
    actors: BTreeMap<ActorNumber, Vec<Success>>,
}

impl Init {
    fn of(&mut self, actor: ActorNumber) -> &mut Vec<Success> {
        self.actors.entry(actor).or_default()
    }

    fn began(&mut self, actor: ActorNumber, version: Version) -> Result<(), String> {
        let successes = self.of(actor);
        if successes.iter().any(|success| success.version == version && success.fate == Fate::Stands) {
            return Err(format!("on-init of version {version} ran again for actor {actor}"));
        }
        // It runs again, so the record that would have come with an earlier success is not there.
        successes.retain(|success| success.version != version);
        Ok(())
    }

    fn event(&mut self, actor: ActorNumber, version: Version) -> Result<(), String> {
        match self.of(actor).iter_mut().rev().find(|success| success.version == version) {
            Some(success) => {
                success.fate = Fate::Stands;
                Ok(())
            }
            None => Err(format!("an event of actor {actor} ran before on-init of version {version}")),
        }
    }

    fn seen(&mut self, actor: ActorNumber, found: &Found) -> Result<(), String> {
        let successes = self.of(actor);
        successes.retain(|success| {
            success.fate == Fate::Stands || found.inits.contains(&(success.version, success.attempt))
        });
        let expected: Vec<_> = successes.iter().map(|success| (success.version, success.attempt)).collect();
        for success in successes {
            success.fate = Fate::Stands;
        }
        if found.inits == expected {
            Ok(())
        } else {
            Err(format!("actor {actor} holds the on-init rows {:?} and not {expected:?}", found.inits))
        }
    }

    fn seen_version(&mut self, actor: ActorNumber, version: Option<Version>) -> Result<(), String> {
        let expected = self.of(actor).last().map(|success| success.version);
        if version == expected {
            Ok(())
        } else {
            Err(format!("actor {actor} has on-init of {version:?} on record, and the rows of {expected:?}"))
        }
    }
}

impl Checker for Init {
    fn name(&self) -> &'static str {
        "init"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        match record {
            Record::InitBegan { actor, version, .. } => self.began(*actor, *version),
            Record::InitEnded { actor, version, attempt, ok: true } => {
                let success =
                    Success { version: *version, attempt: *attempt, fate: Fate::Maybe, acknowledged: false };
                self.of(*actor).push(success);
                Ok(())
            }
            Record::Began { actor, version, has_init: true, .. } => self.event(*actor, *version),
            Record::Answered { actor, .. } => {
                self.of(*actor).iter_mut().for_each(|success| success.acknowledged = true);
                Ok(())
            }
            Record::Erased { actor } => {
                self.actors.remove(actor);
                Ok(())
            }
            Record::LifeEnded(LifeEnd::Killed { torn: Some(actor) }) => {
                for success in self.of(*actor).iter_mut().filter(|success| !success.acknowledged) {
                    success.fate = Fate::Maybe;
                }
                Ok(())
            }
            Record::Seen { actor, found } => self.seen(*actor, found),
            Record::SeenVersion { actor, version } => self.seen_version(*actor, *version),
            _ => Ok(()),
        }
    }
}
