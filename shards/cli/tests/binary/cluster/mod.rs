//! What the commands for a whole cluster tell and change, from the bucket alone.

mod fence;
mod forget;
mod status;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::buckets::Bucket;
use wasmkeep_protocol::records::{NodeRecord, NodeState, Nonce, Presence, Process, Shape};

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    elapsed.as_millis().try_into().unwrap()
}

/// A heartbeat whose last live write is `age_ms` old; negative: dated ahead.
fn heartbeat(age_ms: i64) -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(1),
        sequence: 7,
        nonce: Nonce::from_bits(2),
        state: NodeState::Live,
        written_at_ms: now_ms().saturating_add_signed(-age_ms),
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::new(presence("0.3.0")),
    }
}

fn presence(version: &str) -> Presence {
    Presence {
        advertise: "http://a:8080".into(),
        cluster_advertise: Some("https://a:7443".into()),
        fingerprint: Some("ab".repeat(32)),
        version: version.into(),
        app: Some("acme/shop".into()),
        stopping: false,
    }
}

/// The same without a cluster listener.
fn plain(mut record: NodeRecord) -> NodeRecord {
    let presence =
        Presence { cluster_advertise: None, fingerprint: None, ..Presence::clone(&record.presence) };
    record.presence = Arc::new(presence);
    record
}

fn put(bucket: &Bucket, node: &str, record: &NodeRecord) {
    bucket.put(&format!("nodes/{node}"), &record.encode());
}

fn get(bucket: &Bucket, node: &str) -> NodeRecord {
    NodeRecord::decode(&bucket.get(&format!("nodes/{node}"))).unwrap()
}
