//! A cluster and its clients, and what happens next.

mod processes;

use std::{collections::BTreeMap, path::PathBuf};

use wasmkeep_bucket::Outcome;
use wasmkeep_protocol::{
    forwarding::Trouble,
    records::{Hold, NodeRecord, NodeState, OwnerRecord},
};

use super::{
    bucket::{Bucket, Call, Reply},
    flaw::Flaw,
    network::{Forward, Network},
    node::Node,
    parameters::Parameters,
    process::{CallId, ForwardId, Input, Process, Request},
    record::{
        ActorNumber, Beat, DELETABLE, History, NodeNumber, Operation, Pid, Record, RequestNumber, Told,
    },
    stage,
    time::{Clocks, MILLI, SECOND, Time},
};
use crate::dice::Dice;

/// What will happen.
#[derive(Debug)]
pub enum Event {
    /// The timer of a process, if it has not been set anew since.
    Wake(Pid, u64),
    /// A request reaches the bucket.
    Arrive { pid: Pid, id: CallId, call: Call, refused: bool },
    /// A process gets an input.
    Input(Pid, Input),
    /// A forwarded request reaches its node.
    ForwardArrives(ForwardId, Request),
    /// A forwarded request comes to something; the first end counts.
    ForwardEnds(ForwardId, Result<Told, Trouble>),
    /// A client sends a request to some node.
    Client,
    /// A client that was drawn some time ago asks.
    Ask(Pid, ActorNumber, Operation),
    /// A client leaves.
    Leaves(RequestNumber, Pid),
    /// Something bad happens.
    Fault,
    /// An outage of the bucket ends, unless it was drawn out.
    BucketBack,
    /// A process that stood still goes on.
    Resume(Pid),
    /// A node is started, unless it runs.
    Start(NodeNumber),
    /// An operator's write, decided on some time ago.
    Operator(Call),
}

/// A process and the state its machine is in.
#[derive(Debug)]
pub struct Slot {
    /// It.
    pub process: Process,
    /// What runs beside it.
    pub node: Node,
    /// It stands still since then, and its machine's clock with it if it sleeps.
    pub still: Option<(Time, bool)>,
    /// What reached it meanwhile.
    backlog: Vec<Input>,
    timer: Option<Time>,
    timers_set: u64,
}

/// Where a node runs.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Its clocks.
    pub clocks: Clocks,
    /// Its disk.
    pub disk: PathBuf,
}

/// See the module.
#[derive(Debug)]
pub struct World {
    /// True time.
    pub time: Time,
    /// What the seed drew.
    pub parameters: Parameters,
    /// What happened.
    pub history: History,
    /// The processes alive.
    pub slots: BTreeMap<Pid, Slot>,
    /// Who reaches whom.
    pub network: Network,
    /// The objects.
    pub bucket: Bucket,
    /// No trouble any more.
    pub calm: bool,
    /// Chance.
    pub dice: Dice,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    events: BTreeMap<(Time, u64), Event>,
    scheduled: u64,
    forwards: BTreeMap<ForwardId, Forward>,
    machines: BTreeMap<NodeNumber, Machine>,
    /// Disks there have been.
    disks: u64,
    /// Where they are.
    scratch: PathBuf,
    pids: Pid,
    requests: RequestNumber,
}

impl World {
    /// A cluster of no process.
    pub fn new(
        parameters: Parameters,
        flaw: Option<Flaw>,
        dice: Dice,
        history: History,
        scratch: PathBuf,
    ) -> Self {
        Self {
            time: 0,
            history,
            slots: BTreeMap::new(),
            network: Network::default(),
            bucket: Bucket::default(),
            calm: false,
            dice,
            flaw,
            events: BTreeMap::new(),
            scheduled: 0,
            forwards: BTreeMap::new(),
            machines: BTreeMap::new(),
            disks: 0,
            scratch,
            pids: 0,
            requests: 0,
            parameters,
        }
    }

