//! A process trusts another only until a look at the heartbeats had to show that the other's lease ended; and until 10 s
//! after the look that showed its last write, or after its own last look (R-TLS-4).

use std::collections::BTreeMap;

use super::{Checker, SLACK};
use crate::cluster::{
    record::{Beat, NodeNumber, Pid, Record},
    time::{SECOND, Time},
};

/// How long a heartbeat counts as live once it was seen.
const IN_VIEW: Time = 10 * SECOND;

/// See the module.
#[derive(Debug, Default)]
pub struct Trust {
    /// Whose lease stands under each node id.
    stands: BTreeMap<NodeNumber, Pid>,
    /// When the last live write of each process was applied.
    written: BTreeMap<Pid, Time>,
    /// Since when it does not stand any more.
    ended: BTreeMap<Pid, Time>,
    /// The beginnings and the ends of each process's looks.
    looks: BTreeMap<Pid, Vec<(Time, Option<Time>)>>,
}

impl Trust {
    /// Another lease stands under a node id, or none.
    fn replace(&mut self, time: Time, node: NodeNumber, by: Option<Pid>) {
        let before = match by {
            Some(pid) => self.stands.insert(node, pid),
            None => self.stands.remove(&node),
        };
        if let Some(before) = before {
            self.ended.insert(before, time);
        }
        if let Some(pid) = by {
            self.ended.remove(&pid);
            self.written.insert(pid, time);
        }
    }

    fn judge(&self, time: Time, pid: Pid, peer: Pid) -> Result<(), String> {
        let looks = self.looks.get(&pid).map_or(&[][..], Vec::as_slice);
        // The end of the first look that had to show what was so then.
        let shown = |since: Time| looks.iter().find_map(|(began, ended)| ended.filter(|_| *began >= since));
        if let Some(seen) = self.ended.get(&peer).and_then(|since| shown(*since)) {
            return Err(format!(
                "process {pid} trusts {peer}, whose lease it saw ended {} ms ago",
                (time - seen) / 1000
            ));
        }
        let last = looks.iter().rev().find_map(|(_, ended)| *ended);
        let written = self.written.get(&peer).and_then(|written| shown(*written));
        match written.or(last) {
            Some(seen) if time <= seen + IN_VIEW + SLACK => Ok(()),
            Some(seen) => {
                Err(format!("process {pid} trusts {peer} for what it saw {} ms ago", (time - seen) / 1000))
            }
            None => Err(format!("process {pid} trusts {peer} and has seen nobody")),
        }
    }
}

impl Checker for Trust {
    fn name(&self) -> &'static str {
        "trust"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Heartbeat { node, pid, beat, .. } => {
                self.replace(time, *node, pid.filter(|_| *beat == Beat::Live));
            }
            Record::Deleted { node } => self.replace(time, *node, None),
            Record::LookBegan { pid } => self.looks.entry(*pid).or_default().push((time, None)),
            Record::LookEnded { pid } => {
                if let Some((_, ended)) = self.looks.entry(*pid).or_default().last_mut() {
                    *ended = Some(time);
                }
            }
            Record::Trusted { pid, peer } => return self.judge(time, *pid, *peer),
            _ => {}
        }
        Ok(())
    }
}
