//! Requests on their way through a process: to an actor here, to another node, or into a wait.

use std::sync::Arc;

use wasmkeep_protocol::{
    ActorId, NodeId,
    clock::Now,
    failover::{End, WaitsEffect, WaitsInput},
    forwarding::{self, Again, Ask, Here, Origin, Refusal, Route, Trouble},
    ownership::Denial,
};

use super::{ForwardId, Out, Process, Request};
use crate::cluster::{
    flaw::Flaw,
    record::{NODES_EVENTS, Operation, Record, RequestNumber, Told},
    stage,
};

impl Process {
    pub(super) fn arrive(&mut self, now: Now, request: Request) {
        if let Some(id) = request.forward
            && !self.lets_in(now, id.0)
        {
            return self.out.push(Out::AnswerForward { id, result: Err(Trouble::Untrusted) });
        }
        let (number, actor, forwarded) = (request.number, request.actor.clone(), request.forward.is_some());
        self.requests.insert(number, request);
        if self.flaw == Some(Flaw::StaysDown) && self.lapsed {
            return self.refuse(number, Refusal::NotTaking);
        }
        self.seek(now, number, &actor, forwarded);
    }

    /// Finds out where a request belongs.
    pub(super) fn seek(&mut self, now: Now, number: RequestNumber, actor: &ActorId, fresh: bool) {
        if self.stop.is_some() && self.is_resident(actor) {
            return self.refuse(number, Refusal::NotTaking);
        }
        if self.is_resident(actor) {
            return self.enqueue(now, actor, number);
        }
        if self.flaw == Some(Flaw::ReadsAnywhere)
            && let Some(operation) = self.requests.get(&number).map(|request| request.operation)
            && Operation::READS.contains(&operation)
        {
            return self.out.push(Out::Peek { actor: actor.clone(), request: number, operation });
        }
        self.find(number, actor, fresh);
    }

    /// Asks the bucket for the actor's owner.
    pub(super) fn find(&mut self, number: RequestNumber, actor: &ActorId, fresh: bool) {
        self.out.push(Out::Claim { actor: actor.clone(), request: Some(number), fresh });
    }

    pub(super) fn answer(&mut self, number: RequestNumber, told: Told) {
        if number >= NODES_EVENTS {
            return self.alarm_ended(number, told.is_served());
        }
        let Some(request) = self.requests.remove(&number) else { return };
        self.sent.remove(&number);
        match request.forward {
            None => self.record(Record::Told { request: number, told }),
            Some(id) => self.out.push(Out::AnswerForward { id, result: Ok(told) }),
        }
    }

    fn refuse(&mut self, number: RequestNumber, refusal: Refusal) {
        if let (Refusal::Elsewhere, Some(id)) =
            (refusal, self.requests.get(&number).and_then(|request| request.forward))
        {
            self.requests.remove(&number);
            return self.out.push(Out::AnswerForward { id, result: Err(Trouble::Elsewhere) });
        }
        let told = match refusal {
            Refusal::NotAnswered | Refusal::TimedOut => Told::MayHaveRun(refusal.status()),
            _ => Told::NotRun(refusal.status()),
        };
        self.answer(number, told);
    }

    pub(super) fn left(&mut self, now: Now, number: RequestNumber) {
        if self.kept.contains(&number) {
            return self.wait(now, WaitsInput::Left(number));
        }
        for resident in self.residents.values_mut() {
            resident.queue.retain(|waiting| *waiting != number);
        }
    }

    /// The actor is not to be had here.
    pub(super) fn route(&mut self, now: Now, number: RequestNumber, denial: &Denial) {
        let Some(request) = self.requests.get(&number) else { return };
        let origin = if request.forward.is_some() { Origin::Peer } else { Origin::Outside };
        let bodiless = !request.operation.has_body() || self.flaw == Some(Flaw::KeepsBodies);
        let actor = request.actor.clone();
        let here = Here { keeps: self.stop.is_none(), heir: None };
        match forwarding::route(Ask { origin, bodiless }, denial, here, &self.suspects) {
            Route::Forward(node) => self.forward(now, number, node),
            Route::Keep(owner) => match self.waits.keep(now.moment, number, &actor, &owner) {
                Ok(()) => {
                    self.kept.insert(number);
                    self.record(Record::Kept { request: number, pid: self.pid });
                    self.wait(now, WaitsInput::Look);
                }
                Err(_) => self.refuse(number, Refusal::NotReachable),
            },
            Route::Refuse(refusal) => self.refuse(number, refusal),
        }
    }

    fn forward(&mut self, now: Now, number: RequestNumber, node: NodeId) {
        let Some(certificate) = self.target(now, &node) else {
            return self.refuse(number, Refusal::NotReachable);
        };
        let Some(request) = self.requests.get(&number) else { return };
        self.counter += 1;
        let id = (self.pid, self.counter);
        let request = Request { forward: Some(id), ..request.clone() };
        let first = self.sent.insert(number);
        self.forwards.insert(id, (number, node.clone(), first));
        self.record(Record::SentOn { request: number, pid: self.pid, to: stage::node_number(&node) });
        self.out.push(Out::Forward { id, certificate, request });
    }

    pub(super) fn forward_ended(&mut self, now: Now, id: ForwardId, result: Result<Told, Trouble>) {
        let Some((number, node, first)) = self.forwards.remove(&id) else { return };
        let trouble = result.err();
        self.record(Record::SentOnEnded { request: number, pid: self.pid, trouble });
        let trouble = match result {
            Ok(told) => return self.answer(number, told),
            Err(trouble) => trouble,
        };
        let remedy = forwarding::remedy(trouble);
        if remedy.suspect {
            self.suspects.failed(&node, now.moment);
        }
        let actor = self.requests.get(&number).map(|request| request.actor.clone());
        match (remedy.again, actor) {
            (Again::No, _) if self.flaw == Some(Flaw::SendsAgain) && first => self.forward(now, number, node),
            (Again::SameNode, Some(_)) if first => self.forward(now, number, node),
            (Again::ReadRecord, Some(actor)) if first => self.seek(now, number, &actor, true),
            _ => self.refuse(number, remedy.refusal),
        }
    }

    /// Steps the waits and carries their effects out.
    pub(super) fn wait(&mut self, now: Now, input: WaitsInput) {
        let view = Arc::clone(&self.view);
        for effect in self.waits.step(now.moment, &view, &self.suspects, input) {
            match effect {
                WaitsEffect::Ask(actor) => {
                    self.out.push(Out::Claim { actor, request: None, fresh: true });
                }
                WaitsEffect::End(number, end) => self.wait_ended(now, number, &end),
            }
        }
    }

    fn wait_ended(&mut self, now: Now, number: RequestNumber, end: &End) {
        self.kept.remove(&number);
        self.record(Record::WaitEnded { request: number, pid: self.pid, how: end.label() });
        match end {
            End::Served => {
                if let Some(actor) = self.requests.get(&number).map(|request| request.actor.clone()) {
                    self.enqueue(now, &actor, number);
                }
            }
            End::Sent(node) | End::OwnerAlive(node) => self.forward(now, number, node.clone()),
            End::TimedOut if self.flaw == Some(Flaw::SwallowsEnds) => {}
            End::TimedOut | End::Stopping | End::LeaseLapsed => self.refuse(number, Refusal::NotReachable),
            End::Dropped if self.flaw == Some(Flaw::RunsAbandoned) => {
                if let Some(actor) = self.requests.get(&number).map(|request| request.actor.clone()) {
                    self.seek(now, number, &actor, true);
                }
            }
            End::Dropped => {
                self.requests.remove(&number);
            }
        }
    }
}
