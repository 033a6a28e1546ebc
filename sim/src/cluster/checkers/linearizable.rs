//! Each actor's counter and register behave to all clients together as if one request came after another, each at an
//! instant between its sending and its answer.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    linearizability::{counter, register},
    record::{ActorNumber, DELETABLE, Operation, Record, RequestNumber, Told},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Linearizable {
    asked: BTreeMap<RequestNumber, Asked>,
}

#[derive(Debug)]
struct Asked {
    at: Time,
    actor: ActorNumber,
    operation: Operation,
    told: Option<(Time, Told)>,
}

impl Asked {
    fn did_not_run(&self) -> bool {
        matches!(self.told, Some((_, Told::NotRun(_))))
    }

    fn answered(&self) -> Option<(Time, u64)> {
        match self.told {
            Some((at, Told::Served(answer))) => Some((at, answer)),
            _ => None,
        }
    }
}

impl Linearizable {
    fn of_actor(&self, actor: ActorNumber) -> impl Iterator<Item = (RequestNumber, &Asked)> {
        let asked = self.asked.iter().map(|(request, asked)| (*request, asked));
        asked.filter(move |(_, asked)| asked.actor == actor && !asked.did_not_run())
    }

    fn counter(&self, actor: ActorNumber) -> bool {
        let calls = self.of_actor(actor).filter_map(|(_, asked)| {
            let adds = asked.operation == Operation::Add;
            let is_of_it = adds || asked.operation == Operation::Count;
            is_of_it.then(|| counter::Call { began: asked.at, adds, answered: asked.answered() })
        });
        counter::explains(&calls.collect::<Vec<_>>())
    }

    fn register(&self, actor: ActorNumber) -> bool {
        let (mut touches, mut open) = (Vec::new(), Vec::new());
        for (request, asked) in self.of_actor(actor) {
            let writes = asked.operation == Operation::Write;
            match asked.answered() {
                Some((answered, value)) if writes || asked.operation == Operation::Read => {
                    touches.push(register::Touch { began: asked.at, answered, writes, value });
                }
                None if writes => open.push((request, asked.at)),
                _ => {}
            }
        }
        // A write without an answer came before the first answer that tells of it; one that nobody saw may as well not
        // have come at all.
        for (value, began) in open {
            let told = touches.iter().filter(|touch| touch.value == value).map(|touch| touch.answered).min();
            touches.extend(told.map(|answered| register::Touch { began, answered, writes: true, value }));
        }
        register::explains(&touches)
    }

    fn judge(&self, actor: ActorNumber) -> Result<(), String> {
        let objects = [("counter", self.counter(actor)), ("register", self.register(actor))];
        match objects.into_iter().find(|(_, explained)| !explained) {
            Some((object, _)) => Err(format!("no order explains what the {object} of actor {actor} said")),
            None => Ok(()),
        }
    }
}

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        "linearizability"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, actor, operation, .. } if *actor < DELETABLE => {
                let asked = Asked { at: time, actor: *actor, operation: *operation, told: None };
                self.asked.insert(*request, asked);
            }
            Record::Told { request, told } => {
                if let Some(asked) = self.asked.get_mut(request) {
                    asked.told = Some((time, *told));
                }
            }
            Record::Over => {
                let actors: BTreeSet<ActorNumber> = self.asked.values().map(|asked| asked.actor).collect();
                return actors.into_iter().try_for_each(|actor| self.judge(actor));
            }
            _ => {}
        }
        Ok(())
    }
}
