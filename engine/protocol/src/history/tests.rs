use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::*;

/// A file written `g/first-last`, with checksums named by letters: `a` leads from nothing, each later one
/// from the letter given.
fn sum(letter: char) -> u64 {
    EMPTY_CHECKSUM | u64::from(letter)
}

fn point(txid: u64, letter: char) -> Point {
    Point { txid, checksum: sum(letter) }
}

fn snapshot(generation: u64, txid: u64, letter: char) -> HistoryFile {
    HistoryFile::snapshot(generation, point(txid, letter))
}

fn changes(generation: u64, from: (u64, char), to: (u64, char)) -> HistoryFile {
    HistoryFile::changes(generation, point(from.0, from.1), point(to.0, to.1))
}

fn planned(files: &[HistoryFile]) -> Vec<HistoryFile> {
    restore(files.iter().copied()).unwrap().unwrap().files().collect()
}

#[test]
fn a_restore_begins_with_the_nearest_snapshot_and_follows_the_chain() {
    let (s1, c2, c3) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')), changes(1, (2, 'b'), (5, 'c')));
    let s5 = snapshot(1, 5, 'c');
    let c6 = changes(2, (5, 'c'), (6, 'd'));
    assert_eq!(restore([]), Ok(None));
    for (files, wanted) in [
        (vec![s1], vec![s1]),
        (vec![s1, c2], vec![s1, c2]),
        (vec![c3, c2, s1], vec![s1, c2, c3]),
        (vec![s1, c2, c3, s5], vec![s5]),
        (vec![s1, c2, c3, s5, c6], vec![s5, c6]),
        (vec![s5, c6], vec![s5, c6]),
    ] {
        assert_eq!(planned(&files), wanted);
    }
}

// case L2
#[test]
fn late_files_of_earlier_owners_are_not_in_the_plan() {
    let (s1, c2) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')));
    let late = changes(1, (2, 'b'), (3, 'x'));
    let late_snapshot = snapshot(1, 3, 'x');
    let next = changes(2, (2, 'b'), (3, 'c'));
    assert_eq!(planned(&[s1, c2, late, late_snapshot, next]), [s1, c2, next]);
    // Two owners died with an upload under way, and the third went on from the first one's.
    let second = changes(2, (2, 'b'), (3, 'y'));
    let third = changes(3, (3, 'x'), (4, 'z'));
    assert_eq!(planned(&[s1, c2, late, second, third]), [s1, c2, late, third]);
    // What a snapshot of the new owner covers.
    let covering = snapshot(2, 70, 'm');
    assert_eq!(planned(&[s1, c2, late, covering, changes(2, (70, 'm'), (71, 'n'))]).len(), 2);
}

// case R7
#[test]
fn the_same_transaction_with_other_contents_is_never_mixed() {
    let (s1, c2) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')));
    let stray = changes(2, (2, 'q'), (3, 'r'));
    let needs = point(2, 'q');
    assert_eq!(restore([s1, c2, stray]), Err(Broken::Missing { file: stray, needs }));
    let twin = changes(1, (1, 'a'), (2, 'c'));
    assert!(matches!(restore([s1, c2, twin]), Err(Broken::TwoEnds { .. })));
}

#[test]
fn a_file_missing_from_the_middle_is_told_and_not_skipped() {
    let (s1, c3) = (snapshot(1, 1, 'a'), changes(1, (2, 'b'), (3, 'c')));
    assert_eq!(restore([s1, c3]), Err(Broken::Missing { file: c3, needs: point(2, 'b') }));
    let c2 = changes(1, (1, 'a'), (2, 'b'));
    assert_eq!(restore([c2]), Err(Broken::Missing { file: c2, needs: point(1, 'a') }));
}

// R-DEL-1
#[test]
fn a_deletion_is_a_beginning_and_what_comes_after_counts_on() {
    let (s1, gone) = (snapshot(1, 1, 'a'), HistoryFile::deletion(1, 2));
    assert!(gone.is_deletion() && gone.stands_alone() && !s1.is_deletion());
    let plan = restore([s1, gone]).unwrap().unwrap();
    assert_eq!((plan.base(), plan.changes().len()), (gone, 0));
    assert!(plan.end().is_empty());
    let again = snapshot(1, 3, 'b');
    assert_eq!(planned(&[s1, gone, again]), [again]);
    // A copy of a write that was deleted arrives late.
    assert_eq!(planned(&[changes(1, (1, 'a'), (2, 'z')), HistoryFile::deletion(2, 3)]).len(), 1);
}

