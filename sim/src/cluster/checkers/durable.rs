//! What was acknowledged as durable is in every database that is opened later, once; so is, after a clean close, all
//! the actor had; what was told that it did not run is in none (R-DUR-1, R-REPL-1).

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Contents, DELETABLE, Operation, Record, RequestNumber, Told},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Durable {
    asked: BTreeMap<RequestNumber, (ActorNumber, Operation)>,
    not_run: BTreeSet<RequestNumber>,
    actors: BTreeMap<ActorNumber, Actor>,
}

#[derive(Debug, Default)]
struct Actor {
    /// Additions that were acknowledged as durable.
    added: BTreeSet<RequestNumber>,
    /// Notes that ended since the actor was opened.
    open: BTreeSet<RequestNumber>,
    /// Notes there were when it was closed.
    noted: BTreeSet<RequestNumber>,
}

impl Durable {
    fn is(&self, request: RequestNumber, operation: Operation) -> bool {
        self.asked.get(&request).is_some_and(|(_, asked)| *asked == operation)
    }

    fn found(&self, actor: ActorNumber, contents: &Contents) -> Result<(), String> {
        let (added, noted) = (once(actor, &contents.added)?, once(actor, &contents.noted)?);
        if contents.counter != contents.added.len() as u64 {
            return Err(format!("actor {actor} counted {} of {}", contents.counter, added.len()));
        }
        for request in added.union(&noted) {
            if self.asked.get(request).is_none_or(|(of, _)| *of != actor) {
                return Err(format!("actor {actor} has request {request}, which is not its"));
            }
            if self.not_run.contains(request) {
                return Err(format!("request {request} was told that it did not run, and is there"));
            }
        }
        let Some(known) = self.actors.get(&actor) else { return Ok(()) };
        let lost: Vec<_> = known.added.difference(&added).chain(known.noted.difference(&noted)).collect();
        if !lost.is_empty() {
            return Err(format!("actor {actor} lost what the requests {lost:?} wrote"));
        }
        Ok(())
    }
}

fn once(actor: ActorNumber, rows: &[RequestNumber]) -> Result<BTreeSet<RequestNumber>, String> {
    let mut seen = BTreeSet::new();
    match rows.iter().find(|row| !seen.insert(**row)) {
        Some(row) => Err(format!("actor {actor} has request {row} twice")),
        None => Ok(seen),
    }
}

impl Checker for Durable {
    fn name(&self) -> &'static str {
        "durable"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, actor, operation, .. } => {
                self.asked.insert(*request, (*actor, *operation));
            }
            Record::Told { request, told: Told::NotRun(_) } => {
                self.not_run.insert(*request);
            }
            Record::Durable { actor, request } if self.is(*request, Operation::Add) => {
                self.actors.entry(*actor).or_default().added.insert(*request);
            }
            Record::RunEnded { actor, request, done: true, .. } if self.is(*request, Operation::Note) => {
                self.actors.entry(*actor).or_default().open.insert(*request);
            }
            Record::Closed { actor, .. } => {
                let known = self.actors.entry(*actor).or_default();
                known.noted.append(&mut known.open);
            }
            Record::Found { actor, contents, .. } if *actor < DELETABLE => {
                self.actors.entry(*actor).or_default().open = contents.noted.iter().copied().collect();
                return self.found(*actor, contents);
            }
            Record::Unsound { actor, text } => {
                return Err(format!("the database of actor {actor} is not sound: {text}"));
            }
            Record::RestoreFailed { actor, lossy: true, error, .. } => {
                return Err(format!("actor {actor} cannot be had without loss: {error}"));
            }
            _ => {}
        }
        Ok(())
    }
}
