//! What is remembered of failed snapshots while their actors are closed (R-REPL-3).
//!
//! An actor that is opened again by the next hold of this node does not try its snapshot before its time, whether it
//! slept or the node's lease ran out in between. A hold of another node's in between forgets it. Bounded: the actors that
//! were closed longest ago are forgotten, and try once when they come back.

use std::{cell::RefCell, num::NonZeroUsize};

use lru::LruCache;
use wasmkeep_protocol::{ActorId, replication::SnapshotSchedule};

/// Actors whose waits are remembered.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// The waits of actors that are closed.
pub(crate) struct SnapshotWaits(RefCell<LruCache<ActorId, Remembered>>);

struct Remembered {
    /// Of the hold that ended.
    generation: u64,
    schedule: SnapshotSchedule,
}

impl SnapshotWaits {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(LruCache::new(REMEMBERED_MAX)))
    }

    /// The hold of this generation has ended. Nothing is kept of an actor that does not wait.
    pub(crate) fn keep(&self, actor: &ActorId, generation: u64, schedule: SnapshotSchedule) {
        if schedule.has_wait() {
            self.0.borrow_mut().put(actor.clone(), Remembered { generation, schedule });
        }
    }

    /// The schedule of an actor that is opened by the hold of this generation, with so many uploads since the last
    /// snapshot in its history.
    pub(crate) fn resume(&self, actor: &ActorId, generation: u64, uploads: u64) -> SnapshotSchedule {
        match self.0.borrow_mut().pop(actor) {
            // Each take adds one: nobody had it in between.
            Some(kept) if generation.checked_sub(kept.generation).is_some_and(|newer| newer <= 1) => {
                kept.schedule.resumed(uploads)
            }
            _ => SnapshotSchedule::new(uploads),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmkeep_protocol::{
        history::Point,
        lease::{Identity, Timing},
        limits::HISTORY_RETENTION,
        records::{Presence, Process},
    };

    use super::*;
    use crate::{
        kit::{Cable, Clock, run, secs},
        service::{ClusterService, LaneBuckets, ServiceConfig},
    };

    fn actor(n: usize) -> ActorId {
        ActorId { class: "room".parse().unwrap(), name: n.to_string().parse().unwrap() }
    }

    fn waiting() -> SnapshotSchedule {
        let mut schedule = SnapshotSchedule::new(64);
        schedule.failed(Duration::from_secs(1));
        schedule
    }

    // R-REPL-3
    #[test]
    fn a_wait_is_for_the_next_hold_of_this_node_and_for_no_other() {
        for (generation, uploads, waits) in [
            (7, 64, true),
            (8, 64, true),
            (8, 70, true),
            // Another node had it.
            (9, 64, false),
            // The snapshot that was given up has landed after all.
            (8, 3, false),
        ] {
            let remembered = SnapshotWaits::new();
            remembered.keep(&actor(1), 7, waiting());
            let schedule = remembered.resume(&actor(1), generation, uploads);
            assert_eq!(schedule.has_wait(), waits, "{generation} {uploads}");
            assert!(!remembered.resume(&actor(1), generation, uploads).has_wait(), "once");
        }
    }

    // R-REPL-3
    #[test]
    fn what_is_remembered_is_bounded() {
        let remembered = SnapshotWaits::new();
        remembered.keep(&actor(0), 1, SnapshotSchedule::new(64));
        assert_eq!(remembered.len(), 0, "it does not wait");
        for n in 0..=REMEMBERED_MAX.get() {
            remembered.keep(&actor(n), 1, waiting());
        }
        assert_eq!(remembered.len(), REMEMBERED_MAX.get());
        assert!(!remembered.resume(&actor(0), 2, 64).has_wait(), "the oldest is forgotten");
        assert!(remembered.resume(&actor(1), 2, 64).has_wait());
    }

    // R-REPL-3, R-LEASE-3
    #[test]
    fn a_failed_snapshot_is_remembered_through_a_lapse_of_the_lease() {
        run(async {
            let (lease, upload, other) = (Cable::new(), Cable::new(), Cable::new());
            let buckets = LaneBuckets {
                lease: lease.clone(),
                durable: other.clone(),
                upload: upload.clone(),
                restore: other.clone(),
                housekeeping: other,
            };
            let config = ServiceConfig {
                identity: Identity { node: "a".parse().unwrap(), process: Process::from_bits(1) },
                presence: Presence::default(),
                tenant: "default".parse().unwrap(),
                timing: Timing::default(),
                retention: HISTORY_RETENTION,
                pages_max: 1000,
            };
            let service = ClusterService::new(buckets, Clock::new(), config, |_| {});
            let living = std::rc::Rc::clone(&service);
            tokio::task::spawn_local(async move { living.live().await });
            secs(20).await;
            let first = service.take(&actor(1)).await.unwrap();
            service.begin(&actor(1), first.generation, Point::START, 64, None).unwrap();
            first.opening.begun();
            upload.cut.set(true);
            let at = Point { txid: 64, checksum: 1 };
            assert!(!service.snapshot(&actor(1), at, "x".into()).await.unwrap());
            lease.cut.set(true);
            secs(15).await;
            assert!(service.lease().is_none() && service.snapshot_schedule(&actor(1)).is_none());
            lease.cut.set(false);
            secs(10).await;
            let second = service.take(&actor(1)).await.unwrap();
            assert_eq!(second.generation, first.generation + 1);
            service.begin(&actor(1), second.generation, Point::START, 64, None).unwrap();
            second.opening.begun();
            assert!(service.snapshot_schedule(&actor(1)).unwrap().has_wait());
        });
    }
}
