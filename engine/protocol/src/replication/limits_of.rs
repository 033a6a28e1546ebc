//! Time limits that grow with what is carried: a second for each mebibyte begun (R-REPL-2, R-REPL-3, R-RST-2,
//! R-RST-3).

use std::time::Duration;

use crate::limits::{
    ATTEMPT_BASE, MIB, RESTORE_BASE, RESTORE_FILES_PER_SECOND, SNAPSHOT_ATTEMPT_MAX, UPLOAD_ATTEMPTS_MAX,
    UPLOAD_BASE,
};

/// The seconds that carrying `bytes` adds to a limit.
#[must_use]
pub const fn seconds_for(bytes: u64) -> Duration {
    Duration::from_secs(bytes.div_ceil(MIB))
}

/// What an upload is for, which decides how often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// A write's file, an actor's first snapshot, or the one after a deletion: without it the write is not safe.
    Write,
    /// A periodic snapshot: it only shortens restores, and the actor is held meanwhile.
    PeriodicSnapshot,
}

impl Upload {
    /// How long attempt `attempt`, counted from 1, of an upload of `bytes` may take when `elapsed` has passed
    /// since the upload began. `None`: there is no such attempt.
    #[must_use]
    pub fn attempt_limit(self, bytes: u64, attempt: u32, elapsed: Duration) -> Option<Duration> {
        let first = ATTEMPT_BASE + seconds_for(bytes);
        match self {
            Self::PeriodicSnapshot => (attempt == 1).then(|| first.min(SNAPSHOT_ATTEMPT_MAX)),
            Self::Write if attempt == 0 || attempt > UPLOAD_ATTEMPTS_MAX => None,
            Self::Write => {
                let left = (UPLOAD_BASE + seconds_for(bytes)).saturating_sub(elapsed);
                let limit = (first * (1 << (attempt - 1))).min(left);
                (!limit.is_zero()).then_some(limit)
            }
        }
    }
}

/// How long one try of a restore's read may take while `in_flight_bytes` are being read on the node, its own
/// included: they share one link.
#[must_use]
pub const fn read_limit(in_flight_bytes: u64) -> Duration {
    ATTEMPT_BASE.saturating_add(seconds_for(in_flight_bytes))
}

/// How long a restore may wait for the bucket in all.
#[must_use]
pub const fn restore_limit(bytes: u64, files: u64) -> Duration {
    let for_files = Duration::from_secs(files.div_ceil(RESTORE_FILES_PER_SECOND));
    RESTORE_BASE.saturating_add(seconds_for(bytes)).saturating_add(for_files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    // R-REPL-2
    #[test]
    fn a_writes_upload_has_three_attempts_and_twenty_seconds_with_its_size() {
        for (bytes, attempt, elapsed, limit) in [
            (0, 1, ZERO, Some(secs(5))),
            (100, 1, ZERO, Some(secs(6))),
            (MIB, 1, ZERO, Some(secs(6))),
            (MIB + 1, 1, ZERO, Some(secs(7))),
            (100, 2, secs(6), Some(secs(12))),
            (100, 3, secs(18), Some(secs(3))),
            (100, 3, secs(2), Some(secs(19))),
            (100, 3, secs(21), None),
            (100, 4, ZERO, None),
            (100, 0, ZERO, None),
            (25 * MIB, 1, ZERO, Some(secs(30))),
            (25 * MIB, 2, secs(30), Some(secs(15))),
        ] {
            let found = Upload::Write.attempt_limit(bytes, attempt, elapsed);
            assert_eq!(found, limit, "{bytes} bytes, attempt {attempt} after {elapsed:?}");
        }
    }

    // R-REPL-3
    #[test]
    fn a_periodic_snapshot_has_one_attempt_of_ten_seconds_at_most() {
        for (bytes, attempt, limit) in [
            (100, 1, Some(secs(6))),
            (3 * MIB, 1, Some(secs(8))),
            (1 << 30, 1, Some(secs(10))),
            (100, 2, None),
        ] {
            assert_eq!(
                Upload::PeriodicSnapshot.attempt_limit(bytes, attempt, ZERO),
                limit,
                "{bytes} {attempt}"
            );
        }
    }

    // R-RST-2
    #[test]
    fn a_read_has_five_seconds_and_one_for_each_mebibyte_in_flight() {
        for (bytes, limit) in [(0, 5), (1, 6), (8 * MIB, 13), (256 * MIB, 261)] {
            assert_eq!(read_limit(bytes), secs(limit), "{bytes}");
        }
    }

    // R-RST-3
    #[test]
    fn a_restore_has_thirty_seconds_with_its_size_and_its_files() {
        for (bytes, files, limit) in [(0, 1, 31), (900_000, 64, 39), (1 << 30, 64, 30 + 1024 + 8), (0, 9, 32)]
        {
            assert_eq!(restore_limit(bytes, files), secs(limit), "{bytes} bytes, {files} files");
        }
    }
}
