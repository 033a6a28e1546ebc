//! What the cluster service tells its process, and what its claims come to.

use std::sync::Arc;

use wasmkeep_cluster::ClusterEvent;
use wasmkeep_protocol::{
    ActorId,
    clock::Now,
    failover::WaitsInput,
    lease::{Exit, ValidLease},
    ownership::Denial,
    view::View,
};

use super::{Out, Process};
use crate::cluster::{
    flaw::Flaw,
    record::{Generation, Record, RequestNumber},
    stage,
};

impl Process {
    pub(super) fn told(&mut self, now: Now, event: ClusterEvent) {
        match event {
            ClusterEvent::Valid(lease) => self.valid(now, lease),
            ClusterEvent::Lapsed => self.lapse(now),
            ClusterEvent::EndEvents if self.flaw == Some(Flaw::StopsNever) => {}
            ClusterEvent::EndEvents => self.end_events(),
            ClusterEvent::View(view) => self.look(now, view),
            ClusterEvent::GivenUp(actor, _) => self.lose(&actor),
            ClusterEvent::Look(actor, answer) => self.look_at(now, actor, answer),
            ClusterEvent::Collected { .. } | ClusterEvent::HeartbeatFailed(_) => {}
        }
    }

    fn valid(&mut self, now: Now, lease: ValidLease) {
        self.listens = true;
        if self.epoch.replace(lease.epoch()) != Some(lease.epoch()) {
            self.record(Record::Valid { pid: self.pid });
            self.wait(now, WaitsInput::Valid);
        }
    }

    fn look(&mut self, now: Now, view: Arc<View>) {
        self.view = view;
        self.suspects.look(&self.view, self.skew, now.moment);
        self.wait(now, WaitsInput::Look);
    }

    /// The lease ran out: every actor is dropped at once.
    fn lapse(&mut self, now: Now) {
        self.record(Record::Lapsed { pid: self.pid });
        self.lapsed = true;
        if self.flaw == Some(Flaw::IgnoresLapse) {
            return;
        }
        self.lose_all();
        self.wait(now, WaitsInput::Lapsed);
    }

    pub(super) fn exited(&mut self, exit: &Exit) {
        if self.flaw == Some(Flaw::StopsNever) && *exit == (Exit::Stopped { released: false }) {
            return;
        }
        self.record(Record::Exited { pid: self.pid, why: exit.to_string() });
        self.ended = true;
        self.out.push(Out::Exit);
    }

    /// What the claim of a request, or of all that are kept for the actor, came to.
    pub(super) fn claimed(
        &mut self,
        now: Now,
        actor: &ActorId,
        request: Option<RequestNumber>,
        claimed: Result<Generation, Denial>,
    ) {
        match (claimed, request) {
            (Ok(generation), request) => {
                let number = stage::actor_number(actor);
                self.record(Record::Taken { pid: self.pid, actor: number, generation });
                if let Some(request) = request {
                    self.enqueue(now, actor, request);
                }
                self.wait(now, WaitsInput::Taken(actor.clone()));
            }
            (Err(denial), Some(request)) => self.route(now, request, &denial),
            (Err(denial), None) => self.wait(now, WaitsInput::Denied(actor.clone(), denial)),
        }
    }
}