// R-RST-1
#[test]
fn a_plan_goes_around_damaged_files_wherever_others_lead_to_the_same_state() {
    let (s1, c2, c3) = (snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')), changes(1, (2, 'b'), (3, 'c')));
    let (s3, c4, c5) = (snapshot(1, 3, 'c'), changes(2, (3, 'c'), (4, 'd')), changes(2, (4, 'd'), (5, 'e')));
    let (s4, late) = (snapshot(2, 4, 'd'), changes(1, (3, 'c'), (4, 'x')));
    let all = [s1, c2, c3, s3, late, c4, s4, c5];
    for (damaged, wanted) in [
        (vec![], Some(vec![s4, c5])),
        (vec![s4], Some(vec![s3, c4, c5])),
        (vec![s4, s3], Some(vec![s1, c2, c3, c4, c5])),
        // Nobody reads these, so that they are damaged changes nothing.
        (vec![s1, c2, c3, s3, late, c4], Some(vec![s4, c5])),
        (vec![s4, c4], None),
        (vec![s4, s3, c2], None),
        (vec![s4, s3, s1], None),
        // The latest state is lost with it: the late upload of the hold before is no other way to it.
        (vec![c5], None),
    ] {
        let damaged: BTreeSet<HistoryFile> = damaged.into_iter().collect();
        let planned = restore_around(all, &damaged).map(|plan| plan.files().collect::<Vec<_>>());
        assert_eq!(planned, wanted, "{damaged:?}");
    }
    // The same transaction once more, by a later hold that went on from the same state.
    let again = changes(2, (1, 'a'), (2, 'b'));
    let around = restore_around([s1, c2, again], &BTreeSet::from([again])).unwrap();
    assert_eq!(around.files().collect::<Vec<_>>(), [s1, c2]);
    assert_eq!(restore_around([], &BTreeSet::new()), None);
}

fn listed(file: HistoryFile, modified_ms: u64) -> Listed {
    Listed { file, size_bytes: 1, modified_ms }
}

// R-HIST-1
#[test]
fn collection_keeps_what_a_restore_needs_and_what_is_young() {
    let old = [snapshot(1, 1, 'a'), changes(1, (1, 'a'), (2, 'b')), changes(1, (2, 'b'), (3, 'c'))];
    let late = changes(1, (3, 'c'), (4, 'x'));
    let (own, after) = (snapshot(2, 4, 'd'), changes(2, (4, 'd'), (5, 'e')));
    let mut all: Vec<Listed> =
        old.iter().chain([&late, &own, &after]).map(|file| listed(*file, 1_000)).collect();
    let hour = Duration::from_secs(3600);
    let unneeded = vec![old[0], old[1], old[2], late];
    for (generation, now_ms, retention, wanted) in [
        (2, 1_000, Duration::ZERO, unneeded.clone()),
        (2, 1_000, hour, vec![]),
        (2, 1_000 + 3_600_000, hour, unneeded.clone()),
        (2, 999 + 3_600_000, hour, vec![]),
        // Not the owner's own snapshot: an earlier owner's late pass, or a later one's before its snapshot.
        (1, 10_000_000, Duration::ZERO, vec![]),
        (3, 10_000_000, Duration::ZERO, vec![]),
    ] {
        assert_eq!(collect(&all, generation, now_ms, retention), wanted, "{generation} {now_ms}");
    }
    all.push(listed(changes(3, (5, 'e'), (6, 'f')), 1_000));
    assert_eq!(collect(&all, 2, 10_000_000, Duration::ZERO), [], "there is a newer owner");
    assert_eq!(collect(&all[1..3], 1, 10_000_000, Duration::ZERO), [], "a broken history is left alone");
}

/// A history by several holds in turn, with uploads that arrive when they want to.
#[derive(Debug, Clone)]
struct Step {
    /// The hold ends with this write's upload under way; it lands at the end of everything.
    dies: bool,
    snapshots: bool,
    transactions: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), 1u64..4)
        .prop_map(|(dies, snapshots, transactions)| Step { dies, snapshots, transactions });
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn whatever_lands_late_the_plan_gives_the_last_state_and_collection_never_breaks_it(steps in steps()) {
        let (mut files, mut late) = (vec![], vec![]);
        let (mut at, mut generation, mut next_sum) = (Point::START, 1, 1_000);
        for step in steps {
            next_sum += 1;
            let to = Point { txid: at.txid + step.transactions, checksum: EMPTY_CHECKSUM | next_sum };
            let file = if at.txid == 0 { HistoryFile::snapshot(generation, to) } else { HistoryFile::changes(generation, at, to) };
            if step.dies {
                late.push(file);
                generation += 1;
                continue;
            }
            files.push(file);
            at = to;
            if step.snapshots {
                files.push(HistoryFile::snapshot(generation, at));
                let listed: Vec<_> = files.iter().map(|file| listed(*file, 0)).collect();
                let gone = collect(&listed, generation, 1, Duration::ZERO);
                files.retain(|file| !gone.contains(file));
            }
            prop_assert_eq!(restore(files.iter().copied()).unwrap().unwrap().end(), at);
        }
        // The last hold wrote something, or its predecessors' late files are the newest there are.
        let is_settled = files.iter().map(HistoryFile::generation).max() == Some(generation);
        files.extend(late);
        if is_settled {
            prop_assert_eq!(restore(files.iter().copied()).unwrap().unwrap().end(), at);
        }
    }

    #[test]
    fn a_name_survives_the_way_through_text(generation: u64, txid in 2u64.., before: u64, after: u64) {
        let (from, to) = (Point { txid: txid - 1, checksum: before | EMPTY_CHECKSUM }, Point { txid, checksum: after | EMPTY_CHECKSUM });
        for file in [HistoryFile::changes(generation, from, to), HistoryFile::snapshot(generation, to), HistoryFile::deletion(generation, txid)] {
            prop_assert_eq!(file.to_string().parse(), Ok(file));
        }
    }

    #[test]
    fn keys_order_by_generation_then_transaction(a: (u64, u64), b: (u64, u64)) {
        let file = |(generation, txid): (u64, u64)| HistoryFile::changes(generation, Point { txid: txid.max(1), checksum: EMPTY_CHECKSUM }, Point { txid: u64::MAX, checksum: EMPTY_CHECKSUM });
        let (one, other) = (file((a.0, a.1 / 2)), file((b.0, b.1 / 2)));
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
    }
}
