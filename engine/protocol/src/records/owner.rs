//! `owners/<tenant>/<class>/<name>`: who holds an actor.

use serde::{Deserialize, Serialize};

use super::{FORMAT, Nonce, Process, RecordError, decode, encode};
use crate::NodeId;

/// An ownership record (R-OWN-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Who took the actor last.
    pub node: NodeId,
    /// The run of that node that did.
    pub process: Process,
    /// Of this hold; greater than that of every hold before (R-OWN-2). At least 1.
    pub generation: u64,
    /// Whether it still stands.
    pub hold: Hold,
    /// Of this very write.
    pub nonce: Nonce,
}

/// Whether a hold stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// As long as the process's lease.
    Held,
    /// Given up: whoever wants the actor takes it.
    Released,
}

impl OwnerRecord {
    /// Reads an ownership record.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        decode::<Wire>(bytes)?.try_into()
    }

    /// The record's text.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(&Wire {
            format: FORMAT,
            node: self.node.to_string(),
            process: self.process.to_string(),
            generation: self.generation,
            state: self.hold,
            nonce: self.nonce.to_string(),
        })
    }
}

/// An ownership record as it is written.
#[derive(Serialize, Deserialize)]
struct Wire {
    format: u64,
    node: String,
    process: String,
    generation: u64,
    state: Hold,
    nonce: String,
}

impl TryFrom<Wire> for OwnerRecord {
    type Error = RecordError;

    fn try_from(wire: Wire) -> Result<Self, RecordError> {
        // The greatest number has no successor, and every hold needs one.
        if wire.generation == 0 || wire.generation == u64::MAX {
            return Err(RecordError::Field("generation"));
        }
        Ok(Self {
            node: wire.node.parse().map_err(|_| RecordError::Field("node"))?,
            process: wire.process.parse()?,
            generation: wire.generation,
            hold: wire.state,
            nonce: wire.nonce.parse()?,
        })
    }
}
