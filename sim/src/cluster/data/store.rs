//! The objects of the actors' histories, and the requests for them.

use std::{cell::Cell, fmt, ops::Range, rc::Rc};

use bytes::Bytes;
use futures::FutureExt;
use wasmkeep_bucket::{
    Bucket, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition, ReadError,
};

use crate::cluster::time::{Time, wall_ms};

/// A request.
#[derive(Debug, Clone)]
pub enum DataCall {
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
pub enum DataReply {
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

/// See the module.
pub struct Objects {
    memory: MemoryBucket,
    wall_ms: Rc<Cell<u64>>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl Default for Objects {
    fn default() -> Self {
        let wall_ms = Rc::new(Cell::new(0));
        let clock = wall_ms.clone();
        Self { memory: MemoryBucket::with_clock(move || clock.get()), wall_ms }
    }
}

impl Objects {
    /// Carries a request out; the bucket's clock is right.
    pub fn call(&self, time: Time, call: DataCall) -> DataReply {
        self.wall_ms.set(wall_ms(time));
        // A bucket in memory answers at once.
        self.carry_out(call).now_or_never().unwrap_or(DataReply::Refused)
    }

    async fn carry_out(&self, call: DataCall) -> DataReply {
        let memory = &self.memory;
        match call {
            DataCall::Get(key, range) => match memory.get(&key, range).await {
                Ok(object) => {
                    let (meta, range) = (object.meta.clone(), object.range.clone());
                    DataReply::Got(whole(object).await.map(|bytes| (meta, range, bytes)))
                }
                Err(error) => DataReply::Got(Err(error)),
            },
            DataCall::Head(key) => DataReply::Size(memory.head(&key).await),
            DataCall::Put(key, body, condition) => DataReply::Put(memory.put(&key, body, &condition).await),
            DataCall::Delete(key) => DataReply::Deleted(memory.delete(&key).await),
            DataCall::List(query) => DataReply::Page(memory.list(&query).await),
        }
    }
}

async fn whole(object: Object) -> Result<Bytes, ReadError> {
    object.bytes(u64::MAX).await
}
