//! What becomes of a node's holds of actors: when its lease runs out, when an upload fails for good, when an actor cannot
//! be restored and when there is none; and what comes before the first.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use wasmkeep_protocol::records::{Hold, NodeRecord};

use crate::{
    fault_server::{Fault, FaultServer, Seen},
    s3::{count, durable, node, node_with, owner, pair, uploads_meet},
    support::{eventually, guest},
};

const ALICE: &str = "counter/alice";

// R-LEASE-3, R-OWN-2
#[test]
fn a_lease_that_ran_out_takes_actors_and_sockets_along_and_they_come_back_at_new_generations() {
    let bucket = FaultServer::start();
    let sockets = format!("--actor=sockets={}", guest("sockets").display());
    let node = node_with(&bucket, &[&sockets]);
    assert_eq!(durable(&node), 200);
    let mut socket = node.socket("/actor/sockets/room");
    socket.text("hello");
    assert_eq!(socket.expect_text(), "hello");
    let generations =
        || [ALICE, "sockets/room"].map(|actor| owner(&bucket, actor).expect("somebody took it").generation);
    let before = generations();
    let silent = Arc::new(AtomicBool::new(true));
    let rule = Arc::clone(&silent);
    bucket.rule(move |_| if rule.load(Ordering::SeqCst) { Fault::Silence } else { Fault::None });
    // Said although the bucket is silent, and nothing is served from memory after it.
    let (code, reason) = socket.expect_close();
    assert_eq!(code, 1012, "{reason}");
    let answer = node.get("/actor/counter/alice");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text);
    assert_eq!(node.get("/_wasmkeep/ready").status, 503);
    eventually("no actor is in memory", || node.metric("wasmkeep_actors_resident", "") == 0.0);
    silent.store(false, Ordering::SeqCst);
    eventually("the node serves again", || node.get("/actor/counter/alice").status == 200);
    assert_eq!(count(&node), "1");
    let mut again = node.socket("/actor/sockets/room");
    again.text("again");
    assert_eq!(again.expect_text(), "again");
    for (before, after) in before.into_iter().zip(generations()) {
        assert!(after > before, "{before} and {after}");
    }
}

// R-REPL-4, R-OWN-1
#[test]
fn an_upload_that_fails_for_good_ends_the_hold_and_the_next_one_begins_where_the_bucket_is() {
    let bucket = FaultServer::start();
    let a = node(&bucket);
    assert_eq!(durable(&a), 200);
    let held = owner(&bucket, ALICE).unwrap();
    assert_eq!((held.node.as_str(), held.hold), ("a", Hold::Held));
    let heartbeat = bucket.text("prod/nodes/a").unwrap();
    assert_eq!(held.process, NodeRecord::decode(heartbeat.as_bytes()).unwrap().process);
    let _met = uploads_meet(&bucket, Fault::Answer(403, "AccessDenied"));
    assert_ne!(durable(&a), 200);
    bucket.rule(|_| Fault::None);
    eventually("it is given up", || owner(&bucket, ALICE).unwrap().hold == Hold::Released);
    // The write that failed is nowhere, not in memory either.
    assert_eq!(count(&a), "1");
    let again = owner(&bucket, ALICE).unwrap();
    assert!(again.hold == Hold::Held && again.generation > held.generation, "{held:?}, then {again:?}");
    assert_eq!(durable(&a), 200);
    assert_eq!(count(&a), "2");
}

// R-BKT-1, R-FLAG-6
#[test]
fn a_store_that_ignores_a_condition_is_refused_before_anything_else_is_written() {
    use crate::{
        fault_server::Ignored,
        support::{run, samples, share_compiled_code, wasmkeep},
    };
    for (creates, replaces) in [(true, false), (false, true)] {
        let bucket = FaultServer::start();
        bucket.ignore(Ignored { creates, replaces });
        let folder = tempfile::tempdir().unwrap();
        share_compiled_code(folder.path());
        let mut serve = wasmkeep();
        serve.envs(bucket.environment()).args(["serve", "--listen=127.0.0.1:0", "--overprovisioned"]);
        serve.args(["--bucket=s3://bucket/prod", "--node-id=a", "--cluster-plaintext=accept", "--shards=1"]);
        let (status, stdout, stderr) = run(serve.args(samples()).arg("--data-dir").arg(folder.path()));
        assert_eq!(status, Some(9), "{stderr}");
        assert!(stderr.contains("does not apply the conditions"), "{stderr}");
        assert_eq!(stdout, "", "it never listened");
        let written = bucket.seen().into_iter().filter(|seen| seen.method == "PUT");
        let elsewhere: Vec<_> =
            written.map(|seen| seen.target).filter(|target| !target.contains("/prod/probe/")).collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    }
    // The same server with its conditions is a bucket like any other.
    node(&FaultServer::start()).get("/_wasmkeep/ready").expect(200);
}

// R-RST-5
#[test]
fn an_actor_that_could_not_be_restored_is_given_up_so_that_another_node_may_try() {
    let bucket = FaultServer::start();
    let (a, b) = pair(&bucket);
    a.post("/actor/counter/of-a", "").expect(200);
    eventually("the nodes know each other", || b.get("/actor/counter/of-a").status == 200);
    assert_eq!((durable(&a), durable(&a)), (200, 200));
    let (status, log) = a.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    let is_read = |seen: &Seen| seen.method == "GET" && seen.target.contains("/alice/wal/");
    bucket.rule(move |seen| if is_read(seen) { Fault::CutBody(10) } else { Fault::None });
    let answer = b.get("/actor/counter/alice");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text);
    assert_eq!(b.metric("wasmkeep_restore_failures_total", ""), 1.0);
    eventually("it is given up", || owner(&bucket, ALICE).unwrap().hold == Hold::Released);
    bucket.rule(|_| Fault::None);
    assert_eq!(count(&b), "2");
    let served = b.metric("wasmkeep_restore_failures_total", "");
    assert_eq!(served, 1.0, "no failure without a cause");
}

// R-ACC-1
#[test]
fn who_asks_for_an_actor_that_does_not_exist_leaves_nothing_in_the_bucket() {
    let bucket = FaultServer::start();
    let node = node_with(&bucket, &["--access=counter=existing"]);
    node.steps("of-another-class", serde_json::json!([{"as": "durable", "sql": "CREATE TABLE t (x)"}]));
    for number in 0..20 {
        node.get(&format!("/actor/counter/nobody-{number}")).expect(404);
        node.post(&format!("/actor/counter/nobody-{number}"), "").expect(404);
    }
    let left: Vec<_> = bucket.keys().into_iter().filter(|key| key.contains("nobody")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!node.data_dir.join("actors/default/counter").exists());
    assert_eq!(node.metric("wasmkeep_actors_resident", "class=\"counter\""), 0.0);
}
