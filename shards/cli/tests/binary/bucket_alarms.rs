//! Alarms of nodes that share a bucket: who fires them when their node is gone, and what is left of them there.

use std::time::SystemTime;

use crate::support::{Node, cluster::Bucket, eventually};
use serde_json::{Value, json};

/// The ttl and the grace of the short leases.
const LAPSE_MS: u64 = 6_000;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Sets an alarm, and waits until whatever ends the node cannot take it away.
fn set_in(bucket: &Bucket, node: &Node, actor: &str, ms: u64) -> u64 {
    let outcome = node.get(&format!("/actor/sql/{actor}/alarm?in={ms}")).expect(200).json();
    assert_eq!(outcome, json!({ "ok": null }));
    let due_ms = node.get(&format!("/actor/sql/{actor}/alarm")).expect(200).json()["ok"].as_u64().unwrap();
    // A durable write waits for everything before it.
    node.steps(actor, json!([{"as": "durable", "sql": "CREATE TABLE IF NOT EXISTS t (x)"}]));
    let keys = entries(bucket, actor);
    assert!(keys.iter().any(|key| key[..16] <= *format!("{due_ms:016x}")), "{due_ms}: {keys:?}");
    due_ms
}

/// What the bucket lists of an actor's alarms.
fn entries(bucket: &Bucket, actor: &str) -> Vec<String> {
    let folder = bucket.0.path().join("objects/alarms/default");
    let names = std::fs::read_dir(folder).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(&format!(".sql.{actor}."))).collect()
}

/// When each attempt of an actor was made, and for which alarm.
fn attempts(node: &Node, actor: &str) -> Vec<(u64, u64)> {
    let outcome = node.steps(actor, json!([{"sql": "SELECT due, at FROM alarm_log ORDER BY rowid"}]));
    let rows = outcome[0]["ok"]["rows"].as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap();
    rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

fn succeeded(node: &Node) -> f64 {
    node.metric("wasmkeep_alarm_attempts_total", "outcome=\"succeeded\"")
}

// R-ALM-1, case A3
#[test]
fn an_alarm_whose_node_was_killed_fires_on_another() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let soon = set_in(&bucket, &a, "soon", 2_000);
    let later = set_in(&bucket, &a, "later", 12_000);
    let killed_ms = now_ms();
    a.kill();
    eventually("both fire on the other node", || succeeded(&b) == 2.0);
    for (actor, due_ms) in [("soon", soon), ("later", later)] {
        let attempts = attempts(&b, actor);
        let [(for_ms, at_ms)] = attempts[..] else { panic!("{attempts:?}") };
        assert_eq!(for_ms, due_ms);
        // A lease period and the grace, a sweep, and one more for an owner that was not known to be gone yet.
        let latest_ms = due_ms.max(killed_ms) + LAPSE_MS + 2 * 10_000 + 5_000;
        assert!(at_ms >= due_ms && at_ms <= latest_ms, "{actor}: due {due_ms}, fired {at_ms}");
        eventually("its entry is gone", || entries(&bucket, actor).is_empty());
    }
}

// R-ALM-1, case A3
#[test]
fn an_alarm_whose_node_was_stopped_fires_on_another_when_it_is_due() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let due_ms = set_in(&bucket, &a, "x", 16_000);
    let (status, log) = a.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    eventually("it fires on the other node", || succeeded(&b) == 1.0);
    let attempts = attempts(&b, "x");
    let [(_, at_ms)] = attempts[..] else { panic!("{attempts:?}") };
    assert!(at_ms >= due_ms && at_ms < due_ms + 3_000, "due {due_ms}, fired {at_ms}");
    eventually("its entry is gone", || entries(&bucket, "x").is_empty());
}

// R-ALM-1, R-LEASE-6
#[test]
fn an_alarm_that_is_due_right_after_its_node_stopped_waits_for_no_sweep() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let due_ms = set_in(&bucket, &a, "x", 3_000);
    let (status, log) = a.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    let stopped_ms = now_ms();
    eventually("it fires on the other node", || succeeded(&b) == 1.0);
    let attempts = attempts(&b, "x");
    let [(for_ms, at_ms)] = attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(for_ms, due_ms);
    // A listing of the heartbeats, one of the alarms, and the actor's restore.
    let latest_ms = due_ms.max(stopped_ms) + 3_000 + 2_000;
    assert!(at_ms >= due_ms && at_ms <= latest_ms, "due {due_ms}, stopped {stopped_ms}, fired {at_ms}");
}

// R-ALM-1, cases A1 and A5
#[test]
fn the_bucket_lists_what_is_pending_and_nothing_else() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    let hour = 3_600_000;
    for actor in ["deleted", "cleared", "moved", "fired"] {
        set_in(&bucket, &node, actor, hour);
    }
    node.post("/actor/sql/deleted/delete", "").expect(200);
    node.get("/actor/sql/cleared/alarm?set=").expect(200);
    let moved = set_in(&bucket, &node, "moved", 2 * hour);
    node.get("/actor/sql/fired/alarm?in=0").expect(200);
    node.steps("plain", json!([{"as": "durable", "sql": "CREATE TABLE t (x)"}]));
    for actor in ["deleted", "cleared", "fired", "plain"] {
        eventually("nothing is listed of it", || entries(&bucket, actor).is_empty());
    }
    eventually("one entry is listed of it", || {
        let listed = entries(&bucket, "moved");
        listed.len() == 1 && listed[0].starts_with(&format!("{moved:016x}."))
    });
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}
