//! The promises of a cluster, one checker a file. A checker sees every record, in true time, and nothing else: it
//! shares no code with what it judges.

mod alarm_index;
mod alarms;
mod answers;
mod deletions;
mod durable;
mod fences;
mod generations;
mod held;
mod linearizable;
mod liveness;
mod outages;
mod single_owner;
mod stops;
mod takeover;
mod trust;
mod waits;

use super::{
    assumptions::Assumption,
    parameters::Parameters,
    record::Record,
    time::{SECOND, Time},
};

/// How much the slowest clock differs from the fastest over half a minute, and how late timers and messages are.
const SLACK: Time = SECOND / 2;

/// Watches one promise.
pub trait Checker {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// What the promise rests on. Safety rests on no wall clock.
    fn rests_on(&self) -> &'static [Assumption] {
        &[Assumption::BootClocks]
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// How the promise was broken.
    fn see(&mut self, time: Time, record: &Record) -> Result<(), String>;
}

/// Every checker, for a run with these parameters.
pub fn all(parameters: &Parameters) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(single_owner::SingleOwner::default()),
        Box::new(held::Held::default()),
        Box::new(generations::Generations::default()),
        Box::new(fences::Fences::default()),
        Box::new(outages::Outages::new(parameters)),
        Box::new(takeover::Takeover::new(parameters)),
        Box::new(waits::Waits::new(parameters)),
        Box::new(trust::Trust::default()),
        Box::new(answers::Answers::default()),
        Box::new(stops::Stops::default()),
        Box::new(durable::Durable::default()),
        Box::new(deletions::Deletions::default()),
        Box::new(linearizable::Linearizable::default()),
        Box::new(alarm_index::AlarmIndex::default()),
        Box::new(alarms::Alarms::default()),
        Box::new(liveness::Liveness::default()),
    ]
}
