//! Files written by the Go implementation of the format, byte for byte.

use wasmkeep_ltx::{
    Chain, Checksum, Encoder, File, Header, IndexEntry, PageSize, Trailer, WalSource, encode_deletion,
};

/// Pages 1 (all `a`) and 3 (all `b`) of a database of 3 pages of 512 bytes, in the block form.
const BLOCK_FORM: &str = "\
    4c545831 00000000 00000200 00000003 0000000000000002 0000000000000002 00000000000003e8 \
    8000000000000005 0000000000000000 0000000000000000 00000000 00000000 0000000000000007 \
    0000000000000000000000000000000000000000 \
    00000001 0001 00000018 1f610100ffda00020000 0200b0 6161616161616161616161 \
    00000003 0001 00000018 1f620100ffda00020000 0200b0 6262626262626262626262 \
    000000000000 01 64 22 03 8601 22 00 0000000000000008 8000000000000006 e8541b03e00fc417";

/// The same in the older frame form.
const FRAME_FORM: &str = "\
    4c545831 00000000 00000200 00000003 0000000000000002 0000000000000002 00000000000003e8 \
    8000000000000005 0000000000000000 0000000000000000 00000000 00000000 0000000000000007 \
    0000000000000000000000000000000000000000 \
    00000001 0000 04224d186440a7 18000000 1f610100ffda000200000200b06161616161616161616161 00000000 db652bda \
    00000003 0000 04224d186440a7 18000000 1f620100ffda000200000200b06262626262626262626262 00000000 a878636c \
    000000000000 01 64 31 03 9501 31 00 0000000000000008 8000000000000006 d4fa33a13f73be33";

/// The deletion of a database of 512-byte pages by transaction 3.
const DELETION_FILE_CHECKSUM: u64 = 0xdacb_b9a9_61e4_3354;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hex digits");
    (0..digits.len()).step_by(2).map(pair).collect()
}

fn sum(stored: u64) -> Checksum {
    Checksum::new(stored).expect("a stored checksum")
}

fn header() -> Header {
    Header {
        page_size: PageSize::new(512).expect("a page size"),
        commit: 3,
        min_txid: 2,
        max_txid: 2,
        timestamp_ms: 1000,
        chain: Chain::After(sum(0x8000_0000_0000_0005)),
        wal: WalSource::default(),
        node_id: 7,
    }
}

fn check_pages(file: File<'_>) {
    let verified = file.verify().expect("sound contents");
    let mut pages = verified.pages();
    assert_eq!(pages.next_page(), Some((1, &[b'a'; 512][..])));
    assert_eq!(pages.next_page(), Some((3, &[b'b'; 512][..])));
    assert_eq!(pages.next_page(), None);
}

#[test]
fn the_block_form_is_read_exactly() {
    let golden = bytes(BLOCK_FORM);
    assert_eq!(golden.len(), 206);
    let file = File::parse(&golden).expect("a sound file");
    assert_eq!(*file.header(), header());
    assert_eq!(
        *file.trailer(),
        Trailer { post_apply: Some(sum(0x8000_0000_0000_0006)), file: sum(0xe854_1b03_e00f_c417) }
    );
    let entry = |pgno, offset| IndexEntry { pgno, offset, len: 34 };
    assert_eq!(file.index(), [entry(1, 100), entry(3, 134)]);
    check_pages(file);
}

#[test]
fn the_frame_form_is_read_exactly() {
    let golden = bytes(FRAME_FORM);
    assert_eq!(golden.len(), 236);
    let file = File::parse(&golden).expect("a sound file");
    assert_eq!(*file.header(), header());
    assert_eq!(file.trailer().file, sum(0xd4fa_33a1_3f73_be33));
    check_pages(file);
}

#[test]
fn what_is_written_differs_from_the_golden_file_only_by_the_lz4_compressor() {
    let golden = bytes(BLOCK_FORM);
    let mut encoder = Encoder::new(header()).expect("a sound header");
    encoder.page(1, &[b'a'; 512]).expect("page 1");
    encoder.page(3, &[b'b'; 512]).expect("page 3");
    let ours = encoder.finish(Some(sum(0x8000_0000_0000_0006))).expect("a file").bytes;
    let file = File::parse(&ours).expect("a sound file");
    let [first, second] = *file.index() else { panic!("two pages") };

    // The golden bytes with our sizes, offsets and payloads in their places.
    let mut expected = golden[..100].to_vec();
    let mut summed = expected.clone();
    for (entry, byte) in [(first, b'a'), (second, b'b')] {
        let mut head = [0, 0, 0, entry.pgno as u8, 0, 1].to_vec();
        head.extend_from_slice(&(entry.len - 10).to_be_bytes());
        assert_eq!(expected.len() as u64, entry.offset);
        expected.extend_from_slice(&head);
        expected.extend_from_slice(&ours[expected.len()..][..entry.len as usize - 10]);
        summed.extend_from_slice(&head);
        summed.extend_from_slice(&[byte; 512]);
    }
    let (len1, offset2, len2) = (first.len as u8, second.offset as u8, second.len as u8);
    let mut tail = [0; 6].to_vec();
    tail.extend_from_slice(&[1, 100, len1, 3, offset2, len2, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    tail.extend_from_slice(&golden[golden.len() - 16..golden.len() - 8]);
    expected.extend_from_slice(&tail);
    summed.extend_from_slice(&tail);
    let checksum = crc::Crc::<u64>::new(&crc::CRC_64_GO_ISO).checksum(&summed) | 1 << 63;
    expected.extend_from_slice(&checksum.to_be_bytes());
    assert_eq!(ours, expected);
    check_pages(file);
}

#[test]
fn a_deletion_is_written_byte_for_byte() {
    let header = Header {
        commit: 0,
        min_txid: 3,
        max_txid: 3,
        chain: Chain::After(sum(0x8000_0000_0000_0006)),
        node_id: 0,
        ..header()
    };
    let deletion = encode_deletion(header).expect("a file");
    assert_eq!(deletion.bytes.len(), 131);
    assert_eq!(
        deletion.trailer,
        Trailer { post_apply: Some(Checksum::EMPTY), file: sum(DELETION_FILE_CHECKSUM) }
    );
    let file = File::parse(&deletion.bytes).and_then(File::verify).expect("a sound file");
    assert_eq!(*file.header(), header);
    assert_eq!(file.index(), []);
}
