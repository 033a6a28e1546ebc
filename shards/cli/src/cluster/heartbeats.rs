//! The heartbeats in a bucket, and who counts as live by them.
//!
//! A person's command has seen nobody renew anything, so it judges by the dates in the heartbeats and this machine's
//! clock. That is good enough to look, and to refuse a mistyped id; nothing is ever taken from a node by it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use wasmkeep_bucket::{Bucket, Key, ReadError, Version};
use wasmkeep_protocol::{
    NodeId,
    clock::{Moment, Now},
    lease::Timing,
    object_keys,
    records::{NodeRecord, NodeState, RECORD_BYTES_MAX, RecordError},
};

use crate::{
    bucket,
    exit::{Failure, Status},
};

/// Heartbeats read at once.
const READS_MAX: usize = 16;

/// The object in the place of a node's heartbeat.
#[derive(Debug)]
pub struct Heartbeat {
    /// Whose it is.
    pub node: NodeId,
    /// What it says.
    pub record: Result<NodeRecord, RecordError>,
    /// The version that was read.
    pub version: Version,
    /// Last write by the bucket's clock, in milliseconds since 1970.
    pub modified_ms: u64,
    /// When it was read, by this machine's clock.
    pub read_at: Now,
}

/// What a heartbeat says of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It was renewed lately.
    Live,
    /// It was not.
    Silent,
    /// The lease was taken from it.
    Fenced,
    /// Its process stopped cleanly.
    Released,
    /// It is no heartbeat this version reads.
    Unreadable,
}

impl Heartbeat {
    /// Whether its node counts as live (R-TLS-4), and if not, why.
    pub fn standing(&self, timing: &Timing) -> Standing {
        match &self.record {
            Err(_) => Standing::Unreadable,
            Ok(NodeRecord { state: NodeState::Fenced { .. }, .. }) => Standing::Fenced,
            Ok(NodeRecord { state: NodeState::Released, .. }) => Standing::Released,
            Ok(record) if self.age(record) < timing.in_view() => Standing::Live,
            Ok(_) => Standing::Silent,
        }
    }

    /// Time since the last live write, by the dates.
    pub fn age(&self, record: &NodeRecord) -> Duration {
        self.read_at.age_of(record.written_at_ms)
    }

    /// How far it is dated ahead of this clock, where that is more than clocks may differ (R-LEASE-9).
    pub fn ahead(&self, timing: &Timing) -> Option<Duration> {
        let ahead = self.read_at.ahead_of(self.record.as_ref().ok()?.written_at_ms);
        (ahead > timing.skew).then_some(ahead)
    }
}

/// This machine's clock. The moment it also has plays no part here.
pub fn now() -> Now {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    Now { moment: Moment::after_boot(Duration::ZERO), wall_ms }
}

/// The key of a node's heartbeat.
///
/// # Errors
/// Never for a checked id.
pub fn key(node: &NodeId) -> Result<Key, Failure> {
    object_keys::node(node).parse().map_err(|error| Failure::new(Status::Internal, error))
}

/// Reads one; `None` when there is none.
///
/// # Errors
/// The bucket does not answer.
pub async fn read<B: Bucket>(bucket: &B, node: NodeId) -> Result<Option<Heartbeat>, Failure> {
    let key = key(&node)?;
    let bytes_max = RECORD_BYTES_MAX as u64;
    let (meta, record) = match bucket::read(bucket, &key, bytes_max, &ProgressBar::hidden()).await {
        Ok((meta, bytes)) => (meta, NodeRecord::decode(&bytes)),
        Err(ReadError::NotFound) => return Ok(None),
        Err(ReadError::TooLarge { size, .. }) => {
            let meta = bucket
                .head(&key)
                .await
                .map_err(|error| bucket::failed(format_args!("reading {key}"), error))?;
            (meta, Err(RecordError::TooLarge(usize::try_from(size).unwrap_or(usize::MAX))))
        }
        Err(error) => return Err(bucket::failed(format_args!("reading {key}"), error)),
    };
    let (version, modified_ms) = (meta.version, meta.modified_ms);
    Ok(Some(Heartbeat { node, record, version, modified_ms, read_at: now() }))
}

/// Reads all there are, in the order of the nodes' ids. Objects whose names are no node's are left out.
///
/// # Errors
/// The bucket does not answer.
pub async fn read_all<B: Bucket>(bucket: &B) -> Result<Vec<Heartbeat>, Failure> {
    let listed = bucket::list(bucket, object_keys::NODES).await;
    let listed = listed.map_err(|error| bucket::failed("listing the heartbeats", error))?;
    let nodes = listed.entries.iter().filter_map(|entry| {
        let name = entry.key.as_str().strip_prefix(object_keys::NODES)?;
        name.parse::<NodeId>().ok()
    });
    let reads = stream::iter(nodes).map(|node| read(bucket, node)).buffered(READS_MAX);
    // One that was deleted since it was listed is none.
    let found: Vec<Option<Heartbeat>> = reads.try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
