//! What goes wrong in a cluster, and what its operators do at bad moments.

use wasmkeep_bucket::Precondition;
use wasmkeep_protocol::records::{NodeRecord, Nonce, Process};

use super::{
    bucket::{Call, Reply},
    process::Input,
    record::{NodeNumber, Pid, Record},
    stage,
    time::{MILLI, SECOND, Time},
    world::{Event, World},
};

/// One kind of trouble.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// A process is killed; later its node starts again.
    Kill,
    /// It is killed, and its machine's disk is empty when it starts again.
    Wipe,
    /// A process is asked to stop.
    Stop,
    /// A process stands still; its machine does not.
    Pause,
    /// A machine sleeps.
    Sleep,
    /// A process does not reach the bucket, or is not reached by its answers.
    CutBucket,
    /// A node does not reach another.
    CutPeers,
    /// A node reaches nobody and is reached by nobody; the bucket it does reach.
    Isolate,
    /// The nodes are in two halves that do not reach each other, and only one of them reaches the bucket.
    Split,
    /// Nobody reaches the bucket.
    Outage,
    /// A second process is started under a node id.
    Rival,
    /// An operator fences a node, on what he read some time ago.
    OperatorFence,
    /// An operator deletes a heartbeat.
    DeleteHeartbeat,
    /// A wall clock is set.
    ClockJump,
}

/// How many kinds there are.
pub const FAULTS: usize = Fault::ALL.len();

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::Kill,
        Self::Wipe,
        Self::Stop,
        Self::Pause,
        Self::Sleep,
        Self::CutBucket,
        Self::CutPeers,
        Self::Isolate,
        Self::Split,
        Self::Outage,
        Self::Rival,
        Self::OperatorFence,
        Self::DeleteHeartbeat,
        Self::ClockJump,
    ];
}

impl World {
    /// Something goes wrong, and later something else.
    pub fn fault(&mut self) {
        let wait = self.dice.within(1..=2 * self.parameters.fault_every);
        self.after(wait, Event::Fault);
        if self.parameters.faults.iter().all(|weight| *weight == 0) {
            return;
        }
        let pids: Vec<Pid> = self.slots.keys().copied().collect();
        if pids.is_empty() {
            return;
        }
        let pid = *self.dice.pick(&pids);
        let node = self.slots.get(&pid).map_or(0, |slot| stage::node_number(slot.process.node()));
        let fault = Fault::ALL[self.dice.weighted(&self.parameters.faults)];
        // Most of what is decided here is decided between three and thirty seconds.
        let length = self.dice.within(500..=40_000) * MILLI;
        self.record(&Record::Trouble(format!(
            "{fault:?} of process {pid}, node {node}, {} ms",
            length / MILLI
        )));
        self.strike(fault, pid, node, length);
    }

    fn strike(&mut self, fault: Fault, pid: Pid, node: NodeNumber, length: Time) {
        let until = self.time + length;
        match fault {
            Fault::Kill => {
                self.kill(pid);
                self.after(length, Event::Start(node));
            }
            Fault::Wipe => {
                self.kill(pid);
                self.wipe(node);
                self.after(length, Event::Start(node));
            }
            Fault::Stop => self.input(pid, Input::Stop),
            Fault::Pause => self.stand_still(pid, length, false),
            Fault::Sleep => self.stand_still(pid, length, true),
            Fault::CutBucket => {
                let which = self.dice.below(3);
                if which != 0 {
                    self.network.requests.insert(pid, until);
                }
                if which != 1 {
                    self.network.replies.insert(pid, until);
                }
            }
            Fault::CutPeers => {
                let other = self.dice.index(self.parameters.nodes);
                self.network.peers.insert((node, other), until);
            }
            Fault::Isolate => {
                for other in 0..self.parameters.nodes {
                    self.network.peers.insert((node, other), until);
                    self.network.peers.insert((other, node), until);
                }
            }
            Fault::Split => self.split(until),
            Fault::Outage => self.lose_bucket(until),
            Fault::Rival => {
                let of_node =
                    self.slots.values().filter(|slot| stage::node_number(slot.process.node()) == node);
                if of_node.count() < 2 {
                    self.start(node);
                }
            }
            Fault::OperatorFence => self.operator_fence(node),
            Fault::DeleteHeartbeat => {
                self.apply(Call::Delete(stage::heartbeat(&stage::node(node))));
            }
            Fault::ClockJump => {
                let skew_ms = self.draw_skew_ms();
                if let Some(slot) = self.slots.get_mut(&pid) {
                    slot.process.clocks.skew_ms = skew_ms;
                    self.record(&Record::ClockSet { pid, skew_ms });
                }
            }
        }
    }

    fn split(&mut self, until: Time) {
        let away: Vec<NodeNumber> = (0..self.parameters.nodes).filter(|_| self.dice.chance(500)).collect();
        for one in 0..self.parameters.nodes {
            for other in 0..self.parameters.nodes {
                if away.contains(&one) != away.contains(&other) {
                    self.network.peers.insert((one, other), until);
                }
            }
        }
        let pids =
            self.slots.iter().filter(|(_, slot)| away.contains(&stage::node_number(slot.process.node())));
        for (pid, _) in pids {
            self.network.requests.insert(*pid, until);
            self.network.replies.insert(*pid, until);
        }
    }

    fn lose_bucket(&mut self, until: Time) {
        if self.time >= self.network.outage {
            self.record(&Record::BucketAway);
        }
        self.network.outage = self.network.outage.max(until);
        self.after(self.network.outage - self.time, Event::BucketBack);
    }

    /// Kills a process.
    pub fn kill(&mut self, pid: Pid) {
        self.record(&Record::Killed { pid });
        self.remove(pid);
    }

    fn stand_still(&mut self, pid: Pid, length: Time, sleeps: bool) {
        let time = self.time;
        let Some(slot) = self.slots.get_mut(&pid) else { return };
        if slot.still.is_none() {
            slot.still = Some((time, sleeps));
            self.record(&Record::Paused { pid });
            self.after(length, Event::Resume(pid));
        }
    }

    /// Reads a heartbeat and writes its fence a while later, on the condition that it has not changed.
    fn operator_fence(&mut self, node: NodeNumber) {
        let id = stage::node(node);
        let nonce = Nonce::from_bits(self.dice.next().into());
        let key = stage::heartbeat(&id);
        let (record, condition) = match self.bucket.call(self.time, Call::Get(key.clone(), None)) {
            Reply::Got(Ok((meta, _, body))) => match NodeRecord::decode(&body) {
                Ok(record) if record.is_live() => {
                    let condition = Precondition::Version(meta.version);
                    (record.fence(std::time::Duration::ZERO, None, nonce), condition)
                }
                _ => return,
            },
            _ => {
                let process = Process::from_bits(u128::from(self.dice.next()) << 64);
                let ttl = wasmkeep_protocol::limits::LEASE_TTL;
                let wall_ms = 1_700_000_000_000 + self.time / MILLI;
                (NodeRecord::fence_for_absent(process, ttl, wall_ms, nonce), Precondition::Absent)
            }
        };
        let wait = if self.dice.chance(500) { self.way() } else { self.dice.within(1..=5 * SECOND) };
        self.after(wait, Event::Operator(Call::Put(key, record.encode().into(), condition)));
    }
}
