//! The actors a process has: opened once they are taken, one event at a time, closed before they are given up.

use wasmkeep_protocol::{ActorId, clock::Now, ownership::Input as ClaimInput};

use super::{DatabaseState, Out, Process, Resident, RunId};
use crate::cluster::{
    data::Standing,
    flaw::Flaw,
    record::{ActorNumber, Generation, Record, RequestNumber, Told},
    stage,
};

impl Process {
    /// Whether an event of this actor may begin.
    pub(super) fn may_run(&self, now: Now, actor: &ActorId) -> bool {
        if self.flaw == Some(Flaw::IgnoresLapse) {
            return self.residents.contains_key(actor);
        }
        let Some(lease) = self.keeper.lease(now.moment) else { return false };
        let held = self.claims.get(actor).and_then(|claimed| claimed.claim.held(&lease));
        held.is_some() && self.residents.contains_key(actor)
    }

    /// Which actors are held, and until when, as their uploads ask.
    pub fn standing(&self, now: Now) -> Standing {
        let Some(lease) = self.keeper.lease(now.moment) else { return Standing::default() };
        let held = self.claims.iter().filter_map(|(actor, claimed)| {
            claimed.claim.held(&lease).map(|generation| (stage::actor_number(actor), generation))
        });
        Standing { until: Some(lease.until()), held: held.collect() }
    }

    pub(super) fn reside(&mut self, now: Now, actor: &ActorId, generation: Generation) {
        let number = stage::actor_number(actor);
        self.record(Record::Taken { pid: self.pid, actor: number, generation });
        if let Some(resident) = self.residents.get_mut(actor) {
            resident.generation = generation;
            return;
        }
        let database = DatabaseState::Opening;
        let idle_since = now.moment;
        let resident = Resident { generation, database, queue: [].into(), running: None, idle_since };
        self.residents.insert(actor.clone(), resident);
        self.out.push(Out::Open { actor: number, generation });
    }

    /// The resident of this hold: what is said of an earlier one comes too late.
    fn resident(&mut self, actor: ActorNumber, generation: Generation) -> Option<&mut Resident> {
        let resident = self.residents.get_mut(&stage::actor(actor))?;
        (resident.generation == generation || self.flaw == Some(Flaw::IgnoresLapse)).then_some(resident)
    }

    pub(super) fn opened(&mut self, now: Now, actor: ActorNumber, generation: Generation, ok: bool) {
        let Some(resident) = self.resident(actor, generation) else { return };
        if !ok {
            return self.given_up(now, actor, generation);
        }
        resident.database = DatabaseState::Open;
        resident.idle_since = now.moment;
        self.run_next(now, &stage::actor(actor));
    }

    pub(super) fn enqueue(&mut self, now: Now, actor: &ActorId, number: RequestNumber) {
        if let Some(resident) = self.residents.get_mut(actor) {
            resident.queue.push_back(number);
            self.run_next(now, actor);
        }
    }

    fn run_next(&mut self, now: Now, actor: &ActorId) {
        if !self.may_run(now, actor) {
            return;
        }
        self.counter += 1;
        let run = self.counter;
        let Some(resident) = self.residents.get_mut(actor) else { return };
        if resident.running.is_some() || resident.database != DatabaseState::Open {
            return;
        }
        // One that was sent here twice was answered with the first.
        let mut queue = std::iter::from_fn(|| resident.queue.pop_front());
        let next = queue.find_map(|request| Some((request, self.requests.get(&request)?.operation)));
        let Some((request, operation)) = next else { return };
        resident.running = Some((run, request));
        let generation = resident.generation;
        let actor = stage::actor_number(actor);
        self.record(Record::RunBegan { pid: self.pid, actor, request, generation });
        self.out.push(Out::Run { actor, run, request, operation });
    }

    pub(super) fn run_done(&mut self, now: Now, run: RunId, told: u64) {
        let ended = self.residents.iter_mut().find_map(|(actor, resident)| match resident.running {
            Some((id, request)) if id == run => {
                resident.running = None;
                resident.idle_since = now.moment;
                Some((actor.clone(), request))
            }
            _ => None,
        });
        // It was ended before.
        let Some((actor, request)) = ended else { return };
        let number = stage::actor_number(&actor);
        self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: true });
        self.answer(request, Told::Served(told));
        self.run_next(now, &actor);
    }

    /// Its database cannot be had, or its uploads have ended (R-REPL-4, R-RST-5).
    pub(super) fn given_up(&mut self, now: Now, actor: ActorNumber, generation: Generation) {
        if self.resident(actor, generation).is_none() {
            return;
        }
        let actor = stage::actor(actor);
        self.drop_resident(&actor);
        self.claim(now, &actor, ClaimInput::Release);
    }

    /// All of it is in the bucket; whoever came meanwhile asks anew.
    pub(super) fn closed(&mut self, now: Now, actor: ActorNumber, generation: Generation) {
        if self.resident(actor, generation).is_none() {
            return;
        }
        let actor = stage::actor(actor);
        let Some(resident) = self.residents.remove(&actor) else { return };
        self.claim(now, &actor, ClaimInput::Release);
        for request in resident.queue {
            self.seek(now, request, &actor, false);
        }
    }

    /// Gives up an actor at rest.
    pub(super) fn give_up(&mut self, actor: &ActorId) {
        if let Some(resident) = self.residents.get_mut(actor) {
            resident.database = DatabaseState::Closing;
            self.out.push(Out::Close { actor: stage::actor_number(actor) });
        }
    }

    /// Ends every event and drops every actor.
    pub(super) fn drop_residents(&mut self) {
        let actors: Vec<ActorId> = self.residents.keys().cloned().collect();
        for actor in actors {
            self.drop_resident(&actor);
        }
    }

    fn drop_resident(&mut self, actor: &ActorId) {
        let Some(resident) = self.residents.remove(actor) else { return };
        let actor = stage::actor_number(actor);
        self.out.push(Out::Drop { actor });
        if let Some((_, request)) = resident.running {
            self.record(Record::RunEnded { pid: self.pid, actor, request, done: false });
            self.answer(request, Told::MayHaveRun(503));
        }
        for request in resident.queue {
            self.answer(request, Told::NotRun(503));
        }
    }

    /// The variant that answers from its disk.
    pub(super) fn peeked(&mut self, now: Now, request: RequestNumber, found: Option<u64>) {
        let Some(actor) = self.requests.get(&request).map(|request| request.actor.clone()) else { return };
        match found {
            Some(found) => {
                let number = stage::actor_number(&actor);
                self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: true });
                self.answer(request, Told::Served(found));
            }
            None => self.find(now, request, &actor, false),
        }
    }
}
