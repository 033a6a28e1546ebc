use proptest::prelude::*;

use super::*;
use crate::history::{EMPTY_CHECKSUM, restore};

fn point(txid: u64, letter: char) -> Point {
    Point { txid, checksum: EMPTY_CHECKSUM | u64::from(letter) }
}

fn snapshot(generation: u64, txid: u64, letter: char) -> HistoryFile {
    HistoryFile::snapshot(generation, point(txid, letter))
}

fn changes(generation: u64, from: (u64, char), to: (u64, char)) -> HistoryFile {
    HistoryFile::changes(generation, point(from.0, from.1), point(to.0, to.1))
}

/// The states of a listing as text, as in `1 2 5`.
fn states(files: &[HistoryFile]) -> String {
    let states = timeline(files.iter().copied()).states;
    states.iter().map(|state| state.point.txid.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_state_on_the_way_to_the_latest_can_be_had() {
    let (s1, c2, c5) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')), changes(1, (2, 'b'), (5, 'c')));
    let (s5, c6) = (snapshot(1, 5, 'c'), changes(2, (5, 'c'), (6, 'd')));
    let timeline = timeline([c6, s5, c5, c2, s1]);
    let plans: Vec<Vec<HistoryFile>> =
        (0..4).map(|at| timeline.plan(at).expect("a state").files().collect()).collect();
    assert_eq!(plans, [vec![s1], vec![s1, c2], vec![s5], vec![s5, c6]]);
    assert_eq!(timeline.plan(4), None);
    for (files, wanted) in [
        (vec![], ""),
        (vec![s1], "1"),
        (vec![s1, c2, c5, s5, c6], "1 2 5 6"),
        // The oldest were collected: what follows them is of no use until the next whole one.
        (vec![c2, c5, s5, c6], "5 6"),
        (vec![c5, s5, c6], "5 6"),
        (vec![c2, c5], ""),
    ] {
        assert_eq!(states(&files), wanted, "{files:?}");
    }
}

// case L2, case R7
#[test]
fn what_an_earlier_owner_uploaded_late_is_no_state_of_the_timeline() {
    let (s1, c2) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')));
    let (late, late_snapshot) = (changes(1, (2, 'b'), (3, 'x')), snapshot(1, 3, 'x'));
    let (next, last) = (changes(2, (2, 'b'), (3, 'c')), changes(2, (3, 'c'), (4, 'd')));
    let timeline = timeline([s1, c2, late, late_snapshot, next, last]);
    let files: Vec<HistoryFile> = timeline.states().iter().flat_map(State::files).collect();
    assert_eq!(files, [s1, c2, next, last]);
}

#[test]
fn where_the_latest_state_is_lost_the_newest_that_can_be_reached_is_the_last() {
    let (s1, c2) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')));
    let beyond_a_hole = changes(2, (3, 'c'), (4, 'd'));
    assert_eq!(states(&[s1, c2, beyond_a_hole]), "1 2");
    let (one, other) = (changes(1, (2, 'b'), (3, 'c')), changes(1, (2, 'b'), (3, 'd')));
    assert_eq!(states(&[s1, c2, one, other]), "1 2", "neither of two ends is believed");
}

// R-DEL-1
#[test]
fn a_deletion_is_a_state_and_a_beginning() {
    let gone = HistoryFile::deletion(1, 3);
    let again = changes(2, (3, '\0'), (4, 'b'));
    assert!(gone.end().is_empty());
    assert_eq!(states(&[snapshot(1, 1, 'a'), gone, again]), "3 4");
}

/// Files over few transactions, checksums and generations, so that many fit together and many do not.
fn any_file() -> impl Strategy<Value = HistoryFile> {
    let letter = || prop::char::range('a', 'b');
    (1u64..4, 0u64..6, 1u64..3, letter(), letter(), any::<bool>()).prop_map(
        |(generation, txid, more, from, to, is_snapshot)| {
            if is_snapshot {
                snapshot(generation, txid + more, to)
            } else {
                changes(generation, (txid, from), (txid + more, to))
            }
        },
    )
}

proptest! {
    #[test]
    fn the_last_state_is_the_one_a_restore_gives(files in prop::collection::vec(any_file(), 0..12)) {
        let timeline = timeline(files.iter().copied());
        if let Ok(plan) = restore(files.iter().copied()) {
            prop_assert_eq!(timeline.states().len().checked_sub(1).and_then(|last| timeline.plan(last)), plan);
        }
    }

    #[test]
    fn every_plan_is_a_chain_of_listed_files_to_its_state(files in prop::collection::vec(any_file(), 0..12)) {
        let timeline = timeline(files.iter().copied());
        for (at, state) in timeline.states().iter().enumerate() {
            let plan: Vec<HistoryFile> = timeline.plan(at).expect("a state").files().collect();
            prop_assert!(plan[0].stands_alone() && plan.iter().all(|file| files.contains(file)));
            prop_assert!(plan.windows(2).all(|pair| pair[1].start() == Some(pair[0].end())));
            prop_assert_eq!(plan.last().map(HistoryFile::end), Some(state.point));
        }
    }
}