    /// Plans an event.
    pub fn after(&mut self, wait: Time, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.time + wait, self.scheduled), event);
    }

    /// For the record.
    pub fn record(&mut self, record: &Record) {
        self.history.record(self.time, record);
    }

    /// Lets everything happen up to `until`, or to the first broken promise.
    pub fn run_until(&mut self, until: Time) {
        while let Some(entry) = self.events.first_entry() {
            let (at, _) = *entry.key();
            if at > until || self.history.violation().is_some() {
                break;
            }
            self.time = at;
            let event = entry.remove();
            self.happen(event);
        }
        self.time = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(pid, timer) => {
                let due = self.slots.get_mut(&pid).is_some_and(|slot| {
                    let due = slot.timers_set == timer;
                    slot.timer = if due { None } else { slot.timer };
                    due
                });
                if due {
                    self.input(pid, Input::Wake);
                }
            }
            Event::Arrive { pid, id, call, refused } => self.arrive(pid, id, call, refused),
            Event::Input(pid, input) => self.input(pid, input),
            Event::ForwardArrives(id, request) => self.forward_arrives(id, request),
            Event::ForwardEnds(id, result) => {
                if self.forwards.remove(&id).is_some() {
                    self.input(id.0, Input::ForwardEnded(id, result));
                }
            }
            Event::Client => self.client(),
            Event::Ask(pid, actor, operation) if self.slots.contains_key(&pid) => {
                self.ask(pid, actor, operation);
            }
            Event::Ask(..) => {}
            Event::Leaves(request, pid) => {
                self.record(&Record::Left { request });
                self.input(pid, Input::Left(request));
            }
            Event::Fault => self.fault(),
            Event::BucketBack => {
                if self.time >= self.network.outage && !self.calm {
                    self.record(&Record::BucketBack);
                }
            }
            Event::Resume(pid) => self.resume(pid),
            Event::Start(node) => {
                if !self.runs(node) {
                    self.start(node);
                }
            }
            Event::Operator(call) => {
                self.apply(call);
            }
        }
    }

    /// Carries a request to the bucket out and notes what it did.
    pub fn apply(&mut self, call: Call) -> Reply {
        let noted = match &call {
            Call::Put(key, body, _) => note(key.as_str(), body),
            Call::Delete(key) => stage::node_of_key(key.as_str()).map(|node| Record::Deleted { node }),
            _ => None,
        };
        let reply = self.bucket.call(self.time, call);
        if let (Reply::Put(Outcome::Written(_)) | Reply::Deleted(Ok(())), Some(record)) = (&reply, noted) {
            self.record(&record);
        }
        reply
    }

    fn client(&mut self) {
        let every = self.parameters.request_every;
        let wait = self.dice.within(1..=2 * every);
        if !self.calm {
            self.after(wait, Event::Client);
        }
        let pids = self.listening();
        if pids.is_empty() {
            return;
        }
        let pid = *self.dice.pick(&pids);
        if self.dice.chance(self.parameters.deletes) {
            return self.ask_deletable(pid);
        }
        let actor = self.dice.index(self.parameters.actors);
        let operation = if self.dice.chance(self.parameters.bodies) {
            *self.dice.pick(&Operation::WRITES)
        } else {
            *self.dice.pick(&Operation::READS)
        };
        self.ask(pid, actor, operation);
    }

    /// Requests for the actor that deletes itself. After a deletion it is often asked for something at once.
    fn ask_deletable(&mut self, pid: Pid) {
        let operation =
            *self.dice.pick(&[Operation::Add, Operation::Note, Operation::Count, Operation::Delete]);
        self.ask(pid, DELETABLE, operation);
        while operation == Operation::Delete && self.dice.chance(600) {
            let next = *self.dice.pick(&[Operation::Add, Operation::Note, Operation::Note, Operation::Count]);
            let other = *self.dice.pick(&self.listening());
            let pid = if self.dice.chance(500) { pid } else { other };
            let wait = self.dice.within(1..=2 * self.parameters.event_max);
            self.after(wait, Event::Ask(pid, DELETABLE, next));
        }
    }

    /// A client sends a request to a process.
    pub fn ask(&mut self, pid: Pid, actor: ActorNumber, operation: Operation) {
        self.requests += 1;
        let number = self.requests;
        self.record(&Record::Asked { request: number, pid, actor, operation });
        if !self.calm && self.dice.chance(self.parameters.leaves) {
            let wait = self.dice.within(1..=30_000) * MILLI;
            self.after(wait, Event::Leaves(number, pid));
        }
        let request = Request { number, actor: stage::actor(actor), operation, forward: None };
        self.input(pid, Input::Request(request));
    }

    /// Requests sent so far.
    pub fn requests(&self) -> RequestNumber {
        self.requests
    }

    /// The forwarded requests under way.
    pub fn forwards(&mut self) -> &mut BTreeMap<ForwardId, Forward> {
        &mut self.forwards
    }

    /// No trouble from here on: everything works, and what was under way to the bucket is lost.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.record(&Record::Calm);
        self.network.heal();
        self.events.retain(|_, event| {
            !matches!(event, Event::Arrive { .. } | Event::Fault | Event::Operator(_) | Event::Client)
        });
        // Two nodes that pass an actor on to each other at the same moment may refuse a request: retry, they say.
        // What must be served is asked for while nothing moves.
        self.parameters.idle = 60 * SECOND;
        for slot in self.slots.values_mut() {
            slot.process.rest_late();
            slot.node.calm_down();
        }
        let still: Vec<Pid> =
            self.slots.iter().filter(|(_, slot)| slot.still.is_some()).map(|(pid, _)| *pid).collect();
        for pid in still {
            self.resume(pid);
        }
        for node in 0..self.parameters.nodes {
            if !self.runs(node) {
                self.start(node);
            }
        }
    }
}

/// What a write means, for the record.
fn note(key: &str, body: &[u8]) -> Option<Record> {
    if let Some(actor) = stage::actor_of_key(key) {
        let owner = OwnerRecord::decode(body).ok()?;
        let held = owner.hold == Hold::Held;
        return Some(Record::Owned {
            actor,
            pid: stage::pid(owner.process)?,
            generation: owner.generation,
            held,
        });
    }
    let node = stage::node_of_key(key)?;
    let heartbeat = NodeRecord::decode(body).ok()?;
    let beat = match heartbeat.state {
        NodeState::Live => Beat::Live,
        NodeState::Fenced { by: Some(_), .. } => Beat::FencedByPeer,
        NodeState::Fenced { by: None, .. } => Beat::FencedByOperator,
        NodeState::Released => Beat::Released,
    };
    Some(Record::Heartbeat { node, pid: stage::pid(heartbeat.process), sequence: heartbeat.sequence, beat })
}
