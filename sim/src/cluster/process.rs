//! One process of a simulated node: its requests, and which actors are open.
//!
//! Stands for the shards of a node. What belongs to its lease and to its holds is the shipped service's, which it asks
//! and listens to; what of an actor may run is the shipped session's. It has one event of an actor run at a time.

mod alarms;
mod messages;
mod requests;
mod residents;
mod service;
mod stop;
mod trust;

pub use messages::{CallId, ForwardId, Input, Out, Request, Residency, RunId};

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use wasmkeep_protocol::{
    ActorId, NodeId,
    clock::{Moment, Now},
    failover::{Limits, Suspects, Waits, WaitsInput},
    lease::Timing,
    view::View,
};

use super::{
    flaw::Flaw,
    parameters::Parameters,
    record::{Generation, Operation, Pid, Record, RequestNumber, Told},
    time::{Clocks, MILLI, Time},
};

/// A resident actor.
#[derive(Debug)]
struct Resident {
    residency: Residency,
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

/// See the module.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    node: NodeId,
    /// When it looked at its clock last.
    moment: Moment,
    /// Its machine's.
    pub clocks: Clocks,
    skew: Duration,
    idle_us: u64,
    flaw: Option<Flaw>,
    /// The cluster as the service saw it last.
    view: Arc<View>,
    /// Of the lease that was valid last.
    epoch: Option<u64>,
    waits: Waits,
    suspects: Suspects,
    residents: BTreeMap<ActorId, Resident>,
    requests: BTreeMap<RequestNumber, Request>,
    kept: BTreeSet<RequestNumber>,
    /// Where each was sent, and whether for the first time.
    forwards: BTreeMap<ForwardId, (RequestNumber, NodeId, bool)>,
    /// Requests that were sent to another node once.
    sent: BTreeSet<RequestNumber>,
    /// The alarms it knows of.
    book: BTreeMap<ActorId, alarms::Booked>,
    /// Those of the service's looks that wait for an event.
    looks: BTreeMap<RequestNumber, alarms::Looked>,
    counter: u64,
    stop: Option<stop::Progress>,
    ended: bool,
    /// It takes connections: from its first lease on.
    listens: bool,
    /// Its lease ran out, for the variant that serves no more then.
    lapsed: bool,
    out: Vec<Out>,
}

impl Process {
    /// A process that starts now.
    pub fn new(pid: Pid, node: NodeId, clocks: Clocks, parameters: &Parameters, flaw: Option<Flaw>) -> Self {
        let timing = Timing::default();
        let mut wait = Duration::from_secs(parameters.wait_secs);
        if flaw == Some(Flaw::WaitsTooLong) {
            wait *= 2;
        }
        Self {
            pid,
            node,
            moment: Moment::after_boot(Duration::ZERO),
            clocks,
            skew: timing.skew,
            idle_us: parameters.idle,
            flaw,
            view: Arc::new(View::unknown(&timing)),
            epoch: None,
            waits: Waits::new(Limits::new(wait, parameters.connections_max)),
            suspects: Suspects::default(),
            residents: BTreeMap::new(),
            requests: BTreeMap::new(),
            kept: BTreeSet::new(),
            forwards: BTreeMap::new(),
            sent: BTreeSet::new(),
            book: BTreeMap::new(),
            looks: BTreeMap::new(),
            counter: 0,
            stop: None,
            ended: false,
            listens: false,
            lapsed: false,
            out: Vec::new(),
        }
    }

    /// The node it runs as.
    pub fn node(&self) -> &NodeId {
        &self.node
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
        let idle = self
            .residents
            .values()
            .filter(|resident| resident.is_idle())
            .map(|resident| self.idle_end(resident));
        let due = self.waits.wake().into_iter().chain(idle).chain(self.alarms_wake(now)).min()?;
        // A machine that is due all the time must not stop the simulation.
        Some(self.clocks.when(due, time).max(time + MILLI / 2))
    }

    fn idle_end(&self, resident: &Resident) -> Moment {
        resident.idle_since + Duration::from_micros(self.idle_us)
    }

    /// Takes one input.
    pub fn handle(&mut self, time: Time, input: Input) -> Vec<Out> {
        let now = self.clocks.now(time);
        self.moment = now.moment;
        // Whatever comes, the clock is looked at first: the process may have stood still.
        self.tick(now);
        if self.ended {
            // Its connection broke before it was read.
            if let Input::Request(Request { number, forward: None, .. }) = input {
                self.out.insert(0, Out::Record(Record::Told { request: number, told: Told::MayHaveRun(0) }));
            }
        } else {
            match input {
                // Answers go to its tasks.
                Input::Wake | Input::Reply(..) => {}
                Input::Cluster(event) => self.told(now, event),
                Input::Exited(exit) => self.exited(&exit),
                Input::Request(request) => self.arrive(now, request),
                Input::Left(request) => self.left(now, request),
                Input::ForwardEnded(id, result) => self.forward_ended(now, id, result),
                Input::Claimed { actor, request, claimed } => self.claimed(now, &actor, request, claimed),
                Input::Opened { residency, generation } => self.opened(now, residency, generation),
                Input::OpenFailed { residency, denial } => self.open_failed(residency, denial.as_ref()),
                Input::RunDone(run, told) => self.run_done(now, run, told),
                Input::RunRefused(run) => self.run_refused(now, run),
                Input::RunFailed(run) => self.run_failed(now, run),
                Input::Closed { residency } => self.closed(now, residency),
                Input::Booked { actor, at_ms } => self.booked(now, actor, at_ms),
                Input::Peeked(request, found) => self.peeked(request, found),
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
        self.progress_stop();
    }

    fn record(&mut self, record: Record) {
        self.out.push(Out::Record(record));
    }
}

impl Resident {
    fn is_idle(&self) -> bool {
        self.database == DatabaseState::Open && self.running.is_none() && self.queue.is_empty()
    }
}
