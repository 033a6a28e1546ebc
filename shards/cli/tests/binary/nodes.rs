//! Nodes that share a bucket: what outlives a node and its disk, who answers for whom, and what callers see when one
//! dies. A start after a kill watches the node id for a while, so these tests mostly wait.

use std::{
    os::unix::fs::{FileExt, PermissionsExt},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::support::{
    self, Node,
    cluster::{Bucket, REAL_TTL, timing},
    eventually,
};
use serde_json::json;

// R-DUR-1, R-REPL-5, R-RST-1, R-FLAG-6
#[test]
fn what_was_durable_outlives_the_node_and_its_disk() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    for n in 1..=3 {
        assert_eq!(node.post("/actor/counter/alice/durable", "").expect(200).text, format!("{n}\n"));
        // Long enough to doze: what is written after that is followed as well.
        std::thread::sleep(Duration::from_millis(2500));
    }
    let script =
        "CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(3000000)); INSERT INTO t VALUES ('last')";
    node.steps(
        "big",
        json!([{"as": "script", "sql": script}, {"as": "durable", "sql": "INSERT INTO t VALUES (1)"}]),
    );
    node.kill();
    let node = bucket.node("a");
    assert_eq!(node.get("/actor/counter/alice").expect(200).text, "3\n");
    assert_eq!(node.post("/actor/counter/alice/durable", "").expect(200).text, "4\n");
    let rows = node.steps("big", json!([{"sql": "SELECT count(*), sum(length(x)) FROM t"}]));
    assert_eq!(rows[0]["ok"]["rows"][0], json!([3, 3_000_005]), "{rows}");
    assert_eq!(node.metric("wasmkeep_restore_failures_total", ""), 0.0);
}

// R-LEASE-6, R-LEASE-8, R-OWN-1, R-REPL-1
#[test]
fn a_clean_stop_loses_nothing_and_the_next_start_is_quick() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().unwrap();
    let node = bucket.node_on("a", folder.path(), &[REAL_TTL]);
    for _ in 0..5 {
        node.post("/actor/counter/alice", "").expect(200);
    }
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    for key in ["nodes/a", "owners/default/counter/alice"] {
        assert!(bucket.object(key).contains("\"state\":\"released\""), "{key}");
    }
    // As it stands a while later: the check of the id needs only what is left of the 15 s.
    bucket.change_heartbeat("a", |record| record.written_at_ms -= 15_000);
    let began = Instant::now();
    let node = bucket.node_on("a", folder.path(), &[REAL_TTL]);
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(node.get("/actor/counter/alice").expect(200).text, "5\n");
    // The local file was current: it was used as it is (R-RST-1).
    let replaced = folder.path().join("actors/default/counter/alice.db.replaced");
    assert!(!replaced.exists());
}

// R-DEL-1
#[test]
fn a_deleted_actor_stays_deleted_and_its_history_is_erased() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    node.steps("gone", json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}]));
    eventually("its history is in the bucket", || !bucket.history("sql/gone").is_empty());
    node.post("/actor/sql/gone/delete", "").expect(200);
    // A file that leads to the checksum of a database without pages says that it was deleted.
    let says_deleted = |file: &std::path::PathBuf| file.to_string_lossy().contains("-8000000000000000.ltx");
    eventually("one small object remains", || {
        let files = bucket.history("sql/gone");
        files.len() == 1 && files.iter().all(says_deleted)
    });
    node.kill();
    let node = bucket.node("a");
    let tables = node.steps("gone", json!([{"sql": "SELECT count(*) FROM sqlite_schema WHERE name = 't'"}]));
    assert_eq!(tables[0]["ok"]["rows"][0][0], 0, "{tables}");
}

// R-DEL-1, R-OWN-1
#[test]
fn a_write_right_after_a_delete_is_not_lost() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let name = |number: usize| format!("back{number}");
    for number in 0..40 {
        let node = if number % 2 == 0 { &a } else { &b };
        node.steps(
            &name(number),
            json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}]),
        );
        node.post(&format!("/actor/sql/{}/delete", name(number)), "").expect(200);
        let rows = node.steps(
            &name(number),
            json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (2)"}]),
        );
        assert!(rows[0].get("ok").is_some(), "{rows}");
    }
    // By then every erasure has ended.
    std::thread::sleep(Duration::from_secs(1));
    for number in 0..40 {
        for node in [&a, &b] {
            let rows = node.steps(&name(number), json!([{"sql": "SELECT group_concat(x) FROM t"}]));
            assert_eq!(rows[0]["ok"]["rows"][0][0], "2", "{}: {rows}", name(number));
        }
    }
}

