use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use futures::future::join_all;

use super::*;
use crate::kit::{Slow, key};

const EACH: Duration = Duration::from_millis(50);

fn slow() -> Laned<Slow> {
    Laned::new(Slow::new(EACH))
}

async fn write(bucket: &Laned<Slow>, name: &str) {
    let written = bucket.put(&key(name), Bytes::from_static(b"x"), &Precondition::None).await;
    assert!(matches!(written, Outcome::Written(_)), "{written:?}");
}

// R-BKT-2
#[tokio::test(start_paused = true)]
async fn a_heartbeat_leaves_at_once_behind_a_full_upload_queue_and_a_restore_of_a_gibibyte() {
    let bucket = slow();
    let chunk = Bytes::from(vec![7; 1 << 20]);
    for part in 0..64 {
        let name = key(&format!("part/{part}"));
        let written = bucket.bucket.inner.put(&name, chunk.clone(), &Precondition::None).await;
        assert!(matches!(written, Outcome::Written(_)));
    }
    let uploads = bucket.on(Lane::Upload);
    let uploading = join_all((0..2000).map(|file| {
        let uploads = uploads.clone();
        async move { write(&uploads, &format!("file/{file}")).await }
    }));
    let restores = bucket.on(Lane::Restore);
    let restoring = join_all((0..1024).map(|part| {
        let restores = restores.clone();
        async move {
            let object = restores.get(&key(&format!("part/{}", part % 64)), None).await.expect("there");
            object.bytes(1 << 20).await.expect("whole").len()
        }
    }));
    let heartbeat = async {
        tokio::time::sleep(EACH / 2).await;
        assert!(bucket.load(Lane::Upload).0 > 1900 && bucket.load(Lane::Restore).0 > 900);
        write(&bucket.on(Lane::Lease), "nodes/a").await;
    };
    let ((), sizes, _) = futures::join!(heartbeat, restoring, uploading);
    assert_eq!(sizes.into_iter().sum::<usize>(), 1 << 30);
    assert_eq!(bucket.bucket.left("nodes/a"), Some(EACH / 2));
    for lane in Lane::ALL {
        assert_eq!(bucket.load(lane), (0, 0), "{lane:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_waited_for_leaves_before_uploads_that_asked_earlier() {
    let bucket = slow();
    let uploads = bucket.on(Lane::Upload);
    let restores = bucket.on(Lane::Restore);
    // Fills every place but those kept for the others, and queues more.
    let reading = join_all((0..100).map(|_| async { restores.get(&key("none"), None).await.is_err() }));
    let uploading = join_all((0..100).map(|file| {
        let uploads = uploads.clone();
        async move { write(&uploads, &format!("file/{file}")).await }
    }));
    let durable = async {
        tokio::time::sleep(EACH / 2).await;
        let commits = bucket.on(Lane::Durable);
        join_all((0..20).map(|commit| {
            let commits = commits.clone();
            async move { write(&commits, &format!("commit/{commit}")).await }
        }))
        .await;
    };
    futures::join!(reading, uploading, durable);
    let left = |name: &str| bucket.bucket.left(name).unwrap_or_else(|| panic!("{name} never left"));
    assert_eq!(left("commit/0"), EACH / 2, "a place is kept for it");
    assert!(left("commit/19") <= EACH, "{:?}", left("commit/19"));
    assert!(left("file/99") > left("commit/19"));
}

#[tokio::test(start_paused = true)]
async fn a_body_keeps_its_place_until_it_was_read_or_dropped() {
    let bucket = slow().on(Lane::Restore);
    write(&bucket, "a").await;
    let object = bucket.get(&key("a"), None).await.expect("there");
    assert_eq!(bucket.load(Lane::Restore), (0, 1));
    assert_eq!(object.bytes(9).await.as_deref(), Ok(&b"x"[..]));
    assert_eq!(bucket.load(Lane::Restore), (0, 0));
    drop(bucket.get(&key("a"), None).await.expect("there"));
    assert_eq!(bucket.load(Lane::Restore), (0, 0));
    assert!(bucket.get(&key("b"), None).await.is_err());
    assert_eq!(bucket.load(Lane::Restore), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_it_waits_or_just_as_its_turn_comes_takes_no_place() {
    let bucket = slow();
    let mut running = pin!(join_all((0..4).map(|_| bucket.head(&KEY))));
    let mut waiting = pin!(Some(bucket.turn()));
    let mut called = Box::pin(bucket.turn());
    poll_fn(|cx| {
        assert!(running.as_mut().poll(cx).is_pending());
        assert!(waiting.as_mut().as_pin_mut().is_some_and(|turn| turn.poll(cx).is_pending()));
        assert!(called.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(bucket.load(Lane::Housekeeping), (2, 4));
    waiting.set(None);
    assert_eq!(bucket.load(Lane::Housekeeping), (1, 4));
    running.await;
    // Its turn has come, and it never saw it.
    assert_eq!(bucket.load(Lane::Housekeeping), (0, 1));
    drop(called);
    assert_eq!(bucket.load(Lane::Housekeeping), (0, 0));
}

static KEY: std::sync::LazyLock<Key> = std::sync::LazyLock::new(|| key("a"));
