//! The bounds of a clean stop (R-LEASE-6): when events are ended, when the release is written, when waiting is over.

use std::time::Duration;

use crate::{
    clock::Moment,
    lease::Timing,
    limits::{STOP_GRACE, STOP_RELEASES},
};

/// A stop under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    pub(super) began: Moment,
    pub(super) told_to_end: bool,
    pub(super) closed: bool,
    pub(super) records_released: bool,
    /// The release was made due; after that it follows the pauses of any request.
    pub(super) hurried: bool,
}

impl Stop {
    pub(super) fn at(began: Moment) -> Self {
        Self { began, told_to_end: false, closed: false, records_released: false, hurried: false }
    }

    /// Nothing runs any more and the records had their time: the heartbeat may say so.
    pub(super) fn may_release(&self, now: Moment) -> bool {
        self.closed && (self.records_released || now >= self.began + STOP_GRACE + STOP_RELEASES)
    }

    pub(super) fn over(&self, timing: &Timing) -> Moment {
        self.began + stop_max(timing)
    }

    pub(super) fn wake(&self, timing: &Timing) -> Moment {
        let end_events = (!self.told_to_end && !self.closed).then(|| self.began + STOP_GRACE);
        let release = (self.closed && !self.hurried).then(|| self.began + STOP_GRACE + STOP_RELEASES);
        end_events.into_iter().chain(release).fold(self.over(timing), Moment::min)
    }
}

/// The longest a clean stop takes with these timings (R-LEASE-6).
#[must_use]
pub(super) fn stop_max(timing: &Timing) -> Duration {
    STOP_GRACE + STOP_RELEASES + timing.timeout
}
