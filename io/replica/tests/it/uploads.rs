//! Uploads: one file for what was committed meanwhile, limits, waits, snapshots, deletion.

use std::{cell::RefCell, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use wasmkeep_protocol::{alarm::Outlook, history::Point};
use wasmkeep_replica::{Commit, Content, GivenUp, Need, UploadError, collect};
use wasmkeep_runtime::Runtime;

use crate::{
    rig::{FOLDER, Model, Rig, driven, run},
    scripted::{Ask, Fault},
};

const SECOND: Duration = Duration::from_secs(1);

// R-REPL-1, case R1
#[test]
fn the_first_upload_is_the_whole_database_and_each_later_one_its_changes() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(7, Point::START);
        assert!(uploader.needs_whole());
        let lone = model.commit(4, 1);
        assert!(matches!(uploader.push(lone), Err(GivenUp::NotNext { .. })), "changes of nothing");
        driven(&uploader, async {
            uploader.push(model.first(4)).unwrap();
            uploader.landed(model.txid, Need::Replicated).await.unwrap();
            uploader.push(model.commit(5, 2)).unwrap();
            uploader.landed(model.txid, Need::Durable).await.unwrap();
        })
        .await;
        let keys = rig.bucket.keys().await;
        assert_eq!(keys.len(), 2, "{keys:?}");
        assert!(keys.iter().all(|key| key.starts_with(&format!("{FOLDER}0000000000000007/"))), "{keys:?}");
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        assert!(std::fs::read(rig.path()).unwrap() == model.bytes());
    });
}

#[test]
fn what_is_committed_during_an_upload_becomes_one_file_and_waits_end_in_order() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        rig.bucket.script(|ask, _| if ask == Ask::Put { Fault::Late(SECOND) } else { Fault::None });
        let order = RefCell::new(Vec::new());
        uploader.push(model.first(4)).unwrap();
        let first = model.txid;
        let wait = |txid| {
            let (order, uploader, clock) = (&order, &uploader, &rig.clock);
            async move {
                uploader.landed(txid, Need::Durable).await.unwrap();
                order.borrow_mut().push((txid, clock.now()));
            }
        };
        let commits = async {
            rig.clock.sleep(SECOND / 2).await;
            for _ in 0..5 {
                uploader.push(model.commit(4, 1)).unwrap();
            }
        };
        let waits = async {
            rig.clock.sleep(SECOND / 2 + Duration::from_millis(1)).await;
            // Polled in the order they are woken.
            let all: FuturesUnordered<_> =
                [5, 2, 0, 4, 1, 3].map(|more| wait(first + more)).into_iter().collect();
            all.collect::<()>().await;
        };
        driven(&uploader, futures::future::join(commits, waits)).await;
        assert_eq!(rig.bucket.count(Ask::Put), 2);
        let wanted: Vec<_> =
            (0..=5).map(|more| (first + more, if more == 0 { SECOND } else { SECOND * 2 })).collect();
        assert_eq!(order.take(), wanted);
        assert_eq!(rig.restore().await.unwrap().point, model.point());
    });
}

/// Uploads one change over `faults`; how long it took, the requests made, and what it came to.
fn one_upload(faults: &'static [Fault], always: Option<Fault>) -> (Duration, usize, Result<(), GivenUp>) {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        let before = rig.bucket.count(Ask::Put);
        match always {
            Some(fault) => rig.bucket.script(move |ask, _| if ask == Ask::Put { fault } else { Fault::None }),
            None => rig.bucket.faults(Ask::Put, faults),
        }
        let uploader = rig.uploader(2, model.point());
        let began = rig.clock.now();
        let ended = driven(&uploader, async {
            uploader.push(model.commit(4, 1)).unwrap();
            uploader.landed(model.txid, Need::Durable).await
        })
        .await;
        let puts = rig.bucket.count(Ask::Put) - before;
        if ended.is_ok() {
            rig.bucket.script(|_, _| Fault::None);
            assert_eq!(rig.restore().await.unwrap().point, model.point());
        }
        (rig.clock.now() - began, puts, ended)
    })
}

