//! Requests to the bucket and their answers, and the actors' records.

use wasmkeep_protocol::{
    ActorId, NodeId,
    clock::Now,
    failover::WaitsInput,
    lease::{Input as LeaseInput, Listed, WatchInput},
    ownership::{Context, Effect, Input as ClaimInput},
    records::{Hold, NodeRecord, NodeState, OwnerRecord},
    store::{Found, Version, Wrote},
};

use super::{Out, Process, Purpose};
use crate::cluster::{
    bucket::{Call, Reply},
    flaw::Flaw,
    record::Record,
    stage,
    time::SECOND,
};

impl Process {
    pub(super) fn call(&mut self, purpose: Purpose, call: Call) {
        self.counter += 1;
        let heed = !matches!(
            (&purpose, self.flaw),
            (Purpose::Owner(_), Some(Flaw::OwnersUnconditional))
                | (Purpose::Heartbeat | Purpose::Fence(_), Some(Flaw::HeartbeatsUnconditional))
                | (Purpose::Fence(_), Some(Flaw::FencesBlindly))
        );
        let timeout = match purpose {
            Purpose::Owner(_) | Purpose::OwnerHeartbeat(_) => 5 * SECOND,
            _ => self.timing.timeout.as_micros() as u64,
        };
        self.calls.insert(self.counter, purpose);
        self.out.push(Out::Call { id: self.counter, call, timeout, heed });
    }

    pub(super) fn reply(&mut self, now: Now, id: u64, reply: Option<Reply>) {
        // One that comes after its time, or after the lease ran out, is nobody's any more.
        let Some(purpose) = self.calls.remove(&id) else { return };
        match purpose {
            Purpose::OwnHeartbeat => {
                let found = self.before_start(found(reply, NodeRecord::decode));
                self.keep(now, LeaseInput::Read(found));
            }
            Purpose::Heartbeat => {
                let outcome = match reply {
                    None if self.flaw == Some(Flaw::BelievesSilence) => Wrote::Written(Version::new("guess")),
                    reply => wrote(reply),
                };
                self.keep(now, LeaseInput::Wrote(outcome));
            }
            Purpose::List => {
                let listed = self.listed(reply);
                self.look_out(now, WatchInput::Listed(listed));
            }
            Purpose::Look(node) => {
                let found = self.looked_at(&node, found(reply, NodeRecord::decode));
                self.look_out(now, WatchInput::Read(node, found));
            }
            Purpose::Fence(node) => self.look_out(now, WatchInput::Fenced(node, wrote(reply))),
            Purpose::OwnerHeartbeat(actor) => {
                self.claim(now, &actor, ClaimInput::Heartbeat(found(reply, NodeRecord::decode)));
            }
            Purpose::Owner(actor) => {
                let input = match reply {
                    Some(Reply::Object(_)) => ClaimInput::Found(found(reply, OwnerRecord::decode)),
                    Some(Reply::Wrote(_)) => ClaimInput::Wrote(self.wrote_owner(reply)),
                    // What it was tells which answer is missing.
                    _ if self.claims.get(&actor).is_some_and(|claimed| claimed.reading) => {
                        ClaimInput::Found(Found::Failed)
                    }
                    reply => ClaimInput::Wrote(wrote(reply)),
                };
                self.claim(now, &actor, input);
            }
        }
    }

    /// The start check of the variant that skips it sees the previous process released long ago.
    fn before_start(&self, found: Found<NodeRecord>) -> Found<NodeRecord> {
        let Found::Object(version, Ok(record)) = &found else { return found };
        if self.flaw != Some(Flaw::NoStartCheck) || record.process == self.identity.process {
            return found;
        }
        let released =
            NodeRecord { state: NodeState::Released, written_at_ms: 0, sequence: 0, ..record.clone() };
        Found::Object(version.clone(), Ok(released))
    }

    fn listed(&mut self, reply: Option<Reply>) -> Option<Vec<Listed>> {
        let Some(Reply::Listed(objects)) = reply else { return None };
        let mut listed: Vec<Listed> = objects
            .into_iter()
            .filter_map(|(key, version, size)| stage::listed(&key, version, size))
            .collect();
        if self.flaw == Some(Flaw::DeletedFrees) {
            for node in self.remembered.keys() {
                if !listed.iter().any(|listed| listed.node == *node) {
                    listed.push(Listed { node: node.clone(), version: None, size: 0 });
                }
            }
        }
        Some(listed)
    }

