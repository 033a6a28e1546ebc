//! When the bucket comes back after it was away for longer than a lease, nobody is fenced before everybody had the
//! time to renew (R-LEASE-5, case L9).

use super::Checker;
use crate::cluster::{
    parameters::Parameters,
    record::{Beat, Record},
    time::{SECOND, Time},
};

/// No lease outlives an outage of this length.
const LONG: Time = 11 * SECOND;

/// A third of the ttl and a write timeout, less what clocks and timers may be off.
const TO_RENEW: Time = 5_500_000;

/// See the module.
#[derive(Debug)]
pub struct Outages {
    /// A fence may have been on its way since before the outage.
    late: bool,
    began: Option<Time>,
    back: Option<Time>,
}

impl Outages {
    /// For a run with these parameters.
    pub fn new(parameters: &Parameters) -> Self {
        Self { late: parameters.late > 0, began: None, back: None }
    }
}

impl Checker for Outages {
    fn name(&self) -> &'static str {
        "outages"
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::BucketAway => {
                self.began.get_or_insert(time);
            }
            Record::BucketBack => {
                let long = self.began.take().is_some_and(|began| time - began >= LONG);
                self.back = long.then_some(time);
            }
            Record::Heartbeat { node, beat: Beat::FencedByPeer, .. } if !self.late => {
                if let Some(back) = self.back.filter(|back| time - back < TO_RENEW) {
                    let ms = (time - back) / 1000;
                    return Err(format!("node {node} was fenced {ms} ms after the bucket came back"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