// R-FWD-1, R-OWN-1, R-OWN-2
#[test]
fn any_node_answers_for_every_actor_and_each_runs_in_one_place() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    for n in 1..=10 {
        let by = if n % 2 == 0 { &a } else { &b };
        let answer = by.post("/actor/counter/shared", "").expect(200);
        assert_eq!(answer.text, format!("{n}\n"));
        assert_eq!(answer.header("x-wasmkeep-node"), Some("b"));
    }
    // Bodies stream both ways.
    let text = "x".repeat(900 << 10);
    b.post("/actor/sql/of-b/sql", "SELECT 1").expect(200);
    let big = a.post("/actor/sql/of-b/sql", format!("SELECT '{text}'")).expect(200);
    assert!(big.text.contains(&text) && big.header("x-wasmkeep-node") == Some("b"));
    let (status, log) = b.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    // R-LEASE-6: a clean stop hands its actors over.
    let answer = a.get("/actor/counter/shared").expect(200);
    assert_eq!((&*answer.text, answer.header("x-wasmkeep-node")), ("10\n", Some("a")));
}

// R-LEASE-6, R-WAIT-1
#[test]
fn no_get_fails_while_the_node_of_its_actor_stops_cleanly() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    let path = |actor: usize| format!("/actor/counter/c{actor}");
    for actor in 0..16 {
        b.post(&path(actor), "").expect(200);
    }
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (a, stopped) = (&a, &stopped);
            scope.spawn(move || {
                let mut after = 0;
                for actor in (0..16).cycle().skip(client * 4) {
                    after += usize::from(stopped.load(Ordering::Relaxed));
                    assert_eq!(a.get(&path(actor)).expect(200).text, "1\n");
                    if after == 16 {
                        break;
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let (status, log) = b.stop();
        assert_eq!(status.code(), Some(0), "{log}");
        stopped.store(true, Ordering::Relaxed);
    });
}

// R-WAIT-1, R-WAIT-2, R-WAIT-5, R-LEASE-4
#[test]
fn a_dead_nodes_actors_are_served_elsewhere_and_a_get_waits_for_it() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    assert_eq!(a.post("/actor/counter/alice/durable", "").expect(200).text, "1\n");
    a.kill();
    let died = Instant::now();
    // The first to find out is told so (R-FWD-2); what writes is never kept.
    let first = b.post("/actor/counter/alice", "");
    assert_eq!((first.status, first.header("retry-after")), (503, Some("1")));
    let answer = loop {
        let answer = b.get("/actor/counter/alice");
        if answer.status == 200 {
            break answer;
        }
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text);
    };
    assert_eq!((&*answer.text, answer.header("x-wasmkeep-node")), ("1\n", Some("b")));
    // Its last write began a heartbeat earlier at most; how much later, `protocol` and the simulator show.
    let took = died.elapsed();
    assert!(took > timing().lapse(timing().ttl) - timing().period - Duration::from_millis(500), "{took:?}");
    assert!(b.metric("wasmkeep_failover_waits_total", "outcome=\"served\"") >= 1.0);
    assert_eq!(b.post("/actor/counter/alice", "").expect(200).text, "2\n");
}

// R-FWD-3, R-WAIT-1, case L1
#[test]
fn a_frozen_owner_costs_callers_a_bounded_wait_and_its_actors_move() {
    let bucket = Bucket::new();
    let (a, b) = bucket.pair();
    assert_eq!(a.post("/actor/counter/alice/durable", "").expect(200).text, "1\n");
    a.signal(rustix::process::Signal::STOP);
    let began = Instant::now();
    // The system takes the connection for the frozen process: the request is written, and nobody answers it.
    let first = b.post("/actor/counter/alice", "");
    assert!(matches!(first.status, 503 | 504), "{}: {}", first.status, first.text);
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    eventually("the actor is served by the other node", || b.get("/actor/counter/alice").status == 200);
    assert_eq!(b.post("/actor/counter/alice/durable", "").expect(200).text, "2\n");
    a.signal(rustix::process::Signal::CONT);
    // It finds out at its next write that it was fenced.
    let (status, log) = a.wait();
    assert_eq!(status.code(), Some(15), "{log}");
    assert_eq!(b.get("/actor/counter/alice").expect(200).text, "2\n");
}

