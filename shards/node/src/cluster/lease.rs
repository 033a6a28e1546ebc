//! The node's lease as its shards see it: two numbers that any core reads without a lock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wasmkeep_core::BucketThreadRuntime;
use wasmkeep_protocol::clock::Moment;
use wasmkeep_runtime::Runtime;

use super::nanos;

/// Whether events may run, and since which time the lease became valid.
#[derive(Debug, Default)]
pub(crate) struct LeaseCell {
    /// End of the lease in nanoseconds since boot; 0 for none.
    until: AtomicU64,
    epoch: AtomicU64,
    /// When the first heartbeat and the last one landed, as above.
    first_landed: AtomicU64,
    landed: AtomicU64,
    /// Why the last heartbeat failed, if it did. Asked for when the lease is gone, and by nothing that is in a hurry.
    failure: Mutex<Option<String>>,
}

impl LeaseCell {
    /// The lease is valid until then.
    pub(crate) fn renew(&self, epoch: u64, until: Duration) {
        // The epoch first: whoever sees the new end sees the epoch it belongs to.
        self.epoch.store(epoch, Ordering::Release);
        self.until.store(nanos(until), Ordering::Release);
        self.set_failure(None);
        let now = nanos(BucketThreadRuntime.now());
        self.landed.store(now, Ordering::Release);
        // Only one thread tells of renewals.
        if self.first_landed.load(Ordering::Acquire) == 0 {
            self.first_landed.store(now, Ordering::Release);
        }
    }

    /// A heartbeat failed.
    pub(super) fn failed(&self, reason: String) {
        self.set_failure(Some(reason));
    }

    fn set_failure(&self, failure: Option<String>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Why there is no lease, where a failed heartbeat is the reason.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().filter(|_| self.epoch().is_none())
    }

    pub(crate) fn lapse(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// When this process's first heartbeat landed.
    pub(crate) fn first_landed(&self) -> Option<Moment> {
        moment_of(self.first_landed.load(Ordering::Acquire))
    }

    /// When its last heartbeat landed.
    pub(crate) fn landed(&self) -> Option<Moment> {
        moment_of(self.landed.load(Ordering::Acquire))
    }

    /// The lease that is valid now.
    pub(crate) fn token(self: &Arc<Self>) -> Option<LeaseToken> {
        Some(self.token_of_now()).filter(|token| token.epoch.is_some())
    }

    /// The lease as it is now. Where none is valid, the token never will be.
    pub(crate) fn token_of_now(self: &Arc<Self>) -> LeaseToken {
        LeaseToken { cell: Arc::clone(self), epoch: self.epoch() }
    }

    /// The epoch of the lease, if it is valid now (R-LEASE-2).
    pub(crate) fn epoch(&self) -> Option<u64> {
        let until = self.until.load(Ordering::Acquire);
        let valid = BucketThreadRuntime.now() < Duration::from_nanos(until);
        valid.then(|| self.epoch.load(Ordering::Acquire))
    }
}

/// The lease as it was at one moment. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct LeaseToken {
    cell: Arc<LeaseCell>,
    epoch: Option<u64>,
}

impl LeaseToken {
    /// Whether that very lease is valid now, by the clock and not by what anybody has said.
    pub(crate) fn is_valid(&self) -> bool {
        self.epoch.is_some() && self.cell.epoch() == self.epoch
    }
}

/// 0 stands for none.
fn moment_of(nanos: u64) -> Option<Moment> {
    (nanos > 0).then(|| Moment::after_boot(Duration::from_nanos(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-LEASE-2
    #[test]
    fn a_lease_is_valid_until_its_end_and_not_after_it_lapsed() {
        let lease = LeaseCell::default();
        assert_eq!(lease.epoch(), None);
        lease.renew(3, BucketThreadRuntime.now() + Duration::from_secs(60));
        assert_eq!(lease.epoch(), Some(3));
        lease.failed("silence".into());
        assert_eq!(lease.failure(), None, "it is still valid");
        let landed = lease.landed();
        assert!(landed.is_some() && landed == lease.first_landed());
        lease.lapse();
        assert_eq!((lease.epoch(), lease.failure().as_deref()), (None, Some("silence")));
        lease.renew(4, BucketThreadRuntime.now().saturating_sub(Duration::from_nanos(1)));
        assert_eq!(lease.epoch(), None);
        assert!(lease.landed() > landed && lease.first_landed() == landed);
    }

    // R-LEASE-2
    #[test]
    fn a_token_ends_with_its_lease_whether_or_not_anybody_says_so() {
        let lease = Arc::new(LeaseCell::default());
        assert!(lease.token().is_none());
        let none = lease.token_of_now();
        let now = || BucketThreadRuntime.now();
        lease.renew(3, now() + Duration::from_secs(60));
        let token = lease.token().unwrap();
        assert!(token.is_valid());
        lease.renew(3, now() + Duration::from_secs(120));
        assert!(token.is_valid(), "a renewal is the same lease");
        // The clock has passed its end, as it has after a suspend, and no timer has fired.
        lease.until.store(nanos(now().saturating_sub(Duration::from_nanos(1))), Ordering::Release);
        assert!(!token.is_valid());
        lease.renew(4, now() + Duration::from_secs(60));
        assert!(!token.is_valid(), "the next lease is another");
        assert!(!none.is_valid(), "what began on no lease leaves on none");
    }
}
