//! When a connection moves to another shard, and what travels. Owns the policy; the way there is the mesh's.
//!
//! A request for another shard's actor costs a hop each way. A new connection whose first request belongs
//! elsewhere moves at once; an older one after [`MOVE_AFTER`] requests in a row for the same other shard, and no
//! shard gives away more than a set number of those a second, so that mixed traffic does not flap. A connection that
//! its shard serves alone moves each time: a shard that sleeps is woken for each hop, and the one back is spared. A
//! WebSocket is served where its actor is: a request for one always moves, unless the connection has just
//! moved or could not.

use super::{connections::Ticket, wire::Came};
use crate::tls::Session;
use std::{cell::Cell, fmt, os::fd::OwnedFd, time::Instant};

/// Requests in a row for one other shard after which a connection moves there. A move costs about as much as ten
/// hops, so it pays back within as many requests again.
pub const MOVE_AFTER: u32 = 8;

/// Moves a second of connections that were already served here and not alone, per shard.
pub const MOVES_PER_SECOND: u32 = 1000;

/// A connection on its way to another shard: quiescent, nothing of its next request has been acted on.
pub struct Handover {
    pub(super) fd: OwnedFd,
    /// Between nodes: the TLS on it.
    pub(super) session: Option<Box<Session>>,
    /// The bytes begin with a whole request head.
    pub(super) came: Came,
    pub(super) ticket: Ticket,
    /// Where it belongs.
    pub shard: usize,
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// A connection's next request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    /// The shard it is for; `None` where any will do.
    pub(super) owner: Option<usize>,
    /// It asks for a WebSocket.
    pub(super) for_good: bool,
    /// Its shard serves no other connection.
    pub(super) is_alone: bool,
}

/// What one connection's requests said so far.
#[derive(Debug)]
pub(super) struct Streak {
    fresh: bool,
    /// The next request is served here, whatever it is.
    settled: bool,
    shard: usize,
    length: u32,
}

impl Streak {
    /// `fresh`: no request of this connection has been seen on any shard.
    pub(super) fn new(fresh: bool) -> Streak {
        Streak { fresh, settled: !fresh, shard: 0, length: 0 }
    }

    /// Takes the next request, seen by shard `here`; says where the connection must go now.
    pub(super) fn next(&mut self, next: Next, here: usize, budget: &Budget) -> Option<usize> {
        let Next { owner, for_good, is_alone } = next;
        let fresh = std::mem::replace(&mut self.fresh, false);
        let settled = std::mem::replace(&mut self.settled, false);
        let Some(owner) = owner.filter(|owner| *owner != here) else {
            self.length = 0;
            return None;
        };
        let at_once = for_good || (is_alone && budget.is_open());
        if fresh || (at_once && !settled) {
            return Some(owner);
        }
        self.length = if self.length > 0 && self.shard == owner { self.length + 1 } else { 1 };
        self.shard = owner;
        (self.length >= MOVE_AFTER && budget.take(Instant::now())).then_some(owner)
    }
}

/// Moves a shard may still make: refills evenly, holds at most one second's worth.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u32,
    left: Cell<f64>,
    at: Cell<Instant>,
}

impl Budget {
    pub(super) fn new(per_second: u32, now: Instant) -> Budget {
        Budget { per_second, left: Cell::new(f64::from(per_second)), at: Cell::new(now) }
    }

    /// Whether connections move at all.
    fn is_open(&self) -> bool {
        self.per_second > 0
    }

    fn take(&self, now: Instant) -> bool {
        let refill = now.saturating_duration_since(self.at.get()).as_secs_f64() * f64::from(self.per_second);
        let left = (self.left.get() + refill).min(f64::from(self.per_second));
        self.at.set(now);
        self.left.set(if left >= 1.0 { left - 1.0 } else { left });
        left >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(owner: impl Into<Option<usize>>) -> Next {
        Next { owner: owner.into(), for_good: false, is_alone: false }
    }

    fn websocket(owner: usize) -> Next {
        Next { for_good: true, ..of(owner) }
    }

    #[test]
    fn a_new_connection_moves_with_its_first_request_only() {
        let budget = Budget::new(0, Instant::now());
        assert_eq!(Streak::new(true).next(of(3), 0, &budget), Some(3));
        assert_eq!(Streak::new(true).next(of(0), 0, &budget), None);
        assert_eq!(Streak::new(true).next(of(None), 0, &budget), None);
        assert_eq!(Streak::new(false).next(of(3), 0, &budget), None);
        let mut streak = Streak::new(true);
        assert_eq!(streak.next(of(None), 0, &budget), None);
        assert_eq!(streak.next(of(3), 0, &budget), None);
    }

    #[test]
    fn an_older_connection_moves_after_eight_in_a_row_for_one_shard() {
        let budget = Budget::new(10, Instant::now());
        let mut streak = Streak::new(false);
        let mut moved = |owner| streak.next(of(owner), 0, &budget);
        for _ in 0..7 {
            assert_eq!(moved(1), None);
        }
        assert_eq!(moved(2), None, "another shard begins a new row");
        for _ in 0..6 {
            assert_eq!(moved(2), None);
        }
        assert_eq!(moved(0), None, "a request for this shard ends the row");
        for _ in 0..7 {
            assert_eq!(moved(1), None);
        }
        assert_eq!(moved(1), Some(1));
    }

    #[test]
    fn a_request_for_a_websocket_always_moves_but_right_after_a_move() {
        // R-WS-1
        let budget = Budget::new(0, Instant::now());
        let mut streak = Streak::new(true);
        assert_eq!(streak.next(of(None), 0, &budget), None);
        assert_eq!(streak.next(websocket(3), 0, &budget), Some(3));
        let mut streak = Streak::new(false);
        assert_eq!(streak.next(websocket(3), 0, &budget), None);
        assert_eq!(streak.next(websocket(3), 0, &budget), Some(3));
        assert_eq!(streak.next(websocket(0), 0, &budget), None);
    }

    #[test]
    fn a_connection_served_alone_moves_with_every_request_for_another_shard_but_right_after_a_move() {
        let (budget, none) = (Budget::new(1, Instant::now()), Budget::new(0, Instant::now()));
        let alone = |owner| Next { is_alone: true, ..of(owner) };
        let mut streak = Streak::new(false);
        assert_eq!(streak.next(alone(3), 0, &budget), None);
        assert_eq!(streak.next(alone(3), 0, &budget), Some(3));
        assert_eq!(streak.next(alone(0), 0, &budget), None);
        assert_eq!(streak.next(Next { owner: None, ..alone(0) }, 0, &budget), None);
        assert_eq!(streak.next(alone(2), 0, &none), None);
        for _ in 0..3 {
            assert_eq!(streak.next(alone(2), 0, &budget), Some(2));
        }
    }

    #[test]
    fn moves_are_limited_per_second_and_refill() {
        let start = Instant::now();
        let budget = Budget::new(2, start);
        assert!(budget.take(start) && budget.take(start) && !budget.take(start));
        let later = start + Duration::from_millis(500);
        assert!(budget.take(later) && !budget.take(later));
        let much_later = start + Duration::from_secs(60);
        assert!(budget.take(much_later) && budget.take(much_later) && !budget.take(much_later));
    }
}