// R-REPL-2, cases L3 and S6
#[test]
fn an_upload_is_sent_again_within_its_time_and_then_given_up() {
    let unacknowledged = |ended: &Result<(), GivenUp>| {
        matches!(ended, Err(GivenUp::Upload(UploadError::Unacknowledged { .. })))
    };
    // Lost replies, broken connections, errors that pass: it lands.
    for (faults, puts, limit) in [
        (&[Fault::ReplyLost][..], 2, SECOND),
        (&[Fault::Broken, Fault::Broken], 3, SECOND),
        (&[Fault::Throttled, Fault::Ambiguous, Fault::Unavailable], 4, 3 * SECOND),
        (&[Fault::Refused], 2, SECOND),
        (&[Fault::Refused, Fault::Refused], 3, SECOND),
        (&[Fault::Hang], 2, 7 * SECOND),
        (&[Fault::Hang, Fault::Hang], 3, 20 * SECOND),
    ] {
        let (took, asked, ended) = one_upload(faults, None);
        assert_eq!((asked, &ended), (puts, &Ok(())), "{faults:?}");
        assert!(took < limit, "{faults:?} took {took:?}");
    }
    // Never acknowledged: three attempts, 20 s and a second for its size in all.
    for (fault, puts_max) in
        [(Fault::Hang, 3), (Fault::Broken, 3), (Fault::ReplyLost, 3), (Fault::Throttled, 20)]
    {
        let (took, asked, ended) = one_upload(&[], Some(fault));
        assert!(unacknowledged(&ended), "{fault:?}: {ended:?}");
        assert!(asked <= puts_max, "{fault:?}: {asked} requests");
        assert!(took <= 21 * SECOND, "{fault:?} took {took:?}");
    }
    let (took, asked, ended) = one_upload(&[], Some(Fault::Refused));
    assert!(matches!(ended, Err(GivenUp::Upload(UploadError::Refused { .. }))), "{ended:?}");
    assert_eq!(asked, 3, "a refusal is doubted twice");
    assert!(took < SECOND, "{took:?}");
}

// R-REPL-4
#[test]
fn once_an_upload_has_failed_nothing_more_is_taken() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        rig.bucket.script(|ask, _| if ask == Ask::Put { Fault::Refused } else { Fault::None });
        let uploader = rig.uploader(2, model.point());
        driven(&uploader, async {
            uploader.push(model.commit(4, 1)).unwrap();
            let (one, other) =
                (uploader.landed(model.txid, Need::Replicated), uploader.landed(model.txid, Need::Durable));
            let ended = futures::future::join(one, other).await;
            assert!(ended.0.is_err() && ended.1.is_err());
        })
        .await;
        rig.bucket.script(|_, _| Fault::None);
        assert!(uploader.push(model.commit(4, 2)).is_err());
        assert!(uploader.landed(model.txid, Need::Replicated).await.is_err());
        assert!(uploader.given_up().is_some());
        assert!(!uploader.snapshot_due());
    });
}

// R-DUR-1
#[test]
fn a_write_that_lands_after_the_actor_was_lost_is_not_acknowledged() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        rig.bucket.script(|ask, _| if ask == Ask::Put { Fault::Late(SECOND) } else { Fault::None });
        let uploader = rig.uploader(2, model.point());
        let ended = driven(&uploader, async {
            uploader.push(model.commit(4, 1)).unwrap();
            let lost = async {
                rig.clock.sleep(SECOND / 2).await;
                rig.held.set(false);
            };
            futures::future::join(uploader.landed(model.txid, Need::Durable), lost).await.0
        })
        .await;
        assert_eq!(ended, Err(GivenUp::NotHeld));
    });
}

#[test]
fn only_the_next_commit_is_taken() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        let uploader = rig.uploader(2, model.point());
        let skipped = model.commit(4, 1);
        let second = model.commit(4, 2);
        assert!(matches!(uploader.push(second), Err(GivenUp::NotNext { .. })));
        uploader.push(skipped).unwrap();
        let repeated = Commit { to: model.point(), content: Content::Deleted, alarm: Outlook::exact(None) };
        assert!(matches!(uploader.push(repeated), Err(GivenUp::NotNext { .. })), "a deletion has no pages");
    });
}

// R-REPL-3
#[test]
fn a_snapshot_that_fails_costs_one_attempt_and_no_write() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        let uploader = rig.uploader(2, model.point());
        driven(&uploader, async {
            for _ in 0..64 {
                assert!(!uploader.snapshot_due());
                uploader.push(model.commit(4, 1)).unwrap();
                uploader.landed(model.txid, Need::Replicated).await.unwrap();
            }
            assert!(uploader.snapshot_due());
            rig.bucket.script(|ask, _| if ask == Ask::Put { Fault::Hang } else { Fault::None });
            let (began, puts) = (rig.clock.now(), rig.bucket.count(Ask::Put));
            assert!(!uploader.snapshot(model.point(), model.whole().into()).await);
            assert_eq!((rig.clock.now() - began, rig.bucket.count(Ask::Put) - puts), (6 * SECOND, 1));
            assert!(!uploader.snapshot_due());
            rig.bucket.script(|_, _| Fault::None);
            rig.clock.sleep(31 * SECOND).await;
            assert!(!uploader.snapshot_due(), "not before another write");
            // The actor sleeps and wakes on this node: the wait goes on.
            assert!(!uploader.schedule().is_due(rig.clock.now()));
            uploader.push(model.commit(4, 2)).unwrap();
            uploader.landed(model.txid, Need::Durable).await.unwrap();
            assert!(uploader.snapshot_due());
            assert!(uploader.snapshot(model.point(), model.whole().into()).await);
            assert!(!uploader.snapshot_due());
        })
        .await;
        let restored = rig.restore().await.unwrap();
        assert_eq!((restored.point, restored.history.uploads_since_snapshot()), (model.point(), 0));
    });
}

