//! The heartbeats of a cluster as one listing shows them.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use futures::{StreamExt, stream};
use wasmkeep_bucket::{Bucket, Entry, Listing};
use wasmkeep_protocol::{
    NodeId,
    lease::Seen,
    object_keys::NODES,
    records::NodeRecord,
    store::{Found, Version, Wrote},
};
use wasmkeep_replica::Surroundings;

use crate::store::{read, within};

/// Heartbeats read at the same time.
const READS_MAX: usize = 16;

/// Heartbeats of one cluster, those of nodes long retired included. A listing of more is no listing.
const NODES_MAX: usize = 10_000;

/// What is known of each heartbeat, so that only those that changed are read.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    known: RefCell<HashMap<NodeId, Seen>>,
}

impl Heartbeats {
    /// This node wrote a heartbeat itself: it need not read it.
    pub(crate) fn wrote(&self, node: &NodeId, record: NodeRecord, outcome: &Wrote) {
        if let Wrote::Written(version) = outcome {
            let seen = Seen { node: node.clone(), version: version.clone(), record: Ok(record) };
            self.known.borrow_mut().insert(node.clone(), seen);
        }
    }

    /// Lists all of them; `None` when that did not succeed within `limit`.
    pub(crate) async fn list<B: Bucket, S: Surroundings>(
        &self,
        bucket: &B,
        surroundings: &S,
        limit: Duration,
    ) -> Option<Vec<Seen>> {
        let seen = within(surroundings, limit, self.look(bucket, surroundings, limit)).await??;
        let mut known = self.known.borrow_mut();
        known.retain(|node, _| seen.iter().any(|seen| seen.node == *node));
        known.extend(seen.iter().map(|seen| (seen.node.clone(), seen.clone())));
        drop(known);
        Some(seen)
    }

    async fn look<B: Bucket, S: Surroundings>(
        &self,
        bucket: &B,
        surroundings: &S,
        limit: Duration,
    ) -> Option<Vec<Seen>> {
        let entries = Listing::new(bucket, NODES).all(NODES_MAX).await.ok()?;
        // What is no node's name is nobody's heartbeat.
        let entries = entries.into_iter().filter_map(|entry| {
            let node: NodeId = entry.key.as_str().strip_prefix(NODES)?.parse().ok()?;
            Some((node, entry))
        });
        let looks = entries.map(|(node, entry)| self.see(bucket, surroundings, limit, node, entry));
        let seen: Vec<_> = stream::iter(looks).buffer_unordered(READS_MAX).collect().await;
        // Deleted between the listing and the read: as if it had not been listed.
        seen.into_iter().collect::<Option<Vec<_>>>().map(|seen| seen.into_iter().flatten().collect())
    }

    /// The heartbeat of one node; outer `None` when it could not be read, inner when it is gone.
    async fn see<B: Bucket, S: Surroundings>(
        &self,
        bucket: &B,
        surroundings: &S,
        limit: Duration,
        node: NodeId,
        entry: Entry,
    ) -> Option<Option<Seen>> {
        let listed = entry.version.map(|version| Version::new(version.as_str()));
        let known = self.known.borrow().get(&node).cloned();
        if let Some(known) = known.filter(|known| listed.as_ref() == Some(&known.version)) {
            return Some(Some(known));
        }
        match read(bucket, surroundings, limit, &entry.key, NodeRecord::decode).await {
            Found::Object(version, record) => Some(Some(Seen { node, version, record })),
            Found::Absent => Some(None),
            Found::Failed => None,
        }
    }
}
