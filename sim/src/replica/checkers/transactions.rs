//! Transactions are counted over an actor's whole life: each hold goes on from a state some hold before it
//! produced, and never counts a number again that it has seen.

use std::collections::{BTreeMap, BTreeSet};

use wasmkeep_protocol::history::Point;

use super::Checker;
use crate::replica::record::{Actor, Generation, Record};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    produced: BTreeMap<Actor, BTreeSet<Point>>,
    /// Where each hold stands.
    at: BTreeMap<(Actor, Generation), u64>,
}

impl Transactions {
    fn go_on(&mut self, actor: Actor, generation: Generation, point: Point) -> Result<(), String> {
        let produced = self.produced.entry(actor).or_default();
        produced.insert(point);
        match self.at.insert((actor, generation), point.txid) {
            Some(before) if point.txid > before => Ok(()),
            before => Err(format!(
                "hold {generation} of actor {actor} counts transaction {} after {before:?}",
                point.txid
            )),
        }
    }
}

impl Checker for Transactions {
    fn name(&self) -> &'static str {
        "transactions"
    }

    fn see(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::HoldBegan { actor, generation } => {
                if self.at.keys().any(|(known, earlier)| known == actor && earlier >= generation) {
                    return Err(format!("actor {actor} has hold {generation} again"));
                }
                Ok(())
            }
            Record::Found { actor, generation, point, .. } => {
                self.at.insert((*actor, *generation), point.txid);
                let known = self.produced.get(actor).is_some_and(|produced| produced.contains(point));
                if known || *point == Point::START {
                    return Ok(());
                }
                Err(format!("hold {generation} of actor {actor} found a state nobody produced: {point:?}"))
            }
            Record::Pushed { actor, generation, point, .. }
            | Record::DeletePushed { actor, generation, point } => self.go_on(*actor, *generation, *point),
            _ => Ok(()),
        }
    }
}
