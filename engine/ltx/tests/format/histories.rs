//! Made-up databases that change from transaction to transaction, each with the file that says so.

use proptest::prelude::*;
use wasmkeep_ltx::{Chain, Encoder, Header, PageChecksums, PageSize, Position, WalSource};

/// The contents of a page, small to print and spread over what compression does with it.
#[derive(Debug, Clone, Copy)]
pub enum Filling {
    /// One byte all over.
    Flat(u8),
    /// Rows of a table: some repetition, some noise.
    Rows(u64),
    /// Nothing that compresses.
    Noise(u64),
}

impl Filling {
    pub fn page(self, size: PageSize) -> Vec<u8> {
        match self {
            Self::Flat(byte) => vec![byte; size.bytes()],
            Self::Rows(seed) => {
                let mut noise = noise(seed);
                let rows = (0..).flat_map(|row: u32| {
                    let text = format!("row {row} of table; value {:04x}|", noise.next().unwrap_or(0));
                    text.into_bytes()
                });
                rows.take(size.bytes()).collect()
            }
            Self::Noise(seed) => noise(seed).take(size.bytes()).collect(),
        }
    }
}

/// Bytes of a xorshift generator, eight at a step.
fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten()
}

pub fn filling() -> impl Strategy<Value = Filling> {
    prop_oneof![
        any::<u8>().prop_map(Filling::Flat),
        any::<u64>().prop_map(Filling::Rows),
        any::<u64>().prop_map(Filling::Noise),
    ]
}

pub fn page_size() -> impl Strategy<Value = PageSize> {
    prop_oneof![6 => Just(512u32), 3 => Just(4096), 1 => Just(65536)]
        .prop_map(|bytes| PageSize::new(bytes).expect("a page size"))
}

/// One transaction: the size the database gets, and what is written where (page numbers wrap around).
#[derive(Debug, Clone)]
pub struct Transaction {
    pub pages: u32,
    pub writes: Vec<(u32, Filling)>,
}

pub fn transactions(most: usize) -> impl Strategy<Value = Vec<Transaction>> {
    let writes = prop::collection::vec((any::<u32>(), filling()), 0..6);
    let transaction = (1u32..16, writes).prop_map(|(pages, writes)| Transaction { pages, writes });
    prop::collection::vec(transaction, 1..most)
}

/// A database after each of its transactions.
pub struct History {
    /// One file a transaction; the first is a snapshot.
    pub files: Vec<Vec<u8>>,
    /// The whole database after each.
    pub states: Vec<Vec<u8>>,
    /// The position after each.
    pub positions: Vec<Position>,
}

impl History {
    /// Plays transactions numbered from 1. Pages that the database grows by and no write touches are zeros and
    /// not in the file.
    pub fn play(page_size: PageSize, tracked: bool, transactions: &[Transaction]) -> Self {
        let mut history = Self { files: vec![], states: vec![], positions: vec![] };
        let mut state: Vec<u8> = Vec::new();
        let mut sums = PageChecksums::new(page_size);
        for (txid, transaction) in (1..).zip(transactions) {
            let before = sums.database();
            let bytes = page_size.bytes();
            state.resize(transaction.pages as usize * bytes, 0);
            sums.resize(transaction.pages);
            let mut written: Vec<u32> = Vec::new();
            for &(at, filling) in &transaction.writes {
                let pgno = at % transaction.pages + 1;
                let page = filling.page(page_size);
                sums.set(pgno, &page);
                state[(pgno as usize - 1) * bytes..][..bytes].copy_from_slice(&page);
                written.push(pgno);
            }
            if txid == 1 {
                written = (1..=transaction.pages).collect();
            }
            written.sort_unstable();
            written.dedup();
            let chain = match (tracked, txid) {
                (false, _) => Chain::Untracked,
                (true, 1) => Chain::Snapshot,
                (true, _) => Chain::After(before),
            };
            let header = header(page_size, transaction.pages, txid, chain);
            let mut encoder = Encoder::new(header).expect("a sound header");
            for pgno in written {
                encoder.page(pgno, &state[(pgno as usize - 1) * bytes..][..bytes]).expect("a page in order");
            }
            let checksum = tracked.then(|| sums.database());
            history.files.push(encoder.finish(checksum).expect("a file").bytes);
            history.states.push(state.clone());
            history.positions.push(Position { txid, checksum });
        }
        history
    }
}

pub fn header(page_size: PageSize, commit: u32, txid: u64, chain: Chain) -> Header {
    Header {
        page_size,
        commit,
        min_txid: txid,
        max_txid: txid,
        timestamp_ms: txid as i64 * 1000,
        chain,
        wal: WalSource { offset: 32, size: 4120, salt1: 1, salt2: 2 },
        node_id: 3,
    }
}
