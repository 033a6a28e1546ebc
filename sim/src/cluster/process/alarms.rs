//! The alarms of a process: those of its own book, and those of others that its sweeps find overdue in the bucket.
//!
//! The book is in memory alone here. What a restart would read from its disk, the sweeps have to find.

use std::time::Duration;

use super::{Out, Process, Request};
use crate::cluster::{
    flaw::Flaw,
    record::{ActorNumber, NODES_EVENTS, Operation, RequestNumber},
    stage,
};
use wasmkeep_bucket::Key;
use wasmkeep_protocol::{
    ActorId,
    alarm::{Due, Keeping, Listed, Outcome, Sweep, Whose},
    clock::{Moment, Now},
    limits::ALARM_SWEEP_EVERY,
    ownership::Denial,
};

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

/// What runs the sweeps.
#[derive(Debug)]
pub(super) struct Sweeps {
    sweep: Sweep,
    list_at: Moment,
    listing: bool,
    /// Where the next listing goes on.
    rest: Option<Key>,
    /// Looks and alarm events that have ended.
    ended: Vec<(ActorId, Ended)>,
}

/// How an event that no client asked for ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Ran,
    NotNow,
    /// Another node has the actor.
    Elsewhere,
}

impl Sweeps {
    pub(super) fn new(list_at: Moment) -> Self {
        let (sweep, ended) = Default::default();
        Self { sweep, list_at, listing: false, rest: None, ended }
    }
}

impl Process {
    /// What an actor's database says of its alarm now.
    pub(super) fn booked(&mut self, now: Now, actor: ActorNumber, at_ms: Option<u64>) {
        let actor = stage::actor(actor);
        match at_ms {
            Some(at_ms) => {
                let under_way = self.book.get(&actor).is_some_and(|booked| booked.under_way);
                self.book.insert(actor, Booked { at_ms, not_before: now.moment, under_way });
            }
            None => drop(self.book.remove(&actor)),
        }
    }

    /// When an alarm of the book is due or a sweep is.
    pub(super) fn alarms_wake(&self, now: Now) -> Option<Moment> {
        let in_ms = |at_ms: u64| now.moment + Duration::from_millis(at_ms.saturating_sub(now.wall_ms));
        let booked = self.book.values().filter(|booked| !booked.under_way);
        let booked = booked.map(|booked| in_ms(booked.at_ms).max(booked.not_before));
        let looks = self.sweeps.sweep.next_ms().map(in_ms);
        let due = booked.chain(looks).map(|due| due.min(now.moment + LOOK_EVERY));
        due.chain(self.listens.then_some(self.sweeps.list_at)).min()
    }

    pub(super) fn tick_alarms(&mut self, now: Now) {
        for (actor, ended) in std::mem::take(&mut self.sweeps.ended) {
            let outcome = if ended == Ended::Ran { Outcome::Looked } else { Outcome::NotNow };
            self.sweeps.sweep.looked(&Whose::from(&actor), outcome, now.moment);
            if ended == Ended::Elsewhere {
                self.book.remove(&actor);
            }
            if let Some(booked) = self.book.get_mut(&actor) {
                booked.under_way = false;
                booked.not_before = now.moment + AGAIN;
            }
        }
        let due = self.book.iter().filter(|(_, booked)| {
            !booked.under_way && booked.at_ms <= now.wall_ms && booked.not_before <= now.moment
        });
        let due: Vec<ActorId> = due.map(|(actor, _)| actor.clone()).collect();
        for actor in due {
            if let Some(booked) = self.book.get_mut(&actor) {
                booked.under_way = true;
            }
            self.alarm_event(now, actor);
        }
        self.list_overdue(now);
        while let Some(due) = self.sweeps.sweep.next(now.wall_ms) {
            self.look(now, due);
        }
    }

    fn list_overdue(&mut self, now: Now) {
        if now.moment < self.sweeps.list_at || self.flaw == Some(Flaw::NeverSweeps) {
            return;
        }
        self.sweeps.list_at = now.moment + ALARM_SWEEP_EVERY;
        if self.keeper.lease(now.moment).is_some() && !self.sweeps.listing {
            self.sweeps.listing = true;
            let from = self.sweeps.rest.take();
            self.out.push(Out::ListOverdue { from, until_ms: Sweep::horizon_ms(now.wall_ms) });
        }
    }

    /// A listing has ended; `None`: without success.
    pub(super) fn overdue(&mut self, now: Now, is_first: bool, overdue: Option<(Vec<Listed>, Option<Key>)>) {
        self.sweeps.listing = false;
        let Some((entries, next)) = overdue else { return };
        let is_last = next.is_none();
        self.sweeps.rest = next;
        let view = self.watch.view();
        let keeping = Keeping {
            me: &self.identity.node,
            view: &view,
            timing: &self.timing,
            now: now.moment,
            now_ms: now.wall_ms,
        };
        self.sweeps.sweep.take(keeping, is_first, entries, is_last);
    }

    fn look(&mut self, now: Now, due: Due) {
        let Some(actor) = due.listed.whose.actor() else { return };
        let is_here = self.may_run(now, &actor);
        self.out.push(Out::Notice { actor: stage::actor_number(&actor), post: due.listed.post });
        if is_here {
            // Its alarm is in the book.
            self.sweeps.ended.push((actor, Ended::Ran));
        } else {
            self.alarm_event(now, actor);
        }
    }

    fn alarm_event(&mut self, now: Now, actor: ActorId) {
        self.counter += 1;
        let number = NODES_EVENTS + (u64::from(self.pid) << 32) + self.counter;
        let request = Request { number, actor: actor.clone(), operation: Operation::Alarm, forward: None };
        self.requests.insert(number, request);
        self.seek(now, number, &actor, true);
    }

    /// The actor of an alarm event is not to be had here.
    pub(super) fn alarm_denied(&mut self, number: RequestNumber, denial: &Denial) {
        let elsewhere = matches!(denial, Denial::Owned(_));
        self.alarm_ended(number, if elsewhere { Ended::Elsewhere } else { Ended::NotNow });
    }

    pub(super) fn alarm_ended(&mut self, number: RequestNumber, ended: Ended) {
        if let Some(request) = self.requests.remove(&number) {
            self.sweeps.ended.push((request.actor, ended));
        }
    }
}