    /// What a heartbeat looks like to the variants that take it for something else.
    fn looked_at(&mut self, node: &NodeId, found: Found<NodeRecord>) -> Found<NodeRecord> {
        match (self.flaw, found) {
            (Some(Flaw::DeletedFrees), Found::Object(version, Ok(record))) => {
                self.remembered.insert(node.clone(), record.clone());
                Found::Object(version, Ok(record))
            }
            (Some(Flaw::DeletedFrees), Found::Absent) => match self.remembered.get(node) {
                Some(record) => {
                    let released = NodeRecord { state: NodeState::Released, ..record.clone() };
                    Found::Object(Version::new("deleted"), Ok(released))
                }
                None => Found::Absent,
            },
            (Some(Flaw::FenceFreesAtOnce), Found::Object(version, Ok(mut record))) => {
                if let NodeState::Fenced { watched, .. } = &mut record.state {
                    *watched = self.timing.lapse(record.ttl);
                }
                Found::Object(version, Ok(record))
            }
            (_, found) => found,
        }
    }

    fn wrote_owner(&self, reply: Option<Reply>) -> Wrote {
        match wrote(reply) {
            Wrote::ConditionFailed if self.flaw == Some(Flaw::BelievesRefusal) => {
                Wrote::Written(Version::new("guess"))
            }
            wrote => wrote,
        }
    }

    /// Steps one actor's claim and carries its effects out.
    pub(super) fn claim(&mut self, now: Now, actor: &ActorId, input: ClaimInput) {
        let nonce = self.nonce();
        let view = self.watch.view();
        let context = Context {
            now: now.moment,
            identity: &self.identity,
            view: &view,
            lease: self.keeper.lease(now.moment),
            taking: self.stop.is_none(),
            nonce,
        };
        let claimed = self.claims.entry(actor.clone()).or_default();
        for effect in claimed.claim.step(&context, input) {
            self.carry_claim(now, actor, effect);
        }
    }

    fn carry_claim(&mut self, now: Now, actor: &ActorId, effect: Effect) {
        let reading = matches!(effect, Effect::Read);
        if let Some(claimed) = self.claims.get_mut(actor) {
            claimed.reading = reading;
        }
        match effect {
            Effect::Read => self.call(Purpose::Owner(actor.clone()), stage::get_owner(actor)),
            Effect::ReadHeartbeat(node) => {
                self.call(Purpose::OwnerHeartbeat(actor.clone()), stage::get_node(&node));
            }
            Effect::Write(mut record, condition) => {
                if self.flaw == Some(Flaw::ReusesGeneration) && record.hold == Hold::Held {
                    record.generation = record.generation.saturating_sub(1).max(1);
                }
                self.call(Purpose::Owner(actor.clone()), stage::put_owner(actor, &record, condition));
            }
            Effect::Taken { generation } => {
                self.reside(now, actor, generation);
                let waiting = self.waiting(actor);
                for request in waiting {
                    self.enqueue(now, actor, request);
                }
                self.wait(now, WaitsInput::Taken(actor.clone()));
            }
            Effect::Denied(denial) => {
                let waiting = self.waiting(actor);
                for request in waiting {
                    self.route(now, request, &denial);
                }
                let asked = self.claims.get_mut(actor).map(|claimed| std::mem::take(&mut claimed.asked));
                if asked == Some(true) {
                    self.wait(now, WaitsInput::Denied(actor.clone(), denial));
                }
            }
            Effect::Released => {}
        }
    }

    fn waiting(&mut self, actor: &ActorId) -> Vec<u64> {
        self.claims.get_mut(actor).map(|claimed| std::mem::take(&mut claimed.waiting)).unwrap_or_default()
    }

    /// The lease ran out: every actor is dropped at once.
    pub(super) fn lapse(&mut self, now: Now) {
        self.record(Record::Lapsed { pid: self.pid });
        self.lapsed = true;
        self.look_out(now, WatchInput::Lapsed);
        if self.flaw == Some(Flaw::IgnoresLapse) {
            return;
        }
        self.drop_residents();
        let actors: Vec<ActorId> = self.claims.keys().cloned().collect();
        for actor in actors {
            // What one claim comes to may have another asked for.
            self.calls.retain(|_, purpose| !purpose.is_of(&actor));
            self.claim(now, &actor, ClaimInput::Lapsed);
        }
        self.wait(now, WaitsInput::Lapsed);
    }
}

fn wrote(reply: Option<Reply>) -> Wrote {
    match reply {
        None => Wrote::Unknown,
        Some(Reply::Wrote(outcome)) => outcome,
        Some(Reply::Failed | Reply::Object(_) | Reply::Listed(_) | Reply::Data(_)) => Wrote::Failed,
    }
}

fn found<R>(
    reply: Option<Reply>,
    decode: impl FnOnce(&[u8]) -> Result<R, wasmkeep_protocol::records::RecordError>,
) -> Found<R> {
    match reply {
        Some(Reply::Object(Some((version, body)))) => Found::Object(version, decode(&body)),
        Some(Reply::Object(None)) => Found::Absent,
        None | Some(Reply::Wrote(_) | Reply::Failed | Reply::Listed(_) | Reply::Data(_)) => Found::Failed,
    }
}
