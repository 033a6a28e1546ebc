//! The ways between processes, and between them and the bucket: delays, losses, doubles, cuts.

use std::collections::BTreeMap;

use wasmkeep_protocol::{forwarding::Trouble, trust::Fingerprint};

use super::{
    bucket::{Call, Reply},
    flaw::Flaw,
    process::{CallId, ForwardId, Input, Request},
    record::{NodeNumber, Pid, Told},
    stage,
    time::{MILLI, SECOND, Time},
    world::{Event, World},
};

/// How long a connection is tried for.
const CONNECT: Time = 5 * SECOND;
/// How long the answer to a forwarded request is waited for.
const ANSWER: Time = 30 * SECOND;

/// A forwarded request under way.
#[derive(Debug)]
pub struct Forward {
    /// The process it was sent to.
    pub to: Pid,
}

/// Who reaches whom. Times are those until which a way is cut.
#[derive(Debug, Default)]
pub struct Network {
    /// From a node to another.
    pub peers: BTreeMap<(NodeNumber, NodeNumber), Time>,
    /// From a process to the bucket.
    pub requests: BTreeMap<Pid, Time>,
    /// From the bucket to a process.
    pub replies: BTreeMap<Pid, Time>,
    /// To and from the bucket, for everybody.
    pub outage: Time,
    /// The nodes of processes that ended.
    pub ended: BTreeMap<Pid, NodeNumber>,
}

impl Network {
    /// Every way is open.
    pub fn heal(&mut self) {
        self.peers.clear();
        self.requests.clear();
        self.replies.clear();
        self.outage = 0;
    }

    fn node_of(&self, world: &World, pid: Pid) -> Option<NodeNumber> {
        let slot = world.slots.get(&pid).map(|slot| stage::node_number(slot.process.node()));
        slot.or_else(|| self.ended.get(&pid).copied())
    }

    /// Whether nothing gets from one process to the other.
    fn cut(&self, world: &World, from: Pid, to: Pid) -> bool {
        let nodes = self.node_of(world, from).zip(self.node_of(world, to));
        nodes.and_then(|nodes| self.peers.get(&nodes)).is_some_and(|until| world.time < *until)
    }
}

impl World {
    /// How long a message takes.
    pub fn way(&mut self) -> Time {
        let longest = if self.calm { 20 * MILLI } else { self.parameters.way_max };
        let longest =
            if self.flaw == Some(Flaw::UsesEntropy) { longest + entropy() % MILLI } else { longest };
        self.dice.within(MILLI / 2..=longest)
    }

    /// The same, or far longer.
    fn way_or_late(&mut self) -> Time {
        if !self.calm && self.dice.chance(self.parameters.late) {
            self.dice.within(MILLI..=self.parameters.late_max)
        } else {
            self.way()
        }
    }

    fn troubled(&mut self, chance: u64) -> bool {
        !self.calm && self.dice.chance(chance)
    }

    /// A request sets out for the bucket.
    pub fn send_call(&mut self, pid: Pid, id: CallId, call: Call) {
        if self.network.requests.get(&pid).is_some_and(|until| self.time < *until) {
            return;
        }
        let refused = self.troubled(self.parameters.refused);
        // The client library, or a proxy, sends it a second time.
        if self.troubled(self.parameters.twice) {
            let way = self.way_or_late();
            self.after(way, Event::Arrive { pid, id, call: call.clone(), refused });
        }
        if self.troubled(self.parameters.loss) {
            return self.lose(pid, id);
        }
        let way = self.way_or_late();
        self.after(way, Event::Arrive { pid, id, call, refused });
    }

    /// A request, or its reply, is lost; mostly the connection is, and that is noticed.
    fn lose(&mut self, pid: Pid, id: CallId) {
        if self.dice.chance(700) {
            let way = self.way();
            self.after(way, Event::Input(pid, Input::Reply(id, Reply::Broken)));
        }
    }

    /// It arrives; its reply sets out.
    pub fn arrive(&mut self, pid: Pid, id: CallId, call: Call, refused: bool) {
        if self.time < self.network.outage {
            return;
        }
        let lost = self.troubled(self.parameters.loss);
        if lost {
            self.lose(pid, id);
        }
        let reply = if refused { Reply::Refused } else { self.apply(call) };
        let cut = self.network.replies.get(&pid).is_some_and(|until| self.time < *until);
        if cut || lost {
            return;
        }
        let way = self.way_or_late();
        self.after(way, Event::Input(pid, Input::Reply(id, reply)));
    }

    /// A request sets out for another node: for the one process that has its certificate.
    pub fn send_forward(&mut self, from: Pid, id: ForwardId, certificate: &Fingerprint, request: Request) {
        let listening = self.slots.iter().filter(|(_, slot)| slot.process.listens()).map(|(pid, _)| *pid);
        let to = listening.into_iter().find(|pid| stage::fingerprint(*pid) == *certificate);
        let Some(to) = to else {
            // Nobody listens there, or somebody else.
            self.forwards().insert(id, Forward { to: 0 });
            return self.after(MILLI, Event::ForwardEnds(id, Err(Trouble::NotOpened)));
        };
        self.forwards().insert(id, Forward { to });
        if self.network.cut(self, from, to) || self.network.cut(self, to, from) {
            return self.after(CONNECT, Event::ForwardEnds(id, Err(Trouble::NotOpened)));
        }
        if self.troubled(20) {
            return self.after(MILLI, Event::ForwardEnds(id, Err(Trouble::ClosedUnused)));
        }
        let way = self.way();
        self.after(way, Event::ForwardArrives(id, request));
        self.after(ANSWER, Event::ForwardEnds(id, Err(Trouble::Silent)));
    }

    /// It arrives, or finds its process gone.
    pub fn forward_arrives(&mut self, id: ForwardId, request: Request) {
        let Some(to) = self.forwards().get(&id).map(|forward| forward.to) else { return };
        if !self.network.cut(self, id.0, to) {
            self.input(to, Input::Request(request));
        }
    }

    /// Its answer sets out.
    pub fn answer_forward(&mut self, id: ForwardId, result: Result<Told, Trouble>) {
        let Some(to) = self.forwards().get(&id).map(|forward| forward.to) else { return };
        if !self.network.cut(self, to, id.0) {
            let way = self.way();
            self.after(way, Event::ForwardEnds(id, result));
        }
    }
}

/// Real chance, for the variant that must be noticed for it.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
