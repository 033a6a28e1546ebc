//! Only what cannot write is kept, for no longer than it may be, and each wait ends in one of the documented ways
//! (R-WAIT-1, R-WAIT-2).

use std::collections::{BTreeMap, BTreeSet};

use super::{Checker, SLACK};
use crate::cluster::{
    parameters::Parameters,
    record::{Pid, Record, RequestNumber, Told},
    time::{SECOND, Time},
};

/// See the module.
#[derive(Debug)]
pub struct Waits {
    longest: Time,
    off: bool,
    bodies: BTreeSet<RequestNumber>,
    /// Where, and since when as far as its length is looked at.
    kept: BTreeMap<RequestNumber, (Pid, Option<Time>)>,
    /// Ended by a 503 that has yet to be told.
    refused: BTreeSet<RequestNumber>,
    dropped: BTreeSet<RequestNumber>,
}

impl Waits {
    /// For a run with these parameters.
    pub fn new(parameters: &Parameters) -> Self {
        Self {
            longest: parameters.wait_secs * SECOND,
            off: parameters.wait_secs == 0,
            bodies: BTreeSet::new(),
            kept: BTreeMap::new(),
            refused: BTreeSet::new(),
            dropped: BTreeSet::new(),
        }
    }

    fn kept(&mut self, time: Time, request: RequestNumber, pid: Pid) -> Result<(), String> {
        if self.off {
            return Err(format!("request {request} is kept where waits are turned off"));
        }
        if self.bodies.contains(&request) {
            return Err(format!("request {request} has a body and is kept"));
        }
        match self.kept.insert(request, (pid, Some(time))) {
            Some(_) => Err(format!("request {request} is kept twice")),
            None => Ok(()),
        }
    }

    fn ended(&mut self, time: Time, request: RequestNumber, how: &str) -> Result<(), String> {
        let Some((_, since)) = self.kept.remove(&request) else {
            return Err(format!("the wait of request {request} ends, which is not kept"));
        };
        if let Some(since) = since
            && time - since > self.longest + SLACK
        {
            return Err(format!("request {request} was kept for {} ms", (time - since) / 1000));
        }
        match how {
            "timed_out" | "stopping" | "lease_lapsed" => {
                self.refused.insert(request);
            }
            "client_left" => {
                self.dropped.insert(request);
            }
            "served" | "sent_to_new_owner" | "owner_alive" => {}
            other => return Err(format!("the wait of request {request} ended as {other}")),
        }
        Ok(())
    }
}

impl Checker for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Asked { request, operation, .. } if operation.has_body() => {
                self.bodies.insert(*request);
            }
            Record::Kept { request, pid } => return self.kept(time, *request, *pid),
            Record::WaitEnded { request, how, .. } => return self.ended(time, *request, how),
            Record::Told { request, told } if self.refused.remove(request) => match told {
                Told::NotRun(503) => {}
                // Its process ended before it could say so.
                Told::MayHaveRun(0) => {}
                _ => return Err(format!("a wait that came to nothing was told {told:?}")),
            },
            Record::RunBegan { request, .. } if self.dropped.contains(request) => {
                return Err(format!("request {request} runs, whose client left while it was kept"));
            }
            // A process that stands still cannot end a wait in time, and one that is gone keeps none.
            Record::Paused { pid } => {
                self.kept.values_mut().filter(|(keeper, _)| keeper == pid).for_each(|kept| kept.1 = None);
            }
            Record::Resumed { pid } => {
                self.kept
                    .values_mut()
                    .filter(|(keeper, _)| keeper == pid)
                    .for_each(|kept| kept.1 = Some(time));
            }
            Record::Killed { pid } | Record::Exited { pid, .. } => {
                self.kept.retain(|_, (keeper, _)| keeper != pid)
            }
            Record::Over if !self.kept.is_empty() => return Err(format!("still kept: {:?}", self.kept)),
            _ => {}
        }
        Ok(())
    }
}
