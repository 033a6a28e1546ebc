//! `wasmkeep actor verify`.

use crate::{
    actor::{export, inspect, key_of, two_holds, verify},
    buckets::{ACTOR, Bucket},
};

type Damage = Box<dyn Fn(&mut Vec<u8>)>;

// case S9
#[test]
fn verify_finds_every_kind_of_damage_and_says_what_can_still_be_had() {
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    let cut = |by: usize| move |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - by);
    let damages: [(&str, Damage); 8] = [
        ("magic", Box::new(flip(0))),
        ("time", Box::new(flip(39))),
        ("page", Box::new(flip(120))),
        (
            "trailer",
            Box::new(|bytes| {
                let at = bytes.len() - 12;
                bytes[at] ^= 1
            }),
        ),
        ("one byte short", Box::new(cut(1))),
        ("sixteen short", Box::new(cut(16))),
        ("a hundred short", Box::new(cut(100))),
        ("empty", Box::new(Vec::clear)),
    ];
    for (what, damage) in damages {
        let bucket = Bucket::new();
        two_holds(&bucket);
        let key = key_of(&bucket, 2, "changes", 4);
        let mut bytes = bucket.get(&key);
        damage(&mut bytes);
        bucket.put(&key, &bytes);
        let said = verify(&bucket);
        said.refused(
            11,
            "the newest state that can be reached is transaction 3: wasmkeep actor export --at 3",
        );
        let report = said.json();
        assert_eq!((&report["is_sound"], &report["reachable_txid"]), (&false.into(), &3.into()), "{what}");
        assert_eq!(report["problems"].as_array().unwrap().len(), 1, "{what}: {report}");
        assert_eq!(report["problems"][0]["use"], "restore");
        assert_eq!(report["unproven"].as_array().unwrap().len(), 1, "{what}: the file after it");
        // Nothing is written of a state that needs it, and the states before it are not concerned.
        let (said, exported) = export(&bucket, "");
        assert_eq!((said.status, exported), (11, None), "{what}: {said:?}");
        assert!(export(&bucket, "3").1.is_some());
    }
}

// case S9
#[test]
fn damage_that_no_restore_meets_is_told_and_the_latest_state_is_said_to_be_safe() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    bucket.put(&key_of(&bucket, 1, "changes", 2), b"LTX1");
    let said = verify(&bucket);
    said.refused(11, "the latest state can be restored");
    assert_eq!(said.json()["problems"][0]["use"], "earlier");
    let text = bucket.say(&["actor", "verify", ACTOR]).stdout;
    assert!(text.contains("(needed for an earlier state): it is damaged: 4 bytes are too few"), "{text}");
    assert!(export(&bucket, "").1.is_some());
}

// case S9
#[test]
fn two_objects_that_were_swapped_are_found() {
    let bucket = Bucket::new();
    two_holds(&bucket);
    let (one, other) = (key_of(&bucket, 2, "changes", 4), key_of(&bucket, 2, "changes", 5));
    let (first, second) = (bucket.get(&one), bucket.get(&other));
    bucket.put(&one, &second);
    bucket.put(&other, &first);
    let said = verify(&bucket);
    said.refused(11, "2 files of acme/room/lobby cannot be used");
    for problem in said.json()["problems"].as_array().unwrap() {
        assert_eq!(problem["problem"], "it does not hold what its name says");
    }
}

// case R7, case S9
#[test]
fn a_missing_file_is_told_and_never_skipped() {
    let bucket = Bucket::new();
    let (_, images) = two_holds(&bucket);
    bucket.delete(&key_of(&bucket, 2, "changes", 4));
    let next = "the newest state that can be reached is transaction 3: wasmkeep actor export --at 3";
    for said in [inspect(&bucket), verify(&bucket), export(&bucket, "").0] {
        said.refused(11, next);
    }
    assert!(inspect(&bucket).json()["broken"].as_str().unwrap().contains("no file leads there"));
    assert!(export(&bucket, "3").1.unwrap() == images[2]);
    bucket.delete(&key_of(&bucket, 2, "snapshot", 3));
    bucket.delete(&key_of(&bucket, 1, "snapshot", 1));
    inspect(&bucket).refused(11, "no earlier state can be reached either");
    export(&bucket, "3").0.refused(11, "no earlier state can be reached either");
}
