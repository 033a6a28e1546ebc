//! The bucket of a simulated cluster: the one in memory that `io/bucket` has, and the requests that reach it. Real
//! semantics, no durability and no delays; those are the network's.

use std::{cell::Cell, fmt, ops::Range, rc::Rc};

use bytes::Bytes;
use futures::FutureExt;
use wasmkeep_bucket::{
    Bucket as _, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition, ReadError,
};
use wasmkeep_protocol::object_keys;

use super::{
    record::ActorNumber,
    stage,
    time::{Time, wall_ms},
};

/// A request.
#[derive(Debug, Clone)]
pub enum Call {
    /// Reads an object, or a part of it.
    Get(Key, Option<Range<u64>>),
    /// Asks how large it is.
    Head(Key),
    /// Writes one.
    Put(Key, Bytes, Precondition),
    /// Removes one.
    Delete(Key),
    /// Reads one page of a listing.
    List(ListQuery),
}

/// What it came to.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Of a `Get`.
    Got(Result<(Meta, Range<u64>, Bytes), ReadError>),
    /// Of a `Head`.
    Size(Result<Meta, ReadError>),
    /// Of a `Put`.
    Put(Outcome),
    /// Of a `Delete`.
    Deleted(Result<(), Failure>),
    /// Of a `List`.
    Page(Result<Page, ReadError>),
    /// The bucket refused, or the connection broke before anything happened.
    Refused,
    /// The connection broke; what happened is not known.
    Broken,
}

/// The objects.
pub struct Bucket {
    memory: MemoryBucket,
    wall_ms: Rc<Cell<u64>>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl Default for Bucket {
    fn default() -> Self {
        let wall_ms = Rc::new(Cell::new(0));
        let clock = wall_ms.clone();
        Self { memory: MemoryBucket::with_clock(move || clock.get()), wall_ms }
    }
}

impl Bucket {
    /// When the first alarm of an actor is due that is listed.
    pub fn earliest_alarm(&self, time: Time, actor: ActorNumber) -> Option<u64> {
        let (folder, whose) = stage::alarms(actor);
        let query = ListQuery { prefix: folder.clone(), start_after: None, token: None, page_max: 1_000 };
        let Reply::Page(Ok(page)) = self.call(time, Call::List(query)) else { return None };
        let mut listed =
            page.objects.iter().filter_map(|object| object_keys::parse_alarm(&folder, &object.name));
        listed.find(|(of, _)| *of == whose).map(|(_, post)| post.due_ms)
    }

    /// Carries a request out; the bucket's clock is right.
    pub fn call(&self, time: Time, call: Call) -> Reply {
        self.wall_ms.set(wall_ms(time));
        // A bucket in memory answers at once.
        self.carry_out(call).now_or_never().unwrap_or(Reply::Refused)
    }

    async fn carry_out(&self, call: Call) -> Reply {
        let memory = &self.memory;
        match call {
            Call::Get(key, range) => match memory.get(&key, range).await {
                Ok(object) => {
                    let (meta, range) = (object.meta.clone(), object.range.clone());
                    Reply::Got(whole(object).await.map(|bytes| (meta, range, bytes)))
                }
                Err(error) => Reply::Got(Err(error)),
            },
            Call::Head(key) => Reply::Size(memory.head(&key).await),
            Call::Put(key, body, condition) => Reply::Put(memory.put(&key, body, &condition).await),
            Call::Delete(key) => Reply::Deleted(memory.delete(&key).await),
            Call::List(query) => Reply::Page(memory.list(&query).await),
        }
    }
}

async fn whole(object: Object) -> Result<Bytes, ReadError> {
    object.bytes(u64::MAX).await
}
