//! An actor that deletes itself is deleted whole, once that is in the bucket, and comes back empty (R-DEL-1). What it
//! wrote since is kept: a durable write for good, a plain one as long as its node neither ends nor loses its lease nor
//! says that the uploads of the actor have ended.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use crate::cluster::{
    record::{ActorNumber, Contents, DELETABLE, Operation, Pid, Record, RequestNumber},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Deletions {
    asked: BTreeMap<RequestNumber, (ActorNumber, Operation)>,
    /// What was begun since the last deletion that is certain.
    events: BTreeMap<ActorNumber, Vec<Event>>,
}

#[derive(Debug)]
struct Event {
    request: RequestNumber,
    pid: Pid,
    deletes: bool,
    /// It cannot vanish.
    is_kept: bool,
    /// A deletion that is in the bucket.
    is_certain: bool,
}

impl Deletions {
    fn event(&mut self, request: RequestNumber) -> Option<&mut Event> {
        let (actor, _) = self.asked.get(&request)?;
        self.events.get_mut(actor)?.iter_mut().rev().find(|event| event.request == request)
    }

    /// What plain writes of these actors in these processes may be lost with.
    fn lose(&mut self, of: impl Fn(ActorNumber, Pid) -> bool) {
        let asked = &self.asked;
        for (actor, events) in &mut self.events {
            for event in events.iter_mut().filter(|event| of(*actor, event.pid)) {
                let operation = asked.get(&event.request).map(|(_, operation)| *operation);
                event.is_kept &= operation != Some(Operation::Note);
            }
        }
    }

    fn found(&mut self, actor: ActorNumber, contents: &Contents) -> Result<(), String> {
        let rows: BTreeSet<RequestNumber> = contents.added.iter().chain(&contents.noted).copied().collect();
        let events = self.events.entry(actor).or_default();
        // Everything after one of the deletions, or everything if none of them came to anything.
        let deletions = events.iter().enumerate().filter(|(_, event)| event.deletes);
        let certain = deletions.clone().rfind(|(_, event)| event.is_certain).map(|(place, _)| place + 1);
        let mut starts: Vec<usize> = [0].into_iter().chain(deletions.map(|(place, _)| place + 1)).collect();
        starts.retain(|start| certain.is_none_or(|certain| *start >= certain));
        let fits = |start: &usize| {
            let (before, since) = events.split_at(*start);
            before.iter().all(|event| !rows.contains(&event.request))
                && since.iter().all(|event| !event.is_kept || rows.contains(&event.request))
        };
        match starts.iter().rev().find(|start| fits(start)) {
            Some(start) => {
                events.drain(..*start);
                Ok(())
            }
            None => {
                let kept: Vec<_> =
                    events.iter().filter(|event| event.is_kept).map(|event| event.request).collect();
                Err(format!(
                    "actor {actor} has {rows:?}, where {kept:?} may not be lost and {events:?} began"
                ))
            }
        }
    }
}

impl Checker for Deletions {
    fn name(&self) -> &'static str {
        "deletions"
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, actor, operation, .. } if *actor >= DELETABLE => {
                self.asked.insert(*request, (*actor, *operation));
            }
            Record::RunBegan { pid, actor, request, .. } => {
                if let Some((_, operation)) = self.asked.get(request) {
                    let deletes = *operation == Operation::Delete;
                    let event =
                        Event { request: *request, pid: *pid, deletes, is_kept: false, is_certain: false };
                    self.events.entry(*actor).or_default().push(event);
                }
            }
            Record::Durable { request, .. } => {
                if let Some(event) = self.event(*request) {
                    event.is_kept = true;
                }
            }
            Record::RunEnded { request, done: true, .. } => {
                let is_note = self.asked.get(request).is_some_and(|(_, asked)| *asked == Operation::Note);
                if let Some(event) = self.event(*request).filter(|_| is_note) {
                    event.is_kept = true;
                }
            }
            Record::Erased { request, ok: true } => {
                if let Some(event) = self.event(*request) {
                    event.is_certain = true;
                }
            }
            Record::Lapsed { pid }
            | Record::Killed { pid }
            | Record::Exited { pid, .. }
            | Record::Dies { pid, .. } => {
                self.lose(|_, of| of == *pid);
            }
            Record::UploadsEnded { pid, actor } => self.lose(|one, of| one == *actor && of == *pid),
            Record::Found { actor, contents, .. } if *actor >= DELETABLE => {
                return self.found(*actor, contents);
            }
            _ => {}
        }
        Ok(())
    }
}
