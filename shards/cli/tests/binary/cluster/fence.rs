//! `wasmkeep cluster fence`.

use std::process::Stdio;

use super::*;
use crate::buckets::{Said, wasmkeep};

fn fence(bucket: &Bucket, node: &str, flags: &[&str]) -> Said {
    bucket.say(&[&["cluster", "fence", node], flags].concat())
}

/// The state of a fence nobody has watched.
const UNWATCHED: NodeState = NodeState::Fenced { watched: Duration::ZERO, by: None };

// R-OPS-2, R-LEASE-4
#[test]
fn a_live_node_loses_its_lease_and_nothing_else_of_its_heartbeat_changes() {
    let bucket = Bucket::new();
    let live = heartbeat(0);
    put(&bucket, "a", &live);
    let said = fence(&bucket, "a", &[]).done();
    assert!(said.stdout.starts_with("a is fenced: its process stops at its next heartbeat"), "{said:?}");
    let fenced = get(&bucket, "a");
    assert_ne!(fenced.nonce, live.nonce);
    let expected = NodeRecord { state: UNWATCHED, nonce: fenced.nonce, shape: live.shape.next(), ..live };
    assert_eq!(fenced, expected);
    assert!(!fenced.is_gone(Duration::from_secs(5)), "its actors are free only once nodes have watched it");
    assert_eq!(fence(&bucket, "a", &[]).done().stdout, "a is fenced already\n");
    assert_eq!(get(&bucket, "a").nonce, fenced.nonce);
}

// R-LEASE-1
#[test]
fn a_node_that_renews_meanwhile_is_fenced_and_finds_out_at_its_next_write() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(0));
    let mut version = bucket.version("nodes/a");
    let mut command = wasmkeep(&["cluster", "fence", "a", "--bucket", &bucket.url()]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    for sequence in 8.. {
        let renewed = NodeRecord { sequence, nonce: Nonce::from_bits(sequence.into()), ..heartbeat(0) };
        match bucket.replace("nodes/a", &version, &renewed.encode()) {
            Some(written) => version = written,
            None => break,
        }
        assert!(child.try_wait().unwrap().is_none_or(|status| status.success()));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(get(&bucket, "a").state, UNWATCHED);
}

// R-OPS-2
#[test]
fn a_node_that_is_not_live_is_refused_without_force() {
    let bucket = Bucket::new();
    put(&bucket, "dead", &heartbeat(60_000));
    bucket.put("nodes/odd", b"x");
    for (node, part) in [
        ("dead", "dead has not renewed its lease for 1m"),
        ("odd", "nodes/odd is no heartbeat this version reads"),
    ] {
        let said = fence(&bucket, node, &[]);
        said.refused(12, part);
        assert!(said.stderr.contains("--force"), "{said:?}");
    }
    assert_eq!(bucket.keys(), ["nodes/dead", "nodes/odd"]);
    assert!(get(&bucket, "dead").is_live());
    assert_eq!(fence(&bucket, "Not-An-Id", &[]).status, 2);
}

// R-OPS-2, R-LEASE-7
#[test]
fn a_node_without_a_heartbeat_is_fenced_as_any_other() {
    let bucket = Bucket::new();
    let said = fence(&bucket, "deleted", &[]).done();
    assert!(said.stdout.contains("there was no heartbeat of it"), "{said:?}");
    assert_eq!(get(&bucket, "deleted").state, UNWATCHED);
}

// R-OPS-2, R-LEASE-9
#[test]
fn the_moment_when_a_fenced_nodes_actors_are_free_is_told_and_follows_its_date() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(0));
    let said = fence(&bucket, "a", &[]).done();
    assert!(said.stdout.contains("at the latest, in 15.0s;"), "{said:?}");
    let ahead = NodeRecord { written_at_ms: now_ms() + 480_000, ..heartbeat(0) };
    put(&bucket, "ahead", &ahead);
    let said = fence(&bucket, "ahead", &[]).done();
    let free = i64::try_from(ahead.written_at_ms + 15_000).unwrap();
    let free = chrono::DateTime::from_timestamp_millis(free).unwrap().format("%Y-%m-%dT%H:%M:%S%.3fZ");
    assert!(said.stdout.contains(&format!("free at {free} at the latest, in 8m")), "{said:?} {free}");
    assert!(said.stdout.contains("ahead of this machine's clock"), "{said:?}");
}

// R-OPS-2, R-LEASE-7
#[test]
fn with_force_a_dead_an_unreadable_and_an_absent_heartbeat_are_fenced() {
    let bucket = Bucket::new();
    let dead = heartbeat(60_000);
    put(&bucket, "dead", &dead);
    bucket.put("nodes/odd", b"x");
    for node in ["dead", "odd", "absent"] {
        fence(&bucket, node, &["--force"]).done();
        assert_eq!(get(&bucket, node).state, UNWATCHED, "{node}");
    }
    assert_eq!(get(&bucket, "dead").written_at_ms, dead.written_at_ms);
    let absent = get(&bucket, "absent");
    assert!(now_ms() - absent.written_at_ms < 60_000 && absent.ttl == Duration::from_secs(10));
    assert_ne!(absent.process, get(&bucket, "odd").process, "a process of its own, later than any before");
}

// R-LEASE-6
#[test]
fn a_released_lease_needs_no_fence() {
    let bucket = Bucket::new();
    let released = NodeRecord { state: NodeState::Released, ..heartbeat(1_000) };
    put(&bucket, "a", &released);
    for flags in [&[][..], &["--force"]] {
        assert!(fence(&bucket, "a", flags).done().stdout.contains("nothing to fence"));
    }
    assert_eq!(get(&bucket, "a"), released);
}
