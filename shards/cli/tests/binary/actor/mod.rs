//! What the commands for one actor's history tell and write, on histories as owners leave them and as they must not
//! be.

mod export;
mod inspect;
mod litestream;
mod verify;

use crate::buckets::{ACTOR, Actor, Bucket, Said, TALK};

/// Two holds: the first wrote three transactions, the second made a snapshot of them and wrote two more.
fn two_holds(bucket: &Bucket) -> (Actor, Vec<Vec<u8>>) {
    let mut actor = Actor::new(bucket);
    let mut images = Vec::new();
    for (number, sql) in TALK.iter().enumerate() {
        if number == 3 {
            actor.generation = 2;
            actor.snapshot(bucket);
        }
        actor.write(bucket, sql);
        images.push(actor.image().to_vec());
    }
    (actor, images)
}

fn inspect(bucket: &Bucket) -> Said {
    bucket.say(&["actor", "inspect", ACTOR, "--json"])
}

fn verify(bucket: &Bucket) -> Said {
    bucket.say(&["actor", "verify", ACTOR, "--json"])
}

/// Exports to a file beside the bucket; what was said, and the file if there is one now.
fn export(bucket: &Bucket, at: &str) -> (Said, Option<Vec<u8>>) {
    let path = bucket.beside("exported.db");
    let _ = std::fs::remove_file(&path);
    let mut arguments = vec!["actor", "export", ACTOR, "-o", path.to_str().unwrap(), "--json"];
    if !at.is_empty() {
        arguments.extend(["--at", at]);
    }
    (bucket.say(&arguments), std::fs::read(&path).ok())
}

/// The key of the file of one hold that leads to `txid`.
fn key_of(bucket: &Bucket, generation: u64, kind: &str, txid: u64) -> String {
    let report = inspect(bucket).json();
    let files = report["files"].as_array().unwrap();
    let wanted = files
        .iter()
        .find(|file| file["generation"] == generation && file["kind"] == kind && file["last_txid"] == txid);
    format!("actors/acme/room/lobby/wal/{}", wanted.unwrap()["name"].as_str().unwrap())
}
