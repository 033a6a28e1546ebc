//! Files applied to databases: the right pages come out, and the wrong file never goes in.

use proptest::prelude::*;
use wasmkeep_ltx::{
    ApplyError, Chain, Checksum, Encoder, File, MemoryPages, PageSize, PageStore, Position, Verified, apply,
    database_checksum, encode_deletion,
};

use crate::histories::{Filling, History, Transaction, header, page_size, transactions};

fn small() -> PageSize {
    PageSize::new(512).expect("a page size")
}

fn verified(bytes: &[u8]) -> Verified<'_> {
    File::parse(bytes).and_then(File::verify).expect("a sound file")
}

fn flat(pages: u32, writes: &[(u32, u8)]) -> Transaction {
    // Page numbers wrap at `pages` and start at 1, so page `n` is reached with `n - 1`.
    Transaction {
        pages,
        writes: writes.iter().map(|&(pgno, byte)| (pgno - 1, Filling::Flat(byte))).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_history_applied_file_by_file_gives_every_state(
        size in page_size(), tracked: bool, transactions in transactions(8),
    ) {
        let history = History::play(size, tracked, &transactions);
        let mut store = MemoryPages::new(size, 100);
        let mut at = if tracked { Position::START } else { Position::START_UNTRACKED };
        for ((file, state), after) in history.files.iter().zip(&history.states).zip(&history.positions) {
            at = apply(&verified(file), &at, &mut store)?;
            prop_assert_eq!(at, *after);
            prop_assert!(store.as_bytes() == state);
            if let Some(sum) = at.checksum {
                prop_assert_eq!(database_checksum(&store)?, sum);
            }
        }
    }

    #[test]
    fn a_file_left_out_is_noticed(transactions in transactions(8), left_out in any::<prop::sample::Index>()) {
        prop_assume!(transactions.len() > 2);
        let history = History::play(small(), true, &transactions);
        let left_out = 1 + left_out.index(transactions.len() - 2);
        let mut store = MemoryPages::new(small(), 100);
        let mut at = Position::START;
        for file in &history.files[..left_out] {
            at = apply(&verified(file), &at, &mut store)?;
        }
        let before = store.clone();
        let result = apply(&verified(&history.files[left_out + 1]), &at, &mut store);
        let not_next = matches!(result, Err(ApplyError::NotNext { .. }));
        prop_assert!(not_next);
        prop_assert_eq!(store, before);
    }
}

// case R7
#[test]
fn two_histories_at_the_same_transaction_are_never_mixed() {
    let ours = History::play(small(), true, &[flat(2, &[(1, 1)]), flat(2, &[(2, 2)]), flat(2, &[(1, 3)])]);
    let theirs = History::play(small(), true, &[flat(2, &[(1, 1)]), flat(2, &[(2, 9)]), flat(2, &[(1, 3)])]);
    let mut store = MemoryPages::new(small(), 100);
    let mut at = apply(&verified(&ours.files[0]), &Position::START, &mut store).expect("the snapshot");
    at = apply(&verified(&ours.files[1]), &at, &mut store).expect("our second transaction");
    assert_eq!(at.txid, theirs.positions[1].txid);

    let before = store.clone();
    let error = apply(&verified(&theirs.files[2]), &at, &mut store).expect_err("their third transaction");
    let (wanted, found) = (theirs.positions[1].checksum, ours.positions[1].checksum);
    assert_eq!(error, ApplyError::PreApply { wanted, found });
    assert_eq!(store, before);
    apply(&verified(&ours.files[2]), &at, &mut store).expect("our third transaction");
}

// case R7
#[test]
fn a_store_that_is_not_what_its_position_says_is_left_alone() {
    let history = History::play(small(), true, &[flat(3, &[(1, 1)]), flat(2, &[(2, 2)])]);
    let snapshot = verified(&history.files[0]);
    for damaged in [2, 3] {
        let mut store = MemoryPages::new(small(), 100);
        let at = apply(&snapshot, &Position::START, &mut store).expect("the snapshot");
        store.write_page(damaged, &[7; 512]).expect("a page");
        let before = store.clone();
        // Page 2 is about to be replaced, page 3 cut off; both are read and count.
        let result = apply(&verified(&history.files[1]), &at, &mut store);
        assert!(matches!(result, Err(ApplyError::PostApply { .. })), "page {damaged}: {result:?}");
        assert_eq!(store, before);
    }
}

#[test]
fn files_with_and_without_checksums_do_not_mix() {
    let transactions = [flat(2, &[(1, 1)]), flat(2, &[(2, 2)])];
    for tracked in [true, false] {
        let base = History::play(small(), tracked, &transactions);
        let other = History::play(small(), !tracked, &transactions);
        let mut store = MemoryPages::new(small(), 100);
        let at = apply(&verified(&base.files[0]), &Position::START, &mut store).expect("the snapshot");
        let result = apply(&verified(&other.files[1]), &at, &mut store);
        assert!(matches!(result, Err(ApplyError::PreApply { .. })), "{result:?}");
    }
}

#[test]
fn a_snapshot_replaces_everything_but_never_goes_back() {
    let history = History::play(small(), true, &[flat(5, &[(1, 1)]), flat(6, &[(6, 2)])]);
    let mut store = MemoryPages::new(small(), 100);
    store.resize(9).expect("memory");
    store.write_page(9, &[9; 512]).expect("a page");
    let stale = Position { txid: 0, checksum: None };
    let at = apply(&verified(&history.files[0]), &stale, &mut store).expect("the snapshot");
    assert_eq!(store.as_bytes(), history.states[0]);
    let at = apply(&verified(&history.files[1]), &at, &mut store).expect("the second transaction");
    let result = apply(&verified(&history.files[0]), &at, &mut store);
    assert_eq!(result, Err(ApplyError::NotNext { min_txid: 1, max_txid: 1, at: 2 }));
}

/// A store that writes down what is done to it.
struct Recording {
    pages: u32,
    calls: Vec<String>,
}

impl PageStore for Recording {
    type Error = std::convert::Infallible;

    fn page_size(&self) -> PageSize {
        small()
    }

    fn page_count(&self) -> u32 {
        self.pages
    }

    fn pages_max(&self) -> u32 {
        u32::MAX
    }

    fn read_page(&self, _: u32, page: &mut [u8]) -> Result<(), Self::Error> {
        page.fill(0);
        Ok(())
    }

    fn write_page(&mut self, pgno: u32, page: &[u8]) -> Result<(), Self::Error> {
        self.calls.push(format!("write {pgno} with {}", page[0]));
        Ok(())
    }

    fn resize(&mut self, pages: u32) -> Result<(), Self::Error> {
        self.calls.push(format!("resize to {pages}"));
        self.pages = pages;
        Ok(())
    }
}

#[test]
fn a_snapshot_empties_the_store_first_so_that_nothing_stays_on_the_lock_page() {
    let history = History::play(small(), true, &[flat(2, &[(1, 5), (2, 6)]), flat(1, &[(1, 7)])]);
    let mut store = Recording { pages: 9, calls: vec![] };
    apply(&verified(&history.files[0]), &Position::START, &mut store).expect("the snapshot");
    assert_eq!(store.calls, ["resize to 0", "resize to 2", "write 1 with 5", "write 2 with 6"]);
}

#[test]
fn a_deletion_leaves_no_page() {
    let history = History::play(small(), true, &[flat(5, &[(1, 1), (5, 5)])]);
    let mut store = MemoryPages::new(small(), 100);
    let at = apply(&verified(&history.files[0]), &Position::START, &mut store).expect("the snapshot");
    let pre = at.checksum.expect("a tracked position");
    let deletion = encode_deletion(header(small(), 5, 2, Chain::After(pre))).expect("a file");
    let at = apply(&verified(&deletion.bytes), &at, &mut store).expect("the deletion");
    assert_eq!(at, Position { txid: 2, checksum: Some(Checksum::EMPTY) });
    assert!(store.as_bytes().is_empty());
}

#[test]
fn a_file_of_another_page_size_is_refused() {
    let history = History::play(small(), true, &[flat(1, &[])]);
    let mut store = MemoryPages::new(PageSize::DEFAULT, 100);
    let result = apply(&verified(&history.files[0]), &Position::START, &mut store);
    assert_eq!(result, Err(ApplyError::PageSize { file: small(), store: PageSize::DEFAULT }));
}

#[test]
fn the_last_transaction_number_ends_the_history_without_a_panic() {
    let encoder = Encoder::new(header(small(), 1, u64::MAX, Chain::Untracked)).expect("a sound header");
    let bytes = encoder.finish(None).expect("a file").bytes;
    let mut store = MemoryPages::new(small(), 100);
    let at = Position { txid: u64::MAX, checksum: None };
    let result = apply(&verified(&bytes), &at, &mut store);
    assert!(matches!(result, Err(ApplyError::NotNext { .. })), "{result:?}");
}
