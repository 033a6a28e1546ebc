use proptest::prelude::*;

use super::*;

fn incremental() -> Header {
    Header {
        page_size: PageSize::DEFAULT,
        commit: 3,
        min_txid: 2,
        max_txid: 5,
        timestamp_ms: -1,
        chain: Chain::After(Checksum::EMPTY),
        wal: WalSource { offset: 32, size: 4120, salt1: 1, salt2: 2 },
        node_id: 9,
    }
}

fn with_bytes(edits: &[(usize, u8)]) -> Result<Header, HeaderError> {
    let mut bytes = incremental().to_bytes();
    for &(at, byte) in edits {
        bytes[at] = byte;
    }
    Header::from_bytes(&bytes)
}

#[test]
fn a_header_that_breaks_a_rule_is_refused_with_that_rule() {
    let no_wal: Vec<(usize, u8)> = (48..72).map(|at| (at, 0)).collect();
    let edited = |more: &[(usize, u8)]| with_bytes(&[&no_wal[..], more].concat());
    assert!(edited(&[]).is_ok());
    let wal = |offset, size, salt1, salt2| HeaderError::Wal(WalSource { offset, size, salt1, salt2 });

    assert_eq!(edited(&[(3, b'2')]), Err(HeaderError::Magic(*b"LTX2")));
    assert_eq!(edited(&[(7, 1)]), Err(HeaderError::Flags(1)));
    assert_eq!(edited(&[(4, 0x80)]), Err(HeaderError::Flags(0x8000_0000)));
    assert_eq!(edited(&[(11, 1)]), Err(HeaderError::PageSize(InvalidPageSize(4097))));
    assert_eq!(edited(&[(23, 6)]), Err(HeaderError::TxidRange { min_txid: 6, max_txid: 5 }));
    assert_eq!(edited(&[(23, 0), (40, 0)]), Err(HeaderError::TxidRange { min_txid: 0, max_txid: 5 }));
    assert_eq!(edited(&[(23, 1)]), Err(HeaderError::UnexpectedPreApply(1 << 63)));
    assert_eq!(edited(&[(7, 2)]), Err(HeaderError::UnexpectedPreApply(1 << 63)));
    assert_eq!(edited(&[(40, 0)]), Err(HeaderError::MissingPreApply));
    assert_eq!(edited(&[(40, 0), (47, 7)]), Err(HeaderError::PreApply(MissingFlag(7))));
    assert_eq!(edited(&[(7, 2), (40, 0), (15, 0)]), Err(HeaderError::UntrackedDeletion));
    assert_eq!(edited(&[(48, 0x80)]), Err(wal(1 << 63, 0, 0, 0)));
    assert_eq!(edited(&[(55, 1), (56, 0x80)]), Err(wal(1, 1 << 63, 0, 0)));
    assert_eq!(edited(&[(63, 1)]), Err(wal(0, 1, 0, 0)));
    assert_eq!(edited(&[(67, 1)]), Err(wal(0, 0, 1, 0)));
    assert_eq!(edited(&[(71, 1)]), Err(wal(0, 0, 0, 1)));
    assert_eq!(edited(&[(99, 1)]), Err(HeaderError::Reserved));
}

#[test]
fn a_place_in_the_log_without_a_size_is_allowed() {
    assert!(with_bytes(&[(62, 0), (63, 0)]).is_ok_and(|h| h.wal.size == 0 && h.wal.offset == 32));
}

#[test]
fn a_trailer_that_breaks_a_rule_is_refused_with_that_rule() {
    let tracked = incremental();
    let untracked = Header { chain: Chain::Untracked, ..tracked };
    let deletion = Header { commit: 0, ..tracked };
    let trailer = |post: u64, file: u64, header: &Header| {
        let bytes = [post.to_be_bytes(), file.to_be_bytes()].concat();
        Trailer::from_bytes(&bytes.try_into().expect("16 bytes"), header)
    };
    let top = 1 << 63;

    assert_eq!(trailer(top, top, &tracked).map(|t| t.post_apply), Ok(Some(Checksum::EMPTY)));
    assert_eq!(trailer(0, top, &untracked).map(|t| t.post_apply), Ok(None));
    assert_eq!(trailer(0, top, &tracked), Err(TrailerError::PostApply(MissingFlag(0))));
    assert_eq!(trailer(top, top, &untracked), Err(TrailerError::UnexpectedPostApply(top)));
    assert_eq!(trailer(top, 4, &tracked), Err(TrailerError::File(MissingFlag(4))));
    let other = Checksum::new(top | 1).expect("a checksum");
    assert_eq!(trailer(top | 1, top, &deletion), Err(TrailerError::Deletion(other)));
}

proptest! {
    #[test]
    fn a_header_survives_the_way_through_bytes(
        log2_size in 9u32..=16, commit in 1u32.., txids in (1u64.., 1u64..), timestamp_ms: i64,
        tracked: bool, pre in (1u64 << 63).., wal in (1u64..1 << 63, 0u64..1 << 63, any::<u32>(), any::<u32>()),
        node_id: u64,
    ) {
        let min_txid = txids.0.min(txids.1);
        let chain = match (tracked, min_txid) {
            (false, _) => Chain::Untracked,
            (true, 1) => Chain::Snapshot,
            (true, _) => Chain::After(Checksum::new(pre).expect("a checksum")),
        };
        let header = Header {
            page_size: PageSize::new(1 << log2_size).expect("a page size"),
            commit, min_txid, max_txid: txids.0.max(txids.1), timestamp_ms, chain, node_id,
            wal: WalSource { offset: wal.0, size: wal.1, salt1: wal.2, salt2: wal.3 },
        };
        prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Ok(header));
    }
}

#[test]
fn the_start_of_a_file_tells_what_it_is_about() {
    let header = incremental();
    let start = [&header.to_bytes()[..], b"pages"].concat();
    assert_eq!(Header::peek(&start), Ok(header));
    assert_eq!(Header::peek(&start[..99]), Err(DecodeError::Short(99)));
    assert_eq!(Header::peek(&[0; 100]), Err(DecodeError::Header(HeaderError::Magic([0; 4]))));
}
