//! What a node does with its files and the bucket's: snapshots that fail, and local files that are not the latest.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    fault_server::{Fault, FaultServer},
    s3::{count, durable, history, is_snapshot, node, node_with},
    support::{cluster::Bucket, eventually},
};

// R-REPL-1
#[test]
fn every_event_that_committed_is_one_file_and_one_that_did_not_is_none() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    for written in 1..=5 {
        node.post("/actor/counter/alice", "").expect(200);
        node.get("/actor/counter/alice").expect(200);
        eventually("its file is there", || history(&bucket, "counter/alice").len() == written);
    }
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(history(&bucket, "counter/alice").len(), 5);
}

// R-REPL-3
#[test]
fn a_snapshot_that_fails_costs_no_write_and_is_not_tried_again_because_its_actor_slept() {
    let bucket = FaultServer::start();
    let first = node_with(&bucket, &["--hibernate-after-secs=0.3"]);
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    bucket.rule(move |seen| {
        // The first file of the actor is one too, and is let through.
        if is_snapshot(seen) && counted.fetch_add(1, Ordering::SeqCst) > 0 {
            Fault::Answer(400, "InvalidRequest")
        } else {
            Fault::None
        }
    });
    for _ in 0..66 {
        assert_eq!(durable(&first), 200);
    }
    let failures = || first.metric("wasmkeep_snapshot_upload_failures_total", "");
    eventually("the snapshot was tried", || failures() == 1.0);
    // One attempt of the node is some requests of its client.
    let tried = tries.load(Ordering::SeqCst);
    assert!(tried > 1, "{tried}");
    for _ in 0..3 {
        eventually("it sleeps", || first.metric("wasmkeep_actors_resident", "") == 0.0);
        assert_eq!(durable(&first), 200);
    }
    // A write has come since, and the 30 s have not passed.
    assert_eq!((tries.load(Ordering::SeqCst), failures()), (tried, 1.0));
    assert_eq!(count(&first), "69");
    first.kill();
    // Another process knows of no wait, and tries at the actor's first event.
    let second = node(&bucket);
    assert_eq!(count(&second), "69");
    eventually("the snapshot was tried", || {
        second.metric("wasmkeep_snapshot_upload_failures_total", "") == 1.0
    });
    assert_eq!(durable(&second), 200);
    assert!(tries.load(Ordering::SeqCst) > tried);
}

// R-REPL-5, R-RST-4
#[test]
fn a_local_file_that_is_not_what_the_history_says_is_replaced_and_one_that_is_stays() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join("actors/default/counter").join(name);
    let a = bucket.node_on("a", folder.path(), &[]);
    for name in ["alice", "bob"] {
        a.post(&format!("/actor/counter/{name}/durable"), "").expect(200);
    }
    let (status, log) = a.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    // Another node goes on with one of the two; the file here is sound, and old.
    let b = bucket.node("b");
    assert_eq!(b.post("/actor/counter/alice/durable", "").expect(200).text, "2\n");
    let (status, log) = b.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    bucket.change_heartbeat("a", |record| record.written_at_ms -= 60_000);
    let a = bucket.node_on("a", folder.path(), &[]);
    assert_eq!(a.get("/actor/counter/alice").expect(200).text, "2\n");
    assert_eq!(a.get("/actor/counter/bob").expect(200).text, "1\n");
    assert!(file("alice.db.replaced").exists() && !file("bob.db.replaced").exists());
}
