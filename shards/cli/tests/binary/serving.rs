//! What a node promises to its clients, over real sockets.

use std::{
    io::{Read, Write},
    time::Duration,
};

use crate::support::{self, Node, eventually};
use serde_json::json;

#[test]
fn a_counter_counts_and_reads() {
    // R-FLAG-1, R-OPS-5, R-FWD-1
    let node = Node::start(&["--node-id=n1"]);
    assert_eq!(node.get("/actor/counter/alice").expect(200).text, "0\n");
    for n in 1..=3 {
        let answer = node.post("/actor/counter/alice", "").expect(200);
        assert_eq!(answer.text, format!("{n}\n"));
        assert_eq!(answer.header("x-wasmkeep-node"), Some("n1"));
    }
    assert_eq!(node.post("/actor/counter/alice/durable", "").expect(200).text, "4\n");
    assert_eq!(node.post("/actor/counter/bob", "").expect(200).text, "1\n");
    assert_eq!(node.get("/actor/counter/alice").expect(200).text, "4\n");
    node.get("/_wasmkeep/health").expect(200);
    node.get("/_wasmkeep/ready").expect(200);
    assert_eq!(node.metric("wasmkeep_requests_total", "class=\"counter\""), 7.0);
    // An event ends a moment after its answer.
    eventually("all events have ended", || {
        node.metric("wasmkeep_event_seconds_count", "class=\"counter\"") == 7.0
    });
    assert_eq!(node.metric("wasmkeep_actors_resident", ""), 2.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn what_was_written_is_there_after_a_stop_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &[]);
    node.post("/actor/counter/a", "").expect(200);
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    let node = Node::start_on(folder.path(), &[]);
    assert_eq!(node.post("/actor/counter/a", "").expect(200).text, "2\n");
    node.kill();
    let node = Node::start_on(folder.path(), &[]);
    assert_eq!(node.get("/actor/counter/a").expect(200).text, "2\n");
}

#[test]
fn one_name_is_one_actor_and_one_file_inside_the_data_directory() {
    // case H4
    let node = Node::start(&[]);
    for (path, number) in [
        ("/actor/counter/a%2Fb", 1),
        ("/actor/counter/a%2fb", 2),
        ("/actor/counter/%61%2Fb", 3),
        ("/actor/counter/%252f", 1),
        ("/actor/counter/a+b", 1),
        ("/actor/counter/x%3Fy", 1),
        ("/actor/counter/%C3%A9", 1),
        ("/actor/counter/e%CC%81", 1),
        ("/actor/counter/x.db", 1),
        ("/actor/counter/Alice", 1),
        ("/actor/counter/alice", 1),
        ("/actor/counter/%2e%2e%2F%2e%2e%2Fpasswd", 1),
    ] {
        assert_eq!(node.post(path, "").expect(200).text, format!("{number}\n"), "{path}");
    }
    for path in [
        "/actor/counter/%00",
        "/actor/counter/%zz",
        "/actor/counter/%2e%2e",
        "/actor/counter/",
        "/actor/counter",
    ] {
        node.post(path, "").expect(400);
    }
    let long = "x".repeat(257);
    node.post(&format!("/actor/counter/{long}"), "").expect(400);
    let files: Vec<_> = std::fs::read_dir(node.data_dir.join("actors/default/counter"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".db"))
        .collect();
    assert_eq!(files.len(), 10, "{files:?}");
    assert!(
        files.contains(&"a%2Fb.db".to_owned()) && files.contains(&"%2E%2E%2F%2E%2E%2Fpasswd.db".to_owned())
    );
}

#[test]
fn paths_that_lead_nowhere_say_what_is_there() {
    let node = Node::start(&[]);
    assert!(node.get("/").expect(404).text.contains("/actor/CLASS/NAME (classes: counter, sql)"));
    assert!(node.get("/actor/nope/x").expect(404).text.contains("it serves: counter, sql"));
    assert!(node.get("/_wasmkeep/nope").expect(404).text.contains("/_wasmkeep/metrics"));
}

#[test]
fn the_stateless_component_answers_everything_else() {
    // R-FLAG-2
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = support::samples();
    arguments.push(support::guest("site").display().to_string());
    let node = Node::start_with(folder.path(), &arguments);
    let page = node.get("/").expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let head = node.request("HEAD", "/", b"").expect(200);
    assert_eq!(head.text, "");
    assert_eq!(node.post("/actor/counter/a", "").expect(200).text, "1\n");
    node.get("/elsewhere").expect(404);
}

