//! How a node starts, refuses to start, and stops: exit statuses and sentences.

use std::{process::Command, time::Duration};

use crate::support::{self, Node, guest, run, wasmkeep};
use rustix::process::Signal;

fn serve(folder: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String) {
    support::share_compiled_code(&folder.join("data"));
    let mut command = wasmkeep();
    command
        .args(["serve", "--listen=127.0.0.1:0", "--overprovisioned", "--data-dir"])
        .arg(folder.join("data"));
    let (status, stdout, stderr) = run(command.args(arguments));
    assert_eq!(stdout, "", "stdout is for data");
    (status, stderr.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn what_cannot_be_served_is_one_sentence_and_its_own_status() {
    // R-FLAG-5
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        format!("--actor=c={}", path.display())
    };
    let garbage = write("garbage.wasm", b"not wasm at all");
    let core = write("core.wasm", b"\0asm\x01\0\0\0");
    let site = format!("--actor=c={}", guest("site").display());
    let counter = format!("--actor=counter={}", guest("counter").display());
    let values = format!("--env={}", folder.path().join("missing").display());
    for (arguments, status, part) in [
        (vec![], 2, "nothing to serve: add --actor"),
        (vec![&*counter, &*counter], 2, "the class counter is given twice"),
        (vec!["counter=counter.wasm"], 2, "write --actor counter=counter.wasm"),
        (vec![&*counter, "--access=other=open"], 2, "add --actor other=FILE.wasm"),
        (vec![&*counter, "--env=other=x"], 2, "add --actor other=FILE.wasm"),
        (vec![&*counter, "--durability=other=gate"], 2, "add --actor other=FILE.wasm"),
        (vec![&*counter, "--durability=counter=gate"], 2, "add --bucket"),
        (vec![&*counter, "--cpuset=0-"], 2, "cpu"),
        (vec!["--actor=c=/does/not/exist.wasm"], 3, "cannot be read"),
        (vec![&*garbage], 3, "garbage.wasm"),
        (vec![&*core], 3, "component"),
        (vec![&*counter, &*values], 3, "missing"),
        (vec![&*counter, "--cpuset=900"], 8, "900"),
        (vec![&*counter, "--shards=100000"], 8, "shards"),
    ] {
        let (code, sentence) = serve(folder.path(), &arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {sentence}");
        assert!(sentence.to_lowercase().contains(&part.to_lowercase()), "{arguments:?}: {sentence}");
        assert!(sentence.starts_with("wasmkeep: ") && !sentence.contains("panicked"), "{sentence}");
    }
    // A stateless component is no less a component with a handler: it serves as an actor too.
    let node = Node::start_with(&folder.path().join("site"), &[site]);
    node.get("/actor/c/x").expect(200);
}

// R-TLS-1, R-FLAG-5
#[test]
fn a_node_of_a_cluster_talks_tls_or_is_told_not_to() {
    let folder = tempfile::tempdir().unwrap();
    let counter = format!("--actor=counter={}", guest("counter").display());
    let bucket = format!("--bucket=file://{}", folder.path().join("bucket").display());
    let (listen, advertise) =
        ("--cluster-listen=127.0.0.1:7443", "--cluster-advertise=https://127.0.0.1:7443");
    for (flags, part) in [
        (vec!["--node-id=a"], "add --cluster-listen ADDRESS and --cluster-advertise"),
        (vec!["--node-id=a", listen], "add --cluster-advertise https://HOST:PORT"),
        (
            vec!["--node-id=a", listen, "--cluster-plaintext=accept"],
            "add --cluster-advertise https://HOST:PORT",
        ),
        (vec!["--node-id=a", advertise], "add --cluster-listen ADDRESS"),
        (
            vec!["--node-id=a", listen, "--cluster-advertise=http://127.0.0.1:7443"],
            "must be https://HOST:PORT",
        ),
        (vec!["--node-id=a", listen, "--cluster-advertise=https://10.0.0.11"], "must be https://HOST:PORT"),
        (vec!["--node-id=a", listen, "--cluster-advertise=https://a:7443/x"], "must be https://HOST:PORT"),
        (vec!["--node-id=a", listen, advertise, "--advertise=https://a:8080"], "--advertise must be http://"),
        (vec![listen, advertise], "add --node-id ID"),
    ] {
        let (code, sentence) = serve(folder.path(), &[&[&*counter, &*bucket], &*flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {sentence}");
        assert!(sentence.contains(part), "{flags:?}: {sentence}");
    }
    for flags in [vec![listen, advertise], vec![advertise], vec!["--cluster-plaintext=accept"]] {
        let (code, sentence) = serve(folder.path(), &[&[&*counter, "--node-id=a"], &*flags].concat());
        assert_eq!(code, Some(2), "{flags:?}: {sentence}");
        assert!(sentence.contains("add --bucket"), "{flags:?}: {sentence}");
    }
}

#[test]
fn a_data_directory_that_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let counter = format!("--actor=counter={}", guest("counter").display());
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = format!("--data-dir={}", file.join("data").display());
    let mut command = wasmkeep();
    let (status, _, stderr) = run(command.args(["serve", "--listen=127.0.0.1:0", &counter, &inside]));
    assert_eq!(status, Some(4), "{stderr}");
    assert!(stderr.contains("the data directory"), "{stderr}");
    let node = Node::start_on(&folder.path().join("taken"), &[]);
    let same = format!("--data-dir={}", node.data_dir.display());
    let mut command = wasmkeep();
    let (status, _, stderr) = run(command.args(["serve", "--listen=127.0.0.1:0", &counter, &same]));
    assert_eq!(status, Some(4), "{stderr}");
    assert!(stderr.contains("in use by another node"), "{stderr}");
}

#[test]
fn a_second_node_on_the_same_address_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&[]);
    let counter = format!("--actor=counter={}", guest("counter").display());
    let mut command = wasmkeep();
    command.args(["serve", &counter, "--listen"]).arg(node.address.to_string());
    let (status, _, stderr) = run(command.arg("--data-dir").arg(folder.path().join("other")));
    assert_eq!(status, Some(5), "{stderr}");
    assert!(stderr.contains("already in use"), "{stderr}");
}

#[test]
fn too_little_lockable_memory_is_told_with_the_limit() {
    // case G4
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -l 64 && exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_wasmkeep"), "serve", "--listen=127.0.0.1:0"]);
    command.arg(format!("--actor=counter={}", guest("counter").display()));
    let (status, _, stderr) = run(command.arg("--data-dir").arg(folder.path().join("data")));
    assert_eq!(status, Some(6), "{stderr}");
    assert!(stderr.contains("65536") && stderr.contains("ulimit -l"), "{stderr}");
}

#[test]
fn a_stop_lets_the_event_in_flight_finish() {
    // R-LEASE-6, the part of one node
    for signal in [Signal::TERM, Signal::INT] {
        let node = Node::start(&[]);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| node.get("/actor/sql/a/sleep?ms=1500"));
            support::eventually("the event runs", || node.metric("wasmkeep_actors_resident", "") == 1.0);
            std::thread::sleep(Duration::from_millis(100));
            node.signal(signal);
            assert_eq!(running.join().unwrap().expect(200).text, "awake\n");
        });
        let (status, log) = node.wait();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn a_restart_does_not_compile() {
    let folder = tempfile::tempdir().unwrap();
    let code = || {
        let mut files: Vec<_> = std::fs::read_dir(folder.path().join("compiled"))
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name(), entry.metadata().unwrap().modified().unwrap())
            })
            .collect();
        files.sort();
        files
    };
    std::fs::create_dir_all(folder.path().join("compiled")).unwrap();
    Node::start_on(folder.path(), &[]).stop();
    let first = code();
    assert!(first.len() >= 2, "{first:?}");
    Node::start_on(folder.path(), &[]).stop();
    assert_eq!(code(), first);
}

#[test]
fn help_and_version_are_data() {
    let (status, stdout, stderr) = run(wasmkeep().arg("--version"));
    assert_eq!((status, &*stderr), (Some(0), ""));
    assert!(stdout.starts_with("wasmkeep 0."));
    let (status, stdout, stderr) = run(&mut wasmkeep());
    assert_eq!((status, &*stdout), (Some(2), ""));
    assert!(stderr.contains("Usage: wasmkeep <COMMAND>"), "{stderr}");
}
