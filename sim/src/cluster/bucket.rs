//! The bucket of a simulated cluster: whole objects, conditional writes, listings. Real semantics, no durability and
//! no delays; those are the network's. The actors' histories are in it, too, and read and written as `io/bucket` does.

use std::collections::BTreeMap;

use wasmkeep_bucket::ListQuery;
use wasmkeep_protocol::{
    object_keys,
    store::{Condition, Version, Wrote},
};

use super::{
    data::{DataCall, DataReply, Objects},
    record::ActorNumber,
    stage,
    time::Time,
};

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
    /// For an actor's history.
    Data(DataCall),
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
    /// Of a `Data`.
    Data(DataReply),
}

impl Call {
    /// What a bucket that refuses says.
    pub fn refusal(&self) -> Reply {
        match self {
            Self::Data(_) => Reply::Data(DataReply::Refused),
            _ => Reply::Failed,
        }
    }

    /// What is seen of a lost one before its time is up. The requests of the machines see nothing.
    pub fn loss(&self) -> Option<Reply> {
        matches!(self, Self::Data(_)).then_some(Reply::Data(DataReply::Broken))
    }
}

/// The objects.
#[derive(Debug, Default)]
pub struct Bucket {
    objects: BTreeMap<String, (Version, Vec<u8>)>,
    writes: u64,
    histories: Objects,
}

impl Bucket {
    /// When the first alarm of an actor is due that is listed.
    pub fn earliest_alarm(&self, time: Time, actor: ActorNumber) -> Option<u64> {
        let (folder, whose) = stage::alarms(actor);
        let query = ListQuery { prefix: folder.clone(), start_after: None, token: None, page_max: 1_000 };
        let DataReply::Page(Ok(page)) = self.histories.call(time, DataCall::List(query)) else { return None };
        let mut listed =
            page.objects.iter().filter_map(|object| object_keys::parse_alarm(&folder, &object.name));
        listed.find(|(of, _)| *of == whose).map(|(_, post)| post.due_ms)
    }

    /// Carries a request out. `heed` is false where the store is broken and ignores conditions.
    pub fn call(&mut self, time: Time, call: Call, heed: bool) -> Reply {
        match call {
            Call::Data(call) => Reply::Data(self.histories.call(time, call)),
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
