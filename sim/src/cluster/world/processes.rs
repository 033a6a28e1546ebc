//! The life of processes: they start on machines, get inputs and timers, stand still, and end.

use wasmkeep_protocol::forwarding::Trouble;

use super::{Event, Slot, World};
use crate::{
    cluster::{
        flaw::Flaw,
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

    pub(super) fn resume(&mut self, pid: Pid) {
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

    /// The processes that take connections.
    pub fn listening(&self) -> Vec<Pid> {
        self.slots.iter().filter(|(_, slot)| slot.process.listens()).map(|(pid, _)| *pid).collect()
    }
}
