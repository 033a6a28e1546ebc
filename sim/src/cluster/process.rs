//! One process of a simulated node: the shipped machines and what carries their effects out.
//!
//! It decides nothing the machines decide. It runs events only while the keeper says that the lease is valid and the
//! claim that the actor is held, one at a time for each actor.

mod alarms;
mod carry;
mod messages;
mod requests;
mod residents;
mod stop;
mod trust;

pub use messages::{CallId, ForwardId, Input, Out, Request, RunId};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wasmkeep_protocol::{
    ActorId, NodeId,
    clock::{Moment, Now},
    failover::{Limits, Suspects, Waits, WaitsInput},
    lease::{self, Identity, Keeper, Timing, Watch, WatchEffect, WatchInput},
    ownership::{self, Claim},
    records::{NodeRecord, Nonce, Presence, Process as ProcessId},
};

use super::{
    flaw::Flaw,
    parameters::Parameters,
    record::{Generation, Operation, Pid, Record, RequestNumber, Told},
    stage,
    time::{Clocks, MILLI, Time},
};
use crate::dice::Dice;

/// What a request to the bucket was for.
#[derive(Debug, Clone)]
enum Purpose {
    OwnHeartbeat,
    Heartbeat,
    List,
    Look(NodeId),
    Fence(NodeId),
    Owner(ActorId),
    OwnerHeartbeat(ActorId),
}

impl Purpose {
    /// Whether an actor's claim waits for it.
    fn is_of(&self, actor: &ActorId) -> bool {
        matches!(self, Self::Owner(of) | Self::OwnerHeartbeat(of) if of == actor)
    }
}

/// A resident actor.
#[derive(Debug)]
struct Resident {
    generation: Generation,
    database: DatabaseState,
    queue: VecDeque<RequestNumber>,
    running: Option<(RunId, RequestNumber)>,
    idle_since: Moment,
}

/// How far a resident's database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatabaseState {
    Opening,
    Open,
    Closing,
}

/// One actor's record, and who waits for it.
#[derive(Debug, Default)]
struct Claimed {
    claim: Claim,
    waiting: Vec<RequestNumber>,
    /// The kept requests wait for it, too.
    asked: bool,
    /// The request under way reads the record.
    reading: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    identity: Identity,
    /// Its machine's.
    pub clocks: Clocks,
    timing: Timing,
    idle_us: u64,
    flaw: Option<Flaw>,
    dice: Dice,
    keeper: Keeper,
    watch: Watch,
    waits: Waits,
    suspects: Suspects,
    claims: BTreeMap<ActorId, Claimed>,
    residents: BTreeMap<ActorId, Resident>,
    requests: BTreeMap<RequestNumber, Request>,
    kept: BTreeSet<RequestNumber>,
    /// Where each was sent, and whether for the first time.
    forwards: BTreeMap<ForwardId, (RequestNumber, NodeId, bool)>,
    /// Requests that were sent to another node once.
    sent: BTreeSet<RequestNumber>,
    calls: BTreeMap<CallId, Purpose>,
    /// The alarms it knows of.
    book: BTreeMap<ActorId, alarms::Booked>,
    sweeps: alarms::Sweeps,
    counter: u64,
    stop: Option<stop::Progress>,
    ended: bool,
    /// It takes connections: from its first lease on.
    listens: bool,
    /// Heartbeats once read, for the variant that takes a missing one for a release.
    remembered: BTreeMap<NodeId, NodeRecord>,
    /// Its lease ran out, for the variant that serves no more then.
    lapsed: bool,
    out: Vec<Out>,
}

impl Process {
    /// A process that starts at `time`.
    pub fn new(
        pid: Pid,
        node: NodeId,
        clocks: Clocks,
        time: Time,
        parameters: &Parameters,
        flaw: Option<Flaw>,
        dice: Dice,
    ) -> Self {
        let identity = Identity { node, process: ProcessId::from_bits(pid.into()) };
        let mut timing = Timing::default();
        let mut wait = std::time::Duration::from_secs(parameters.wait_secs);
        match flaw {
            Some(Flaw::NoGrace) => timing.grace = std::time::Duration::ZERO,
            Some(Flaw::WaitsTooLong) => wait *= 2,
            _ => {}
        }
        let mut watching = timing;
        if flaw == Some(Flaw::FencesAfterOutage) {
            (watching.ttl, watching.timeout) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
        }
        let now = clocks.now(time).moment;
        let presence = Presence {
            advertise: format!("http://p{pid}"),
            cluster_advertise: Some(format!("https://p{pid}")),
            fingerprint: Some(stage::fingerprint(pid).to_string()),
            ..Presence::default()
        };
        Self {
            pid,
            keeper: Keeper::new(timing, identity.clone(), presence, now),
            watch: Watch::new(watching, identity.clone(), now),
            waits: Waits::new(Limits::new(wait, parameters.connections_max)),
            suspects: Suspects::default(),
            identity,
            clocks,
            timing,
            idle_us: parameters.idle,
            flaw,
            dice,
            claims: BTreeMap::new(),
            residents: BTreeMap::new(),
            requests: BTreeMap::new(),
            kept: BTreeSet::new(),
            forwards: BTreeMap::new(),
            sent: BTreeSet::new(),
            calls: BTreeMap::new(),
            book: BTreeMap::new(),
            sweeps: alarms::Sweeps::new(now),
            counter: 0,
            stop: None,
            ended: false,
            listens: false,
            remembered: BTreeMap::new(),
            lapsed: false,
            out: Vec::new(),
        }
    }

