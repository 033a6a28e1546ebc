//! What a hold finds at a state is what the owner had at that state: the same rows, the same checksum, and, where
//! both were seen as files, the same bytes.

use std::collections::BTreeMap;

use wasmkeep_protocol::history::Point;

use super::Checker;
use crate::replica::record::{Actor, Record, Rows};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    rows: BTreeMap<(Actor, Point), Rows>,
    bytes: BTreeMap<(Actor, Point), u64>,
}

impl Pages {
    fn bytes(&mut self, actor: Actor, point: Point, bytes: u64) -> Result<(), String> {
        match self.bytes.insert((actor, point), bytes) {
            Some(before) if before != bytes => {
                Err(format!("two files of actor {actor} at transaction {} differ", point.txid))
            }
            _ => Ok(()),
        }
    }
}

impl Checker for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Pushed { actor, point, rows, .. } => {
                self.rows.insert((*actor, *point), rows.clone());
                Ok(())
            }
            Record::Slept { actor, point, bytes, .. } => self.bytes(*actor, *point, *bytes),
            Record::Unsound { actor, text } => {
                Err(format!("the database of actor {actor} is unsound: {text}"))
            }
            Record::Found { actor, point, checksum, bytes, rows, .. } => {
                if point.is_empty() {
                    return Ok(());
                }
                if *checksum != point.checksum {
                    return Err(format!(
                        "actor {actor} has checksum {checksum:016x} at transaction {} and not {:016x}",
                        point.txid, point.checksum
                    ));
                }
                if self.rows.get(&(*actor, *point)).is_some_and(|pushed| pushed != rows) {
                    return Err(format!(
                        "actor {actor} has other rows at transaction {} than its owner had",
                        point.txid
                    ));
                }
                bytes.map_or(Ok(()), |bytes| self.bytes(*actor, *point, bytes))
            }
            _ => Ok(()),
        }
    }
}
