//! When an actor's next snapshot is due (R-REPL-1, R-REPL-3).

use std::time::Duration;

use crate::limits::{SNAPSHOT_RETRY_PAUSE, SNAPSHOT_RETRY_WRITES, SNAPSHOT_UPLOADS};

/// Counts uploads since the last snapshot, and the waits after snapshots that failed.
///
/// The node keeps it while the actor sleeps: waking it must not try again either. A node that takes the actor
/// over starts a new one from what the history shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSchedule {
    uploads: u64,
    failures: usize,
    wait: Option<Wait>,
}

/// Both have to come true.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wait {
    uploads: u64,
    until: Duration,
}

impl SnapshotSchedule {
    /// For an actor whose history has `uploads` files after its last snapshot.
    #[must_use]
    pub const fn new(uploads: u64) -> Self {
        Self { uploads, failures: 0, wait: None }
    }

    /// Whether a failed snapshot makes it wait: then it has to be kept while the actor sleeps.
    #[must_use]
    pub const fn has_wait(&self) -> bool {
        self.wait.is_some()
    }

    /// Of the same actor, opened again with so many uploads after the last snapshot in its history. Fewer than make one
    /// due say that the one that failed has landed after all.
    #[must_use]
    pub fn resumed(self, uploads: u64) -> Self {
        if uploads < SNAPSHOT_UPLOADS { Self::new(uploads) } else { self }
    }

    /// A write's file was uploaded.
    pub fn uploaded(&mut self) {
        self.uploads += 1;
    }

    /// Whether to make a snapshot now; `now` is any clock that only goes forward.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        match &self.wait {
            None => self.uploads >= SNAPSHOT_UPLOADS,
            Some(wait) => self.uploads >= wait.uploads && now >= wait.until,
        }
    }

    /// A snapshot landed.
    pub fn succeeded(&mut self) {
        *self = Self::new(0);
    }

    /// A snapshot did not land.
    pub fn failed(&mut self, now: Duration) {
        let writes = SNAPSHOT_RETRY_WRITES[self.failures.min(SNAPSHOT_RETRY_WRITES.len() - 1)];
        self.failures += 1;
        self.wait = Some(Wait { uploads: self.uploads + writes, until: now + SNAPSHOT_RETRY_PAUSE });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Uploads one write a second, every snapshot failing; after which uploads a snapshot was tried.
    fn tries(schedule: &mut SnapshotSchedule, writes: u64, between: Duration) -> Vec<u64> {
        let mut tried = Vec::new();
        for write in 1..=writes {
            schedule.uploaded();
            let now = between * u32::try_from(write).unwrap();
            if schedule.is_due(now) {
                tried.push(write);
                schedule.failed(now);
            }
        }
        tried
    }

    // R-REPL-1
    #[test]
    fn a_snapshot_is_due_after_every_sixty_four_uploads() {
        let mut schedule = SnapshotSchedule::new(0);
        for round in 0..3 {
            for upload in 1..=64 {
                assert!(!schedule.is_due(secs(1)), "round {round}, upload {upload}");
                schedule.uploaded();
            }
            assert!(schedule.is_due(secs(1)));
            schedule.succeeded();
        }
    }

    // R-REPL-3
    #[test]
    fn a_failed_snapshot_is_tried_after_one_write_then_eight_then_every_sixty_four() {
        for (between, wanted) in [
            (secs(60), vec![64, 65, 73, 137, 201]),
            // Never two within 30 s.
            (secs(1), vec![64, 94, 124, 188]),
            (secs(5), vec![64, 70, 78, 142, 206]),
        ] {
            assert_eq!(
                tries(&mut SnapshotSchedule::new(0), 210, between),
                wanted,
                "{between:?} between writes"
            );
        }
    }

    // R-REPL-3
    #[test]
    fn without_writes_a_failed_snapshot_is_not_tried_again() {
        let mut schedule = SnapshotSchedule::new(64);
        assert!(schedule.is_due(secs(0)), "who takes an actor over knows of no wait");
        schedule.failed(secs(0));
        assert!(!schedule.is_due(secs(1_000_000)));
        schedule.uploaded();
        assert!(!schedule.is_due(secs(29)) && schedule.is_due(secs(30)));
        schedule.succeeded();
        assert!(!schedule.is_due(secs(1_000_000)));
    }
}
