//! No history is ever beyond restoring: collection, late writes and crashes leave one that leads to the end.

use super::Checker;
use crate::replica::record::Record;

/// See the module.
#[derive(Debug)]
pub(crate) struct Restores;

impl Checker for Restores {
    fn name(&self) -> &'static str {
        "restores"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::RestoreFailed { actor, generation, lossy: true, error } => {
                Err(format!("hold {generation} of actor {actor} cannot be had without loss: {error}"))
            }
            _ => Ok(()),
        }
    }
}
