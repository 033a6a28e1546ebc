//! The heartbeats of a cluster as one listing shows them.

use std::time::Duration;

use wasmkeep_bucket::{Bucket, Listing};
use wasmkeep_protocol::{lease::Listed, object_keys::NODES, store::Version};
use wasmkeep_runtime::{Runtime, within};

/// Heartbeats of one cluster, those of nodes long retired included. A listing of more is no listing.
const NODES_MAX: usize = 10_000;

/// Lists all of them; `None` when that did not succeed within `limit`.
pub(crate) async fn list<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
) -> Option<Vec<Listed>> {
    let entries = within(runtime, limit, Listing::new(bucket, NODES).all(NODES_MAX)).await?.ok()?;
    // What is no node's name is nobody's heartbeat.
    let listed = entries.into_iter().filter_map(|entry| {
        let node = entry.key.as_str().strip_prefix(NODES)?.parse().ok()?;
        let version = entry.version.map(|version| Version::new(version.as_str()));
        Some(Listed { node, version, size: entry.size })
    });
    Some(listed.collect())
}
