//! What the flags of `serve` say is what the node does.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    path::Path,
    process::Command,
};

use crate::{
    fault_server::FaultServer,
    s3,
    support::{
        Node,
        cluster::{SHORT_TTL, listener_address, stopped_long_ago},
        eventually, guest, samples,
    },
};

// R-FLAG-2
#[test]
fn a_node_is_where_and_what_its_flags_say() {
    let folder = tempfile::tempdir().unwrap();
    let values = folder.path().join("values");
    std::fs::write(&values, "# a comment\nGREETING=hello\n").unwrap();
    let listen = listener_address();
    let data = folder.path().join("somewhere/data");
    let mut arguments = samples();
    arguments.extend([
        format!("--listen={listen}"),
        format!("--env=sql={}", values.display()),
        "--access=counter=existing:main".to_owned(),
        guest("site").display().to_string(),
    ]);
    let node = Node::start_with(&data, &arguments);
    assert_eq!(node.address, listen);
    assert_eq!(node.post("/actor/counter/main", "").expect(200).text, "1\n");
    node.post("/actor/counter/other", "").expect(404);
    assert_eq!(node.get("/actor/sql/a/env").expect(200).json()["env"]["GREETING"], "hello");
    assert_eq!(node.get("/").expect(200).header("content-type"), Some("text/html; charset=utf-8"));
    assert!(data.join("actors/default/counter/main.db").exists());
}

/// Opens connections until one is refused; how many were not.
fn admitted(node: &Node, at_most: usize) -> usize {
    let mut open = Vec::new();
    while open.len() < at_most {
        let mut stream = node.connect();
        stream.write_all(b"GET /actor/counter/a HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        match &status {
            b"HTTP/1.1 200" => open.push(stream),
            b"HTTP/1.1 503" => break,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    open.len()
}

// R-FLAG-2
#[test]
fn connections_are_what_is_asked_for_or_what_the_open_file_limit_allows() {
    let asked = Node::start(&["--max-connections=5", "--max-resident=10"]);
    assert_eq!(admitted(&asked, 300), 5, "{}", asked.log());
    let folder = tempfile::tempdir().unwrap();
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_wasmkeep")]);
    let node = Node::run(limited, folder.path(), &samples());
    assert!(node.log().contains("the open-file limit is low"), "{}", node.log());
    let admitted = admitted(&node, 1024);
    assert!((50..300).contains(&admitted), "{admitted}");
}

// R-FLAG-6
#[test]
fn clusters_under_two_prefixes_of_one_bucket_know_nothing_of_each_other() {
    let bucket = FaultServer::start();
    let start = |prefix: &str| {
        let object = format!("{prefix}nodes/a");
        bucket.create(object.trim_start_matches('/'), stopped_long_ago());
        let url = format!("--bucket=s3://bucket/{prefix}");
        // The same id: two processes of one cluster would be refused.
        Node::start_in(
            &bucket.environment(),
            &[
                url.trim_end_matches('/'),
                "--node-id=a",
                "--cluster-plaintext=accept",
                "--shards=1",
                SHORT_TTL,
            ],
        )
    };
    let prefixes = ["prod/", "test/eu/", ""];
    let nodes = std::thread::scope(|scope| {
        let started = prefixes.map(|prefix| scope.spawn(move || start(prefix)));
        started.map(|node| node.join().unwrap())
    });
    for (writes, node) in (1..).zip(&nodes) {
        for write in 1..=writes {
            assert_eq!(
                node.post("/actor/counter/alice/durable", "").expect(200).text,
                format!("{write}\n"),
                "each has an alice of its own"
            );
        }
    }
    let keys = bucket.keys();
    for prefix in prefixes {
        for what in ["nodes/a", "owners/default/counter/alice", "cluster/secret"] {
            assert!(keys.contains(&format!("{prefix}{what}")), "{prefix}{what} in {keys:?}");
        }
    }
    let secrets = prefixes.map(|prefix| bucket.text(&format!("{prefix}cluster/secret")).unwrap());
    assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2], "a call of one means nothing to another");
    // What is written for one of them is read back by it alone.
    let [first, ..] = nodes;
    first.kill();
    assert_eq!(s3::count(&start("prod/")), "1");
}

/// The names of a process's threads, each with the processors it may use.
fn threads(pid: u32) -> Vec<(String, String)> {
    let of_thread = |folder: &Path| {
        let name = std::fs::read_to_string(folder.join("comm")).ok()?.trim().to_owned();
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name, allowed.trim().to_owned()))
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.filter_map(|task| of_thread(&task.unwrap().path())).collect()
}

/// Ticks of processor time that the threads called `name` have used.
fn ticks(pid: u32, name: &str) -> u64 {
    let of_thread = |folder: &Path| {
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        head.contains(name).then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.filter_map(|task| of_thread(&task.unwrap().path())).sum()
}

/// The lowest processor the tests may use.
fn first_processor() -> String {
    let [(_, allowed), ..] = &*threads(std::process::id()) else { panic!("a process has a thread") };
    allowed.chars().take_while(char::is_ascii_digit).collect()
}

// R-FLAG-7
#[test]
fn shards_are_as_many_as_asked_for_and_stay_where_they_are_put() {
    // An executor has a thread for work that blocks besides, of the same name.
    let shards = |node: &Node| {
        let all = threads(node.pid()).into_iter();
        all.filter(|(name, _)| name.starts_with("shard")).collect::<BTreeSet<_>>()
    };
    let names = |node: &Node| shards(node).into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>();
    let free = Node::start(&["--shards=3"]);
    assert_eq!(names(&free).len(), 3, "{:?}", threads(free.pid()));
    let everywhere = &threads(std::process::id())[0].1;
    assert!(shards(&free).iter().all(|(_, allowed)| allowed == everywhere), "{:?}", shards(&free));
    let first = first_processor();
    let pinned = Node::start(&["--shards=1", &format!("--cpuset={first}")]);
    assert_eq!(names(&pinned).len(), 1);
    assert!(shards(&pinned).iter().any(|(_, allowed)| *allowed == first), "{:?}", shards(&pinned));
}

// R-FLAG-7
#[test]
fn a_pinned_shard_that_is_to_look_for_work_does_and_another_sleeps() {
    let place = format!("--cpuset={}", first_processor());
    let spins = Node::start(&["--shards=1", &place, "--spin-before-park-us=100000000"]);
    let sleeps = Node::start(&["--shards=1", &place]);
    let before = (ticks(spins.pid(), "shard"), ticks(sleeps.pid(), "shard"));
    // Half a second of processor time, however long that takes here.
    eventually("it has looked for work", || ticks(spins.pid(), "shard") >= before.0 + 50);
    let slept = ticks(sleeps.pid(), "shard") - before.1;
    assert!(slept < 25, "{slept} ticks of an idle shard");
}

// R-FLAG-7
#[test]
fn the_buckets_thread_stays_on_the_processor_it_is_given() {
    let bucket = FaultServer::start();
    let first = first_processor();
    let node = s3::node_with(&bucket, &[&format!("--bucket-cpu={first}")]);
    let all = threads(node.pid());
    assert!(all.contains(&("wasmkeep-bucket".to_owned(), first)), "{all:?}");
}
