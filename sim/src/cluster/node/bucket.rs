//! The way of one process's tasks to the bucket: over the simulated network.

use std::{cell::RefCell, ops::Range, rc::Rc};

use bytes::Bytes;
use wasmkeep_bucket::{
    Body, Bucket, Failure, Key, ListQuery, Meta, Object, Outcome, Page, Precondition, ReadError, UnknownCause,
};
use wasmkeep_protocol::object_keys::NODES;

use super::{broken::Breaks, runtime::NodeRuntime};
use crate::cluster::{
    bucket::{Call, Reply},
    record::Record,
};

/// See the module.
#[derive(Debug, Clone)]
pub struct NetworkBucket {
    pub(super) node: Rc<NodeRuntime>,
    /// The way of the lease: its requests for the heartbeats are the looks of the process.
    looks: bool,
    /// What a broken variant remembers of the heartbeats.
    pub(super) breaks: Rc<RefCell<Breaks>>,
}

impl NetworkBucket {
    pub(super) fn new(node: &Rc<NodeRuntime>) -> Self {
        Self { node: Rc::clone(node), looks: false, breaks: Rc::default() }
    }

    /// The same bucket for the lease.
    pub(super) fn for_lease(&self) -> Self {
        Self { looks: true, ..self.clone() }
    }

    fn is_look(&self, key: &str) -> bool {
        self.looks && key.starts_with(NODES) && key != self.node.own_heartbeat()
    }

    pub(super) async fn really_get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> Result<(Meta, Range<u64>, Bytes), ReadError> {
        match self.node.ask(Call::Get(key.clone(), range)).await {
            Some(Reply::Got(got)) => got,
            _ => Err(refused().into()),
        }
    }

    pub(super) async fn really_put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        match self.node.ask(Call::Put(key.clone(), body, condition.clone())).await {
            Some(Reply::Put(outcome)) => outcome,
            Some(Reply::Refused) => Outcome::Failed(refused()),
            _ => Outcome::Unknown(UnknownCause::NoReply("the connection broke".to_owned())),
        }
    }

    pub(super) async fn really_list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        match self.node.ask(Call::List(query.clone())).await {
            Some(Reply::Page(page)) => page,
            _ => Err(refused().into()),
        }
    }
}

pub(super) fn refused() -> Failure {
    Failure::Unavailable("as simulated".to_owned())
}

impl Bucket for NetworkBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let look = self.is_look(key.as_str()).then(|| self.node.look_part());
        let got = self.broken_get(key, range).await;
        if let Some(look) = look {
            look.ended(got.is_ok() || matches!(got, Err(ReadError::NotFound)));
        }
        let (meta, range, bytes) = got?;
        Ok(Object { meta, range, body: Body::from_bytes(bytes) })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        match self.node.ask(Call::Head(key.clone())).await {
            Some(Reply::Size(found)) => found,
            _ => Err(refused().into()),
        }
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.broken_put(key, body, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        match self.node.ask(Call::Delete(key.clone())).await {
            Some(Reply::Deleted(outcome)) => outcome,
            _ => Err(refused()),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let look = self.is_look(&query.prefix).then(|| {
            self.node.record(Record::LookBegan { pid: self.node.pid });
            self.node.look_part()
        });
        let listed = self.broken_list(query).await;
        if let Some(look) = look {
            look.ended(listed.is_ok());
        }
        listed
    }
}
