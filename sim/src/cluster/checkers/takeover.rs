//! In a calm cluster a node that dies is fenced 15 to about 21 s after its last write, and a request that waits for
//! one of its actors is served.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::{Checker, SLACK};
use crate::cluster::{
    parameters::Parameters,
    record::{Beat, NodeNumber, Record, RequestNumber, Told},
    time::{SECOND, Time},
};

/// The documented latest time.
const LATEST: Time = 21 * SECOND + SLACK;

/// See the module.
#[derive(Debug)]
pub struct Takeover {
    live: BTreeMap<NodeNumber, Time>,
    /// Who died, and its last write.
    dead: Option<(NodeNumber, Time)>,
    fenced: bool,
    /// Whether the requests of that time are all kept.
    keeps: bool,
    waiting: BTreeSet<RequestNumber>,
}

impl Takeover {
    /// For a run with these parameters.
    pub fn new(parameters: &Parameters) -> Self {
        let keeps = parameters.wait_secs == 25 && parameters.connections_max / 4 >= parameters.actors;
        Self { live: BTreeMap::new(), dead: None, fenced: false, keeps, waiting: BTreeSet::new() }
    }
}

impl Checker for Takeover {
    fn name(&self) -> &'static str {
        "takeover"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        if let Some((node, last)) = self.dead
            && !self.fenced
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
            Record::Heartbeat { node, beat: Beat::FencedByPeer, .. } => {
                self.fenced |= self.dead.is_some_and(|(dead, _)| dead == *node);
            }
            Record::Dies { node, .. } => self.dead = self.live.get(node).map(|last| (*node, *last)),
            Record::Asked { request, body: false, .. } if self.dead.is_some() && self.keeps => {
                self.waiting.insert(*request);
            }
            Record::Told { request, told } if self.waiting.remove(request) && *told != Told::Served => {
                return Err(format!("request {request} waited for a takeover and was told {told:?}"));
            }
            Record::MustServe => self.keeps = false,
            Record::Over if !self.waiting.is_empty() => {
                return Err(format!("the requests {:?} still wait", self.waiting));
            }
            _ => {}
        }
        Ok(())
    }
}
