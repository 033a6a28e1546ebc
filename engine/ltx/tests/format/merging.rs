//! Merged files have the effect of the files they were merged from.

use proptest::prelude::*;
use wasmkeep_ltx::{
    Chain, CompactError, CompactOptions, EncodeError, File, HeaderError, MemoryPages, PageSize, Position,
    Tracking, Verified, WalSource, apply, compact, encode_deletion,
};

use crate::histories::{Filling, History, Transaction, header, page_size, transactions};

const KEEP: CompactOptions = CompactOptions { tracking: Tracking::Keep, pages_max: 100 };
const DROP: CompactOptions = CompactOptions { tracking: Tracking::Drop, pages_max: 100 };

fn small() -> PageSize {
    PageSize::new(512).expect("a page size")
}

fn verified(bytes: &[u8]) -> Verified<'_> {
    File::parse(bytes).and_then(File::verify).expect("a sound file")
}

fn all(files: &[Vec<u8>]) -> Vec<Verified<'_>> {
    files.iter().map(|bytes| verified(bytes)).collect()
}

fn flat(pages: u32, writes: &[(u32, u8)]) -> Transaction {
    Transaction {
        pages,
        writes: writes.iter().map(|&(pgno, byte)| (pgno - 1, Filling::Flat(byte))).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn merging_any_stretch_of_a_history_changes_no_state(
        size in page_size(), tracked: bool, transactions in transactions(8),
        ends in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let history = History::play(size, tracked, &transactions);
        let (a, b) = (ends.0.index(transactions.len()), ends.1.index(transactions.len()));
        let (first, last) = (a.min(b), a.max(b));
        let options = if tracked { KEEP } else { DROP };
        let merged = compact(&all(&history.files[first..=last]), options)?;
        let merged = verified(&merged.bytes);
        prop_assert_eq!(merged.header().min_txid, first as u64 + 1);
        prop_assert_eq!(merged.header().max_txid, last as u64 + 1);
        prop_assert_eq!(merged.header().timestamp_ms, (last as i64 + 1) * 1000);
        prop_assert_eq!(merged.header().wal, WalSource::default());
        prop_assert_eq!(merged.header().node_id, 0);

        let mut store = MemoryPages::new(size, 100);
        let mut at = if tracked { Position::START } else { Position::START_UNTRACKED };
        for file in all(&history.files[..first]).iter().chain([&merged]).chain(&all(&history.files[last + 1..])) {
            at = apply(file, &at, &mut store)?;
        }
        prop_assert_eq!(Some(&at), history.positions.last());
        prop_assert!(Some(store.as_bytes()) == history.states.last().map(Vec::as_slice));
    }

    #[test]
    fn dropping_checksums_keeps_the_pages(transactions in transactions(8)) {
        let history = History::play(small(), true, &transactions);
        let merged = compact(&all(&history.files), DROP)?;
        let merged = verified(&merged.bytes);
        prop_assert!(!merged.header().is_tracked());
        let mut store = MemoryPages::new(small(), 100);
        apply(&merged, &Position::START_UNTRACKED, &mut store)?;
        prop_assert!(Some(store.as_bytes()) == history.states.last().map(Vec::as_slice));
    }

    #[test]
    fn files_that_overlap_merge_without_checksums(transactions in transactions(8), from in any::<prop::sample::Index>()) {
        let history = History::play(small(), false, &transactions);
        let files = all(&history.files);
        // Merged 1..=n, then the files from somewhere in it up to the end, themselves merged.
        let from = from.index(files.len());
        let head = compact(&files[..from + 1], DROP)?;
        let tail = compact(&files[from..], DROP)?;
        prop_assume!(from + 1 < files.len());
        let merged = compact(&[verified(&head.bytes), verified(&tail.bytes)], DROP)?;
        let whole = compact(&files, DROP)?;
        prop_assert_eq!(merged, whole);
    }
}

#[test]
fn a_page_cut_off_and_grown_back_unwritten_is_zeros_not_its_old_copy() {
    let history = History::play(small(), true, &[flat(3, &[(3, 7)]), flat(1, &[]), flat(4, &[(4, 1)])]);
    let merged = compact(&all(&history.files), KEEP).expect("a merged file");
    let merged = verified(&merged.bytes);
    let mut page = [1; 512];
    assert_eq!(merged.read_page(3, &mut page), Ok(true));
    assert_eq!(page, [0; 512]);
}

// case R7
#[test]
fn files_of_two_histories_do_not_merge() {
    let ours = History::play(small(), true, &[flat(2, &[(1, 1)]), flat(2, &[(2, 2)])]);
    let theirs = History::play(small(), true, &[flat(2, &[(1, 9)]), flat(2, &[(2, 2)])]);
    let mixed = [verified(&ours.files[0]), verified(&theirs.files[1])];
    for options in [KEEP, DROP] {
        let result = compact(&mixed, options);
        assert!(matches!(result, Err(CompactError::Chain { .. })), "{result:?}");
    }
}

#[test]
fn files_that_do_not_fit_together_do_not_merge() {
    let three = [flat(2, &[(1, 1)]), flat(2, &[(2, 2)]), flat(2, &[(1, 3)])];
    let tracked = History::play(small(), true, &three);
    let untracked = History::play(small(), false, &three);
    let larger = History::play(PageSize::DEFAULT, true, &three);
    let [one, two, three] = &all(&tracked.files)[..] else { panic!("three files") };
    let refused = |files: &[&Verified<'_>], options| {
        let files: Vec<_> = files.iter().map(|&file| file.clone()).collect();
        compact(&files, options).expect_err("files that do not fit")
    };

    assert_eq!(refused(&[], KEEP), CompactError::Nothing);
    let gap = CompactError::NotContiguous { min_txid: 3, max_txid: 3, after: 1 };
    assert_eq!(refused(&[one, three], DROP), gap);
    let backwards = CompactError::NotContiguous { min_txid: 1, max_txid: 1, after: 2 };
    assert_eq!(refused(&[two, one], DROP), backwards);
    assert_eq!(refused(&[one, &verified(&untracked.files[1])], KEEP), CompactError::Untracked(2));
    assert_eq!(refused(&[&verified(&untracked.files[0])], KEEP), CompactError::Untracked(1));
    let other = CompactError::PageSize { first: small(), other: PageSize::DEFAULT };
    assert_eq!(refused(&[one, &verified(&larger.files[1])], DROP), other);
    let small_limit = CompactOptions { pages_max: 1, ..KEEP };
    assert_eq!(refused(&[one], small_limit), CompactError::TooLarge { pages: 2, pages_max: 1 });
    let both = compact(&[one.clone(), two.clone()], KEEP).expect("a merged file").bytes;
    let later = compact(&[two.clone(), three.clone()], KEEP).expect("a merged file").bytes;
    let overlap = CompactError::Overlap { min_txid: 2, after: 2 };
    assert_eq!(refused(&[&verified(&both), &verified(&later)], KEEP), overlap);
}

#[test]
fn a_merged_deletion_holds_nothing_and_needs_checksums() {
    let history = History::play(small(), true, &[flat(2, &[(1, 1)])]);
    let pre = history.positions[0].checksum.expect("a tracked position");
    let deletion = encode_deletion(header(small(), 0, 2, Chain::After(pre))).expect("a file").bytes;
    let files = [verified(&history.files[0]), verified(&deletion)];
    let merged = compact(&files, KEEP).expect("a merged file");
    assert_eq!(verified(&merged.bytes).index(), []);
    let error = compact(&files, DROP).expect_err("a deletion without checksums");
    assert_eq!(error, CompactError::Encode(EncodeError::Header(HeaderError::UntrackedDeletion)));
}
