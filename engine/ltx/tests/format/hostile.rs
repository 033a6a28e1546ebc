//! Damaged and hostile files: an error, never a panic, never much memory, never wrong pages.

use proptest::prelude::*;
use wasmkeep_ltx::{
    Chain, Checksum, DecodeError, Encoder, File, FileName, FrameError, IndexError, MemoryPages, PageSize,
    Position, apply, page_checksum,
};

use crate::counting_allocator::most_held;
use crate::forging::{Frame, forge};
use crate::histories::{Filling, History, Transaction, header, transactions};

fn small() -> PageSize {
    PageSize::new(512).expect("a page size")
}

/// Reads everything there is in `bytes`.
fn read_all(bytes: &[u8]) -> Result<usize, DecodeError> {
    let verified = File::parse(bytes)?.verify()?;
    let mut pages = verified.pages();
    let mut count = 0;
    while pages.next_page().is_some() {
        count += 1;
    }
    Ok(count)
}

/// Twice the input for the list of pages, and room for a page of 64 KiB, the buffers of an LZ4 frame and a
/// message.
fn memory_bound(input: usize) -> usize {
    2 * input + 4 * 65536
}

fn two_pages() -> Vec<u8> {
    let transaction = Transaction { pages: 2, writes: vec![(0, Filling::Rows(1)), (1, Filling::Rows(2))] };
    History::play(small(), true, &[transaction]).files.remove(0)
}

// case S9
#[test]
fn a_file_cut_anywhere_is_refused() {
    let file = two_pages();
    assert_eq!(read_all(&file), Ok(2));
    for cut in 1..=file.len() {
        assert!(read_all(&file[..file.len() - cut]).is_err(), "cut by {cut} bytes");
    }
}

// case S9
#[test]
fn a_file_with_any_bit_flipped_is_refused_or_holds_the_same_pages() {
    let file = two_pages();
    let payloads: Vec<_> = File::parse(&file)
        .expect("a sound file")
        .index()
        .iter()
        .map(|entry| entry.offset as usize + 10..entry.offset as usize + entry.len as usize)
        .collect();
    let whole = File::parse(&file).and_then(File::verify).expect("a sound file");
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(verified) = File::parse(&flipped).and_then(File::verify) else { continue };
        // The checksum is over expanded pages, so compressed bytes that expand to the same page pass.
        assert!(payloads.iter().any(|payload| payload.contains(&(bit / 8))), "bit {bit}");
        let (mut ours, mut theirs) = (whole.pages(), verified.pages());
        assert_eq!(ours.next_page(), theirs.next_page());
        assert_eq!(ours.next_page(), theirs.next_page());
    }
}

// case S9
#[test]
fn two_swapped_files_are_told_apart_by_their_names() {
    let transaction = Transaction { pages: 2, writes: vec![(0, Filling::Flat(1))] };
    let history = History::play(small(), true, &[transaction.clone(), transaction.clone(), transaction]);
    let names: Vec<_> = (1..=3).map(|txid| FileName::new(txid, txid).expect("a range")).collect();
    for (at, name) in names.iter().enumerate() {
        for (other, bytes) in history.files.iter().enumerate() {
            let file = File::parse(bytes).expect("a sound file");
            assert_eq!(name.names(file.header()), at == other);
        }
    }
}

