//! The bucket of a simulated cluster: whole objects, conditional writes, listings. Real semantics, no durability and
//! no delays; those are the network's.

use std::collections::BTreeMap;

use wasmkeep_protocol::store::{Condition, Version, Wrote};

/// A request.
#[derive(Debug, Clone)]
pub enum Call {
    /// Reads an object.
    Get(String),
    /// Writes one under a condition.
    Put(String, Vec<u8>, Condition),
    /// Lists every object whose key begins so.
    List(String),
    /// Removes one. Only an operator does.
    Delete(String),
}

/// What a request came to.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Of a `Get`.
    Object(Option<(Version, Vec<u8>)>),
    /// Of a `Put` or a `Delete`.
    Wrote(Wrote),
    /// Of a `List`, in the order of the keys: name, version, length.
    Listed(Vec<(String, Version, u64)>),
    /// The bucket refused: nothing happened.
    Failed,
}

/// The objects.
#[derive(Debug, Default)]
pub struct Bucket {
    objects: BTreeMap<String, (Version, Vec<u8>)>,
    writes: u64,
}

impl Bucket {
    /// Carries a request out. `heed` is false where the store is broken and ignores conditions.
    pub fn call(&mut self, call: Call, heed: bool) -> Reply {
        match call {
            Call::Get(key) => Reply::Object(self.objects.get(&key).cloned()),
            Call::Put(key, body, condition) => {
                let holds = match (&condition, self.objects.get(&key)) {
                    (Condition::Absent, there) => there.is_none(),
                    (Condition::Unchanged(wanted), there) => {
                        there.is_some_and(|(version, _)| version == wanted)
                    }
                };
                if heed && !holds {
                    return Reply::Wrote(Wrote::ConditionFailed);
                }
                self.writes += 1;
                let version = Version::new(format!("v{}", self.writes));
                self.objects.insert(key, (version.clone(), body));
                Reply::Wrote(Wrote::Written(version))
            }
            Call::List(prefix) => {
                let objects = self.objects.iter().filter(|(key, _)| key.starts_with(&prefix));
                Reply::Listed(
                    objects
                        .map(|(key, (version, body))| (key.clone(), version.clone(), body.len() as u64))
                        .collect(),
                )
            }
            Call::Delete(key) => {
                self.objects.remove(&key);
                Reply::Wrote(Wrote::Written(Version::new("deleted")))
            }
        }
    }
}