// R-LEASE-2, R-LEASE-3
#[test]
fn what_was_under_way_when_a_pause_outlived_the_lease_is_not_answered() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    let path = |actor: usize| format!("/actor/sql/slow{actor}/sleep?ms=5000");
    for actor in 0..4 {
        node.get(&format!("/actor/sql/slow{actor}/context")).expect(200);
    }
    std::thread::scope(|scope| {
        let node = &node;
        let asked: Vec<_> = (0..4).map(|actor| scope.spawn(move || node.get(&path(actor)))).collect();
        // The events run. All clocks go on while the process stands still, as they do in a suspend.
        std::thread::sleep(Duration::from_secs(2));
        node.signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_secs(12));
        node.signal(rustix::process::Signal::CONT);
        for answer in asked {
            let answer = answer.join().unwrap();
            assert_eq!(
                (answer.status, answer.text.trim()),
                (500, "the node lost the actor while the event ran")
            );
        }
    });
    eventually("the node serves again", || node.get("/actor/sql/slow0/context").status == 200);
}

// R-RST-4, R-RST-5
#[test]
fn a_damaged_history_is_an_error_and_leaves_the_local_file_alone() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().unwrap();
    let node = bucket.node_on("a", folder.path(), &[]);
    for _ in 0..3 {
        node.post("/actor/counter/alice/durable", "").expect(200);
    }
    node.kill();
    let file = bucket.history("counter/alice").pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x55;
    std::fs::write(&file, &bytes).unwrap();
    let local = folder.path().join("actors/default/counter/alice.db");
    // Not what the history says, so that it is restored.
    std::fs::remove_file(local.with_extension("db-wal")).ok();
    let before = std::fs::read(&local).unwrap();
    let node = bucket.node_on("a", folder.path(), &[]);
    let answer = node.get("/actor/counter/alice");
    assert_eq!(answer.status, 500, "{}", answer.text);
    assert_eq!(std::fs::read(&local).unwrap(), before);
    node.post("/actor/counter/other", "").expect(200);
    // An object cut short is the same kind of damage: no 503, which would be sent again.
    std::fs::write(&file, &bytes[..bytes.len() / 3]).unwrap();
    let answer = node.get("/actor/counter/alice");
    assert_eq!(answer.status, 500, "{}", answer.text);
}

// R-RST-1: a local file that is found damaged, or cannot be read, is replaced by what the bucket has.
#[test]
fn damage_to_a_local_file_leads_to_the_copy_in_the_bucket() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().unwrap();
    let node = bucket.node_on("a", folder.path(), &[]);
    let local = folder.path().join("actors/default/sql/rot.db");
    let fill = "CREATE TABLE t (x); INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r \
                WHERE n < 8000) SELECT zeroblob(1000) FROM r";
    node.steps("rot", json!([{"as": "script", "sql": fill}]));
    eventually("it is checkpointed", || std::fs::metadata(&local).unwrap().len() > 8_000_000);
    let sum = json!([{"sql": "SELECT sum(length(x)) FROM t"}]);
    assert_eq!(node.steps("rot", sum.clone())[0]["ok"]["rows"][0], json!([8_000_000]));

    let file = std::fs::OpenOptions::new().write(true).open(&local).unwrap();
    file.write_all_at(&vec![0x5a; 16 * 4096], 1000 * 4096).unwrap();
    let found = node.steps("rot", sum.clone()).to_string();
    assert!(found.contains("damaged"), "{found}");
    eventually("the log names the file", || {
        node.log().lines().any(|line| line.contains("rot.db") && line.contains("found damaged"))
    });
    assert_eq!(node.steps("rot", sum.clone())[0]["ok"]["rows"][0], json!([8_000_000]));
    assert!(local.with_extension("db.replaced").exists());

    node.stop();
    std::fs::remove_file(&local).unwrap();
    // The system answers EIO to a read of this one.
    std::os::unix::fs::symlink("/proc/self/mem", &local).unwrap();
    let node = bucket.node_on("a", folder.path(), &[]);
    assert_eq!(node.steps("rot", sum)[0]["ok"]["rows"][0], json!([8_000_000]));
}

// R-ACC-1
#[test]
fn an_actor_that_exists_in_the_bucket_alone_exists() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    node.post("/actor/counter/alice/durable", "").expect(200);
    node.kill();
    let folder = tempfile::tempdir().unwrap();
    let node = bucket.node_on("a", folder.path(), &["--access=counter=existing"]);
    node.get("/actor/counter/alice").expect(200);
    for number in 0..50 {
        node.get(&format!("/actor/counter/nobody{number}")).expect(404);
    }
    assert_eq!(bucket.owners("counter"), ["alice"], "asking for what does not exist leaves nothing behind");
}

