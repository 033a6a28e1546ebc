//! What is written is read back, and nothing that breaks a rule is written.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wasmkeep_ltx::{Chain, Checksum, EncodeError, Encoder, File, HeaderError, PageSize, page_checksum};

use crate::histories::{Filling, filling, header, page_size};

fn small() -> PageSize {
    PageSize::new(512).expect("a page size")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_incremental_file_gives_back_every_page_in_order_and_at_random(
        size in page_size(), pages in prop::collection::btree_map(1u32..2000, filling(), 0..12),
        tracked: bool, pre in 1u64 << 63.., post in 1u64 << 63..,
    ) {
        let pages: BTreeMap<u32, Vec<u8>> = pages.into_iter().map(|(n, filling)| (n, filling.page(size))).collect();
        let checksum = |stored| Checksum::new(stored).expect("a stored checksum");
        let chain = if tracked { Chain::After(checksum(pre)) } else { Chain::Untracked };
        let header = header(size, 2000, 9, chain);
        let mut encoder = Encoder::new(header)?;
        for (&pgno, data) in &pages {
            encoder.page(pgno, data)?;
        }
        let encoded = encoder.finish(tracked.then(|| checksum(post)))?;

        let file = File::parse(&encoded.bytes)?;
        prop_assert_eq!(file.header(), &header);
        prop_assert_eq!(file.trailer(), &encoded.trailer);
        prop_assert_eq!(encoded.trailer.post_apply, tracked.then(|| checksum(post)));
        let mut page = vec![0; size.bytes()];
        for (&pgno, data) in pages.iter().rev() {
            prop_assert!(file.read_page(pgno, &mut page)?);
            prop_assert_eq!(&page, data);
        }
        prop_assert!(!file.read_page(2000, &mut page)?);

        let verified = file.verify()?;
        let mut read = BTreeMap::new();
        let mut walk = verified.pages();
        while let Some((pgno, data)) = walk.next_page() {
            read.insert(pgno, data.to_vec());
        }
        prop_assert_eq!(read, pages);
    }

    #[test]
    fn a_snapshot_states_the_checksum_of_its_pages(
        size in page_size(), fillings in prop::collection::vec(filling(), 0..10),
    ) {
        let pages: Vec<_> = fillings.into_iter().map(|filling| filling.page(size)).collect();
        let mut encoder = Encoder::new(header(size, pages.len() as u32, 1, Chain::Snapshot))?;
        let mut sum = Checksum::EMPTY;
        for (pgno, data) in (1..).zip(&pages) {
            encoder.page(pgno, data)?;
            sum = sum.toggled(page_checksum(pgno, data));
        }
        let encoded = encoder.finish(None)?;
        prop_assert_eq!(encoded.trailer.post_apply, Some(sum));
        let verified = File::parse(&encoded.bytes)?.verify()?;
        prop_assert_eq!(verified.index().len(), pages.len());
    }

    #[test]
    fn a_file_read_and_written_again_is_the_same_file(
        size in page_size(), pages in prop::collection::btree_map(1u32..50, filling(), 0..12),
    ) {
        let mut encoder = Encoder::new(header(size, 50, 4, Chain::Untracked))?;
        for (pgno, filling) in pages {
            encoder.page(pgno, &filling.page(size))?;
        }
        let first = encoder.finish(None)?;
        let verified = File::parse(&first.bytes)?.verify()?;
        let mut encoder = Encoder::new(*verified.header())?;
        let mut walk = verified.pages();
        while let Some((pgno, data)) = walk.next_page() {
            encoder.page(pgno, data)?;
        }
        prop_assert_eq!(encoder.finish(None)?, first);
    }

    #[test]
    fn verifying_in_steps_finds_what_verifying_at_once_finds(
        fillings in prop::collection::vec(filling(), 1..9), stride in 1usize..4,
    ) {
        let mut encoder = Encoder::new(header(small(), fillings.len() as u32, 1, Chain::Snapshot))?;
        for (pgno, filling) in (1..).zip(&fillings) {
            encoder.page(pgno, &filling.page(small()))?;
        }
        let encoded = encoder.finish(None)?;
        let mut verifier = File::parse(&encoded.bytes)?.verifier();
        let mut steps = 1;
        while verifier.step(stride)? {
            steps += 1;
        }
        prop_assert_eq!(steps, fillings.len().div_ceil(stride));
        prop_assert!(verifier.finish().is_ok());
    }
}

