//! `wasmkeep cluster forget`.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

// R-OPS-2, R-LEASE-7
#[test]
fn a_lease_is_never_removed_whatever_its_state_and_age() {
    let bucket = Bucket::new();
    let old = heartbeat(3_600_000);
    for (record, part) in [
        (heartbeat(0), "a is live; to stop its process: wasmkeep cluster fence a"),
        (old.clone(), "it is the lease of a node"),
        (old.fence(HOUR, None, Nonce::from_bits(3)), "it is the lease of a node"),
        (NodeRecord { state: NodeState::Released, ..old.clone() }, "it is the lease of a node"),
    ] {
        put(&bucket, "a", &record);
        bucket.backdate("nodes/a", HOUR);
        bucket.say(&["cluster", "forget", "a"]).refused(12, part);
        assert_eq!(get(&bucket, "a"), record);
    }
    bucket.say(&["cluster", "forget", "b"]).refused(12, "there is no nodes/b");
}

// R-OPS-2
#[test]
fn what_is_no_lease_is_removed_once_nothing_can_be_writing_it() {
    let bucket = Bucket::new();
    bucket.put("nodes/a", b"address=10.0.0.1");
    bucket.say(&["cluster", "forget", "a"]).refused(12, "try again once it is 25.0s old");
    bucket.backdate("nodes/a", Duration::from_secs(26));
    bucket.put("nodes/b", br#"{"format":9}"#);
    bucket.backdate("nodes/b", HOUR);
    bucket.say(&["cluster", "forget", "b"]).refused(12, "another version of WasmKeep reads");
    assert_eq!(bucket.say(&["cluster", "forget", "a"]).done().stdout, "nodes/a is removed\n");
    assert_eq!(bucket.keys(), ["nodes/b"]);
}
