//! The actors a process has: opened when something comes for them, one event at a time, closed before they are given
//! up. Whether an event may run is the session's to say.

use wasmkeep_protocol::{ActorId, clock::Now, ownership::Denial};

use super::{DatabaseState, Out, Process, Residency, Resident, RunId};
use crate::cluster::{
    record::{Generation, Operation, Record, RequestNumber, Told},
    stage,
};

impl Process {
    /// Whether the actor is open here, or about to be.
    pub(super) fn is_resident(&self, actor: &ActorId) -> bool {
        self.residents.contains_key(actor)
    }

    /// A request for an actor that is this node's, or will be as soon as it is opened.
    pub(super) fn enqueue(&mut self, now: Now, actor: &ActorId, number: RequestNumber) {
        if !self.is_resident(actor) {
            self.counter += 1;
            let (residency, idle_since) = (self.counter, now.moment);
            let (queue, running, generation) = ([].into(), None, 0);
            let database = DatabaseState::Opening;
            let resident = Resident { residency, generation, database, queue, running, idle_since };
            self.residents.insert(actor.clone(), resident);
            self.out.push(Out::Open { actor: actor.clone(), residency });
        }
        if let Some(resident) = self.residents.get_mut(actor) {
            resident.queue.push_back(number);
            self.run_next(actor);
        }
    }

    fn of(&self, residency: Residency) -> Option<ActorId> {
        let found = self.residents.iter().find(|(_, resident)| resident.residency == residency);
        found.map(|(actor, _)| actor.clone())
    }

    pub(super) fn opened(&mut self, now: Now, residency: Residency, generation: Generation) {
        let Some(actor) = self.of(residency) else { return };
        let Some(resident) = self.residents.get_mut(&actor) else { return };
        resident.generation = generation;
        // It may have been lost meanwhile, and closes.
        if resident.database == DatabaseState::Opening {
            resident.database = DatabaseState::Open;
        }
        resident.idle_since = now.moment;
        self.run_next(&actor);
    }

    /// Whoever waits is refused.
    pub(super) fn open_failed(&mut self, residency: Residency, denial: Option<&Denial>) {
        let Some(actor) = self.of(residency) else { return };
        let Some(resident) = self.residents.remove(&actor) else { return };
        self.out.push(Out::Gone { residency });
        if matches!(denial, Some(Denial::Owned(_))) {
            // Its owner keeps the alarm.
            self.book.remove(&actor);
        }
        for request in resident.queue {
            self.answer(request, Told::NotRun(503));
        }
    }

    pub(super) fn run_next(&mut self, actor: &ActorId) {
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
        self.out.push(Out::Run { residency: resident.residency, run, request, operation });
    }

    fn run_ended(&mut self, now: Now, run: RunId) -> Option<(ActorId, RequestNumber)> {
        self.residents.iter_mut().find_map(|(actor, resident)| match resident.running {
            Some((id, request)) if id == run => {
                resident.running = None;
                resident.idle_since = now.moment;
                Some((actor.clone(), request))
            }
            _ => None,
        })
    }

    pub(super) fn run_done(&mut self, now: Now, run: RunId, told: u64) {
        // It was ended before.
        let Some((actor, request)) = self.run_ended(now, run) else { return };
        let number = stage::actor_number(&actor);
        self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: true });
        let deletes = self.requests.get(&request).is_some_and(|asked| asked.operation == Operation::Delete);
        if let Some(resident) = self.residents.get_mut(&actor).filter(|_| deletes) {
            resident.database = DatabaseState::Closing;
        }
        self.answer(request, Told::Served(told));
        self.run_next(&actor);
    }

    /// The actor is no longer this node's: the event did not run.
    pub(super) fn run_refused(&mut self, now: Now, run: RunId) {
        let Some((actor, request)) = self.run_ended(now, run) else { return };
        self.answer(request, Told::NotRun(503));
        self.run_next(&actor);
    }

    /// What it wrote may not be in the bucket: the actor is given up.
    pub(super) fn run_failed(&mut self, now: Now, run: RunId) {
        if let Some((actor, request)) = self.run_ended(now, run) {
            let number = stage::actor_number(&actor);
            self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: false });
            self.answer(request, Told::MayHaveRun(503));
            self.lose(&actor);
        }
    }

    /// It is closed, as far as it could be; whoever came meanwhile asks anew.
    pub(super) fn closed(&mut self, now: Now, residency: Residency) {
        let Some(actor) = self.of(residency) else { return };
        self.cut(&actor);
        let Some(resident) = self.residents.remove(&actor) else { return };
        self.out.push(Out::Gone { residency });
        for request in resident.queue {
            match self.stop.is_some() {
                true => self.seek(now, request, &actor, false),
                // As its mailbox does: what came behind a deletion is for the actor that comes back.
                false => self.enqueue(now, &actor, request),
            }
        }
    }

    /// Gives up an actor at rest.
    pub(super) fn give_up(&mut self, actor: &ActorId) {
        if let Some(resident) = self.residents.get_mut(actor) {
            resident.database = DatabaseState::Closing;
            self.out.push(Out::Close { residency: resident.residency });
        }
    }

    /// Ends every event and closes every actor.
    pub(super) fn lose_all(&mut self) {
        let actors: Vec<ActorId> = self.residents.keys().cloned().collect();
        for actor in actors {
            self.lose(&actor);
        }
    }

    /// Ends the event of an actor and closes it.
    pub(super) fn lose(&mut self, actor: &ActorId) {
        self.cut(actor);
        let Some(resident) = self.residents.get_mut(actor) else { return };
        resident.database = DatabaseState::Closing;
        self.out.push(Out::Lose { residency: resident.residency });
        for request in std::mem::take(&mut resident.queue) {
            self.answer(request, Told::NotRun(503));
        }
    }

    fn cut(&mut self, actor: &ActorId) {
        let running = self.residents.get_mut(actor).and_then(|resident| resident.running.take());
        if let Some((_, request)) = running {
            let number = stage::actor_number(actor);
            self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: false });
            self.answer(request, Told::MayHaveRun(503));
        }
    }

    /// The variant that answers from its disk.
    pub(super) fn peeked(&mut self, request: RequestNumber, found: Option<u64>) {
        let Some(actor) = self.requests.get(&request).map(|request| request.actor.clone()) else { return };
        match found {
            Some(found) => {
                let number = stage::actor_number(&actor);
                self.record(Record::RunEnded { pid: self.pid, actor: number, request, done: true });
                self.answer(request, Told::Served(found));
            }
            None => self.find(request, &actor, false),
        }
    }
}
