//! In a calm cluster a node that dies is fenced 15 to about 21 s after its last write, and a request that waits for
//! one of its actors is served soon after, by whichever node it waits at.

use std::collections::BTreeMap;

use super::{Checker, SLACK};
use crate::cluster::{
    assumptions::Assumption,
    parameters::Parameters,
    record::{Beat, NodeNumber, Record, RequestNumber, Told},
    time::{SECOND, Time},
};

/// The documented latest time.
const LATEST: Time = 21 * SECOND + SLACK;

/// How long after the fence a request is served: a listing shows it, an actor is claimed, and all that is spread.
const SERVED: Time = 6 * SECOND;

/// See the module.
#[derive(Debug)]
pub struct Takeover {
    live: BTreeMap<NodeNumber, Time>,
    /// Who died, and its last write.
    dead: Option<(NodeNumber, Time)>,
    fenced: Option<Time>,
    /// Whether the requests of that time are all kept.
    keeps: bool,
    /// Since when.
    waiting: BTreeMap<RequestNumber, Time>,
}

impl Takeover {
    /// For a run with these parameters.
    pub fn new(parameters: &Parameters) -> Self {
        let keeps = parameters.wait_secs == 25 && parameters.connections_max / 4 >= parameters.actors;
        Self { live: BTreeMap::new(), dead: None, fenced: None, keeps, waiting: BTreeMap::new() }
    }
}

impl Takeover {
    fn told(&mut self, time: Time, request: RequestNumber, told: Told) -> Result<(), String> {
        let Some(asked) = self.waiting.remove(&request) else { return Ok(()) };
        if !told.is_served() {
            return Err(format!("request {request} waited for a takeover and was told {told:?}"));
        }
        match self.fenced.map(|fenced| time - fenced.max(asked)) {
            Some(after) if after > SERVED => {
                Err(format!("request {request} was served only {} ms after the fence", after / 1000))
            }
            _ => Ok(()),
        }
    }
}

impl Checker for Takeover {
    fn name(&self) -> &'static str {
        "takeover"
    }

    /// A node whose clock is far off sees its peers late, and they it.
    fn rests_on(&self) -> &'static [Assumption] {
        &[Assumption::BootClocks, Assumption::WallClocks]
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        if let Some((node, last)) = self.dead
            && self.fenced.is_none()
            && (time > last + LATEST || *record == Record::Over)
        {
            return Err(format!(
                "node {node} is not fenced {} ms after its last write",
                (time - last) / 1000
            ));
        }
        match record {
            Record::Heartbeat { node, beat: Beat::Live, .. } => {
                self.live.insert(*node, time);
            }
            Record::Heartbeat { node, beat: Beat::FencedByPeer, .. }
                if self.dead.is_some_and(|(dead, _)| dead == *node) =>
            {
                self.fenced.get_or_insert(time);
            }
            Record::Dies { node, .. } => self.dead = self.live.get(node).map(|last| (*node, *last)),
            Record::Asked { request, operation, .. }
                if !operation.has_body() && self.dead.is_some() && self.keeps =>
            {
                self.waiting.insert(*request, time);
            }
            Record::Told { request, told } => return self.told(time, *request, *told),
            Record::MustServe => self.keeps &= self.dead.is_none(),
            Record::Over if !self.waiting.is_empty() => {
                let waiting: Vec<_> = self.waiting.keys().collect();
                return Err(format!("the requests {waiting:?} still wait"));
            }
            _ => {}
        }
        Ok(())
    }
}
