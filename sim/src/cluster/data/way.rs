//! The way of one process's tasks to the bucket: over the simulated network.

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use wasmkeep_bucket::{
    Body, Bucket, Failure, Key, ListQuery, Meta, Object, Outcome, Page, Precondition, ReadError, UnknownCause,
};

use super::{DataCall, DataReply, Desk};

/// See the module.
#[derive(Debug, Clone)]
pub struct Way(Rc<Desk>);

impl Way {
    pub(super) fn new(desk: &Rc<Desk>) -> Self {
        Self(desk.clone())
    }
}

fn refused() -> Failure {
    Failure::Unavailable("as simulated".to_owned())
}

impl Bucket for Way {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        match self.0.ask(DataCall::Get(key.clone(), range)).await {
            Some(DataReply::Got(Ok((meta, range, bytes)))) => {
                Ok(Object { meta, range, body: Body::from_bytes(bytes) })
            }
            Some(DataReply::Got(Err(error))) => Err(error),
            _ => Err(refused().into()),
        }
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        match self.0.ask(DataCall::Head(key.clone())).await {
            Some(DataReply::Size(found)) => found,
            _ => Err(refused().into()),
        }
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        match self.0.ask(DataCall::Put(key.clone(), body, condition.clone())).await {
            Some(DataReply::Put(outcome)) => outcome,
            Some(DataReply::Refused) => Outcome::Failed(refused()),
            _ => Outcome::Unknown(UnknownCause::NoReply("the connection broke".to_owned())),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        match self.0.ask(DataCall::Delete(key.clone())).await {
            Some(DataReply::Deleted(outcome)) => outcome,
            _ => Err(refused()),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        match self.0.ask(DataCall::List(query.clone())).await {
            Some(DataReply::Page(page)) => page,
            _ => Err(refused().into()),
        }
    }
}
