//! The alarms of a process: those of its own book, and those of others that the service's sweeps find overdue.
//!
//! The book is in memory alone here. What a restart would read from its disk, the sweeps have to find.

use std::time::Duration;

use futures::channel::oneshot;
use wasmkeep_protocol::{
    ActorId,
    clock::{Moment, Now},
};

use super::{Process, Request};
use crate::cluster::record::{NODES_EVENTS, Operation, RequestNumber};

/// Longest sleep while alarms are pending: the wall clock may be set.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The wait after an alarm that could not be run.
const AGAIN: Duration = Duration::from_secs(1);

/// An alarm in the book.
#[derive(Debug)]
pub(super) struct Booked {
    at_ms: u64,
    not_before: Moment,
    under_way: bool,
}

/// An event that no client asked for.
#[derive(Debug)]
pub(super) struct Looked {
    actor: ActorId,
    /// The service waits for it.
    answer: Option<oneshot::Sender<bool>>,
}

impl Process {
    /// What an actor's database says of its alarm now.
    pub(super) fn booked(&mut self, now: Now, actor: ActorId, at_ms: Option<u64>) {
        match at_ms {
            Some(at_ms) => {
                let under_way = self.book.get(&actor).is_some_and(|booked| booked.under_way);
                self.book.insert(actor, Booked { at_ms, not_before: now.moment, under_way });
            }
            None => drop(self.book.remove(&actor)),
        }
    }

    /// When an alarm of the book is due.
    pub(super) fn alarms_wake(&self, now: Now) -> Option<Moment> {
        let in_ms = |at_ms: u64| now.moment + Duration::from_millis(at_ms.saturating_sub(now.wall_ms));
        let booked = self.book.values().filter(|booked| !booked.under_way);
        let booked = booked.map(|booked| in_ms(booked.at_ms).max(booked.not_before));
        booked.map(|due| due.min(now.moment + LOOK_EVERY)).min()
    }

    pub(super) fn tick_alarms(&mut self, now: Now) {
        let due = self.book.iter().filter(|(_, booked)| {
            !booked.under_way && booked.at_ms <= now.wall_ms && booked.not_before <= now.moment
        });
        let due: Vec<ActorId> = due.map(|(actor, _)| actor.clone()).collect();
        for actor in due {
            if let Some(booked) = self.book.get_mut(&actor) {
                booked.under_way = true;
            }
            self.alarm_event(now, actor, None);
        }
    }

    /// A sweep found an entry of the actor that is overdue.
    pub(super) fn look_at(&mut self, now: Now, actor: ActorId, answer: oneshot::Sender<bool>) {
        self.alarm_event(now, actor, Some(answer));
    }

    /// The event goes to the actor itself, which is taken when it is opened.
    fn alarm_event(&mut self, now: Now, actor: ActorId, answer: Option<oneshot::Sender<bool>>) {
        self.counter += 1;
        let number = NODES_EVENTS + (u64::from(self.pid) << 32) + self.counter;
        let request = Request { number, actor: actor.clone(), operation: Operation::Alarm, forward: None };
        self.requests.insert(number, request);
        self.looks.insert(number, Looked { actor: actor.clone(), answer });
        self.enqueue(now, &actor, number);
    }

    pub(super) fn alarm_ended(&mut self, number: RequestNumber, ran: bool) {
        self.requests.remove(&number);
        let Some(Looked { actor, answer }) = self.looks.remove(&number) else { return };
        if let Some(answer) = answer {
            // A service that is gone needs no answer.
            let _ = answer.send(ran);
        }
        if let Some(booked) = self.book.get_mut(&actor) {
            booked.under_way = false;
            booked.not_before = self.moment + AGAIN;
        }
    }
}
