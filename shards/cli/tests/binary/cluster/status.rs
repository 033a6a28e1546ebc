//! `wasmkeep cluster status`.

use serde_json::Value;

use super::*;
use crate::buckets::Said;

fn status(bucket: &Bucket) -> Said {
    bucket.say(&["cluster", "status", "--json"])
}

/// The kinds of warnings and whom they are about.
fn warnings(report: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |warning: &Value| {
        let nodes = warning["nodes"].as_array().unwrap().iter().map(text).collect();
        (text(&warning["kind"]), nodes)
    };
    report["warnings"].as_array().unwrap().iter().map(of).collect()
}

fn about(kind: &str, nodes: &[&str]) -> (String, Vec<String>) {
    (kind.to_owned(), nodes.iter().map(ToString::to_string).collect())
}

// R-OPS-1
#[test]
fn the_table_shows_each_node_and_the_summary_counts_them() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(0));
    put(&bucket, "b", &plain(heartbeat(0)));
    let mut stopping = heartbeat(14 * 60_000 + 30_000);
    stopping.presence = Arc::new(Presence { stopping: true, ..Presence::clone(&stopping.presence) });
    put(&bucket, "c", &stopping);
    put(
        &bucket,
        "d",
        &heartbeat(2_000).fence(Duration::ZERO, Some("a".parse().unwrap()), Nonce::from_bits(3)),
    );
    put(&bucket, "e", &NodeRecord { state: NodeState::Released, ..heartbeat(2_000) });
    let text = bucket.say(&["cluster", "status"]).done().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("Cluster {} (live: heartbeat within 10.0s)", bucket.url()));
    let row = |line: &str| -> Vec<String> {
        line.split("  ").filter(|cell| !cell.is_empty()).map(|cell| cell.trim().to_owned()).collect()
    };
    let heads = ["NODE", "LIVE", "AGE", "STATE", "VERSION", "APP", "ADDRESS", "CLUSTER ADDRESS", "TLS"];
    assert_eq!(row(lines[2]), heads);
    for (line, node, live, state, cluster, tls) in [
        (lines[3], "a", "yes", "serving", "https://a:7443", "pinned"),
        (lines[4], "b", "yes", "serving", "-", "plain"),
        (lines[5], "c", "no", "stopping", "https://a:7443", "pinned"),
        (lines[6], "d", "no (fenced)", "-", "https://a:7443", "pinned"),
        (lines[7], "e", "no (released)", "-", "https://a:7443", "pinned"),
    ] {
        let row = row(line);
        assert_eq!([&row[0], &row[1], &row[3]], [node, live, state], "{line}");
        assert_eq!(row[4..], ["0.3.0", "acme/shop", "http://a:8080", cluster, tls], "{line}");
    }
    assert_eq!(row(lines[5])[2], "14m");
    assert_eq!(lines[9], "2 of 5 nodes live; TLS: 1 with a cluster listener, 1 plain; version: 0.3.0");
    assert!(
        lines[10].starts_with("warning: plain HTTP and TLS between nodes are mixed: b without"),
        "{text}"
    );
    assert_eq!(lines.len(), 11, "{text}");
}

// R-OPS-1
#[test]
fn the_json_says_the_same() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(0));
    put(&bucket, "c", &plain(heartbeat(60_000)));
    let report = status(&bucket).done().json();
    assert_eq!((&report["live_within_ms"], &report["bucket"]), (&10_000.into(), &bucket.url().into()));
    let [a, c] = report["nodes"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(
        (&a["id"], &a["live"], &a["lease"], &a["tls"]),
        (&"a".into(), &true.into(), &"live".into(), &"pinned".into())
    );
    assert!(a["age_ms"].as_u64().unwrap() < 10_000 && a["ahead_ms"].is_null(), "{a}");
    assert_eq!(
        (&c["live"], &c["lease"], &c["cluster_address"]),
        (&false.into(), &"live".into(), &Value::Null)
    );
    assert_eq!((&report["summary"]["nodes"], &report["summary"]["live"]), (&2.into(), &1.into()));
    assert_eq!(warnings(&report), [], "a dead node's settings are nothing to warn about");
}

// R-OPS-1
#[test]
fn without_a_live_node_the_status_is_one() {
    let bucket = Bucket::new();
    let silent = |bucket: &Bucket| {
        let said = status(bucket);
        said.refused(1, "no node is live");
        assert_eq!(warnings(&said.json()), [about("no_live_node", &[])]);
    };
    silent(&bucket);
    put(&bucket, "a", &heartbeat(10_000));
    put(&bucket, "b", &heartbeat(0).fence(Duration::ZERO, None, Nonce::from_bits(3)));
    put(&bucket, "c", &NodeRecord { state: NodeState::Released, ..heartbeat(0) });
    silent(&bucket);
    assert!(
        bucket.say(&["cluster", "status"]).stdout.contains("0 of 3 nodes live\nwarning: no node is live")
    );
}

// R-LEASE-9, case L7
#[test]
fn a_heartbeat_dated_ahead_is_warned_about_and_counts_as_live() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(-3_600_000));
    put(&bucket, "b", &heartbeat(-500));
    let ahead = heartbeat(-7_200_000).fence(Duration::ZERO, None, Nonce::from_bits(3));
    put(&bucket, "c", &ahead);
    let report = status(&bucket).done().json();
    assert_eq!(warnings(&report), [about("ahead", &["a"]), about("ahead", &["c"])]);
    let text = |at: usize| report["warnings"][at]["text"].as_str().unwrap();
    assert!(text(0).contains("no other node takes its actors"), "{}", text(0));
    assert!(text(1).contains("its actors are free 15.0s after that date"), "{}", text(1));
    let ahead_ms = report["nodes"][0]["ahead_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&ahead_ms), "{ahead_ms}");
    assert_eq!((&report["nodes"][0]["live"], &report["nodes"][1]["ahead_ms"]), (&true.into(), &Value::Null));
}

// R-OPS-1
#[test]
fn mixed_versions_and_unreadable_heartbeats_are_warned_about() {
    let bucket = Bucket::new();
    put(&bucket, "a", &heartbeat(0));
    put(&bucket, "b", &NodeRecord { presence: Arc::new(presence("0.4.0")), ..heartbeat(0) });
    put(&bucket, "c", &NodeRecord { presence: Arc::new(presence("0.5.0")), ..heartbeat(20_000) });
    bucket.put("nodes/d", br#"{"format":9}"#);
    bucket.put("nodes/e", &[b' '; 20_000]);
    bucket.put("nodes/NOT-A-NODE", b"");
    let report = status(&bucket).done().json();
    let wanted =
        [about("mixed_versions", &["a", "b"]), about("unreadable", &["d"]), about("unreadable", &["e"])];
    assert_eq!(warnings(&report), wanted);
    let text = bucket.say(&["cluster", "status"]).done().stdout;
    for part in
        ["versions: 0.3.0, 0.4.0\n", "0.3.0 on a; 0.4.0 on b", "d     no (unreadable)  -", "it has format 9"]
    {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn a_heartbeat_that_would_move_the_cursor_does_not() {
    let bucket = Bucket::new();
    let presence = Presence { app: Some("\x1b[2J\nx".into()), ..presence("1\x1b[31m") };
    put(&bucket, "a", &NodeRecord { presence: Arc::new(presence), ..heartbeat(0) });
    let text = bucket.say(&["cluster", "status"]).done().stdout;
    assert!(!text.contains('\x1b') && text.lines().count() == 6, "{text:?}");
}
