//! The life of processes: they start on machines, get inputs and timers, stand still, and end.

use std::path::PathBuf;

use wasmkeep_protocol::forwarding::Trouble;

use super::{Event, Machine, Slot, World};
use crate::{
    cluster::{
        flaw::Flaw,
        node::{Node, Saying},
        process::{ForwardId, Input, Out, Process, Request},
        record::{NodeNumber, Pid, Record, Told},
        stage,
        time::{Clocks, MILLI, SECOND},
    },
    dice::Dice,
};

impl World {
    /// Whether a process runs under a node id.
    pub fn runs(&self, node: NodeNumber) -> bool {
        self.slots.values().any(|slot| stage::node_number(slot.process.node()) == node)
    }

    /// Starts a process, mostly on the machine its node had before.
    pub fn start(&mut self, node: NodeNumber) -> Pid {
        self.pids += 1;
        let pid = self.pids;
        let Machine { clocks, disk } = self.machine(node);
        let process = Process::new(pid, stage::node(node), clocks, &self.parameters, self.flaw);
        let (id, dice) = ((pid, stage::node(node)), self.dice.fork());
        let beside = Node::new(id, disk, &self.parameters, self.flaw, (self.time, clocks), dice);
        if self.calm {
            beside.calm_down();
        }
        self.slots.insert(
            pid,
            Slot { process, node: beside, still: None, backlog: Vec::new(), timer: None, timers_set: 0 },
        );
        let Clocks { skew_ms, drift_ppm, .. } = clocks;
        self.record(&Record::Started { pid, node, skew_ms, drift_ppm });
        self.input(pid, Input::Wake);
        pid
    }

    /// What a node starts on. A machine runs one process of a node at a time.
    fn machine(&mut self, node: NodeNumber) -> Machine {
        let is_free = !self.runs(node);
        let before = self.machines.get(&node).cloned().filter(|_| is_free && self.dice.chance(700));
        let machine = match before {
            Some(machine) => machine,
            None => Machine { clocks: self.draw_clocks(), disk: self.new_disk() },
        };
        self.machines.insert(node, machine.clone());
        machine
    }

    fn new_disk(&mut self) -> PathBuf {
        self.disks += 1;
        self.scratch.join(format!("disk-{}", self.disks))
    }

    /// The disk of a node's machine is empty from here on.
    pub fn wipe(&mut self, node: NodeNumber) {
        let disk = self.new_disk();
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.disk = disk;
        }
    }

    fn draw_clocks(&mut self) -> Clocks {
        let skew_ms = self.draw_skew_ms();
        let dice = &mut self.dice;
        let drift_ppm_max =
            if dice.chance(self.parameters.wild_drifts) { 500_000 } else { self.parameters.drift_ppm_max };
        let drift_ppm = signed(dice, drift_ppm_max);
        let boot_us = dice.within(1..=1_000_000) * SECOND;
        Clocks { boot_us, drift_ppm, skew_ms, missed_us: 0 }
    }

    /// How far off a machine's wall clock is: as far as is assumed at most or, rarely, by hours.
    pub fn draw_skew_ms(&mut self) -> i64 {
        let dice = &mut self.dice;
        let hours = if dice.chance(self.parameters.wild_clocks) { signed(dice, 2) } else { 0 };
        signed(dice, self.parameters.skew_ms_max) + hours * 3_600_000
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
        match input {
            Input::Reply(id, reply) => {
                slot.node.reply(id, reply);
                self.go_on(pid);
            }
            input => {
                self.handle(pid, input);
                self.drive(pid);
            }
        }
        self.set_timer(pid);
    }

    /// The machines look at the clock, and the tasks go on; which first is chance.
    fn go_on(&mut self, pid: Pid) {
        if self.dice.chance(500) {
            self.drive(pid);
        }
        self.handle(pid, Input::Wake);
        self.drive(pid);
    }

    fn handle(&mut self, pid: Pid, input: Input) {
        let Some(slot) = self.slots.get_mut(&pid) else { return self.unheard(input) };
        let out = slot.process.handle(self.time, input);
        for out in out {
            self.carry_out(pid, out);
        }
    }

    /// Lets the tasks of a process go on, and carries to and fro what they and the machines say to each other.
    fn drive(&mut self, pid: Pid) {
        while let Some(slot) = self.slots.get(&pid) {
            let sayings = slot.node.drive(self.time, slot.process.clocks);
            if sayings.is_empty() {
                return;
            }
            for saying in sayings {
                match saying {
                    Saying::Call(id, call) => self.send_call(pid, id, call),
                    Saying::Tell(input) => self.handle(pid, input),
                    Saying::Record(Record::FoundAlarm { actor, generation, alarm_ms, .. }) => {
                        let listed_ms = self.bucket.earliest_alarm(self.time, actor);
                        self.record(&Record::FoundAlarm { actor, generation, alarm_ms, listed_ms });
                    }
                    Saying::Record(record) => self.record(&record),
                }
            }
        }
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
        let wake = [slot.process.wake(time), slot.node.wake()].into_iter().flatten().min();
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
            Out::Forward { id, certificate, request } => {
                self.send_forward(pid, id, &certificate, request);
            }
            Out::AnswerForward { id, result } => self.answer_forward(id, result),
            Out::Exit => {
                self.remove(pid);
                let node = self.node_of_ended(pid);
                let wait = self.dice.within(500..=5_000) * MILLI;
                if let Some(node) = node {
                    self.after(wait, Event::Start(node));
                }
            }
            out => {
                if let Some(slot) = self.slots.get(&pid) {
                    slot.node.carry_out(out);
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

    pub(super) fn resume(&mut self, pid: Pid) {
        let flaw = self.flaw;
        let Some(slot) = self.slots.get_mut(&pid) else { return };
        let Some((since, slept)) = slot.still.take() else { return };
        if slept && flaw == Some(Flaw::SleepUncounted) {
            slot.process.clocks.missed_us += self.time - since;
        }
        let mut backlog = std::mem::take(&mut slot.backlog);
        // What the bucket answered meanwhile may be seen before the clock is, by the tasks alone.
        if self.dice.chance(500) {
            backlog.retain(|input| match input {
                Input::Reply(id, reply) => {
                    slot.node.reply(*id, reply.clone());
                    false
                }
                _ => true,
            });
        }
        // The clock is looked at before an event counts as going on.
        self.go_on(pid);
        self.set_timer(pid);
        self.record(&Record::Resumed { pid });
        for input in backlog {
            self.input(pid, input);
        }
    }

    /// The processes that take connections.
    pub fn listening(&self) -> Vec<Pid> {
        self.slots.iter().filter(|(_, slot)| slot.process.listens()).map(|(pid, _)| *pid).collect()
    }
}

fn signed(dice: &mut Dice, max: u64) -> i64 {
    dice.below(2 * max + 1) as i64 - max as i64
}
