//! Actors that delete themselves while the bucket refuses.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::{
    fault_server::{Fault, FaultServer},
    s3::{history, node, uploads_meet},
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
fn says_deleted(key: &String) -> bool {
    key.contains("-8000000000000000.ltx")
}

// R-DEL-1
#[test]
fn a_deletion_that_cannot_be_recorded_is_lost_as_a_plain_write_is() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    make(&node, "x");
    let met = uploads_meet(&bucket, Fault::Answer(403, "AccessDenied"));
    node.post("/actor/sql/x/delete", "");
    eventually("the deletion was to be recorded", || met.load(Ordering::SeqCst) > 0);
    bucket.rule(|_| Fault::None);
    eventually("the actor is as it was", || {
        node.post("/actor/sql/x/steps", json!([{"sql": "SELECT count(*) FROM t"}]).to_string())
            .text
            .contains("[[2]]")
    });
    assert!(!history(&bucket, "sql/x").iter().any(says_deleted));
    // Once it can be, it is.
    node.post("/actor/sql/x/delete", "").expect(200);
    eventually("it is deleted", || tables(&node, "x") == 0);
}
