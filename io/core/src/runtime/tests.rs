//! Heavy work beside heartbeats, on a real thread with real clocks.

use std::{collections::BTreeMap, sync::mpsc, time::Instant};

use bytes::Bytes;
use rustix::process::getpriority_process;
use wasmkeep_bucket::{Bucket, MemoryBucket, Outcome, Precondition};
use wasmkeep_ltx::{Changes, Checksum, PageChecksums, PageSize};
use wasmkeep_protocol::history::{HistoryFile, Point};
use wasmkeep_replica::{ReadBudget, Restorer};
use wasmkeep_runtime::Runtime;

use super::{BucketThreadRuntime, HEAVY_WORK_NICENESS};
use crate::{kit::key, lane::Lane, laned::Laned};

fn on_a_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// A snapshot of `pages` pages that hardly compress.
fn snapshot(pages: u32) -> (Point, Bytes) {
    let mut sums = PageChecksums::new(PageSize::DEFAULT);
    sums.resize(pages);
    let mut state = 1u64;
    let page = |pgno: u32, state: &mut u64| -> Box<[u8]> {
        let words = (0..512).map(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(pgno));
            *state
        });
        words.flat_map(u64::to_le_bytes).collect()
    };
    let made: BTreeMap<u32, Box<[u8]>> = (1..=pages).map(|pgno| (pgno, page(pgno, &mut state))).collect();
    made.iter().for_each(|(pgno, page)| sums.set(*pgno, page));
    let changes = Changes::new(PageSize::DEFAULT, made, pages, Checksum::EMPTY, sums.database());
    let point = Point { txid: 1, checksum: sums.database().get() };
    (point, changes.encode(1, 1, 0).expect("a snapshot").bytes.into())
}

#[test]
fn heavy_work_goes_behind_shards_on_a_core_and_may_panic() {
    let niceness = || getpriority_process(None).expect("it is told");
    let (here, there) = on_a_thread(async move { (niceness(), BucketThreadRuntime.work(niceness).await) });
    assert_eq!(there, Some((here + HEAVY_WORK_NICENESS).min(19)));
    assert_eq!(on_a_thread(BucketThreadRuntime.work(|| panic!("as expected"))), None::<()>);
}

// R-BKT-2
#[test]
fn heartbeats_go_out_while_every_thread_for_heavy_work_is_busy() {
    on_a_thread(async {
        let bucket = Laned::new(MemoryBucket::new());
        let (release, held) = mpsc::channel::<()>();
        let (began, started) = mpsc::channel::<()>();
        // Stands for the checks of a snapshot of any size: it ends when the heartbeats have been written.
        let heavy = tokio::task::spawn_local(BucketThreadRuntime.work(move || {
            began.send(()).expect("the test waits for it");
            held.recv().expect("released by the test");
        }));
        BucketThreadRuntime.work(move || started.recv()).await.expect("it runs").expect("it began");
        for number in 0..10 {
            let beat = Bytes::from(number.to_string());
            let outcome = bucket.on(Lane::Lease).put(&key("nodes/a"), beat, &Precondition::None).await;
            assert!(matches!(outcome, Outcome::Written(_)));
        }
        assert!(!heavy.is_finished());
        release.send(()).expect("it waits for it");
        assert_eq!(heavy.await.expect("it ended"), Some(()));
    });
}

// R-BKT-2
#[test]
fn heartbeats_go_out_while_a_restore_is_checked_and_written() {
    const PAGES: u32 = 8_192;
    on_a_thread(async {
        let bucket = Laned::new(MemoryBucket::new());
        let (point, body) = snapshot(PAGES);
        let file = HistoryFile::snapshot(1, point);
        let _ = bucket.put(&key(&format!("a/{file}")), body, &Precondition::None).await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.db");
        let restorer = Restorer::new(
            bucket.on(Lane::Restore),
            bucket.on(Lane::Housekeeping),
            BucketThreadRuntime,
            ReadBudget::default(),
            PAGES,
        );
        let restoring = tokio::task::spawn_local(async move { restorer.rebuild("a/", &path, None).await });
        let (mut beats, mut longest) = (0u32, std::time::Duration::ZERO);
        while !restoring.is_finished() {
            let asked = Instant::now();
            let beat = Bytes::from(beats.to_string());
            let outcome = bucket.on(Lane::Lease).put(&key("nodes/a"), beat, &Precondition::None).await;
            assert!(matches!(outcome, Outcome::Written(_)));
            (beats, longest) = (beats + 1, longest.max(asked.elapsed()));
            tokio::task::yield_now().await;
        }
        assert_eq!(restoring.await.expect("it ended").expect("a restore").point, point);
        assert!(
            beats > 100,
            "{beats} heartbeats during a restore of {PAGES} pages; the longest took {longest:?}"
        );
    });
}