#[test]
fn access_rules_decide_what_is_reachable_from_outside() {
    // R-ACC-1
    let node = Node::start(&["--access=counter=existing:main", "--access=sql=internal"]);
    node.post("/actor/counter/other", "").expect(404);
    node.post("/actor/counter/main", "").expect(200);
    node.get("/actor/sql/x/context").expect(403);
    assert!(!node.data_dir.join("actors/default/counter/other.db").exists());
}

#[test]
fn values_reach_the_class_they_are_for() {
    // R-FLAG-2
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values");
    std::fs::write(&file, "GREETING=hello\n").unwrap();
    let node = Node::start(&[&format!("--env=sql={}", file.display())]);
    assert_eq!(node.get("/actor/sql/a/env").expect(200).json()["env"]["GREETING"], "hello");
}

#[test]
fn an_idle_actor_hibernates_and_comes_back_with_its_data_only() {
    let node = Node::start(&["--hibernate-after-secs=0.3"]);
    node.get("/actor/sql/a/set?value=kept").expect(200);
    assert_eq!(node.get("/actor/sql/a/get").expect(200).json(), "kept");
    node.steps("a", json!([{"as": "exec", "sql": "CREATE TABLE t (x)"}]));
    eventually("the actor sleeps", || node.metric("wasmkeep_actors_hibernated", "") == 1.0);
    assert_eq!(node.metric("wasmkeep_actors_resident", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_instance_memory_bytes", ""), 0.0);
    assert_eq!(node.get("/actor/sql/a/get").expect(200).json(), "", "memory is gone");
    let outcome = node.steps("a", json!([{"sql": "SELECT count(*) FROM t"}]));
    assert_eq!(outcome[0]["ok"]["rows"][0][0], 0, "the table stayed");
    assert!(node.metric("wasmkeep_actor_wakes_total", "") >= 2.0);
}

#[test]
fn an_actor_idle_for_a_moment_closes_its_database_and_keeps_its_memory() {
    let node = Node::start(&["--hibernate-after-secs=600"]);
    node.get("/actor/sql/a/set?value=kept").expect(200);
    node.steps("a", json!([{"as": "exec", "sql": "CREATE TABLE t (x)"}]));
    let open_databases = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap();
        let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        // Those of actors yet to come are in another folder.
        let of_actors = links.filter(|file| file.components().any(|part| part.as_os_str() == "actors"));
        of_actors.filter(|file| file.extension().is_some_and(|end| end == "db" || end == "db-wal")).count()
    };
    let open = open_databases();
    assert!(open == 2 || node.metric("wasmkeep_actor_dozes_total", "") > 0.0, "{open} files");
    for round in 1..3 {
        eventually("the actor dozes", || node.metric("wasmkeep_actor_dozes_total", "") >= f64::from(round));
        assert_eq!(open_databases(), 0);
        assert_eq!(node.metric("wasmkeep_actors_resident", ""), 1.0);
        let outcome = node.steps(
            "a",
            json!([{"as": "exec", "sql": "INSERT INTO t VALUES (1)"}, {"sql": "SELECT count(*) FROM t"}]),
        );
        assert_eq!(outcome[1]["ok"]["rows"][0][0], round);
        assert_eq!(node.get("/actor/sql/a/get").expect(200).json(), "kept");
    }
    assert_eq!(node.metric("wasmkeep_actor_wakes_total", ""), 1.0);
}

#[test]
fn over_the_cap_the_least_recently_used_actor_gives_its_place() {
    let node = Node::start(&["--max-resident=2", "--shards=1"]);
    for name in ["a", "b", "c", "d"] {
        node.post(&format!("/actor/counter/{name}"), "").expect(200);
    }
    eventually("two have gone to sleep", || node.metric("wasmkeep_actors_hibernated", "") == 2.0);
    assert_eq!(node.metric("wasmkeep_actors_resident", ""), 2.0);
    assert_eq!(node.post("/actor/counter/a", "").expect(200).text, "2\n");
}

#[test]
fn events_that_find_the_mailbox_full_get_503_and_retry_after() {
    let node = Node::start(&["--mailbox=1", "--event-limit-secs=20"]);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| node.get("/actor/sql/a/sleep?ms=5000").status);
        // An actor is resident before it has started, and its first event waits until then.
        let has_left = || node.metric("wasmkeep_mailbox_events", "") == 0.0;
        let runs = || node.metric("wasmkeep_actors_resident", "") == 1.0 && has_left();
        eventually("the first runs", runs);
        let waiting = scope.spawn(|| node.get("/actor/sql/a/get").status);
        eventually("the second waits", || node.metric("wasmkeep_mailbox_events", "") == 1.0);
        let refused = node.get("/actor/sql/a/get").expect(503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!((running.join().unwrap(), waiting.join().unwrap()), (200, 200));
    });
}

