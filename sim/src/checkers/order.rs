//! Events of one actor run one at a time, in the order they arrived, out of a bounded mailbox; one whose client
//! left before its turn came does not run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use wasmkeep_actor::Refusal;

use super::Checker;
use crate::history::{ActorNumber, EventNumber, Record, Rules};

#[derive(Debug, Default)]
struct Actor {
    /// Sent and neither begun nor refused, in order.
    waiting: Vec<EventNumber>,
    running: Option<EventNumber>,
    is_initialising: bool,
    /// The last turn or `on-init` ended at this record: the mailbox was looked at after it.
    looked_at: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Order {
    mailbox_events_max: usize,
    actors: BTreeMap<ActorNumber, Actor>,
    owners: BTreeMap<EventNumber, ActorNumber>,
    /// Clients that left, and at which record.
    abandoned: BTreeMap<EventNumber, u64>,
    begun: BTreeSet<EventNumber>,
    records: u64,
}

impl Order {
    /// For mailboxes of the size the rules say.
    pub fn new(rules: Rules) -> Self {
        Self {
            mailbox_events_max: rules.mailbox_events_max,
            actors: BTreeMap::new(),
            owners: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            begun: BTreeSet::new(),
            records: 0,
        }
    }

    fn sent(&mut self, event: EventNumber, number: ActorNumber) -> Result<(), String> {
        self.owners.insert(event, number);
        let actor = self.actors.entry(number).or_default();
        let wait = actor.waiting.iter().filter(|event| !self.abandoned.contains_key(event)).count();
        actor.waiting.push(event);
        // One more may be on its way from the mailbox to the instance.
        if wait > self.mailbox_events_max + 1 {
            return Err(format!("{wait} events wait for actor {number}"));
        }
        Ok(())
    }

    fn refused(&mut self, event: EventNumber, refusal: &Refusal) -> Result<(), String> {
        let Some(actor) = self.owners.get(&event).and_then(|owner| self.actors.get_mut(owner)) else {
            return Ok(());
        };
        let waited = actor.waiting.len();
        actor.waiting.retain(|waiting| *waiting != event);
        match refusal {
            Refusal::MailboxFull(full)
                if *full != self.mailbox_events_max || waited <= self.mailbox_events_max =>
            {
                Err(format!("event {event} was refused for a full mailbox with {} waiting", waited - 1))
            }
            _ => Ok(()),
        }
    }

    fn began(&mut self, event: EventNumber, number: ActorNumber) -> Result<(), String> {
        let actor = self.actors.entry(number).or_default();
        if let Some(running) = actor.running.replace(event) {
            return Err(format!("event {event} began while event {running} of actor {number} ran"));
        }
        if actor.is_initialising {
            return Err(format!("event {event} began during on-init of actor {number}"));
        }
        if !self.begun.insert(event) {
            return Err(format!("event {event} began twice"));
        }
        let Some(place) = actor.waiting.iter().position(|waiting| *waiting == event) else {
            return Err(format!("event {event} began and was not waiting for actor {number}"));
        };
        let earlier: Vec<EventNumber> = actor.waiting.drain(..=place).collect();
        let overtaken = earlier.iter().find(|other| **other != event && !self.abandoned.contains_key(other));
        if let Some(overtaken) = overtaken {
            return Err(format!("event {event} of actor {number} overtook event {overtaken}"));
        }
        match self.abandoned.get(&event) {
            Some(left) if *left < actor.looked_at => {
                Err(format!("event {event} of actor {number} began although its client had left"))
            }
            _ => Ok(()),
        }
    }

    fn init(&mut self, number: ActorNumber, begins: bool) -> Result<(), String> {
        let actor = self.actors.entry(number).or_default();
        if !begins {
            actor.looked_at = self.records;
        }
        let before = std::mem::replace(&mut actor.is_initialising, begins);
        if begins && before {
            return Err(format!("on-init of actor {number} began twice at once"));
        }
        match actor.running {
            Some(running) => Err(format!("on-init of actor {number} ran beside event {running}")),
            None => Ok(()),
        }
    }
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, _: Duration, record: &Record) -> Result<(), String> {
        self.records += 1;
        match record {
            Record::Sent { event, actor } => self.sent(*event, *actor),
            Record::Abandoned { event } => {
                self.abandoned.insert(*event, self.records);
                Ok(())
            }
            Record::Refused { event, refusal } => self.refused(*event, refusal),
            Record::Began { event, actor, .. } => self.began(*event, *actor),
            Record::Ended { actor, .. } => {
                let actor = self.actors.entry(*actor).or_default();
                actor.running = None;
                actor.looked_at = self.records;
                Ok(())
            }
            Record::InitBegan { actor, .. } => self.init(*actor, true),
            Record::InitEnded { actor, .. } => self.init(*actor, false),
            Record::LifeEnded(_) => {
                self.actors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
