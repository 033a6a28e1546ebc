//! The lengths of time a lease is made of, and those that follow from them.

use std::time::Duration;

use crate::limits;

/// The timings of a cluster's leases. Every node of a cluster uses the same: a node that sees a live one with another
/// ttl does not start ([`crate::view::View::other_ttl`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// See [`limits::LEASE_TTL`].
    pub ttl: Duration,
    /// See [`limits::LEASE_GRACE`].
    pub grace: Duration,
    /// See [`limits::LEASE_SAFETY`].
    pub safety: Duration,
    /// See [`limits::HEARTBEAT_PERIOD`].
    pub period: Duration,
    /// See [`limits::HEARTBEAT_TIMEOUT`].
    pub timeout: Duration,
    /// See [`limits::CLOCK_SKEW`].
    pub skew: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: limits::LEASE_TTL,
            grace: limits::LEASE_GRACE,
            safety: limits::LEASE_SAFETY,
            period: limits::HEARTBEAT_PERIOD,
            timeout: limits::HEARTBEAT_TIMEOUT,
            skew: limits::CLOCK_SKEW,
        }
    }
}

impl Timing {
    /// The shortest ttl a process may be asked for: a heartbeat period of 600 ms, and a second from one heartbeat to the
    /// end of the lease if the next does not land.
    pub const TTL_MIN: Duration = Duration::from_secs(2);

    /// The timings of a lease of this ttl, every one in the proportion it has by default. A busy machine may stop a
    /// process for the ttl less the safety and a period, half of the ttl, before its lease runs out.
    #[must_use]
    pub fn of_ttl(ttl: Duration) -> Self {
        let normal = Self::default();
        // No length that is asked for here comes near the end of either type.
        let scaled = |length: Duration| length.mul_f64(ttl.as_secs_f64() / normal.ttl.as_secs_f64());
        Self {
            ttl,
            grace: scaled(normal.grace),
            safety: scaled(normal.safety),
            period: scaled(normal.period),
            timeout: scaled(normal.timeout),
            skew: scaled(normal.skew),
        }
    }

    /// How long events may run after a write that landed began (R-LEASE-2).
    #[must_use]
    pub fn validity(&self) -> Duration {
        self.ttl.saturating_sub(self.safety)
    }

    /// How long a live write of a node with this ttl has to stand unchanged before its process holds nothing any
    /// more. The longer ttl counts where two nodes disagree.
    #[must_use]
    pub fn lapse(&self, ttl: Duration) -> Duration {
        self.ttl.max(ttl) + self.grace
    }

    /// How long a node that regained the bucket leaves the others alone, so that they can renew as well
    /// (R-LEASE-5): a third of the ttl in which they begin a write, and the time that write may take.
    #[must_use]
    pub fn watch(&self) -> Duration {
        self.ttl / 3 + self.timeout
    }

    /// How long after its last write a node counts as live (R-TLS-4): three heartbeats and the skew.
    #[must_use]
    pub fn in_view(&self) -> Duration {
        self.period * 3 + self.skew
    }

    /// How long after a write landed every peer that can list it has done so (R-TLS-2, R-TLS-5): two periods, since one
    /// listing may have begun before it.
    #[must_use]
    pub fn known(&self) -> Duration {
        self.period * 2
    }

    /// Pause before a request that failed is sent again.
    #[must_use]
    pub fn retry(&self) -> Duration {
        self.period / 3
    }

    /// Longest pause between two listings over which a watch goes on: one listing may fail.
    #[must_use]
    pub fn listing_gap_max(&self) -> Duration {
        self.period * 2 + self.timeout
    }

    /// How long a request is kept for a dead node's actor unless told otherwise, in whole seconds (R-WAIT-1):
    /// the takeover at its latest, the listing that shows another node's fence, and the spread.
    #[must_use]
    pub fn failover_wait(&self) -> Duration {
        let wait = self.lapse(self.ttl) + self.watch() + self.period + limits::FAILOVER_SPREAD;
        Duration::from_secs(wait.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-LEASE-1, R-LEASE-2, R-LEASE-4, R-TLS-2, R-TLS-4, R-WAIT-1
    #[test]
    fn the_defaults_give_the_documented_lengths() {
        let timing = Timing::default();
        assert!(timing.period <= timing.ttl / 3, "a heartbeat is at most a third of the ttl apart");
        assert_eq!(timing.validity(), Duration::from_secs(8));
        assert_eq!(timing.lapse(timing.ttl), Duration::from_secs(15));
        assert_eq!(timing.lapse(Duration::from_secs(20)), Duration::from_secs(25));
        assert_eq!(timing.watch().as_secs(), 6);
        assert_eq!(timing.in_view(), Duration::from_secs(10));
        assert_eq!(timing.known(), Duration::from_secs(6));
        assert_eq!(timing.failover_wait(), Duration::from_secs(25));
    }

    // R-LEASE-1, R-LEASE-2
    #[test]
    fn another_ttl_keeps_every_proportion() {
        assert_eq!(Timing::of_ttl(limits::LEASE_TTL), Timing::default());
        let ms = Duration::from_millis;
        let short = Timing::of_ttl(ms(4_000));
        let (ttl, grace, safety) = (ms(4_000), ms(2_000), ms(800));
        let (period, timeout, skew) = (ms(1_200), ms(1_080), ms(400));
        assert_eq!(short, Timing { ttl, grace, safety, period, timeout, skew });
        assert_eq!(short.failover_wait(), Duration::from_secs(10));
        for timing in [Timing::of_ttl(Timing::TTL_MIN), short, Timing::default(), Timing::of_ttl(ms(60_000))]
        {
            assert!(timing.period <= timing.ttl / 3);
            // What keeps two nodes from running one actor: the one has stopped before the other begins.
            assert!(timing.validity() < timing.lapse(timing.ttl));
            assert!(timing.validity() - timing.period >= Duration::from_secs(1));
        }
    }
}