#[test]
fn a_trap_costs_the_instance_and_not_the_data() {
    // case T4
    let node = Node::start(&[]);
    node.get("/actor/sql/a/set?value=kept").expect(200);
    node.steps("a", json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}]));
    for path in ["trap", "panic", "exit?code=0", "recurse"] {
        node.get(&format!("/actor/sql/a/{path}")).expect(500);
    }
    assert_eq!(node.get("/actor/sql/a/get").expect(200).json(), "");
    assert_eq!(node.steps("a", json!([{"sql": "SELECT x FROM t"}]))[0]["ok"]["rows"][0][0], 1);
    assert_eq!(node.metric("wasmkeep_event_failures_total", "class=\"sql\""), 4.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn endless_work_ends_at_the_limit_wherever_it_is() {
    // cases T2, Q6
    let node = Node::start(&["--event-limit-secs=1"]);
    let endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
    std::thread::scope(|scope| {
        let spin = scope.spawn(|| node.get("/actor/sql/spinner/spin"));
        let sleep = scope.spawn(|| node.get("/actor/sql/sleeper/sleep?ms=3600000"));
        let query = scope.spawn(|| node.post("/actor/sql/asker/sql", endless));
        for _ in 0..20 {
            node.post("/actor/counter/neighbour", "").expect(200);
        }
        for ended in [spin, sleep, query] {
            let answer = ended.join().unwrap().expect(500);
            assert!(answer.text.contains("longer than its limit of 1 s"), "{}", answer.text);
        }
    });
    node.get("/actor/sql/spinner/get").expect(200);
    let after = node.steps("asker", json!([{"sql": "SELECT 1"}]));
    assert_eq!(after[0]["ok"]["rows"][0][0], 1, "{after}");
}

#[test]
fn an_event_that_ends_with_a_transaction_open_leaves_nothing_of_it() {
    // case Q5
    let node = Node::start(&["--event-limit-secs=1"]);
    node.steps("a", json!([{"as": "exec", "sql": "CREATE TABLE t (x)"}]));
    let open = json!([
        {"as": "exec", "sql": "BEGIN"},
        {"as": "exec", "sql": "INSERT INTO t VALUES (1)"},
        {"as": "exec", "sql": "SAVEPOINT s"},
        {"as": "exec", "sql": "INSERT INTO t VALUES (2)"},
        {"as": "exec", "sql": "ROLLBACK TO s"},
    ])
    .to_string();
    for (then, status) in [("", 200), ("trap", 500), ("sleep", 500), ("spin", 500)] {
        node.post(&format!("/actor/sql/a/steps?then={then}"), &open).expect(status);
        let after = node.steps(
            "a",
            json!([
                {"sql": "SELECT count(*) FROM t"},
                {"as": "exec", "sql": "BEGIN"},
                {"as": "exec", "sql": "COMMIT"},
            ]),
        );
        assert_eq!(after[0]["ok"]["rows"][0][0], 0, "{then}: {after}");
        assert!(after[2]["ok"].is_object(), "{then}: the next event begins in autocommit: {after}");
    }
    assert!(node.metric("wasmkeep_event_rollbacks_total", "") >= 4.0);
}

#[test]
fn delete_self_forgets_the_actor_and_its_next_event_is_fresh() {
    // R-DEL-1, on one node
    let node = Node::start(&[]);
    node.steps("a", json!([{"as": "script", "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1)"}]));
    node.post("/actor/sql/a/delete", "").expect(200);
    let after = node.steps("a", json!([{"sql": "SELECT count(*) FROM sqlite_schema WHERE name = 't'"}]));
    assert_eq!(after[0]["ok"]["rows"][0][0], 0, "{after}");
}

#[test]
fn memory_stops_at_the_limit_and_says_so_to_the_guest() {
    let node = Node::start(&["--actor-memory-mib=16"]);
    assert!(node.get("/actor/sql/a/grow?mib=4").expect(200).text.starts_with("granted"));
    assert!(node.get("/actor/sql/a/grow?mib=32").expect(200).text.starts_with("refused"));
    node.get("/actor/sql/a/get").expect(200);
}

#[test]
fn storage_stops_at_its_quota_and_reads_and_deletes_go_on() {
    // case Q4
    let node = Node::start(&["--actor-storage-mib=1"]);
    node.steps("a", json!([{"as": "exec", "sql": "CREATE TABLE t (x)"}]));
    let fill = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 100) \
                INSERT INTO t SELECT randomblob(50000) FROM r";
    let outcome = node.steps("a", json!([{"as": "exec", "sql": fill}]));
    assert_eq!(outcome[0]["error"]["kind"], "full", "{outcome}");
    let after = node.steps(
        "a",
        json!([
            {"as": "exec", "sql": "INSERT INTO t VALUES (1)"},
            {"sql": "SELECT count(*) FROM t"},
            {"as": "exec", "sql": "DELETE FROM t"},
        ]),
    );
    assert!(after.as_array().unwrap().iter().all(|step| step.get("ok").is_some()), "{after}");
}

