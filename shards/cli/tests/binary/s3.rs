//! Nodes whose bucket is the S3 server in the test's own process, as `prod` in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use wasmkeep_protocol::records::OwnerRecord;

use crate::{
    fault_server::{Fault, FaultServer, Seen},
    support::{
        Node,
        cluster::{SHORT_TTL, stopped_long_ago},
    },
};

const FLAGS: [&str; 5] =
    ["--bucket=s3://bucket/prod", "--node-id=a", "--cluster-plaintext=accept", "--shards=1", SHORT_TTL];

/// A node on an empty disk.
pub fn node(bucket: &FaultServer) -> Node {
    node_with(bucket, &[])
}

pub fn node_with(bucket: &FaultServer, more: &[&str]) -> Node {
    let id = more.iter().find_map(|flag| flag.strip_prefix("--node-id=")).unwrap_or("a");
    bucket.create(&format!("prod/nodes/{id}"), stopped_long_ago());
    let mut flags = FLAGS.to_vec();
    flags.retain(|flag| id == "a" || !flag.starts_with("--node-id="));
    flags.extend(more);
    Node::start_in(&bucket.environment(), &flags)
}

pub fn pair(bucket: &FaultServer) -> (Node, Node) {
    thread::scope(|scope| {
        let a = scope.spawn(|| node(bucket));
        let b = scope.spawn(|| node_with(bucket, &["--node-id=b"]));
        (a.join().unwrap(), b.join().unwrap())
    })
}

pub fn durable(node: &Node) -> u16 {
    node.post("/actor/counter/alice/durable", "").status
}

pub fn count(node: &Node) -> String {
    node.get("/actor/counter/alice").expect(200).text.trim().to_owned()
}

/// Whether a request uploads history.
pub fn is_upload(seen: &Seen) -> bool {
    seen.method == "PUT" && seen.target.contains("/wal/")
}

/// Whether a request uploads a snapshot: it begins with transaction 1.
pub fn is_snapshot(seen: &Seen) -> bool {
    is_upload(seen) && seen.target.contains("/0000000000000001-")
}

/// From when on uploads of history meet `fault`.
pub fn uploads_meet(bucket: &FaultServer, fault: Fault) -> Arc<AtomicUsize> {
    let met = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&met);
    bucket.rule(move |seen| {
        if !is_upload(seen) {
            return Fault::None;
        }
        counter.fetch_add(1, Ordering::SeqCst);
        fault.clone()
    });
    met
}

/// The ownership record of an actor; `None`: nobody ever took it.
pub fn owner(bucket: &FaultServer, actor: &str) -> Option<OwnerRecord> {
    let text = bucket.text(&format!("prod/owners/default/{actor}"))?;
    Some(OwnerRecord::decode(text.as_bytes()).unwrap())
}

/// Keys of an actor's history.
pub fn history(bucket: &FaultServer, actor: &str) -> Vec<String> {
    let folder = format!("prod/actors/default/{actor}/wal/");
    bucket.keys().into_iter().filter(|key| key.starts_with(&folder)).collect()
}
