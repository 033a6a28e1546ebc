//! `wasmkeep actor inspect`, and what all commands say about what is not there.

use std::process::Stdio;

use wasmkeep_protocol::records::{Hold, Nonce, OwnerRecord, Process};

use crate::{
    actor::{export, inspect, two_holds, verify},
    buckets::{ACTOR, Actor, Bucket, Said, TALK, wasmkeep},
};

// R-REPL-1, R-RST-1
#[test]
fn inspect_tells_what_there_is_and_what_a_restore_would_read() {
    let bucket = Bucket::new();
    let (actor, _) = two_holds(&bucket);
    let report = inspect(&bucket).done().json();
    assert_eq!(report["actor"], ACTOR);
    assert_eq!(report["latest"]["txid"], 5);
    assert_eq!(report["latest"]["checksum"], format!("{:016x}", actor.at.checksum));
    assert_eq!(report["restore"]["files"], 3);
    assert_eq!(
        (&report["last_snapshot"]["last_txid"], &report["last_snapshot"]["generation"]),
        (&3.into(), &2.into())
    );
    assert_eq!(report["earliest"]["txid"], 1);
    assert_eq!(
        (&report["owner"], &report["deleted"], &report["broken"]),
        (&().into(), &false.into(), &().into())
    );
    let holds: Vec<String> = report["generations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            format!(
                "{} {} {} {}-{}",
                of["generation"], of["files"], of["snapshots"], of["first_txid"], of["last_txid"]
            )
        })
        .collect();
    assert_eq!(holds, ["1 3 1 1-3", "2 3 1 1-5"]);
    let uses: Vec<&str> =
        report["files"].as_array().unwrap().iter().map(|file| file["use"].as_str().unwrap()).collect();
    assert_eq!(uses, ["earlier", "earlier", "earlier", "restore", "restore", "restore"]);
    let sizes: u64 =
        report["files"].as_array().unwrap().iter().map(|file| file["bytes"].as_u64().unwrap()).sum();
    let stored: usize = bucket.keys().iter().map(|key| bucket.get(key).len()).sum();
    assert_eq!(sizes, stored as u64);
}

#[test]
fn inspect_speaks_to_people_too() {
    let bucket = Bucket::new();
    let (actor, _) = two_holds(&bucket);
    let text = bucket.say(&["actor", "inspect", ACTOR, "--files"]).done().stdout;
    for part in [
        &format!("{ACTOR} in {}\n", bucket.url()),
        "owner          nobody yet",
        &format!("latest         transaction 5, checksum {:016x}\n", actor.at.checksum),
        "last snapshot  snapshot at transaction 3, generation 2, ",
        "restore reads  3 files, ",
        "goes back to   transaction 1\n",
        "GENERATION  FILES  SNAPSHOTS",
        "changes   4             ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(!text.contains("unused") && text.lines().all(|line| line.trim_end() == line), "{text}");
}

// R-OWN-1
#[test]
fn inspect_tells_who_holds_the_actor() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    let record = |hold| OwnerRecord {
        node: "node-a".parse().unwrap(),
        process: Process::from_bits(7),
        generation: 2,
        hold,
        nonce: Nonce::from_bits(8),
    };
    for (body, part) in [
        (record(Hold::Held).encode(), "node-a holds it, generation 2"),
        (record(Hold::Released).encode(), "nobody: node-a gave it up, generation 2"),
        (b"{\"format\":9}".to_vec(), "its ownership record cannot be read: it has format 9"),
    ] {
        bucket.put("owners/acme/room/lobby", &body);
        let text = bucket.say(&["actor", "inspect", ACTOR]).done().stdout;
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

// case L2
#[test]
fn a_late_file_of_an_old_owner_is_unused_and_changes_nothing() {
    let bucket = Bucket::new();
    let mut old = Actor::new(&bucket);
    old.write(&bucket, TALK[0]);
    let image = old.image().to_vec();
    let (late, late_bytes) = old.commit("INSERT INTO said (text) VALUES ('lost')");
    // The new owner starts from the transaction before it.
    let elsewhere = Bucket::new();
    let mut new = Actor::new(&elsewhere);
    new.commit(TALK[0]);
    assert!(new.image() == image && new.at.txid == 1);
    new.generation = 2;
    new.write(&bucket, TALK[1]);
    bucket.put(&old.key(&late), &late_bytes);
    let report = inspect(&bucket).done().json();
    assert_eq!((&report["unused"]["files"], &report["latest"]["txid"]), (&1.into(), &2.into()));
    let unused = report["files"].as_array().unwrap().iter().find(|file| file["use"] == "unused").unwrap();
    assert_eq!(unused["name"], late.to_string());
    assert_eq!(verify(&bucket).done().json()["is_sound"], true);
    let (said, exported) = export(&bucket, "");
    said.done();
    assert!(exported.unwrap() == new.image());
}

#[test]
fn objects_of_somebody_else_are_counted_and_left_out() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    bucket.put("actors/acme/room/lobby/wal/README", b"mine");
    bucket.put("actors/acme/room/lobby/wal/0000000000000009/notes.ltx", b"mine");
    let report = inspect(&bucket).done().json();
    assert_eq!((&report["other_objects"], &report["latest"]["txid"]), (&2.into(), &5.into()));
    assert_eq!(verify(&bucket).done().json()["other_objects"], 2);
    assert!(export(&bucket, "").1.is_some());
}

#[test]
fn what_is_not_there_is_told_with_what_to_check() {
    let bucket = Bucket::new();
    for command in ["inspect", "verify"] {
        bucket.say(&["actor", command, ACTOR]).refused(10, "the bucket has no history of acme/room/lobby");
    }
    let missing = format!("file://{}", bucket.beside("mistyped").display());
    Said::of(&mut wasmkeep(&["actor", "inspect", ACTOR, "--bucket", &missing])).refused(9, "is no bucket");
    assert!(!bucket.beside("mistyped").exists());
    for (actor, part) in [("room/lobby", "TENANT/CLASS/NAME"), ("acme/Room/lobby", "the class 'Room'")] {
        let said = bucket.say(&["actor", "inspect", actor]);
        assert!(said.status == 2 && said.stderr.contains(part), "{said:?}");
    }
    let said = bucket.say(&["actor", "export", ACTOR, "-o", "x.db", "--at", "yesterday"]);
    assert!(said.status == 2 && said.stderr.contains("a time with its zone"), "{said:?}");
    let said = bucket.say(&["actor", "export", ACTOR]);
    assert!(said.status == 2 && said.stderr.contains("--litestream"), "{said:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    let mut command = wasmkeep(&["actor", "inspect", ACTOR, "--bucket", &bucket.url()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
