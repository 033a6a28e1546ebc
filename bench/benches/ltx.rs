//! LTX files of 4 KiB pages: what one core writes, verifies and merges a second.
//!
//! Throughput is in bytes of database, not of file. The pages are those of a table (text with some repetition,
//! some noise) unless the name says otherwise. Production differs in that pages come from a write-ahead log that
//! may not be in the cache, and that most files hold a few pages: see `one_page`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wasmkeep_ltx::{
    Chain, Checksum, CompactOptions, Encoder, File, Header, MemoryPages, PageSize, Position, Tracking,
    WalSource, apply, compact, page_checksum,
};

const SIZE: PageSize = PageSize::DEFAULT;

/// 4 MiB: larger than a second-level cache, small enough that a run takes seconds.
const PAGES: u32 = 1024;

type Filling = fn(u32) -> Vec<u8>;

/// What compression meets: nothing to find, a table, nothing at all.
const FILLINGS: [(&str, Filling); 3] = [("zeros", zeros), ("rows", rows), ("noise", noise)];

fn zeros(_: u32) -> Vec<u8> {
    vec![0; SIZE.bytes()]
}

fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed) << 20 | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..SIZE.bytes()).map(|_| next()).collect()
}

fn rows(seed: u32) -> Vec<u8> {
    let noise = noise(seed);
    let row = |n: usize| {
        format!("{n:05} customer-{:03} ordered item {:04} {:02x?}", noise[n], n * 7 % 977, &noise[n..n + 8])
    };
    (0..).flat_map(|n| row(n).into_bytes()).take(SIZE.bytes()).collect()
}

fn header(commit: u32, txid: u64, chain: Chain) -> Header {
    let wal = WalSource::default();
    Header {
        page_size: SIZE,
        commit,
        min_txid: txid,
        max_txid: txid,
        timestamp_ms: 0,
        chain,
        wal,
        node_id: 0,
    }
}

fn snapshot(pages: &[Vec<u8>], chain: Chain) -> Vec<u8> {
    let mut encoder = Encoder::new(header(pages.len() as u32, 1, chain)).expect("a sound header");
    for (pgno, page) in (1..).zip(pages) {
        encoder.page(pgno, page).expect("a page in order");
    }
    encoder.finish(None).expect("a file").bytes
}

fn whole_files(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ltx");
    group.throughput(Throughput::Bytes(u64::from(PAGES) * SIZE.bytes() as u64));
    for (name, filling) in FILLINGS {
        let pages: Vec<_> = (1..=PAGES).map(filling).collect();
        group.bench_function(BenchmarkId::new("encode", name), |b| {
            b.iter(|| snapshot(black_box(&pages), Chain::Snapshot));
        });
        group.bench_function(BenchmarkId::new("encode_untracked", name), |b| {
            b.iter(|| snapshot(black_box(&pages), Chain::Untracked));
        });
        let file = snapshot(&pages, Chain::Snapshot);
        group.bench_function(BenchmarkId::new("verify", name), |b| {
            b.iter(|| {
                File::parse(black_box(&file)).and_then(File::verify).expect("a sound file").index().len()
            });
        });
        let verified = File::parse(&file).and_then(File::verify).expect("a sound file");
        group.bench_function(BenchmarkId::new("apply", name), |b| {
            b.iter(|| {
                let mut store = MemoryPages::new(SIZE, PAGES);
                apply(&verified, &Position::START, &mut store).expect("applied");
                store
            });
        });
        let options = CompactOptions { tracking: Tracking::Keep, pages_max: PAGES };
        group.bench_function(BenchmarkId::new("compact", name), |b| {
            b.iter(|| compact(std::slice::from_ref(&verified), options).expect("merged"));
        });
    }
    group.finish();
}

/// What one small transaction costs: a file of one page, and its checksum.
fn one_page(criterion: &mut Criterion) {
    let page = rows(1);
    let mut group = criterion.benchmark_group("ltx_one_page");
    group.bench_function("encode", |b| {
        b.iter(|| {
            let header = header(PAGES, 2, Chain::After(Checksum::EMPTY));
            let mut encoder = Encoder::new(header).expect("a sound header");
            encoder.page(7, black_box(&page)).expect("a page in order");
            encoder.finish(Some(Checksum::EMPTY)).expect("a file")
        });
    });
    group.bench_function("page_checksum", |b| b.iter(|| page_checksum(7, black_box(&page))));
    group.finish();
}

criterion_group!(benches, whole_files, one_page);
criterion_main!(benches);
