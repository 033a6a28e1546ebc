//! A clean stop ends within its bounds (R-LEASE-6), whatever hangs.

use std::collections::BTreeMap;

use super::{Checker, SLACK};
use crate::cluster::{
    record::{Pid, Record},
    time::{SECOND, Time},
};

/// The documented longest stop.
const LONGEST: Time = 29 * SECOND + SLACK;

/// See the module.
#[derive(Debug, Default)]
pub struct Stops(BTreeMap<Pid, Time>);

impl Checker for Stops {
    fn name(&self) -> &'static str {
        "stops"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::StopAsked { pid } => {
                self.0.insert(*pid, time);
            }
            // One that stands still cannot stop; its time is not looked at any more.
            Record::Exited { pid, .. } | Record::Killed { pid } | Record::Paused { pid } => {
                self.0.remove(pid);
            }
            _ => {}
        }
        match self.0.iter().find(|(_, since)| time - **since > LONGEST) {
            Some((pid, since)) => {
                Err(format!("process {pid} has been stopping for {} ms", (time - since) / 1000))
            }
            None => Ok(()),
        }
    }
}
