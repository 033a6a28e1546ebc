//! `wasmkeep actor export --litestream`: the real Litestream restores what it writes, page for page.
//!
//! Needs the `litestream` program, so it runs only when asked for: `scripts/test-litestream`.

use std::{path::Path, process::Command};

use crate::{
    actor::two_holds,
    buckets::{ACTOR, Actor, Bucket, TALK},
};

/// Exports a state as a replica and has Litestream restore it.
fn restored(litestream: &Path, bucket: &Bucket, at: u64) -> Vec<u8> {
    let (replica, output) = (bucket.beside(&format!("replica-{at}")), bucket.beside(&format!("{at}.db")));
    let at = at.to_string();
    let arguments = ["actor", "export", ACTOR, "--litestream", replica.to_str().unwrap(), "--at", &at];
    let said = bucket.say(&arguments).done();
    assert!(said.stdout.contains(&format!("after transaction {at}, committed")), "{said:?}");
    let url = format!("file://{}", replica.display());
    let run = Command::new(litestream).arg("restore").arg("-o").arg(&output).arg(url).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    std::fs::read(output).unwrap()
}

#[test]
#[ignore = "needs the litestream program: scripts/test-litestream"]
fn litestream_restores_an_exported_replica() {
    let litestream = std::env::var_os("LITESTREAM").expect("LITESTREAM names the program");
    let litestream = Path::new(&litestream);
    let bucket = Bucket::new();
    let (_, images) = two_holds(&bucket);
    for (txid, image) in (1u64..).zip(&images) {
        assert!(restored(litestream, &bucket, txid) == *image, "transaction {txid}");
    }
    // A history that begins with a deletion, which Litestream's own have not.
    let bucket = Bucket::new();
    let mut actor = Actor::new(&bucket);
    actor.write(&bucket, TALK[0]);
    actor.delete(&bucket);
    for (txid, sql) in (3u64..).zip(TALK) {
        actor.write(&bucket, sql);
        assert!(restored(litestream, &bucket, txid) == actor.image(), "transaction {txid}");
    }
}
