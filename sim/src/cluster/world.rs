//! The processes of a cluster, their clients and what happens next.

use std::collections::BTreeMap;

use wasmkeep_protocol::{
    forwarding::Trouble,
    records::{Hold, NodeRecord, NodeState, OwnerRecord},
};

use super::{
    bucket::{Bucket, Call, Reply},
    flaw::Flaw,
    network::{Forward, Network},
    parameters::Parameters,
    process::{CallId, ForwardId, Input, Out, Process, Request},
    record::{ActorNumber, Beat, History, NodeNumber, Pid, Record, RequestNumber, Told},
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
    Arrive { pid: Pid, id: CallId, call: Call, heed: bool, refused: bool },
    /// A process gets an input.
    Input(Pid, Input),
    /// A forwarded request reaches its node.
    ForwardArrives(ForwardId, Request),
    /// A forwarded request comes to something; the first end counts.
    ForwardEnds(ForwardId, Result<Told, Trouble>),
    /// A client sends a request to some node.
    Client,
    /// A client leaves.
    Leaves(RequestNumber, Pid),
    /// Something bad happens.
    Fault,
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
    /// It stands still since then, and its machine's clock with it if it sleeps.
    pub still: Option<(Time, bool)>,
    /// What reached it meanwhile.
    backlog: Vec<Input>,
    timer: Option<Time>,
    timers_set: u64,
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
    clocks: BTreeMap<NodeNumber, Clocks>,
    pids: Pid,
    requests: RequestNumber,
}