    /// The node it runs as.
    pub fn node(&self) -> &NodeId {
        &self.identity.node
    }

    /// From here on actors rest later.
    pub fn rest_late(&mut self) {
        self.idle_us = 60 * super::time::SECOND;
    }

    /// Whether it takes connections: not before its first lease.
    pub fn listens(&self) -> bool {
        self.listens
    }

    /// The events that run, for when the process stands still or is killed.
    pub fn running(&self) -> Vec<(ActorId, RequestNumber, u64)> {
        let runs = self.residents.iter().filter_map(|(actor, resident)| {
            resident.running.map(|(_, request)| (actor.clone(), request, resident.generation))
        });
        runs.collect()
    }

    /// Requests of clients that wait for an answer of this process.
    pub fn unanswered(&self) -> Vec<RequestNumber> {
        self.requests
            .values()
            .filter(|request| request.forward.is_none() && request.operation != Operation::Alarm)
            .map(|request| request.number)
            .collect()
    }

    /// When its timer is due, in true time.
    pub fn wake(&self, time: Time) -> Option<Time> {
        if self.ended {
            return None;
        }
        let now = self.clocks.now(time);
        let claims = self.claims.values().filter_map(|claimed| claimed.claim.wake());
        let idle = self
            .residents
            .values()
            .filter(|resident| resident.is_idle())
            .map(|resident| self.idle_end(resident));
        let due = [self.keeper.wake(), self.watch.wake(now), self.waits.wake()].into_iter().flatten();
        let due = due.chain(claims).chain(idle).chain(self.alarms_wake(now)).min()?;
        // A machine that is due all the time must not stop the simulation.
        Some(self.clocks.when(due, time).max(time + MILLI / 2))
    }

    fn idle_end(&self, resident: &Resident) -> Moment {
        resident.idle_since + std::time::Duration::from_micros(self.idle_us)
    }

    /// Takes one input.
    pub fn handle(&mut self, time: Time, input: Input) -> Vec<Out> {
        let now = self.clocks.now(time);
        // Whatever comes, the clock is looked at first: the process may have stood still.
        self.tick(now);
        if self.ended {
            // Its connection broke before it was read.
            if let Input::Request(Request { number, forward: None, .. }) = input {
                self.out.insert(0, Out::Record(Record::Told { request: number, told: Told::MayHaveRun(0) }));
            }
        } else {
            match input {
                Input::Wake => {}
                Input::Reply(id, reply) => self.reply(now, id, reply),
                Input::Request(request) => self.arrive(now, request),
                Input::Left(request) => self.left(now, request),
                Input::ForwardEnded(id, result) => self.forward_ended(now, id, result),
                Input::Opened { actor, generation, ok } => self.opened(now, actor, generation, ok),
                Input::RunDone(run, told) => self.run_done(now, run, told),
                Input::GivenUp { actor, generation } => self.given_up(now, actor, generation),
                Input::Closed { actor, generation } => self.closed(now, actor, generation),
                Input::Booked { actor, at_ms } => self.booked(now, actor, at_ms),
                Input::Overdue { is_first, overdue } => self.overdue(now, is_first, overdue),
                Input::Peeked(request, found) => self.peeked(now, request, found),
                Input::Stop => self.stop(now),
            }
            self.tick(now);
        }
        let mut out = std::mem::take(&mut self.out);
        // A process that ended does nothing more.
        if let Some(end) = out.iter().position(|out| matches!(out, Out::Exit)) {
            out.truncate(end + 1);
        }
        out
    }

