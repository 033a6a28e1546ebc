//! `wasmkeep actor export` to a file.

use rusqlite::{Connection, OpenFlags};

use crate::{
    actor::{export, inspect, key_of, two_holds, verify},
    buckets::{ACTOR, Actor, Bucket, TALK, committed_ms},
};

// R-RST-1
#[test]
fn every_state_that_is_kept_can_be_exported() {
    let bucket = Bucket::new();
    let (_, images) = two_holds(&bucket);
    for (txid, image) in (1u64..).zip(&images) {
        let (said, exported) = export(&bucket, &txid.to_string());
        let report = said.done().json();
        assert!(exported.unwrap() == *image, "transaction {txid}");
        assert_eq!((&report["txid"], &report["committed_ms"]), (&txid.into(), &committed_ms(txid).into()));
        assert_eq!(report["pages"], image.len() / 4096);
    }
    let (said, exported) = export(&bucket, "");
    assert_eq!(said.done().json()["txid"], 5);
    assert!(exported.unwrap() == images[4]);
    let path = bucket.beside("exported.db");
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    let rows: i64 = database.query_row("SELECT count(*) FROM said", [], |row| row.get(0)).unwrap();
    assert_eq!((check.as_str(), rows), ("ok", 3));
}

#[test]
fn a_time_means_the_last_transaction_committed_until_then() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    let time = |ms: i64| chrono::DateTime::from_timestamp_millis(ms).unwrap().to_rfc3339();
    for (ms, wanted) in [
        (committed_ms(1), 1),
        (committed_ms(2) - 1, 1),
        (committed_ms(3), 3),
        (committed_ms(4) + 999, 4),
        (committed_ms(5) + 1_000_000_000, 5),
    ] {
        let (said, exported) = export(&bucket, &time(ms));
        assert_eq!(said.done().json()["txid"], wanted, "{ms}");
        assert!(exported.is_some());
    }
    let (said, exported) = export(&bucket, &time(committed_ms(1) - 1));
    said.refused(10, "begins at 2026-05-28T20:26:41.000Z, after 2026-05-28T20:26:40.999Z");
    assert_eq!(exported, None);
}

#[test]
fn a_state_inside_a_file_or_beyond_the_last_cannot_be_had() {
    let bucket = Bucket::new();
    let mut actor = Actor::new(&bucket);
    actor.write(&bucket, TALK[0]);
    // Two transactions in one file, as an owner uploads what waited.
    actor.transactions = 2;
    actor.write(&bucket, TALK[1]);
    for (at, part) in [("0", "goes back to 1"), ("2", "the nearest are 1 and 3"), ("9", "the newest is 3")] {
        let (said, exported) = export(&bucket, at);
        said.refused(10, part);
        assert_eq!(exported, None);
    }
    assert!(export(&bucket, "3").1.unwrap() == actor.image());
}

// R-HIST-1
#[test]
fn what_was_collected_is_not_missed() {
    let bucket = Bucket::new();
    let (actor, images) = two_holds(&bucket);
    let names: Vec<String> = bucket.keys();
    bucket.delete(&names[0]);
    let report = inspect(&bucket).done().json();
    assert_eq!((&report["earliest"]["txid"], &report["unused"]["files"]), (&3.into(), &2.into()));
    assert_eq!(verify(&bucket).done().json()["is_sound"], true);
    export(&bucket, "2").0.refused(10, "what is kept goes back to 3");
    assert!(export(&bucket, "3").1.unwrap() == images[2]);
    assert!(export(&bucket, "5").1.unwrap() == actor.image());
}

// R-DEL-1
#[test]
fn a_deleted_actor_has_no_database_and_one_that_came_back_has() {
    let bucket = Bucket::new();
    let mut actor = Actor::new(&bucket);
    actor.write(&bucket, TALK[0]);
    actor.delete(&bucket);
    assert!(bucket.say(&["actor", "inspect", ACTOR]).done().stdout.contains("deleted, as transaction 2\n"));
    assert_eq!(verify(&bucket).done().json()["latest_txid"], 2);
    let (said, exported) = export(&bucket, "");
    said.refused(10, "was deleted as transaction 2");
    assert_eq!(exported, None);
    actor.write(&bucket, TALK[0]);
    actor.write(&bucket, TALK[1]);
    let (said, exported) = export(&bucket, "");
    assert_eq!(said.done().json()["txid"], 4);
    assert!(exported.unwrap() == actor.image());
    assert_eq!(verify(&bucket).done().json()["is_sound"], true);
}

