//! The node's lease as its shards see it: two numbers that any core reads without a lock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use wasmkeep_core::OnThread;
use wasmkeep_replica::Surroundings;

/// Whether events may run, and since which time the lease became valid.
#[derive(Debug, Default)]
pub(crate) struct LeaseCell {
    /// End of the lease in nanoseconds since boot; 0 for none.
    until: AtomicU64,
    epoch: AtomicU64,
}

impl LeaseCell {
    /// The lease is valid until then.
    pub(super) fn renew(&self, epoch: u64, until: Duration) {
        // The epoch first: whoever sees the new end sees the epoch it belongs to.
        self.epoch.store(epoch, Ordering::Release);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn lapse(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// The epoch of the lease, if it is valid now (R-LEASE-2).
    pub(crate) fn epoch(&self) -> Option<u64> {
        let until = self.until.load(Ordering::Acquire);
        let valid = OnThread.now() < Duration::from_nanos(until);
        valid.then(|| self.epoch.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-LEASE-2
    #[test]
    fn a_lease_is_valid_until_its_end_and_not_after_it_lapsed() {
        let lease = LeaseCell::default();
        assert_eq!(lease.epoch(), None);
        lease.renew(3, OnThread.now() + Duration::from_secs(60));
        assert_eq!(lease.epoch(), Some(3));
        lease.lapse();
        assert_eq!(lease.epoch(), None);
        lease.renew(4, OnThread.now().saturating_sub(Duration::from_nanos(1)));
        assert_eq!(lease.epoch(), None);
    }
}