    fn tick(&mut self, now: Now) {
        let due = |wake: Option<Moment>| wake.is_some_and(|wake| wake <= now.moment);
        if due(self.keeper.wake()) {
            self.keep(now, lease::Input::Tick);
        }
        if due(self.watch.wake(now)) {
            self.look_out(now, WatchInput::Tick);
        }
        let owed: Vec<ActorId> = self
            .claims
            .iter()
            .filter(|(_, claimed)| due(claimed.claim.wake()))
            .map(|(actor, _)| actor.clone())
            .collect();
        for actor in owed {
            self.claim(now, &actor, ownership::Input::Tick);
        }
        if due(self.waits.wake()) {
            self.wait(now, WaitsInput::Look);
        }
        let idle: Vec<ActorId> = self
            .residents
            .iter()
            .filter(|(_, resident)| resident.is_idle() && now.moment >= self.idle_end(resident))
            .map(|(actor, _)| actor.clone())
            .collect();
        for actor in idle {
            self.give_up(&actor);
        }
        self.tick_alarms(now);
        self.progress_stop(now);
    }

    fn nonce(&mut self) -> Nonce {
        draw_nonce(&mut self.dice)
    }

    fn record(&mut self, record: Record) {
        self.out.push(Out::Record(record));
    }

    /// Steps the keeper and carries its effects out.
    fn keep(&mut self, now: Now, input: lease::Input) {
        let nonce = self.nonce();
        for effect in self.keeper.step(now, nonce, input) {
            match effect {
                lease::Effect::Read => self.call(Purpose::OwnHeartbeat, stage::get_node(&self.identity.node)),
                lease::Effect::Write(record, condition) => {
                    let call = stage::put_node(&self.identity.node, &record, condition);
                    self.call(Purpose::Heartbeat, call);
                }
                lease::Effect::Valid => {
                    self.listens = true;
                    self.record(Record::Valid { pid: self.pid });
                    self.look_out(now, WatchInput::Valid);
                    self.wait(now, WaitsInput::Valid);
                }
                lease::Effect::Lapsed => self.lapse(now),
                lease::Effect::EndEvents | lease::Effect::Exit(lease::Exit::Stopped { released: false })
                    if self.flaw == Some(Flaw::StopsNever) => {}
                lease::Effect::EndEvents => self.end_events(now),
                lease::Effect::Exit(exit) => {
                    self.record(Record::Exited { pid: self.pid, why: exit.to_string() });
                    self.ended = true;
                    self.out.push(Out::Exit);
                }
            }
        }
        if let Some(version) = self.keeper.version().cloned() {
            self.look_out(now, WatchInput::Stands(version));
        }
    }

    /// Steps the watch and carries its effects out.
    fn look_out(&mut self, now: Now, input: WatchInput) {
        let looks = matches!(input, WatchInput::Listed(_) | WatchInput::Read(..));
        let dice = &mut self.dice;
        let mut nonces = || draw_nonce(dice);
        for effect in self.watch.step(now, &mut nonces, input) {
            match effect {
                WatchEffect::List => {
                    self.record(Record::LookBegan { pid: self.pid });
                    self.call(Purpose::List, stage::list_nodes());
                }
                WatchEffect::Read(node) => {
                    let call = stage::get_node(&node);
                    self.call(Purpose::Look(node), call);
                }
                WatchEffect::ViewChanged => {
                    if looks {
                        self.record(Record::LookEnded { pid: self.pid });
                    }
                    self.suspects.look(&self.watch.view(), self.timing.skew, now.moment);
                    self.wait(now, WaitsInput::Look);
                }
                WatchEffect::Fence(..) if self.flaw == Some(Flaw::NeverFences) => {}
                WatchEffect::Fence(node, mut record, condition) => {
                    let view = self.watch.view();
                    let replaced = view.peer(&node).and_then(|peer| peer.record.as_ref().ok());
                    if let (Some(Flaw::FenceKeepsLength), Some(replaced)) = (self.flaw, replaced) {
                        record.shape = replaced.shape;
                    }
                    let call = stage::put_node(&node, &record, condition);
                    self.call(Purpose::Fence(node), call);
                }
                WatchEffect::OwnHeartbeatChanged => self.keep(now, lease::Input::Sighted),
                WatchEffect::Notice(_) => {}
            }
        }
    }
}

impl Resident {
    fn is_idle(&self) -> bool {
        self.database == DatabaseState::Open && self.running.is_none() && self.queue.is_empty()
    }
}

fn draw_nonce(dice: &mut Dice) -> Nonce {
    Nonce::from_bits((u128::from(dice.next()) << 64) | u128::from(dice.next()))
}