// R-REPL-1
#[test]
fn a_snapshot_is_due_after_sixty_four_uploads_of_an_actor_that_never_stands_still() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        let uploader = rig.uploader(2, model.point());
        rig.bucket.script(|ask, _| if ask == Ask::Put { Fault::Late(SECOND) } else { Fault::None });
        driven(&uploader, async {
            let before = rig.bucket.count(Ask::Put);
            let mut commits = 0;
            while !uploader.snapshot_due() {
                commits += 1;
                assert!(commits <= 64 * 10, "{} uploads", rig.bucket.count(Ask::Put) - before);
                uploader.push(model.commit(4, 1)).unwrap();
                rig.clock.sleep(SECOND / 8).await;
            }
            // 64 have landed, and one is under way with what came meanwhile.
            assert_eq!(rig.bucket.count(Ask::Put) - before, 65);
            uploader.landed(model.txid, Need::Replicated).await.unwrap();
            assert!(uploader.snapshot(model.point(), model.whole().into()).await);
            assert!(!uploader.snapshot_due());
        })
        .await;
        assert_eq!(rig.restore().await.unwrap().history.uploads_since_snapshot(), 0);
    });
}

// case R11
#[test]
fn many_small_writes_cost_a_file_each_and_a_snapshot_in_sixty_four() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 0).await;
        let uploader = rig.uploader(2, model.point());
        driven(&uploader, async {
            for _ in 0..1_000 {
                uploader.push(model.commit(4, 1)).unwrap();
                uploader.landed(model.txid, Need::Replicated).await.unwrap();
                if uploader.snapshot_due() {
                    assert!(uploader.snapshot(model.point(), model.whole().into()).await);
                }
            }
            let requests = rig.bucket.count(Ask::Put);
            rig.clock.sleep(600 * SECOND).await;
            assert_eq!(rig.bucket.count(Ask::Put), requests, "an idle actor asks for nothing");
        })
        .await;
        assert!(uploader.uploads() <= 1_000 + 16, "{}", uploader.uploads());
    });
}

// R-DEL-1
#[test]
fn a_deleted_actor_leaves_one_small_object_and_may_come_back() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        rig.history(&mut model, 9).await;
        let uploader = rig.uploader(2, model.point());
        driven(&uploader, async {
            uploader.push(model.commit(4, 1)).unwrap();
            model.txid += 1;
            let gone = Point { txid: model.txid, ..Point::START };
            uploader
                .push(Commit { to: gone, content: Content::Deleted, alarm: Outlook::exact(None) })
                .unwrap();
            uploader.landed(gone.txid, Need::Replicated).await.unwrap();
            assert!(uploader.needs_whole());
            assert_eq!(collect(&rig.bucket, &rig.clock, FOLDER, 2, Duration::ZERO, &rig.held).await, Ok(10));
            let keys = rig.bucket.keys().await;
            assert_eq!(keys.len(), 1, "{keys:?}");
            let restored = rig.restore().await.unwrap();
            assert!(restored.history.is_deleted());
            assert_eq!(restored.point, gone);
            // Again, from nothing.
            let mut again = Model::new();
            again.txid = gone.txid;
            uploader.push(again.first(3)).unwrap();
            uploader.push(again.commit(3, 1)).unwrap();
            uploader.landed(again.txid, Need::Durable).await.unwrap();
            assert_eq!(rig.restore().await.unwrap().point, again.point());
            assert!(std::fs::read(rig.path()).unwrap() == again.bytes());
        })
        .await;
    });
}

#[test]
fn a_closed_uploader_answers_whoever_waits() {
    run(async {
        let (rig, mut model) = (Rig::new(), Model::new());
        let uploader = rig.uploader(1, Point::START);
        uploader.push(model.first(2)).unwrap();
        let closing = async {
            rig.clock.sleep(SECOND).await;
            uploader.close();
        };
        let (waited, ()) = futures::future::join(uploader.landed(model.txid, Need::Durable), closing).await;
        assert_eq!(waited, Err(GivenUp::Closed));
        assert_eq!(uploader.run().await, GivenUp::Closed);
    });
}
