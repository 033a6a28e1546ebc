//! Nodes whose bucket is cut off, slow or lying, and nodes that are killed at the worst moments of an upload. The bucket
//! is a small S3 server in the test's own process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    fault_server::{Fault, FaultServer, Seen},
    s3::{count, durable, is_snapshot, is_upload, node, node_with, pair, uploads_meet},
    support::{self, Node, cluster::timing, eventually},
};

/// Waits in another thread for a durable write; whether it was answered as done before its node was killed under it.
fn hanging_write(node: &Node) -> thread::JoinHandle<bool> {
    let address = node.address;
    thread::spawn(move || {
        let url = format!("http://{address}/actor/counter/alice/durable");
        support::agent().post(url).send_empty().is_ok_and(|answer| answer.status() == 200)
    })
}

// R-DUR-1, R-RST-1, R-FLAG-4
#[test]
fn killed_between_a_commit_and_its_upload_the_write_is_not_there_and_what_was_acknowledged_is() {
    let bucket = FaultServer::start();
    let first = node(&bucket);
    assert_eq!((durable(&first), durable(&first)), (200, 200));
    let met = uploads_meet(&bucket, Fault::Silence);
    let writing = hanging_write(&first);
    eventually("the upload hangs", || met.load(Ordering::SeqCst) > 0);
    first.kill();
    assert!(!writing.join().unwrap(), "it was not in the bucket");
    bucket.rule(|_| Fault::None);
    let second = node(&bucket);
    assert_eq!(count(&second), "2");
    assert_eq!(durable(&second), 200);
    assert_eq!(count(&second), "3");
}

// R-DUR-1, case L3
#[test]
fn killed_after_an_upload_and_before_its_reply_the_write_is_there_once() {
    let bucket = FaultServer::start();
    let first = node(&bucket);
    assert_eq!((durable(&first), durable(&first)), (200, 200));
    let met = uploads_meet(&bucket, Fault::ApplyAndSilence);
    let writing = hanging_write(&first);
    eventually("the upload was applied", || met.load(Ordering::SeqCst) > 0);
    first.kill();
    writing.join().unwrap();
    bucket.rule(|_| Fault::None);
    let second = node(&bucket);
    assert_eq!(count(&second), "3");
}

// R-REPL-1, R-REPL-3
#[test]
fn killed_while_a_snapshot_is_uploaded_nothing_is_missing() {
    let bucket = FaultServer::start();
    let first = node(&bucket);
    let snapshots = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&snapshots);
    bucket.rule(move |request| {
        // The first of the actor is let through.
        if is_snapshot(request) && seen.fetch_add(1, Ordering::SeqCst) > 0 {
            Fault::Silence
        } else {
            Fault::None
        }
    });
    for _ in 0..64 {
        assert_eq!(durable(&first), 200);
    }
    let writing = hanging_write(&first);
    eventually("the snapshot hangs", || snapshots.load(Ordering::SeqCst) > 1);
    first.kill();
    writing.join().unwrap();
    bucket.rule(|_| Fault::None);
    let second = node(&bucket);
    let there: u32 = count(&second).parse().unwrap();
    assert!((64..=65).contains(&there), "{there}");
}

// R-REPL-1
#[test]
fn a_gated_actor_that_is_never_idle_gets_its_snapshots_in_time() {
    let bucket = FaultServer::start();
    let node = node_with(&bucket, &["--durability=counter=gate"]);
    bucket.seen();
    let uploads = uploads_meet(&bucket, Fault::None);
    let url = format!("http://{}/actor/counter/hot", node.address);
    thread::scope(|scope| {
        for _ in 0..8 {
            let (url, uploads) = (&url, &uploads);
            scope.spawn(move || {
                let agent = support::agent();
                while uploads.load(Ordering::SeqCst) < 300 {
                    assert_eq!(agent.post(url).send_empty().unwrap().status(), 200);
                }
            });
        }
    });
    let kinds: Vec<bool> = bucket.seen().iter().filter(|seen| is_upload(seen)).map(is_snapshot).collect();
    // The one that is under way when the 64th lands, and one for what came while the event ran.
    let longest = kinds.split(|is_snapshot| *is_snapshot).map(<[bool]>::len).max().unwrap();
    assert!((64..=66).contains(&longest), "{longest} uploads without a snapshot");
}

// R-REPL-2, R-REPL-4
#[test]
fn an_upload_that_fails_twice_costs_nothing_and_one_that_fails_for_good_costs_only_its_own_write() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    assert_eq!(durable(&node), 200);
    let left = AtomicUsize::new(2);
    bucket.rule(move |seen| {
        let fails = is_upload(seen)
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if fails { Fault::Cut } else { Fault::None }
    });
    assert_eq!(durable(&node), 200);
    let _met = uploads_meet(&bucket, Fault::Answer(403, "AccessDenied"));
    let answer = node.post("/actor/counter/alice/durable", "");
    assert_ne!(answer.status, 200, "{}", answer.text);
    bucket.rule(|_| Fault::None);
    // The actor was given up: the next request restores it without the write that failed.
    eventually("the actor is restored", || {
        let answer = node.get("/actor/counter/alice");
        answer.status == 200 && answer.text.trim() == "2"
    });
    assert_eq!(durable(&node), 200);
    assert_eq!(count(&node), "3");
}

