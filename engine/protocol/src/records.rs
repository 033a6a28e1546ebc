//! The records nodes agree by: `nodes/<id>`, a node's lease, and `owners/<tenant>/<class>/<name>`, who holds an
//! actor.
//!
//! Owns their text and what makes one malformed. JSON with a `format`; fields it does not know are left alone, so
//! that a later version may add some, and decide nothing here. What a record means for anybody is `lease`'s and
//! `ownership`'s, its key is in `object_keys`.

mod identity;
mod node;
mod owner;
mod shape;

use serde::{Serialize, de::DeserializeOwned};

pub use identity::{Nonce, Process};
pub use node::{NodeRecord, NodeState, Presence};
pub use owner::{Hold, OwnerRecord};
pub use shape::Shape;

/// Largest record that is read, in bytes. Ours have a few hundred, a heartbeat a kilobyte of blanks more at most.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// The only format there is.
const FORMAT: u64 = 1;

/// Why the bytes under a record's key are no record. Such an object frees nothing and is never overwritten by a
/// node that needs what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Larger than any record.
    #[error("it has {0} bytes, more than any record")]
    TooLarge(usize),
    /// Not the JSON of a record.
    #[error("it is not the record expected: {0}")]
    Malformed(String),
    /// Of a version this one does not know.
    #[error("it has format {0}, and this version reads format {FORMAT}")]
    Format(u64),
    /// A field says something that cannot be.
    #[error("its field {0} cannot be right")]
    Field(&'static str),
}

/// What every format has, read before anything else is believed.
#[derive(serde::Deserialize)]
struct Head {
    format: u64,
}

fn decode<W: DeserializeOwned>(bytes: &[u8]) -> Result<W, RecordError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLarge(bytes.len()));
    }
    let malformed = |error: serde_json::Error| RecordError::Malformed(error.to_string());
    let head: Head = serde_json::from_slice(bytes).map_err(malformed)?;
    if head.format != FORMAT {
        return Err(RecordError::Format(head.format));
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

fn encode(wire: &impl Serialize) -> Vec<u8> {
    // Structs of numbers and text: serde_json fails for maps with keys that are no text, and for nothing here.
    serde_json::to_vec(wire).unwrap_or_default()
}

#[cfg(test)]
mod tests;
