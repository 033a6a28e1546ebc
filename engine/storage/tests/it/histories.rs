//! Random histories of SQL: a copy made from the changes equals the database after each look.

use proptest::prelude::*;
use wasmkeep_storage::{Inline, Value};

use crate::{
    capture::Copy,
    rig::{Rig, text, wait},
};

/// One thing that may happen to a database.
#[derive(Debug, Clone)]
enum Act {
    Insert { rows: u32, bytes: u32 },
    Delete { modulus: u32 },
    Update { modulus: u32 },
    RolledBack { rows: u32 },
    PartlyRolledBack { rows: u32 },
    Vacuum,
    IncrementalVacuum,
    AutoVacuum(u8),
    Table(u8),
    DropTable(u8),
    FullText(u8),
    Blob { bytes: u32 },
    Checkpoint,
    Doze,
    Follow,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1u32..40, 0u32..6_000).prop_map(|(rows, bytes)| Act::Insert { rows, bytes }),
        3 => (1u32..5).prop_map(|modulus| Act::Delete { modulus }),
        3 => (1u32..5).prop_map(|modulus| Act::Update { modulus }),
        1 => (1u32..200).prop_map(|rows| Act::RolledBack { rows }),
        1 => (1u32..60).prop_map(|rows| Act::PartlyRolledBack { rows }),
        1 => Just(Act::Vacuum),
        1 => Just(Act::IncrementalVacuum),
        1 => (0u8..3).prop_map(Act::AutoVacuum),
        1 => (0u8..4).prop_map(Act::Table),
        1 => (0u8..4).prop_map(Act::DropTable),
        1 => (0u8..9).prop_map(Act::FullText),
        1 => (0u32..400_000).prop_map(|bytes| Act::Blob { bytes }),
        1 => Just(Act::Checkpoint),
        2 => Just(Act::Doze),
        4 => Just(Act::Follow),
        1 => Just(Act::Reopen),
    ]
}

/// What `act` does in SQL; nothing for those that are no SQL.
fn sql(act: &Act) -> String {
    let insert = |rows: u32, bytes: u32| {
        format!(
            "INSERT INTO t(x) WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < {rows}) SELECT zeroblob({bytes}) || n FROM r;"
        )
    };
    match act {
        Act::Insert { rows, bytes } => insert(*rows, *bytes),
        Act::Delete { modulus } => format!("DELETE FROM t WHERE id % {modulus} = 0"),
        Act::Update { modulus } => format!("UPDATE t SET x = x || 'more' WHERE id % {modulus} = 0"),
        Act::RolledBack { rows } => format!("BEGIN; {} ROLLBACK", insert(*rows, 3_000)),
        Act::PartlyRolledBack { rows } => {
            format!("BEGIN; {} SAVEPOINT s; {} ROLLBACK TO s; COMMIT", insert(2, 10), insert(*rows, 3_000))
        }
        Act::Vacuum => "VACUUM".to_owned(),
        Act::IncrementalVacuum => "PRAGMA incremental_vacuum".to_owned(),
        Act::AutoVacuum(mode) => format!("PRAGMA auto_vacuum={mode}; VACUUM"),
        Act::Table(number) => format!(
            "CREATE TABLE IF NOT EXISTS t{number}(a, b UNIQUE); INSERT INTO t{number} VALUES(1, random())"
        ),
        Act::DropTable(number) => format!("DROP TABLE IF EXISTS t{number}"),
        Act::FullText(word) => format!(
            "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(w); INSERT INTO words VALUES('word{word} and more')"
        ),
        Act::Blob { bytes } => format!("INSERT INTO t(x) VALUES(randomblob({bytes}))"),
        Act::Checkpoint | Act::Doze | Act::Follow | Act::Reopen => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_made_from_the_changes_equals_the_database(acts in prop::collection::vec(act(), 1..40)) {
        let rig = Rig::quota(24 << 20);
        rig.script("CREATE TABLE t(id INTEGER PRIMARY KEY, x)").unwrap();
        let mut copy = Copy::of(&rig);
        let mut rig = rig;
        for act in &acts {
            match act {
                Act::Follow => {
                    copy.follow(&rig);
                    copy.assert_equals(&rig);
                }
                Act::Checkpoint => wait(rig.db.checkpoint(&Inline)).unwrap(),
                Act::Doze => {
                    wait(rig.db.doze(&Inline));
                    wait(rig.db.wake(&Inline)).unwrap();
                }
                Act::Reopen => {
                    copy.follow(&rig);
                    rig = rig.reopen();
                    prop_assert_eq!(wait(rig.db.begin_capture(&Inline)).map(Some), Ok(copy.at.checksum));
                }
                // A full database refuses, and that must change nothing either.
                _ => drop(rig.script(&sql(act))),
            }
            wait(rig.db.end_event());
        }
        copy.follow(&rig);
        copy.assert_equals(&rig);
        prop_assert_eq!(rig.value("PRAGMA integrity_check"), text("ok"));
        prop_assert!(matches!(rig.value("SELECT count(*) FROM t"), Value::Integer(_)));
    }
}
