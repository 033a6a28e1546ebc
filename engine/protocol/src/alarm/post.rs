//! One entry of the index in the bucket: an object that says "look at this actor's alarm at this time".
//!
//! Everything is in its key, so a listing is all that a sweep reads. No key is ever used for two entries: it names
//! the hold and the transaction it was put for. So a request to delete one that arrives late takes what it was meant
//! for, and never what a newer set put there.

use serde::{Deserialize, Serialize};

use crate::{ActorClass, ActorId, ActorName, NodeId};

/// An entry, but for whose it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Post {
    /// When the actor wants to be looked at, in milliseconds since the Unix epoch.
    pub due_ms: u64,
    /// Of the hold that put it.
    pub generation: u64,
    /// The first transaction it was put for.
    pub txid: u64,
    /// The node that put it and has the alarm in its own timer, unless it ended since.
    pub node: NodeId,
}

/// Whose an entry is, as far as its key tells: the name of an actor with a long one is in the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whose {
    /// Its class.
    pub class: ActorClass,
    /// Its name, as file names have it.
    pub stem: String,
}

impl Whose {
    /// The actor, when the key tells its name.
    #[must_use]
    pub fn actor(&self) -> Option<ActorId> {
        let name = ActorName::from_file_stem(&self.stem)?;
        Some(ActorId { class: self.class.clone(), name })
    }

    /// The actor, by the name in the object; `None` when that is another's.
    #[must_use]
    pub fn named(&self, body: &[u8]) -> Option<ActorId> {
        let Named { name } = serde_json::from_slice(body).ok()?;
        let name: ActorName = name.parse().ok()?;
        (name.file_stem() == self.stem).then(|| ActorId { class: self.class.clone(), name })
    }
}

impl From<&ActorId> for Whose {
    fn from(actor: &ActorId) -> Self {
        Self { class: actor.class.clone(), stem: actor.name.file_stem() }
    }
}

/// What is in the object.
#[derive(Serialize, Deserialize)]
struct Named {
    name: String,
}

/// The object's contents.
#[must_use]
pub fn post_body(actor: &ActorId) -> Vec<u8> {
    // A struct of text: serde_json fails for maps with keys that are no text, and for nothing here.
    serde_json::to_vec(&Named { name: actor.name.to_string() }).unwrap_or_default()
}