#[test]
fn an_index_that_does_not_follow_the_frames_is_refused() {
    let mut encoder = Encoder::new(header(small(), 9, 2, Chain::Untracked)).expect("a sound header");
    encoder.page(5, &[1; 512]).expect("page 5");
    encoder.page(7, &[2; 512]).expect("page 7");
    let file = encoder.finish(None).expect("a file").bytes;
    let parsed = File::parse(&file).expect("a sound file");
    let [first, second] = parsed.index() else { panic!("two pages") };
    // From the end: trailer 16, length 8, then the index: 5 offset len, 7 offset len, 0.
    let index = file.len() - 16 - 8 - 7;
    assert_eq!(file[index..][..3], [5, 100, first.len as u8]);
    let with = |edits: &[(usize, u8)]| {
        let mut bytes = file.clone();
        edits.iter().for_each(|&(at, byte)| bytes[at] = byte);
        File::parse(&bytes).map(|_| ())
    };
    let len = first.len as u8;

    assert_eq!(with(&[(index + 1, 101)]), Err(DecodeError::Place { pgno: 5, stated: 101, expected: 100 }));
    assert_eq!(
        with(&[(index + 2, len - 1)]),
        Err(DecodeError::Frame {
            pgno: 5,
            error: FrameError::Size { stated: u32::from(len) - 10, indexed: usize::from(len) - 11 }
        })
    );
    assert_eq!(with(&[(index, 6)]), Err(DecodeError::Frame { pgno: 6, error: FrameError::Number(5) }));
    assert_eq!(with(&[(index + 3, 4)]), Err(DecodeError::Order { pgno: 4, previous: 5, commit: 9 }));
    assert_eq!(with(&[(index + 3, 10)]), Err(DecodeError::Order { pgno: 10, previous: 5, commit: 9 }));
    assert_eq!(with(&[(index + 5, 127)]), Err(DecodeError::Overrun(7)));
    assert_eq!(with(&[(index + 3, 0)]), Err(IndexError::Excess(3).into()));
    assert_eq!(with(&[(file.len() - 17, 255)]), Err(IndexError::Length(255).into()));
    let mark = second.offset as usize + second.len as usize;
    assert_eq!(with(&[(mark, 1)]), Err(DecodeError::EndOfPages(mark as u64)));
    let mut padded = file.clone();
    padded.splice(mark..mark, [0; 3]);
    assert_eq!(File::parse(&padded).map(|_| ()), Err(DecodeError::EndOfPages(mark as u64)));
    assert_eq!(with(&[(105, 2)]), Err(DecodeError::Frame { pgno: 5, error: FrameError::Flags(2) }));
}

#[test]
fn a_file_of_an_older_version_is_refused_by_its_flags_or_structure() {
    let mut file = two_pages();
    file[7] |= 1;
    assert!(matches!(File::parse(&file), Err(DecodeError::Header(_))));
    // Version 2 had four bytes of page header: with the flags gone every later frame is out of place.
    let mut file = two_pages();
    file.drain(104..106);
    assert!(File::parse(&file).is_err());
}

#[test]
fn a_snapshot_that_lacks_a_page_is_refused() {
    // An incremental file of pages 1 and 3 whose header then claims to be a snapshot.
    let mut encoder = Encoder::new(header(small(), 3, 2, Chain::Untracked)).expect("a sound header");
    encoder.page(1, &[1; 512]).expect("page 1");
    encoder.page(3, &[3; 512]).expect("page 3");
    let mut file = encoder.finish(None).expect("a file").bytes;
    (file[23], file[31]) = (1, 1);
    assert_eq!(File::parse(&file).map(|_| ()), Err(DecodeError::Gap(2)));
    let mut file = two_pages();
    file[15] = 3;
    assert_eq!(File::parse(&file).map(|_| ()), Err(DecodeError::Gap(3)));
}

#[test]
fn a_snapshot_whose_pages_are_not_the_database_it_states_is_refused() {
    let payload = [&[0xf0, 255, 242][..], &[7; 512]].concat();
    let frames = [Frame::of_block(1, &payload, vec![7; 512])];
    let mut snapshot = two_pages();
    snapshot[15] = 1;
    let right = page_checksum(1, &[7; 512]);
    assert_eq!(read_all(&forge(&snapshot[..100], &frames, right.get())), Ok(1));
    let wrong = Checksum::new(right.get() ^ 1).expect("a stored checksum");
    let error = DecodeError::PostApply { computed: right, stated: wrong };
    assert_eq!(read_all(&forge(&snapshot[..100], &frames, wrong.get())), Err(error));
}

