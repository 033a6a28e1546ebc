//! A node is fenced by another only when its last live write has stood for ttl plus grace (R-LEASE-4), and a lease
//! that ended stays ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checker, SLACK};
use crate::cluster::{
    record::{Beat, NodeNumber, Pid, Record},
    time::{SECOND, Time},
};

/// The documented shortest time.
const LAPSE: Time = 15 * SECOND;

/// See the module.
#[derive(Debug, Default)]
pub struct Fences {
    /// The last live write of each process, and when it was applied.
    live: BTreeMap<Pid, (u64, Time)>,
    /// When an operator's fence for a node without a heartbeat was.
    made_up: BTreeMap<NodeNumber, Time>,
    ended: BTreeSet<Pid>,
}

impl Checker for Fences {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        let Record::Heartbeat { node, pid, sequence, beat } = record else { return Ok(()) };
        if let (Beat::FencedByOperator, None) = (beat, pid) {
            self.made_up.insert(*node, time);
            return Ok(());
        }
        if *beat == Beat::FencedByPeer {
            let last = match pid {
                Some(pid) => self.live.get(pid).map(|(_, time)| time),
                None => self.made_up.get(node),
            };
            let stood = last.map(|last| time - last);
            if stood.is_none_or(|stood| stood + SLACK / 2 < LAPSE) {
                return Err(format!("node {node} was fenced {stood:?} us after its last live write"));
            }
        }
        let Some(pid) = pid else { return Ok(()) };
        if *beat == Beat::Live {
            // A late copy of a first write, applied once more after a deletion, renews nothing.
            if self.live.get(pid).is_some_and(|(last, _)| last >= sequence) {
                return Ok(());
            }
            if self.ended.contains(pid) {
                return Err(format!("process {pid} of node {node} is live again after its lease ended"));
            }
            self.live.insert(*pid, (*sequence, time));
        } else {
            self.ended.insert(*pid);
        }
        Ok(())
    }
}