// R-LEASE-8
#[test]
fn a_first_start_watches_its_id_for_the_ttl_and_the_grace() {
    let bucket = Bucket::new();
    let flags = bucket.flags("a", &[]);
    bucket.forget("a");
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let _node = Node::start_on(folder.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let took = began.elapsed();
    assert!(took >= timing().lapse(timing().ttl), "{took:?}");
}

// R-LEASE-1
#[test]
fn a_node_with_another_ttl_than_a_live_one_does_not_start() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    let folder = tempfile::tempdir().unwrap();
    support::share_compiled_code(folder.path());
    let mut other = support::wasmkeep();
    other.args(["serve", "--listen=127.0.0.1:0", "--overprovisioned", "--data-dir"]).arg(folder.path());
    other.args(support::samples()).args(bucket.flags("b", &[REAL_TTL]));
    let (status, _, stderr) = support::run(&mut other);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("the lease of node a lasts 4s and this node's would last 10s"), "{stderr}");
    assert!(bucket.object("nodes/b").contains("\"state\":\"released\""), "it frees what it may have taken");
    node.post("/actor/counter/alice", "").expect(200);
    // Of one that died long ago it is no question.
    node.kill();
    bucket.change_heartbeat("a", |record| record.written_at_ms -= 60_000);
    bucket.node_with("b", &[REAL_TTL]);
}

// R-LEASE-8
#[test]
fn a_second_process_with_the_same_id_is_refused() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    let folder = tempfile::tempdir().unwrap();
    support::share_compiled_code(folder.path());
    let mut second = support::wasmkeep();
    second.args(["serve", "--listen=127.0.0.1:0", "--overprovisioned", "--data-dir"]).arg(folder.path());
    second.args(support::samples()).args(bucket.flags("a", &[]));
    let (status, _, stderr) = support::run(&mut second);
    assert_eq!(status, Some(14), "{stderr}");
    assert!(stderr.contains("another process is running with this node id at http://"), "{stderr}");
    node.post("/actor/counter/alice", "").expect(200);
}

// R-LEASE-7
#[test]
fn a_node_whose_heartbeat_is_deleted_ends_with_its_own_status() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    node.post("/actor/counter/alice", "").expect(200);
    std::fs::remove_file(bucket.0.path().join("objects/nodes/a#")).unwrap();
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(15), "{log}");
    assert!(log.contains("heartbeat was deleted"), "{log}");
}

// R-CALL-1, R-CALL-2
#[test]
fn actors_call_actors_of_other_nodes_and_nobody_can_pretend_to() {
    let bucket = Bucket::new();
    let class = |name: &str| format!("--actor={name}={}", support::guest(name).display());
    let start = |id: &str| {
        let mut arguments = vec![class("bank"), class("account"), "--access=account=internal".to_owned()];
        arguments.extend(bucket.flags(id, &[]));
        let folder = tempfile::tempdir().unwrap();
        (Node::start_with(folder.path(), &arguments), folder)
    };
    let ((a, _a_disk), (b, _b_disk)) = std::thread::scope(|scope| {
        let (a, b) = (scope.spawn(|| start("a")), scope.spawn(|| start("b")));
        (a.join().unwrap(), b.join().unwrap())
    });
    let deposit = |node: &Node, bank: &str, id: &str, to: &str| {
        let wish = json!({ "id": id, "to": to, "amount": 5 }).to_string();
        node.post(&format!("/actor/bank/{bank}/deposit"), wish)
    };
    // The account becomes b's, the other bank a's.
    assert_eq!(deposit(&b, "of-b", "1", "mine/and yours").expect(200).text.trim(), "5");
    eventually("the nodes know each other", || deposit(&a, "of-a", "2", "mine/and yours").status == 200);
    assert_eq!(deposit(&a, "of-a", "3", "mine/and yours").expect(200).text.trim(), "15");
    assert_eq!(a.get("/actor/bank/of-a/balance?of=mine%2Fand%20yours").expect(200).text.trim(), "15");
    // The caller is the platform's word: the account booked by the bank's name.
    for node in [&a, &b] {
        node.get("/actor/account/mine%2Fand%20yours").expect(403);
    }
    let agent = support::agent();
    let forged = ureq::http::Request::get(format!("http://{}/actor/account/mine%2Fand%20yours/", b.address))
        .header("x-wasmkeep-call-chain", "bank/of-a")
        .header("x-wasmkeep-call-timestamp", "1")
        .header("x-wasmkeep-call-nonce", "00".repeat(16))
        .header("x-wasmkeep-call-signature", "00".repeat(32))
        .body(())
        .unwrap();
    assert_eq!(agent.run(forged).unwrap().status().as_u16(), 403);
}