impl World {
    /// A cluster of no process.
    pub fn new(parameters: Parameters, flaw: Option<Flaw>, dice: Dice, history: History) -> Self {
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
            clocks: BTreeMap::new(),
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
            Event::Arrive { pid, id, call, heed, refused } => self.arrive(pid, id, call, heed, refused),
            Event::Input(pid, input) => self.input(pid, input),
            Event::ForwardArrives(id, request) => self.forward_arrives(id, request),
            Event::ForwardEnds(id, result) => {
                if self.forwards.remove(&id).is_some() {
                    self.input(id.0, Input::ForwardEnded(id, result));
                }
            }
            Event::Client => self.client(),
            Event::Leaves(request, pid) => {
                self.record(&Record::Left { request });
                self.input(pid, Input::Left(request));
            }
            Event::Fault => self.fault(),
            Event::Resume(pid) => self.resume(pid),
            Event::Start(node) => {
                if !self.runs(node) {
                    self.start(node);
                }
            }
            Event::Operator(call) => {
                self.apply(call, true);
            }
        }
    }

    /// Whether a process runs under a node id.
    pub fn runs(&self, node: NodeNumber) -> bool {
        self.slots.values().any(|slot| stage::node_number(slot.process.node()) == node)
    }

    /// Starts a process, mostly on the machine its node had before.
    pub fn start(&mut self, node: NodeNumber) -> Pid {
        self.pids += 1;
        let pid = self.pids;
        let before = self.clocks.get(&node).copied().filter(|_| self.dice.chance(700));
        let clocks = before.unwrap_or_else(|| self.draw_clocks());
        self.clocks.insert(node, clocks);
        let dice = self.dice.fork();
        let process =
            Process::new(pid, stage::node(node), clocks, self.time, &self.parameters, self.flaw, dice);
        self.slots
            .insert(pid, Slot { process, still: None, backlog: Vec::new(), timer: None, timers_set: 0 });
        self.record(&Record::Started { pid, node, skew_ms: clocks.skew_ms });
        self.input(pid, Input::Wake);
        pid
    }

    fn draw_clocks(&mut self) -> Clocks {
        let dice = &mut self.dice;
        let signed = |dice: &mut Dice, max: u64| dice.below(2 * max + 1) as i64 - max as i64;
        let drift_ppm = signed(dice, self.parameters.drift_ppm_max);
        let skew_ms = signed(dice, self.parameters.skew_ms_max);
        let wild = if dice.chance(self.parameters.wild_clocks) { signed(dice, 2) * 3_600_000 } else { 0 };
        let boot_us = dice.within(1..=1_000_000) * SECOND;
        Clocks { boot_us, drift_ppm, skew_ms: skew_ms + wild, missed_us: 0 }
    }

    /// Hands an input to a process, at once or when it goes on.
    pub fn input(&mut self, pid: Pid, input: Input) {
        let Some(slot) = self.slots.get_mut(&pid) else { return self.unheard(input) };
        if slot.still.is_some() {
            // A timer that fires in the meantime is looked at when it goes on.
            if !matches!(input, Input::Wake) {
                slot.backlog.push(input);
            }
            return;
        }
        for out in slot.process.handle(self.time, input) {
            self.carry_out(pid, out);
        }
        self.set_timer(pid);
    }

    /// What reached a process that is gone: its connection broke.
    fn unheard(&mut self, input: Input) {
        if let Input::Request(Request { number, forward: None, .. }) = input {
            self.record(&Record::Told { request: number, told: Told::MayHaveRun(0) });
        }
    }

    fn set_timer(&mut self, pid: Pid) {
        let time = self.time;
        let Some(slot) = self.slots.get_mut(&pid) else { return };
        let wake = slot.process.wake(time);
        if wake == slot.timer {
            return;
        }
        slot.timer = wake;
        slot.timers_set += 1;
        let timer = slot.timers_set;
        if let Some(wake) = wake {
            let lag = self.dice.within(0..=self.parameters.timer_lag_max);
            self.after(wake.saturating_sub(time) + lag, Event::Wake(pid, timer));
        }
    }

    fn carry_out(&mut self, pid: Pid, out: Out) {
        match out {
            Out::Record(record) => self.record(&record),
            Out::Call { id, call, timeout, heed } => {
                self.send_call(pid, id, call, heed);
                self.after(timeout, Event::Input(pid, Input::Reply(id, None)));
            }
            Out::Forward { id, node, request } => self.send_forward(pid, id, &node, request),
            Out::AnswerForward { id, result } => self.answer_forward(id, result),
            Out::Run { id } => {
                let longest = if self.calm { 20 * MILLI } else { self.parameters.event_max };
                let length = self.dice.within(1..=longest);
                self.after(length, Event::Input(pid, Input::RunDone(id)));
            }
            Out::Exit => {
                self.remove(pid);
                let node = self.node_of_ended(pid);
                let wait = self.dice.within(500..=5_000) * MILLI;
                if let Some(node) = node {
                    self.after(wait, Event::Start(node));
                }
            }
        }
    }

    /// A process is gone: its connections break.
    pub fn remove(&mut self, pid: Pid) {
        let Some(slot) = self.slots.remove(&pid) else { return };
        self.network.ended.insert(pid, stage::node_number(slot.process.node()));
        for (actor, request, _) in slot.process.running() {
            let actor = stage::actor_number(&actor);
            self.record(&Record::RunEnded { pid, actor, request, done: false });
        }
        for request in slot.process.unanswered() {
            self.record(&Record::Told { request, told: Told::MayHaveRun(0) });
        }
        for input in slot.backlog {
            self.unheard(input);
        }
        let broken: Vec<ForwardId> =
            self.forwards.iter().filter(|(_, forward)| forward.to == pid).map(|(id, _)| *id).collect();
        for id in broken {
            let way = self.way();
            self.after(way, Event::ForwardEnds(id, Err(Trouble::Lost)));
        }
    }

    fn node_of_ended(&self, pid: Pid) -> Option<NodeNumber> {
        self.network.ended.get(&pid).copied()
    }

    fn resume(&mut self, pid: Pid) {
        let flaw = self.flaw;
        let Some(slot) = self.slots.get_mut(&pid) else { return };
        let Some((since, slept)) = slot.still.take() else { return };
        if slept && flaw == Some(Flaw::SleepUncounted) {
            slot.process.clocks.missed_us += self.time - since;
        }
        let backlog = std::mem::take(&mut slot.backlog);
        // The clock is looked at before anything goes on.
        self.input(pid, Input::Wake);
        self.record(&Record::Resumed { pid });
        for input in backlog {
            self.input(pid, input);
        }
    }

    /// Carries a request to the bucket out and notes what it did.
    pub fn apply(&mut self, call: Call, heed: bool) -> Reply {
        let noted = match &call {
            Call::Put(key, body, _) => note(key, body),
            _ => None,
        };
        let reply = self.bucket.call(call, heed);
        if let (Reply::Wrote(wasmkeep_protocol::store::Wrote::Written(_)), Some(record)) = (&reply, noted) {
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
        let actor = self.dice.index(self.parameters.actors);
        let body = self.dice.chance(self.parameters.bodies);
        self.ask(pid, actor, body);
    }

    /// The processes that take connections.
    pub fn listening(&self) -> Vec<Pid> {
        self.slots.iter().filter(|(_, slot)| slot.process.listens()).map(|(pid, _)| *pid).collect()
    }

    /// A client sends a request to a process.
    pub fn ask(&mut self, pid: Pid, actor: ActorNumber, body: bool) {
        self.requests += 1;
        let number = self.requests;
        self.record(&Record::Asked { request: number, pid, actor, body });
        if !self.calm && self.dice.chance(self.parameters.leaves) {
            let wait = self.dice.within(1..=30_000) * MILLI;
            self.after(wait, Event::Leaves(number, pid));
        }
        let request = Request { number, actor: stage::actor(actor), bodiless: !body, forward: None };
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
        self.slots.values_mut().for_each(|slot| slot.process.rest_late());
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
