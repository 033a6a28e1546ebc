//! Time as the deciding code sees it: always an argument, never read here.
//!
//! Leases are judged by [`Moment`] alone. The wall clock goes into records for people and for the 15 s rule, and
//! can only make a node wait longer.

use std::{ops::Add, time::Duration};

/// A reading of this machine's `CLOCK_BOOTTIME`. It counts the time a machine sleeps, which `Instant` does not
/// (case L6), and means nothing on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the machine started.
    #[must_use]
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since the machine started.
    #[must_use]
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// Time since `earlier`; zero when that has not come yet.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment this long before; the machine's start at the earliest.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

/// Both clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// What leases are judged by.
    pub moment: Moment,
    /// Milliseconds since 1970, as this machine believes.
    pub wall_ms: u64,
}

impl Now {
    /// How old something dated `written_at_ms` is by the wall clock; zero when it is dated ahead.
    #[must_use]
    pub fn age_of(self, written_at_ms: u64) -> Duration {
        Duration::from_millis(self.wall_ms.saturating_sub(written_at_ms))
    }

    /// How far something is dated ahead of the wall clock; zero when it is not.
    #[must_use]
    pub fn ahead_of(self, written_at_ms: u64) -> Duration {
        Duration::from_millis(written_at_ms.saturating_sub(self.wall_ms))
    }
}