// R-LEASE-2, R-LEASE-3, R-LEASE-5
#[test]
fn a_silent_bucket_stops_a_node_and_it_goes_on_when_it_answers() {
    let bucket = FaultServer::start();
    let node = node(&bucket);
    assert_eq!((durable(&node), durable(&node)), (200, 200));
    let silent = Arc::new(AtomicBool::new(true));
    let rule = Arc::clone(&silent);
    bucket.rule(move |_| if rule.load(Ordering::SeqCst) { Fault::Silence } else { Fault::None });
    let began = Instant::now();
    eventually("the node refuses", || node.get("/actor/counter/alice").status == 503);
    // Its last heartbeat began a period ago at most, and half a second is for the machine.
    let timing = timing();
    let least = timing.validity() - timing.period - Duration::from_millis(500);
    assert!(began.elapsed() > least, "{:?}", began.elapsed());
    silent.store(false, Ordering::SeqCst);
    eventually("the node serves again", || node.get("/actor/counter/alice").status == 200);
    assert_eq!(count(&node), "2");
    assert_eq!(durable(&node), 200);
}

// R-RST-2, R-RST-5
#[test]
fn reads_that_break_off_are_sent_again_and_those_that_always_do_are_told_as_such() {
    let bucket = FaultServer::start();
    let first = node(&bucket);
    assert_eq!((durable(&first), durable(&first)), (200, 200));
    first.kill();
    let is_read = |seen: &Seen| seen.method == "GET" && seen.target.contains("/wal/");
    bucket.rule(move |seen| if is_read(seen) { Fault::CutBody(10) } else { Fault::None });
    let second = node(&bucket);
    let answer = second.get("/actor/counter/alice");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text);
    assert!(second.metric("wasmkeep_restore_failures_total", "") >= 1.0);
    let cut = AtomicBool::new(true);
    bucket.rule(move |seen| {
        if is_read(seen) && cut.swap(false, Ordering::SeqCst) { Fault::CutBody(10) } else { Fault::None }
    });
    assert_eq!(count(&second), "2");
}

// R-FWD-1, R-OWN-1
#[test]
fn a_request_sent_on_to_the_same_node_again_costs_the_bucket_nothing() {
    let bucket = FaultServer::start();
    let (a, b) = pair(&bucket);
    assert_eq!(durable(&b), 200);
    eventually("the nodes know each other", || a.get("/actor/counter/alice").status == 200);
    bucket.seen();
    for _ in 0..20 {
        let answer = a.get("/actor/counter/alice").expect(200);
        assert_eq!(answer.header("x-wasmkeep-node"), Some("b"));
    }
    let seen = bucket.seen();
    let of_actor: Vec<_> = seen.iter().filter(|seen| seen.target.contains("alice")).collect();
    assert!(of_actor.is_empty(), "{of_actor:?}");
}

// R-LEASE-2, R-LEASE-9, R-REPL-2
#[test]
fn a_refused_clock_and_a_single_refusal_end_no_node_and_the_reason_is_told() {
    let bucket = FaultServer::start();
    let skewed = Fault::Answer(403, "RequestTimeTooSkewed");
    bucket.next(vec![skewed.clone(); 3]);
    let node = node(&bucket);
    assert!(node.log().contains("set the clock"), "{}", node.log());
    assert_eq!(durable(&node), 200);
    let refusals = AtomicUsize::new(0);
    bucket.rule(move |seen| match is_upload(seen) && refusals.fetch_add(1, Ordering::SeqCst) == 0 {
        true => Fault::Answer(403, "AccessDenied"),
        false => Fault::None,
    });
    assert_eq!(durable(&node), 200, "one refusal of an upload is sent again");
    bucket.rule(move |seen| if seen.target.contains("/nodes/") { skewed.clone() } else { Fault::None });
    eventually("ready says why there is no lease", || {
        let ready = node.get("/_wasmkeep/ready");
        ready.status == 503 && ready.text.contains("no lease") && ready.text.contains("RequestTimeTooSkewed")
    });
    let log = node.log();
    assert!(log.contains("this node's heartbeat: ") && log.contains("the lease ran out"), "{log}");
    bucket.rule(|_| Fault::None);
    eventually("it is ready again", || node.get("/_wasmkeep/ready").status == 200);
    assert_eq!(count(&node), "2");
}
