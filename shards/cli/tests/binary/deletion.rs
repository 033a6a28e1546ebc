//! Actors that delete themselves while the bucket refuses, while its clock is ahead of the node's, and that come back at
//! once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    fault_server::{Fault, FaultServer, Seen},
    s3::{history, node, pair, uploads_meet},
    support::{Node, eventually},
};

/// Makes an actor of the sql sample with a table of one row.
fn make(node: &Node, actor: &str) {
    let script = "CREATE TABLE t (x); INSERT INTO t VALUES (1)";
    node.steps(
        actor,
        json!([{"as": "script", "sql": script}, {"as": "durable", "sql": "INSERT INTO t VALUES (2)"}]),
    );
}

fn tables(node: &Node, actor: &str) -> Value {
    node.steps(actor, json!([{"sql": "SELECT count(*) FROM sqlite_schema WHERE name = 't'"}]))[0]["ok"]["rows"][0][0]
        .clone()
}

/// A file that leads to the checksum of a database without pages says that the actor was deleted.
fn says_deleted(key: &str) -> bool {
    key.contains("-8000000000000000.ltx")
}

// R-DEL-1
#[test]
fn a_deletion_that_cannot_be_recorded_is_lost_as_a_plain_write_is() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    make(&node, "x");
    let _met = uploads_meet(&bucket, Fault::Answer(403, "AccessDenied"));
    node.post("/actor/sql/x/delete", "");
    eventually("it has failed", || node.log().contains("a deletion may not be in the bucket"));
    bucket.rule(|_| Fault::None);
    eventually("the actor is as it was", || {
        node.post("/actor/sql/x/steps", json!([{"sql": "SELECT count(*) FROM t"}]).to_string())
            .text
            .contains("[[2]]")
    });
    assert!(!history(&bucket, "sql/x").iter().any(|key| says_deleted(key)));
    // Once it can be, it is.
    node.post("/actor/sql/x/delete", "").expect(200);
    eventually("it is deleted", || tables(&node, "x") == 0);
}

// R-DEL-1
#[test]
fn the_history_of_a_deleted_actor_is_erased_whatever_the_clocks_say() {
    let bucket = FaultServer::start();
    bucket.set_clock_ahead();
    let node = node(&bucket);
    make(&node, "x");
    node.steps("x", json!([{"as": "durable", "sql": "INSERT INTO t VALUES (3)"}]));
    assert!(history(&bucket, "sql/x").len() > 1);
    node.post("/actor/sql/x/delete", "").expect(200);
    eventually("one small object remains", || {
        let left = history(&bucket, "sql/x");
        left.len() == 1 && left.iter().all(|key| says_deleted(key))
    });
}

// R-DEL-1, R-HIST-1
#[test]
fn an_erasure_that_is_refused_is_tried_again_and_counted() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    make(&node, "x");
    let refuses = Arc::new(AtomicBool::new(true));
    let rule = Arc::clone(&refuses);
    bucket.rule(move |seen| match seen.method == "DELETE" && seen.target.contains("/wal/") {
        true if rule.load(Ordering::SeqCst) => Fault::Answer(403, "AccessDenied"),
        _ => Fault::None,
    });
    node.post("/actor/sql/x/delete", "").expect(200);
    eventually("the failure is counted", || {
        node.metric("wasmkeep_history_collect_failures_total", "") >= 1.0
    });
    refuses.store(false, Ordering::SeqCst);
    eventually("one small object remains", || {
        let left = history(&bucket, "sql/x");
        left.len() == 1 && left.iter().all(|key| says_deleted(key))
    });
    eventually("what went is counted", || node.metric("wasmkeep_history_collected_total", "") >= 1.0);
}

// R-DEL-1, R-OWN-1
#[test]
fn an_actor_that_comes_back_while_its_history_is_erased_is_held_by_the_node_that_runs_it() {
    let bucket = FaultServer::start();
    let (a, b) = pair(&bucket);
    make(&a, "x");
    eventually("the nodes know each other", || b.post("/actor/sql/x/steps", "[]").status == 200);
    // The erasure takes a while, and the actor's return begins within it and ends after it.
    let deleted = Arc::new(AtomicBool::new(false));
    let rule = Arc::clone(&deleted);
    bucket.rule(move |seen: &Seen| {
        if !seen.target.contains("%2Fx%2Fwal") && !seen.target.contains("/x/wal/") {
            return Fault::None;
        }
        match seen.method.as_str() {
            "DELETE" => Fault::Late(Duration::from_millis(100)),
            "GET" if rule.load(Ordering::SeqCst) => Fault::Late(Duration::from_millis(1_500)),
            _ => Fault::None,
        }
    });
    for round in 0..3 {
        a.post("/actor/sql/x/delete", "").expect(200);
        deleted.store(true, Ordering::SeqCst);
        let insert = json!([{"sql": "CREATE TABLE t (x)"}, {"sql": "INSERT INTO t VALUES (3)"}]);
        eventually("it is back", || a.post("/actor/sql/x/steps", insert.to_string()).status == 200);
        deleted.store(false, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        let rows = b.post("/actor/sql/x/steps", json!([{"sql": "SELECT x FROM t"}]).to_string()).expect(200);
        assert_eq!(rows.header("x-wasmkeep-node"), Some("a"), "round {round}");
        assert!(rows.text.contains("[[3]]"), "round {round}: {}", rows.text);
    }
}
