//! Once trouble is over, every actor is served by whichever node is asked; and nobody who should run has ended.

use std::collections::BTreeSet;

use super::Checker;
use crate::cluster::{
    assumptions::Assumption,
    record::{Record, RequestNumber},
    time::Time,
};

/// See the module.
#[derive(Debug, Default)]
pub struct Liveness {
    must: bool,
    asked: BTreeSet<RequestNumber>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    /// A node whose clock is far off sees its peers late, and they it.
    fn rests_on(&self) -> &'static [Assumption] {
        &[Assumption::BootClocks, Assumption::WallClocks]
    }

    fn see(&mut self, _: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::MustServe => self.must = true,
            // What is asked from here on may meet the takeover.
            Record::Dies { .. } | Record::StopAsked { .. } => self.must = false,
            Record::Asked { request, .. } if self.must => {
                self.asked.insert(*request);
            }
            Record::Told { request, told } if self.asked.remove(request) && !told.is_served() => {
                return Err(format!("nothing is wrong any more, and request {request} was told {told:?}"));
            }
            Record::Over if !self.asked.is_empty() => {
                return Err(format!("the requests {:?} were never answered", self.asked));
            }
            _ => {}
        }
        Ok(())
    }
}