#[test]
fn guest_mistakes_are_500_or_a_cut_connection_never_a_wrong_200() {
    // case H7
    let node = Node::start(&[]);
    for path in ["no-response", "status?code=100", "status?code=101"] {
        let status = node.get(&format!("/actor/sql/a/{path}")).status;
        assert_eq!(status, 500, "{path}");
    }
    // What an instance keeps in memory goes with it, and it goes when it has not answered.
    node.get("/actor/sql/kept/set?value=x").expect(200);
    assert_eq!(node.get("/actor/sql/kept/get").expect(200).json(), "x");
    node.get("/actor/sql/kept/no-response").expect(500);
    assert_eq!(node.get("/actor/sql/kept/get").expect(200).json(), "");
    for path in ["short-body", "long-body", "unfinished", "trap-after-head"] {
        let answer = node.get(&format!("/actor/sql/a/{path}"));
        assert!(answer.status == 500 || answer.cut, "{path}: {answer:?}");
    }
    for name in ["connection", "transfer-encoding", "upgrade", "x-wasmkeep-node", "keep-alive"] {
        let answer = node.get(&format!("/actor/sql/a/header?name={name}&value=forged"));
        assert_ne!(answer.header(name), Some("forged"), "{name}");
    }
    assert_eq!(node.get("/actor/sql/a/header?name=x-own&value=1").expect(200).header("x-own"), Some("1"));
    let head = node.request("HEAD", "/actor/sql/a/status", b"").expect(200);
    assert_eq!(head.text, "");
    assert_eq!(node.get("/actor/sql/a/status?code=204").expect(204).text, "");
}