#[test]
fn a_page_that_does_not_compress_is_stored_all_the_same() {
    let size = PageSize::new(65536).expect("a page size");
    let page = Filling::Noise(7).page(size);
    let mut encoder = Encoder::new(header(size, 1, 1, Chain::Snapshot)).expect("a sound header");
    encoder.page(1, &page).expect("page 1");
    let encoded = encoder.finish(None).expect("a file");
    assert!(encoded.bytes.len() > page.len());
    let file = File::parse(&encoded.bytes).and_then(File::verify).expect("a sound file");
    assert_eq!(file.pages().next_page(), Some((1, &page[..])));
}

#[test]
fn a_page_that_breaks_a_rule_is_refused_and_leaves_the_file_as_it_was() {
    let page = [1; 512];
    let mut encoder = Encoder::new(header(small(), 9, 2, Chain::Untracked)).expect("a sound header");
    encoder.page(4, &page).expect("page 4");
    let refused: [(u32, &[u8], EncodeError); 5] = [
        (5, &page[1..], EncodeError::PageLength { pgno: 5, len: 511 }),
        (0, &page, EncodeError::Outside { pgno: 0, commit: 9 }),
        (10, &page, EncodeError::Outside { pgno: 10, commit: 9 }),
        (4, &page, EncodeError::Order { pgno: 4, previous: 4 }),
        (3, &page, EncodeError::Order { pgno: 3, previous: 4 }),
    ];
    for (pgno, data, error) in refused {
        assert_eq!(encoder.page(pgno, data), Err(error));
    }
    encoder.page(9, &page).expect("page 9");
    let file = encoder.finish(None).expect("a file").bytes;
    assert_eq!(File::parse(&file).and_then(File::verify).map(|file| file.index().len()), Ok(2));
}

#[test]
fn the_lock_page_is_never_stored_and_a_snapshot_steps_over_it() {
    let size = PageSize::new(65536).expect("a page size");
    let lock = size.lock_page();
    let page = vec![0; size.bytes()];
    let mut encoder = Encoder::new(header(size, lock + 1, 1, Chain::Untracked)).expect("a sound header");
    for pgno in 1..lock {
        encoder.page(pgno, &page).expect("a page in order");
    }
    assert_eq!(encoder.page(lock, &page), Err(EncodeError::Outside { pgno: lock, commit: lock + 1 }));
    encoder.page(lock + 1, &page).expect("the page after the lock page");
    let file = encoder.finish(None).expect("a file").bytes;
    let file = File::parse(&file).expect("a sound file");
    assert_eq!(file.index().len() as u32, size.stored_pages(lock + 1));
    assert!(file.index().iter().all(|entry| entry.pgno != lock));
}

#[test]
fn a_snapshot_with_a_page_missing_is_refused() {
    let snapshot = || Encoder::new(header(small(), 3, 1, Chain::Snapshot)).expect("a sound header");
    let page = [1; 512];
    assert_eq!(snapshot().page(2, &page), Err(EncodeError::Gap(1)));
    let mut short = snapshot();
    short.page(1, &page).expect("page 1");
    assert_eq!(short.page(3, &page), Err(EncodeError::Gap(2)));
    assert_eq!(short.finish(None), Err(EncodeError::Gap(2)));
}

#[test]
fn checksums_that_do_not_fit_the_header_are_refused() {
    let sum = Checksum::new(u64::MAX).expect("a stored checksum");
    let encoder = |commit, txid, chain| Encoder::new(header(small(), commit, txid, chain));
    let finish =
        |commit, txid, chain, sum| encoder(commit, txid, chain).and_then(|encoder| encoder.finish(sum));

    assert_eq!(finish(1, 2, Chain::Untracked, Some(sum)), Err(EncodeError::UnexpectedPostApply(sum)));
    assert_eq!(finish(1, 2, Chain::After(sum), None), Err(EncodeError::MissingPostApply));
    let disagree = EncodeError::PostApply { computed: Checksum::EMPTY, stated: sum };
    assert_eq!(finish(0, 1, Chain::Snapshot, Some(sum)), Err(disagree));
    assert_eq!(finish(0, 2, Chain::After(sum), Some(sum)), Err(disagree));
    let refused = |chain, txid, commit| encoder(commit, txid, chain).err();
    assert_eq!(refused(Chain::Untracked, 2, 0), Some(HeaderError::UntrackedDeletion.into()));
    assert_eq!(refused(Chain::Snapshot, 2, 1), Some(HeaderError::MissingPreApply.into()));
    assert_eq!(refused(Chain::After(sum), 1, 1), Some(HeaderError::UnexpectedPreApply(u64::MAX).into()));
}
