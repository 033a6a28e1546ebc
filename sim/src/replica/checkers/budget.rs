//! All restores of a node together have at most 32 reads and 256 MiB under way.

use super::Checker;
use crate::replica::record::Record;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget;

impl Checker for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Reads { reads, bytes } if *reads > 32 || (*bytes > 256 << 20 && *reads > 1) => {
                Err(format!("{reads} reads of {bytes} bytes are under way"))
            }
            _ => Ok(()),
        }
    }
}