#[test]
fn a_payload_that_is_not_exactly_one_page_is_refused() {
    let encoder = Encoder::new(header(small(), 9, 2, Chain::Untracked)).expect("a sound header");
    let header = encoder.finish(None).expect("a file").bytes[..100].to_vec();
    let read = |frame: Frame| read_all(&forge(&header, &[frame], 0));
    let refused = |frame: Frame| match read(frame) {
        Err(DecodeError::Frame { pgno: 1, error }) => error,
        other => panic!("{other:?}"),
    };
    let literals = |count: u8| [&[0xf0, 255, count][..], &vec![7; 270 + usize::from(count)]].concat();
    let block = |payload: &[u8]| Frame::of_block(1, payload, vec![7; 512]);
    assert_eq!(read(block(&literals(242))), Ok(1));
    assert_eq!(refused(block(&literals(241))), FrameError::Expanded(511));
    assert!(matches!(refused(block(&literals(243))), FrameError::Lz4(_)));
    assert!(matches!(refused(block(&[])), FrameError::Lz4(_)));

    let start = [0x04, 0x22, 0x4d, 0x18, 0x64, 0x40, 0xa7];
    let stored = |len: u32| [&(0x8000_0000 | len).to_le_bytes()[..], &vec![b'a'; len as usize]].concat();
    // The checksum of 512 times `a`, as in the golden file of the frame form.
    let end = [0, 0, 0, 0, 0xdb, 0x65, 0x2b, 0xda];
    let lz4_frame = |parts: &[&[u8]]| Frame::of_lz4_frame(1, &parts.concat(), vec![b'a'; 512]);
    assert_eq!(read(lz4_frame(&[&start, &stored(512), &end])), Ok(1));
    assert_eq!(read(lz4_frame(&[&start, &stored(500), &stored(12), &end])), Ok(1));
    assert_eq!(refused(lz4_frame(&[&start, &stored(512)])), FrameError::Lz4Frame);
    assert_eq!(refused(lz4_frame(&[&start, &stored(512), &end, &end])), FrameError::Lz4Frame);
    assert_eq!(refused(lz4_frame(&[&start, &stored(512), &stored(4)])), FrameError::Lz4Frame);
    assert_eq!(refused(lz4_frame(&[&start, &stored(511)])), FrameError::Expanded(511));
    assert!(matches!(refused(lz4_frame(&[&start, &stored(512), &[0; 8]])), FrameError::Lz4(_)));
    let four_mib_blocks = [0x04, 0x22, 0x4d, 0x18, 0x64, 0x70, 0xb9];
    assert_eq!(refused(lz4_frame(&[&four_mib_blocks, &stored(512), &end])), FrameError::Lz4Frame);
}

#[test]
fn a_file_of_nothing_but_the_smallest_frames_stays_within_bounds() {
    // Frames of six bytes, their payload missing: the most pages a file can list for its length.
    let encoder = Encoder::new(header(small(), u32::MAX, 2, Chain::Untracked)).expect("a sound header");
    let header = encoder.finish(None).expect("a file").bytes[..100].to_vec();
    let frames: Vec<_> = (1..=200_000).map(|pgno| Frame::of_lz4_frame(pgno, &[], vec![])).collect();
    let bytes = forge(&header, &frames, 0);
    let (pages, held) = most_held(|| File::parse(&bytes).map(|file| file.index().len()));
    assert_eq!(pages, Ok(200_000));
    assert!(held < memory_bound(bytes.len()), "{held} bytes held for {}", bytes.len());
    assert_eq!(read_all(&bytes), Err(DecodeError::Frame { pgno: 1, error: FrameError::Lz4Frame }));
}

#[test]
fn a_few_bytes_that_claim_a_huge_database_get_no_memory() {
    let mut encoder = Encoder::new(header(small(), u32::MAX, 2, Chain::Untracked)).expect("a sound header");
    encoder.page(u32::MAX, &[1; 512]).expect("the last page");
    let bytes = encoder.finish(None).expect("a file").bytes;
    let file = File::parse(&bytes).and_then(File::verify).expect("a sound file");
    let mut store = MemoryPages::new(small(), 1000);
    let at = Position { txid: 1, checksum: None };
    let (result, held) = most_held(|| apply(&file, &at, &mut store));
    assert!(result.is_err());
    assert!(held < memory_bound(bytes.len()), "{held} bytes");
    assert!(store.as_bytes().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_bytes_are_refused_within_bounds(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let (result, held) = most_held(|| read_all(&bytes));
        prop_assert!(result.is_err());
        prop_assert!(held < memory_bound(bytes.len()), "{} bytes held for {}", held, bytes.len());
    }

    #[test]
    fn random_bytes_behind_a_sound_header_are_refused_within_bounds(
        tail in prop::collection::vec(prop::sample::select(vec![0, 1, 6, 64, 128, 255]), 0..1000), tracked: bool,
    ) {
        let mut bytes = two_pages();
        bytes.truncate(100);
        if !tracked {
            bytes[7] = 2;
        }
        bytes.extend_from_slice(&tail);
        let (result, held) = most_held(|| read_all(&bytes));
        prop_assert!(result.is_err());
        prop_assert!(held < memory_bound(bytes.len()), "{} bytes held for {}", held, bytes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_sound_file_with_random_edits_is_refused_or_gives_pages_within_bounds(
        transactions in transactions(2),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        insert in prop::option::of((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..20))),
    ) {
        let mut bytes = History::play(small(), true, &transactions).files.remove(0);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((at, more)) = insert {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, more);
        }
        let (_, held) = most_held(|| read_all(&bytes).map(|count| assert!(count < 16)));
        prop_assert!(held < memory_bound(bytes.len()), "{} bytes held for {}", held, bytes.len());
    }
}
