use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Outcome, Precondition};

use super::*;
use crate::kit::key;

fn start(folder: &tempfile::TempDir) -> BucketCore<Laned<AnyBucket>> {
    BucketCore::start(config(folder), |bucket| bucket).expect("it starts")
}

fn config(folder: &tempfile::TempDir) -> CoreConfig {
    let url = format!("file://{}", folder.path().display()).parse().expect("a bucket");
    CoreConfig { url, environment: Vec::new(), cpu: None }
}

/// Runs a future on a thread that has no Tokio runtime, as a shard has none.
fn wait<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}

// case T1
#[test]
fn a_thread_without_tokio_reads_and_writes_the_bucket() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = start(&folder);
    let written = wait(core.run(Lane::Lease, async |bucket| {
        let bucket = bucket.on(Lane::Lease);
        bucket.put(&key("nodes/a"), Bytes::from_static(b"here"), &Precondition::Absent).await
    }));
    assert!(matches!(written, Ok(Outcome::Written(_))), "{written:?}");
    let read = wait(core.run(Lane::Restore, async |bucket| {
        let object = bucket.on(Lane::Restore).get(&key("nodes/a"), None).await.expect("there");
        object.bytes(64).await
    }));
    assert_eq!(read, Ok(Ok(Bytes::from_static(b"here"))));
}

#[test]
fn jobs_that_wait_start_in_the_order_of_their_lanes() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = start(&folder);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    // Holds the thread until all of the others wait.
    let holder = std::thread::spawn({
        let core = core.clone();
        move || {
            wait(core.run(Lane::Housekeeping, async move |_| begin.send(()).is_ok() && held.recv().is_ok()))
        }
    });
    begun.recv().expect("it runs");
    let handed_in: Vec<_> = [Lane::Housekeeping, Lane::Restore, Lane::Upload, Lane::Durable, Lane::Lease]
        .into_iter()
        .map(|lane| {
            let (core, order) = (core.clone(), Arc::clone(&order));
            std::thread::spawn(move || {
                wait(core.run(lane, async move |_| order.lock().expect("whole").push(lane)))
            })
        })
        .collect();
    let waiting = || Lane::ALL.iter().map(|lane| core.lanes[lane.index()].len()).sum::<usize>();
    while waiting() < Lane::ALL.len() {
        std::thread::sleep(Duration::from_millis(1));
    }
    release.send(()).expect("it waits");
    assert_eq!(holder.join().expect("no panic"), Ok(true));
    for job in handed_in {
        assert_eq!(job.join().expect("no panic"), Ok(()));
    }
    assert_eq!(*order.lock().expect("whole"), Lane::ALL);
}

#[test]
fn jobs_handed_in_are_done_before_the_thread_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let core = start(&folder);
    let (done, waits) = std::sync::mpsc::channel();
    let mut job = Box::pin(core.run(Lane::Upload, async move |_| {
        tokio::time::sleep(Duration::from_millis(20)).await;
        done.send(())
    }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(job.as_mut().poll(&mut context).is_pending());
    drop(job);
    drop(core);
    waits.recv().expect("the job went on");
}

#[test]
fn settings_that_cannot_work_are_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let cpu = rustix::thread::CpuSet::MAX_CPU;
    let error =
        BucketCore::start(CoreConfig { cpu: Some(cpu), ..config(&folder) }, drop).expect_err("no such CPU");
    assert!(matches!(error, StartError::Pin { .. }), "{error}");
    let url = "s3://bucket".parse().expect("a bucket");
    let config =
        CoreConfig { url, environment: vec![("AWS_ENDPOINT".into(), "not a url".into())], cpu: None };
    let error = BucketCore::start(config, drop).expect_err("no endpoint");
    assert!(matches!(error, StartError::Open(_)), "{error}");
}
