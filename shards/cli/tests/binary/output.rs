//! What becomes of a node, and of a command, whose output nobody takes: it costs output and nothing else.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    process::Stdio,
    thread,
};

use crate::{
    buckets,
    support::{self, Node, eventually, run, wait, wasmkeep},
};

/// A pipe whose reader has gone.
fn gone() -> Stdio {
    io::pipe().unwrap().1.into()
}

/// A device that is full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_log_that_nobody_reads_costs_lines_and_stops_no_actor() {
    let (reader, writer) = io::pipe().unwrap();
    let node = Node::start_logging_to(writer.into(), &[]);
    for name in ["a", "b", "c", "d"] {
        node.post(&format!("/actor/counter/{name}"), "").expect(200);
    }
    // More than waits for a reader: an actor may write 200 lines a second.
    thread::scope(|scope| {
        for loud in 0..4 {
            let node = &node;
            scope.spawn(move || {
                while node.metric("wasmkeep_log_lines_lost_total", "") == 0.0 {
                    node.get(&format!("/actor/sql/loud{loud}/log?lines=200&bytes=8000")).expect(200);
                }
            });
        }
    });
    // On both shards.
    for name in ["a", "b", "c", "d"] {
        node.post(&format!("/actor/counter/{name}"), "").expect(200);
    }
    node.get("/_wasmkeep/health").expect(200);
    let lost = node.metric("wasmkeep_log_lines_lost_total", "");
    let told = thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map(Result::unwrap);
        let lines = lines
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap()["lost"].as_f64());
        lines.sum::<f64>()
    });
    let (status, _) = node.stop();
    assert_eq!(status.code(), Some(0));
    assert_eq!(told.join().unwrap(), lost, "the log says how many lines are missing");
}

#[test]
fn a_node_whose_log_is_never_read_stops_all_the_same() {
    let (_reader, writer) = io::pipe().unwrap();
    let node = Node::start_logging_to(writer.into(), &[]);
    for _ in 0..3 {
        node.get("/actor/sql/loud/log?lines=200&bytes=8000").expect(200);
    }
    assert_eq!(node.stop().0.code(), Some(0));
}

#[test]
fn a_stdout_or_stderr_that_takes_nothing_ends_no_node() {
    for (what, stdout, stderr) in [("gone", gone(), gone()), ("full", full(), full())] {
        let folder = tempfile::tempdir().unwrap();
        support::share_compiled_code(folder.path());
        let address = support::cluster::listener_address();
        let mut command = wasmkeep();
        command.args(["serve", "--overprovisioned", "--shards=1"]).args(support::samples());
        command.arg(format!("--listen={address}")).arg("--data-dir").arg(folder.path());
        let mut child =
            command.env("WASMKEEP_LOG", "no=such=filter").stdout(stdout).stderr(stderr).spawn().unwrap();
        eventually("it serves", || {
            assert_eq!(child.try_wait().unwrap(), None, "{what}");
            std::net::TcpStream::connect(address).is_ok()
        });
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert_eq!(wait(&mut child).code(), Some(0), "{what}");
    }
}

#[test]
fn a_command_whose_answer_is_lost_says_so_and_one_whose_reader_has_enough_does_not() {
    let made = buckets::Bucket::new();
    let bucket = format!("--bucket={}", made.url());
    let status = |arguments: &[&str], stdout: Stdio| {
        let output = wasmkeep().args(arguments).stdout(stdout).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        output.status.code()
    };
    // No node is live there, which is 1 for who hears it.
    let (_, stdout, stderr) = run(wasmkeep().args(["cluster", "status", &bucket]));
    assert!(stdout.contains("0 of 0 nodes live"), "{stdout} {stderr}");
    for (arguments, heard) in [
        (vec!["--help"], 0),
        (vec!["serve", "--help"], 0),
        (vec!["--version"], 0),
        (vec!["cluster", "status", &bucket], 1),
        (vec!["cluster", "status", "--json", &bucket], 1),
    ] {
        assert_eq!(status(&arguments, gone()), Some(heard), "{arguments:?}, nobody reads");
        assert_eq!(status(&arguments, full()), Some(13), "{arguments:?}, no space");
    }
}

#[test]
fn a_failure_that_cannot_be_told_keeps_its_status() {
    let bucket = "--bucket=file:///does/not/exist";
    for (arguments, expected) in
        [(vec!["cluster", "status", bucket], 9), (vec!["serve", "--no-such-flag"], 2), (vec!["serve"], 2)]
    {
        for stderr in [gone(), full()] {
            let status = wasmkeep().args(&arguments).stdout(Stdio::null()).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(expected), "{arguments:?}");
        }
    }
}