#[test]
fn nothing_that_stands_somewhere_is_overwritten_and_nothing_half_is_left() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    let path = bucket.beside("mine.db");
    std::fs::write(&path, "mine").unwrap();
    for flag in ["-o", "--litestream"] {
        let said = bucket.say(&["actor", "export", ACTOR, flag, path.to_str().unwrap()]);
        said.refused(13, "is there already");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let nowhere = bucket.beside("no/such/folder/a.db");
    bucket.say(&["actor", "export", ACTOR, "-o", nowhere.to_str().unwrap()]).refused(13, "cannot be written");
    // Damage that shows after the first files were applied.
    bucket.put(&key_of(&bucket, 2, "changes", 5), b"LTX1");
    for flag in ["-o", "--litestream"] {
        let target = bucket.beside("half");
        bucket.say(&["actor", "export", ACTOR, flag, target.to_str().unwrap()]).refused(11, "too few");
    }
    let folder = bucket.beside("");
    let mut left: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["bucket", "mine.db", "source.db"]);
}

#[test]
fn an_export_is_its_owners_alone_unless_told_otherwise() {
    use std::os::unix::fs::PermissionsExt;
    let bucket = Bucket::new();
    two_holds(&bucket);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    for (flags, file, folder) in [(&[][..], 0o600, 0o700), (&["--mode", "640"], 0o640, 0o750)] {
        let (output, replica) = (bucket.beside("mode.db"), bucket.beside("replica"));
        let export = |to: &str, at: &std::path::Path| {
            bucket.say(&[&["actor", "export", ACTOR, to, at.to_str().unwrap()], flags].concat()).done();
        };
        export("--output", &output);
        export("--litestream", &replica);
        assert_eq!(mode(&output), file, "{flags:?}");
        let mut open = vec![replica.clone()];
        while let Some(path) = open.pop() {
            assert_eq!(mode(&path), if path.is_dir() { folder } else { file }, "{path:?}");
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        std::fs::remove_file(output).unwrap();
        std::fs::remove_dir_all(replica).unwrap();
    }
    let said = bucket.say(&["actor", "export", ACTOR, "-o", "x.db", "--mode", "777"]);
    assert_eq!(said.status, 2, "{said:?}");
}

// R-RST-1, case S9
#[test]
fn a_damaged_snapshot_is_gone_around_by_the_files_before_it() {
    let bucket = Bucket::new();
    let (_, images) = two_holds(&bucket);
    let snapshot = key_of(&bucket, 2, "snapshot", 3);
    let mut bytes = bucket.get(&snapshot);
    bytes[120] ^= 1;
    bucket.put(&snapshot, &bytes);
    for (at, txid) in [("", 5), ("3", 3), ("4", 4)] {
        let (said, exported) = export(&bucket, at);
        assert_eq!(said.status, 0, "{said:?}");
        assert!(said.stderr.contains("older files lead to the same state"), "{said:?}");
        assert_eq!(said.json()["damaged"].as_array().unwrap().len(), 1);
        assert!(exported.unwrap() == images[txid - 1], "{at}");
    }
    let said = verify(&bucket);
    said.refused(11, "the latest state can be restored: nodes go around the damaged ones, by 5 files in all");
    assert_eq!(said.json()["restore"], serde_json::json!({"around": 5}));
    assert!(
        bucket.say(&["actor", "verify", ACTOR]).stdout.contains("(restores go around it): it is damaged")
    );
    // What only a damaged file leads to cannot be had, and what is nearest is told.
    bucket.put(&key_of(&bucket, 1, "changes", 2), b"LTX1");
    export(&bucket, "3").0.refused(11, "the nearest state that can be had is transaction 1");
    export(&bucket, "").0.refused(11, "the newest state that can be reached is transaction 1");
    let said = verify(&bucket);
    said.refused(11, "the newest state that can be reached is transaction 1");
    assert_eq!(said.json()["restore"], "fails");
}
