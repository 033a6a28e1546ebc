//! Each actor's counter and register behave to all clients together as if one request came after another, each at an
//! instant between its sending and its answer.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    linearizability::{Call, Model, Touch, Verdict, explains, judge},
    record::{ActorNumber, Operation, Record, RequestNumber, Told},
    time::Time,
};

/// Steps of one search. Histories of runs are found to be in order within a few thousand.
const STEPS_MAX: u64 = 1_000_000;

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

#[derive(Debug)]
struct Counter;

impl Model for Counter {
    type State = u64;
    type Operation = Operation;
    type Answer = u64;

    fn step(state: &u64, operation: Operation) -> (u64, u64) {
        let after = state + u64::from(operation == Operation::Add);
        (after, after)
    }
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

    fn counter(&self, actor: ActorNumber) -> Verdict {
        let calls = self.of_actor(actor).map(|(_, asked)| Call {
            began: asked.at,
            operation: asked.operation,
            answered: asked.answered(),
        });
        let calls: Vec<Call<Counter>> = calls
            .filter(|call| match call.operation {
                Operation::Add => true,
                // A look that nobody was told of says nothing.
                Operation::Count => call.answered.is_some(),
                _ => false,
            })
            .collect();
        judge(&calls, STEPS_MAX)
    }

    fn register(&self, actor: ActorNumber) -> Verdict {
        let (mut touches, mut open) = (Vec::new(), Vec::new());
        for (request, asked) in self.of_actor(actor) {
            let writes = asked.operation == Operation::Write;
            match asked.answered() {
                Some((answered, value)) if writes || asked.operation == Operation::Read => {
                    touches.push(Touch { began: asked.at, answered, writes, value });
                }
                None if writes => open.push((request, asked.at)),
                _ => {}
            }
        }
        // A write without an answer came before the first answer that tells of it; one that nobody saw may as well not
        // have come at all.
        for (value, began) in open {
            let told = touches.iter().filter(|touch| touch.value == value).map(|touch| touch.answered).min();
            touches.extend(told.map(|answered| Touch { began, answered, writes: true, value }));
        }
        if explains(&touches) { Verdict::Linearizable } else { Verdict::NotLinearizable }
    }

    fn judge(&self, actor: ActorNumber) -> Result<(), String> {
        for (object, verdict) in [("counter", self.counter(actor)), ("register", self.register(actor))] {
            match verdict {
                Verdict::Linearizable => {}
                Verdict::NotLinearizable => {
                    return Err(format!("no order explains what the {object} of actor {actor} said"));
                }
                Verdict::Undecided => {
                    return Err(format!("no order was found that explains the {object} of actor {actor}"));
                }
            }
        }
        Ok(())
    }
}

impl Checker for Linearizable {
    fn name(&self) -> &'static str {
        "linearizability"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, actor, operation, .. } => {
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
