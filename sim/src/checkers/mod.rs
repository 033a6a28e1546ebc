//! The promises, one checker a file. A checker sees every record and nothing else: it shares no code with what
//! it judges.

mod alarms;
mod answers;
mod init;
mod liveness;
mod order;
mod residency;
mod storage;
mod version;

use std::time::Duration;

use crate::history::{Record, Rules};

/// The name under which a run that differs from itself is reported; it takes two runs to see.
pub const DETERMINISM: &str = "determinism";

/// Watches one promise.
pub trait Checker {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// Takes the next record.
    ///
    /// # Errors
    /// How the promise was broken.
    fn see(&mut self, now: Duration, record: &Record) -> Result<(), String>;
}

/// Every checker, for a run under these rules; `cast` names the actors as their rows do.
#[must_use]
pub fn all(rules: Rules, cast: Vec<String>) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(order::Order::new(rules)),
        Box::new(answers::Answers::new(rules)),
        Box::new(init::Init::default()),
        Box::new(storage::Storage::new(cast)),
        Box::new(residency::Residency::new(rules)),
        Box::new(liveness::Liveness::default()),
        Box::new(version::NewestCode::default()),
        Box::new(alarms::Alarms::default()),
    ]
}