// R-OPS-1, R-OPS-2, R-REPL-1
#[test]
fn the_operators_commands_read_what_a_node_wrote_and_stop_it() {
    let bucket = Bucket::new();
    let url = format!("--bucket=file://{}", bucket.0.path().display());
    let say = |arguments: &[&str]| {
        let (status, stdout, stderr) = support::run(support::wasmkeep().args(arguments).arg(&url));
        assert_eq!(status, Some(0), "{arguments:?}: {stdout}{stderr}");
        stdout
    };
    let node = bucket.node("a");
    for _ in 0..3 {
        node.post("/actor/counter/alice/durable", "").expect(200);
    }
    let actor = "default/counter/alice";
    assert!(say(&["cluster", "status"]).contains("1 of 1 node live"));
    let report: serde_json::Value =
        serde_json::from_str(&say(&["actor", "inspect", actor, "--json"])).unwrap();
    assert!(
        report["owner"]["held"]["node"] == "a" && report["latest"]["txid"].as_u64() > Some(2),
        "{report}"
    );
    assert!(say(&["actor", "verify", actor]).contains("every file is sound"));
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("alice.db");
    say(&["actor", "export", actor, "--output", file.to_str().unwrap()]);
    let database = rusqlite::Connection::open(file).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert!(say(&["cluster", "fence", "a"]).contains("its process stops at its next heartbeat"));
    let (status, log) = node.wait();
    assert_eq!(status.code(), Some(15), "{log}");
}

// R-RST-4
#[test]
fn killed_at_any_moment_of_a_restore_the_next_one_is_whole() {
    let bucket = Bucket::new();
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let node = bucket.node_on("a", &disk, &[]);
    let script =
        "CREATE TABLE t (x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
        INSERT INTO t SELECT randomblob(20000) FROM n";
    node.steps(
        "big",
        json!([{"as": "script", "sql": script}, {"as": "durable", "sql": "INSERT INTO t VALUES ('last')"}]),
    );
    node.kill();
    let local = disk.join("actors/default/sql/big.db");
    for wait_ms in [30, 120] {
        // What is there is not what the history ends with, so it is rebuilt and the old file set aside.
        std::fs::remove_file(local.with_extension("db-wal")).ok();
        std::fs::write(&local, b"an older file").unwrap();
        let node = bucket.node_on("a", &disk, &[]);
        let address = node.address;
        let asking = std::thread::spawn(move || {
            // Its node is killed under it.
            let _ = support::agent().get(format!("http://{address}/actor/sql/big/size")).call();
        });
        std::thread::sleep(Duration::from_millis(wait_ms));
        node.kill();
        asking.join().unwrap();
    }
    let node = bucket.node_on("a", &disk, &[]);
    let rows = node.steps("big", json!([{"sql": "SELECT count(*), sum(length(x)) FROM t"}]));
    assert_eq!(rows[0]["ok"]["rows"][0], json!([601, 12_000_004]), "{rows}");
    let sound = node.steps("big", json!([{"sql": "PRAGMA integrity_check"}]));
    assert!(sound.to_string().contains("ok") && !sound.to_string().contains("page"), "{sound}");
}

#[test]
fn no_other_user_can_read_what_a_node_writes() {
    let bucket = Bucket::new();
    let node = bucket.node("a");
    node.steps("x", json!([{"as": "durable", "sql": "CREATE TABLE t (x)"}]));
    node.get("/actor/sql/x/alarm?in=3600000").expect(200);
    eventually("its alarm is in the bucket", || bucket.0.path().join("objects/alarms/default").exists());
    let mut seen = Vec::new();
    // The test's own folders are not the node's, and its compiled code is shared with other tests.
    let mut open: Vec<_> = ["actors", "alarms", "tmp", "lock"].map(|part| node.data_dir.join(part)).into();
    open.extend(["objects", "locks", "tmp", "FORMAT"].map(|part| bucket.0.path().join(part)));
    while let Some(path) = open.pop() {
        // What is being replaced is gone a moment later.
        let Ok(attributes) = std::fs::symlink_metadata(&path) else { continue };
        let mode = attributes.permissions().mode() & 0o7777;
        assert_eq!(mode, if attributes.is_dir() { 0o700 } else { 0o600 }, "{path:?}: {mode:o}");
        if attributes.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    for wanted in ["x.db", "x.db-wal", "secret#", "a#", "current"] {
        assert!(seen.iter().any(|name| name == wanted), "{wanted} of {seen:?}");
    }
}
