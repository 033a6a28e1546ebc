//! Restores: the plan carried out, its limits, and what a failure leaves.

use std::{cell::Cell, fs, rc::Rc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use wasmkeep_bucket::{Bucket, Precondition};
use wasmkeep_protocol::{alarm::Outlook, history::Point};
use wasmkeep_replica::{Commit, Content, HistoryError, LocalError, Need, ReadFailure, RestoreError};
use wasmkeep_runtime::Runtime;

use crate::{
    rig::{FOLDER, Model, Rig, run},
    scripted::{Ask, Fault},
};

const SECOND: Duration = Duration::from_secs(1);

async fn started(changes: usize) -> (Rig, Model) {
    let (rig, mut model) = (Rig::new(), Model::new());
    rig.history(&mut model, changes).await;
    (rig, model)
}

// R-RST-1, R-RST-4
#[test]
fn a_restore_builds_beside_and_keeps_what_it_replaces() {
    run(async {
        let (rig, model) = started(20).await;
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        assert!(fs::read(rig.path()).unwrap() == model.bytes());
        assert_eq!(rig.local(), ["lobby.db"]);
        fs::write(rig.path(), "local").unwrap();
        fs::write(rig.path().with_extension("db-wal"), "local log").unwrap();
        rig.restore().await.unwrap();
        assert!(fs::read(rig.path()).unwrap() == model.bytes());
        assert_eq!(rig.local(), ["lobby.db", "lobby.db.replaced", "lobby.db.replaced-wal"]);
        assert_eq!(fs::read(rig.folder.path().join("room/lobby.db.replaced")).unwrap(), b"local");
        assert_eq!(fs::read(rig.folder.path().join("room/lobby.db.replaced-wal")).unwrap(), b"local log");
        // One generation: the next takes its place, log and all.
        rig.restore().await.unwrap();
        assert_eq!(rig.local(), ["lobby.db", "lobby.db.replaced"]);
        assert!(fs::read(rig.folder.path().join("room/lobby.db.replaced")).unwrap() == model.bytes());
    });
}

// R-RST-1
#[test]
fn eight_reads_go_on_while_one_is_slow() {
    run(async {
        let (rig, model) = started(63).await;
        let (first, budget) = (rig.bucket.keys().await[0].clone(), rig.budget.clone());
        let most = Rc::new(Cell::new(0));
        let seen = Rc::clone(&most);
        rig.bucket.script(move |ask, key| {
            seen.set(seen.get().max(budget.in_flight().0));
            match ask {
                Ask::Get if key == first => Fault::Late(4 * SECOND),
                Ask::Get => Fault::Late(SECOND),
                _ => Fault::None,
            }
        });
        let began = rig.clock.now();
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        // Four rounds of seven, and five of eight for the other thirty-five.
        assert_eq!((rig.clock.now() - began, most.get()), (9 * SECOND, 8));
    });
}

// R-RST-1
#[test]
fn what_waits_for_a_slow_read_is_not_more_than_some_megabytes() {
    run(async {
        let (rig, mut model) = started(0).await;
        let uploader = rig.uploader(1, model.point());
        crate::rig::driven(&uploader, async {
            for _ in 0..30 {
                // A mebibyte in one file.
                let mut changes = model.change(256, 1);
                (2..=256).for_each(|pgno| changes.append(model.change(256, pgno)).unwrap());
                let (to, content, alarm) = (model.point(), Content::Changes(changes), Outlook::exact(None));
                uploader.push(Commit { to, content, alarm }).unwrap();
                uploader.landed(model.txid, Need::Replicated).await.unwrap();
            }
        })
        .await;
        let (first, begun) = (rig.bucket.keys().await[0].clone(), Rc::new(Cell::new(0)));
        let seen = Rc::clone(&begun);
        let late = Rc::new(Cell::new(0));
        let before = Rc::clone(&late);
        rig.bucket.script(move |ask, key| {
            if ask != Ask::Get {
                return Fault::None;
            }
            seen.set(seen.get() + 1);
            if key == first { Fault::Late(4 * SECOND) } else { Fault::Late(SECOND) }
        });
        let looking = async {
            rig.clock.sleep(4 * SECOND - Duration::from_millis(1)).await;
            before.set(begun.get());
        };
        let (restored, ()) = futures::future::join(rig.restore(), looking).await;
        assert_eq!(restored.unwrap().point, model.point());
        // The snapshot, seven others, and one for each that ended before there were four megabytes.
        assert_eq!(late.get(), 11);
    });
}

#[test]
fn an_actor_without_history_is_left_alone_and_a_deleted_one_set_aside() {
    run(async {
        let rig = Rig::new();
        fs::create_dir(rig.folder.path().join("room")).unwrap();
        fs::write(rig.path(), "local").unwrap();
        let restored = rig.restore().await.unwrap();
        assert_eq!((restored.point, restored.history.end()), (Point::START, None));
        assert_eq!(fs::read(rig.path()).unwrap(), b"local");
    });
}

// case R2
#[test]
fn each_owner_goes_on_counting_where_the_last_one_ended() {
    run(async {
        let (rig, mut model) = started(2).await;
        for generation in 2..6 {
            let restored = rig.restore().await.unwrap();
            assert_eq!(restored.point, model.point());
            let uploader = rig.uploader(generation, restored.point);
            crate::rig::driven(&uploader, async {
                uploader.push(model.commit(4, 1)).unwrap();
                uploader.landed(model.txid, Need::Durable).await.unwrap();
            })
            .await;
        }
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        assert!(fs::read(rig.path()).unwrap() == model.bytes());
    });
}

// case S9
#[test]
fn damaged_and_swapped_objects_are_told_and_change_nothing() {
    run(async {
        let (rig, _) = started(5).await;
        fs::create_dir(rig.folder.path().join("room")).unwrap();
        fs::write(rig.path(), "local").unwrap();
        let keys = rig.bucket.keys().await;
        let read = async |key: &str| {
            let object = rig.bucket.memory.get(&key.parse().unwrap(), None).await.unwrap();
            object.bytes(u64::MAX).await.unwrap()
        };
        let write = async |key: &str, body: Bytes| {
            let _ = rig.bucket.memory.put(&key.parse().unwrap(), body, &Precondition::None).await;
        };
        let sound = read(&keys[3]).await;
        let flipped = |at: usize| {
            let mut bytes = sound.to_vec();
            bytes[at] ^= 4;
            Bytes::from(bytes)
        };
        let len = sound.len();
        let damages = [
            sound.slice(..len - 1),
            sound.slice(..len - 16),
            sound.slice(..len - 100),
            flipped(20),
            flipped(210),
            flipped(len - 30),
            flipped(len - 3),
            read(&keys[2]).await,
            Bytes::new(),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            write(&keys[3], damage).await;
            let error = rig.restore().await.unwrap_err();
            assert!(matches!(error, RestoreError::Local(_)) && error.is_lossy(), "{number}: {error}");
            assert_eq!(fs::read(rig.path()).unwrap(), b"local");
            assert_eq!(rig.local(), ["lobby.db"], "{number}");
        }
        write(&keys[3], sound.clone()).await;
        rig.restore().await.unwrap();
    });
}

// R-RST-1, case S9
#[test]
fn a_restore_goes_around_a_damaged_snapshot_by_the_files_before_it() {
    run(async {
        let (rig, mut model) = started(5).await;
        let uploader = rig.uploader(2, model.point());
        assert!(crate::rig::driven(&uploader, uploader.snapshot(model.point(), model.whole().into())).await);
        crate::rig::driven(&uploader, async {
            uploader.push(model.commit(4, 2)).unwrap();
            uploader.landed(model.txid, Need::Replicated).await.unwrap();
        })
        .await;
        let keys = rig.bucket.keys().await;
        let snapshot = keys.iter().find(|key| key.contains("/0000000000000002/0000000000000001-")).unwrap();
        let key = snapshot.parse().unwrap();
        let sound = rig.bucket.memory.get(&key, None).await.unwrap().bytes(u64::MAX).await.unwrap();
        let mut flipped = sound.to_vec();
        flipped[300] ^= 1;
        for (damage, uploads) in [(sound.clone(), 1), (flipped.into(), 6), (sound.slice(..90), 6)] {
            let _ = rig.bucket.memory.put(&key, damage, &Precondition::None).await;
            let restored = rig.restore().await.unwrap();
            assert_eq!(restored.point, model.point());
            assert_eq!(fs::read(rig.path()).unwrap(), model.bytes());
            assert_eq!(
                restored.history.uploads_since_snapshot(),
                uploads,
                "a snapshot is due so much sooner"
            );
        }
        // The bucket itself says that the object is lost.
        let name = snapshot.clone();
        rig.bucket.script(move |ask, key| match ask {
            Ask::Get if key == name => Fault::Damaged,
            _ => Fault::None,
        });
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        // Without the files before it nothing leads there, and what was wrong first is told.
        rig.bucket.script(|_, _| Fault::None);
        let _ = rig.bucket.memory.put(&key, Bytes::new(), &Precondition::None).await;
        rig.bucket.memory.delete(&keys[1].parse().unwrap()).await.unwrap();
        let error = rig.restore().await.unwrap_err();
        assert!(error.is_lossy() && error.to_string().contains("is damaged"), "{error}");
    });
}

// R-RST-5
#[test]
fn an_object_the_bucket_has_lost_is_an_error_at_once() {
    run(async {
        let (rig, _) = started(3).await;
        let key = rig.bucket.keys().await[2].clone();
        rig.bucket.script(move |ask, name| match ask {
            Ask::Get if name == key => Fault::Damaged,
            _ => Fault::None,
        });
        let before = rig.clock.now();
        let error = rig.restore().await.unwrap_err();
        assert!(
            matches!(error, RestoreError::Read(ReadFailure::Damaged { .. })) && error.is_lossy(),
            "{error}"
        );
        assert_eq!(rig.clock.now(), before, "reading it again cannot help");
    });
}

// case R3
#[test]
fn a_planned_file_that_is_collected_meanwhile_leads_to_another_listing() {
    run(async {
        let (rig, mut model) = started(8).await;
        let uploader = rig.uploader(2, model.point());
        crate::rig::driven(&uploader, async {
            uploader.push(model.commit(4, 1)).unwrap();
            uploader.landed(model.txid, Need::Replicated).await.unwrap();
        })
        .await;
        rig.bucket.script(|ask, _| if ask == Ask::Get { Fault::Late(SECOND) } else { Fault::None });
        let collecting = async {
            rig.clock.sleep(SECOND / 2).await;
            assert!(uploader.snapshot(model.point(), model.whole().into()).await);
            let hold = || true;
            let ended = wasmkeep_replica::collect(&rig.bucket, &rig.clock, FOLDER, 2, Duration::ZERO, &hold);
            assert_eq!(ended.await, Ok(10));
        };
        let (restored, ()) = futures::future::join(rig.restore(), collecting).await;
        assert_eq!(restored.unwrap().point, model.point());
        assert_eq!(rig.bucket.count(Ask::List), 3, "the owner's, and two of the restore");
    });
}

#[test]
fn files_that_are_always_gone_are_an_error_that_may_pass() {
    run(async {
        let (rig, _) = started(3).await;
        let keys = rig.bucket.keys().await;
        let gone = keys[2].clone();
        // Listed and not there, each time: the listing is answered from before the delete.
        rig.bucket.script(|_, _| Fault::None);
        let object = rig.bucket.memory.get(&gone.parse().unwrap(), None).await.unwrap();
        let body = object.bytes(u64::MAX).await.unwrap();
        let memory = rig.bucket.memory.clone();
        rig.bucket.script(move |ask, _| {
            let key = gone.parse().unwrap();
            if ask == Ask::List {
                let put = memory.put(&key, body.clone(), &Precondition::None);
                assert!(put.now_or_never().is_some());
            } else {
                assert_eq!(memory.delete(&key).now_or_never(), Some(Ok(())));
            }
            Fault::None
        });
        let error = rig.restore().await.unwrap_err();
        assert!(matches!(error, RestoreError::Read(ReadFailure::Gone(_))), "{error}");
        assert!(!error.is_lossy());
        assert!(rig.bucket.count(Ask::List) <= 5);
    });
}

// R-RST-5
#[test]
fn a_history_with_a_hole_is_listed_again_and_then_a_loss() {
    run(async {
        let (rig, _) = started(5).await;
        let keys = rig.bucket.keys().await;
        rig.bucket.memory.delete(&keys[3].parse().unwrap()).await.unwrap();
        let error = rig.restore().await.unwrap_err();
        assert!(matches!(error, RestoreError::History(HistoryError::Broken(_))), "{error}");
        assert!(error.is_lossy());
        assert_eq!(rig.bucket.count(Ask::List), 3);
        assert_eq!(rig.local(), [] as [&str; 0]);
    });
}

/// Restores over `fault` on the reads of the second file, the first `times` of them.
fn over(fault: Fault, times: usize) -> (Duration, Result<(), RestoreError>) {
    run(async {
        let (rig, model) = started(1).await;
        let key = rig.bucket.keys().await[1].clone();
        let left = Cell::new(times);
        rig.bucket.script(move |ask, asked| {
            if ask != Ask::Get || asked != key || left.get() == 0 {
                return Fault::None;
            }
            left.set(left.get() - 1);
            fault
        });
        let began = rig.clock.now();
        let restored = rig.restore().await;
        let took = rig.clock.now() - began;
        let restored = restored.map(|restored| {
            assert_eq!(restored.point, model.point());
        });
        assert_eq!(rig.budget.in_flight(), (0, 0));
        (took, restored)
    })
}

// R-RST-2
#[test]
fn a_read_is_tried_three_times_with_the_pauses_stated() {
    let half = SECOND / 2;
    for (fault, times, took) in [
        (Fault::Hang, 1, 5 * SECOND),
        (Fault::Hang, 2, 10 * SECOND),
        (Fault::Unavailable, 1, half),
        (Fault::Unavailable, 2, half + SECOND),
        (Fault::Short, 2, half + SECOND),
        (Fault::Throttled, 2, half + SECOND),
        // Each piece within the silence, all of them beyond 5 s and a second for the megabyte.
        (Fault::Slow(4, 2 * SECOND), 1, 6 * SECOND),
        (Fault::Slow(2, 2 * SECOND), 9, 4 * SECOND),
    ] {
        let (found, restored) = over(fault, times);
        assert!(restored.is_ok(), "{fault:?} {times} times: {restored:?}");
        assert_eq!(found, took, "{fault:?} {times} times");
    }
    for (fault, took) in [
        (Fault::Hang, 15 * SECOND),
        (Fault::Unavailable, half + SECOND),
        (Fault::Slow(4, 2 * SECOND), 18 * SECOND),
        (Fault::Refused, Duration::ZERO),
    ] {
        let (found, restored) = over(fault, 9);
        assert!(matches!(restored, Err(RestoreError::Read(ReadFailure::Unread { .. }))), "{fault:?}");
        assert_eq!(found, took, "{fault:?}");
    }
}

// R-RST-3
#[test]
fn slow_reads_that_add_up_end_a_restore_that_is_alone() {
    run(async {
        let (rig, _) = started(63).await;
        let tried = std::cell::RefCell::new(std::collections::BTreeSet::new());
        // Every file is silent once: eight at a time, eight times five seconds.
        rig.bucket.script(move |ask, key| {
            if ask == Ask::Get && tried.borrow_mut().insert(key.to_owned()) {
                Fault::Hang
            } else {
                Fault::None
            }
        });
        let began = rig.clock.now();
        let error = rig.restore().await.unwrap_err();
        assert!(matches!(error, RestoreError::TooSlow(limit) if limit == 39 * SECOND), "{error}");
        assert_eq!(rig.clock.now() - began, 39 * SECOND);
        assert!(!error.is_lossy());
        assert_eq!(rig.local(), [] as [&str; 0]);
    });
}

// R-RST-3
#[test]
fn a_listing_may_be_long_and_not_silent() {
    run(async {
        let (rig, model) = started(11).await;
        rig.bucket.pages_of(1);
        rig.bucket.script(|ask, _| if ask == Ask::List { Fault::Late(4 * SECOND) } else { Fault::None });
        assert_eq!(rig.restore().await.unwrap().point, model.point());
        rig.bucket.script(|ask, _| if ask == Ask::List { Fault::Late(6 * SECOND) } else { Fault::None });
        let began = rig.clock.now();
        let error = rig.restore().await.unwrap_err();
        assert!(matches!(error, RestoreError::History(HistoryError::Silent)), "{error}");
        assert!(!error.is_lossy());
        assert_eq!(rig.clock.now() - began, 5 * SECOND);
        rig.bucket.faults(Ask::List, &[Fault::Throttled, Fault::Unavailable]);
        assert_eq!(rig.restore().await.unwrap().point, model.point());
    });
}

#[test]
fn a_local_disk_that_fails_is_no_loss() {
    run(async {
        let (rig, _) = started(1).await;
        fs::write(rig.folder.path().join("room"), "a file where the folder should be").unwrap();
        let error = rig.restore().await.unwrap_err();
        assert!(matches!(error, RestoreError::Local(LocalError::Disk { .. })), "{error}");
        assert!(!error.is_lossy());
    });
}