#[test]
fn a_client_cannot_pass_for_the_platform() {
    // R-CALL-2
    let node = Node::start(&[]);
    let request = "GET /actor/sql/a/headers?q=1 HTTP/1.1\r\nhost: here\r\nx-wasmkeep-caller: sql/b\r\n\
                   X-WasmKeep-Other: 1\r\nkeep-alive: 5\r\nx-mine: 2\r\nconnection: close\r\n\r\n";
    let answer = node.raw(request);
    assert!(answer.contains("x-mine"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(!body.contains("x-wasmkeep") && !body.contains("keep-alive"), "{body}");
}

#[test]
fn bodies_stream_both_ways_with_the_client_setting_the_pace() {
    let node = Node::start(&["--event-limit-secs=20"]);
    let body: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(node.post("/actor/sql/a/echo", &body).expect(200).bytes, body);
    assert_eq!(node.get("/actor/sql/a/stream?bytes=5000000&chunk=1000").expect(200).bytes, body);
    // A client that reads nothing: the guest waits, the node's memory does not grow.
    let before = resident_kib(node.pid());
    let mut slow = node.connect();
    slow.write_all(b"GET /actor/sql/slow/stream?bytes=500000000 HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    let mut head = [0; 64];
    slow.read_exact(&mut head).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let grown = resident_kib(node.pid()).saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
}

fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn clients_that_leave_take_nothing_with_them() {
    // case H6
    let node = Node::start(&["--event-limit-secs=5", "--shards=2"]);
    for round in 0..500 {
        let mut stream = node.connect();
        let path = match round % 4 {
            0 => "POST /actor/sql/a/echo HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nhalf",
            1 => "GET /actor/sql/a/stream?bytes=10000000 HTTP/1.1\r\nhost: h\r\n\r\n",
            2 => "POST /actor/counter/a HTTP/1.1\r\nhost: h\r\n\r\n",
            _ => "GET /actor/sql/a/get HTTP/1.1\r\nhos",
        };
        stream.write_all(path.as_bytes()).unwrap();
    }
    eventually("the queue moves on", || node.get("/actor/sql/a/get").status == 200);
    eventually("nothing waits", || node.metric("wasmkeep_mailbox_events", "") == 0.0);
    eventually("connections are closed", || node.metric("wasmkeep_connections", "") <= 1.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_connection_panics_total", ""), 0.0);
}

#[test]
fn one_connection_reaches_actors_of_every_shard_in_order() {
    let node = Node::start(&["--shards=2"]);
    let mut stream = node.connect();
    let mut pipelined = String::new();
    for n in 0..200 {
        pipelined.push_str(&format!("POST /actor/counter/p{} HTTP/1.1\r\nhost: h\r\n\r\n", n % 20));
    }
    pipelined.push_str("GET /actor/counter/p0 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    stream.write_all(pipelined.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let bodies: Vec<&str> =
        answers.split("\r\n\r\n").skip(1).map(|part| part.lines().next().unwrap()).collect();
    let expected: Vec<String> = (0..200).map(|n| (n / 20 + 1).to_string()).chain(["10".to_owned()]).collect();
    assert_eq!(bodies, expected);
    assert!(node.metric("wasmkeep_mesh_hops_total", "") > 0.0);
}

#[test]
fn smuggled_requests_are_refused_and_never_run() {
    // case H1, through the whole node
    let node = Node::start(&[]);
    let hidden = "POST /actor/counter/hidden HTTP/1.1\r\nhost: h\r\n\r\n";
    for head in [
        "content-length: 0\r\ntransfer-encoding: chunked\r\n",
        "content-length: 0\r\ncontent-length: 0\r\n",
        "content-length: +5\r\n",
        "content-length: 5, 5\r\n",
        "transfer-encoding: chunked, gzip\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "x: a\r\n b\r\n",
        "x: a\n",
    ] {
        let answer =
            node.raw(&format!("POST /actor/counter/a HTTP/1.1\r\nhost: h\r\n{head}\r\n0\r\n\r\n{hidden}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answer}");
    }
    assert_eq!(node.get("/actor/counter/hidden").expect(200).text, "0\n");
    assert_eq!(node.get("/actor/counter/a").expect(200).text, "0\n");
}

#[test]
fn a_damaged_database_is_one_actors_trouble_and_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &[]);
    node.post("/actor/counter/broken", "").expect(200);
    node.stop();
    let file = folder.path().join("actors/default/counter/broken.db");
    let damage = vec![0x5a; 8192];
    std::fs::write(&file, &damage).unwrap();
    // What the WAL still has would repair the file.
    let _ = std::fs::remove_file(file.with_extension("db-wal"));
    let node = Node::start_on(folder.path(), &[]);
    let answer = node.post("/actor/counter/broken", "").expect(500);
    assert!(answer.text.contains("damaged"), "{}", answer.text);
    eventually("the log names the file", || node.log().contains("broken.db"));
    node.post("/actor/counter/whole", "").expect(200);
    assert_eq!(std::fs::read(&file).unwrap(), damage);
}

#[test]
fn a_database_at_rest_is_whole_by_itself_and_an_empty_one_is_damage() {
    // R-DUR-1
    let folder = tempfile::tempdir().unwrap();
    let file = |root: &std::path::Path, name: &str| root.join(format!("actors/default/counter/{name}.db"));
    let node = Node::start_on(folder.path(), &["--hibernate-after-secs=3"]);
    for name in ["rested", "stopped"] {
        for _ in 0..5 {
            node.post(&format!("/actor/counter/{name}/durable"), "").expect(200);
        }
    }
    let hibernated = || node.metric("wasmkeep_actors_hibernated", "") >= 2.0;
    eventually("both hibernate", hibernated);
    let copies = tempfile::tempdir().unwrap();
    let copy = |name| {
        let to = file(copies.path(), name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file(folder.path(), name), to).unwrap();
    };
    copy("rested");
    node.post("/actor/counter/stopped/durable", "").expect(200);
    node.stop();
    copy("stopped");
    let truncated = file(folder.path(), "rested");
    std::fs::File::options().write(true).open(&truncated).unwrap().set_len(0).unwrap();

    let node = Node::start_on(copies.path(), &[]);
    assert_eq!(node.get("/actor/counter/rested").expect(200).text, "5\n");
    assert_eq!(node.get("/actor/counter/stopped").expect(200).text, "6\n");
    let node = Node::start_on(folder.path(), &[]);
    for _ in 0..2 {
        let answer = node.post("/actor/counter/rested", "").expect(500);
        assert!(answer.text.contains("damaged"), "{}", answer.text);
    }
    assert_eq!(std::fs::metadata(&truncated).unwrap().len(), 0);
    assert_eq!(node.post("/actor/counter/stopped", "").expect(200).text, "7\n");
}
