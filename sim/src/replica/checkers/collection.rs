//! History younger than the retention stays, but for that of a deleted actor.

use super::{Checker, Rules};
use crate::replica::record::Record;

/// See the module.
#[derive(Debug)]
pub(crate) struct Collection {
    rules: Rules,
}

impl Collection {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules }
    }
}

impl Checker for Collection {
    fn name(&self) -> &'static str {
        "collection"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            // A deletion's pass has none.
            Record::Removed { key, age_ms, retention_ms }
                if *retention_ms > 0 && *age_ms < self.rules.retention_ms =>
            {
                Err(format!("{key} was deleted at an age of {age_ms} ms"))
            }
            _ => Ok(()),
        }
    }
}
