//! Which request leaves next, as a pure step function: who asks, who has ended, who may go.
//!
//! Knows no bucket and no time. A lane may start a request while it has fewer under way than its share, and
//! while a place is free that is not kept for another lane; of several lanes that may, the first goes, and
//! within a lane the one that asked first.

use std::collections::VecDeque;

use crate::lane::{IN_FLIGHT_MAX, Lane};

/// Names one request at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

#[derive(Debug, Default)]
pub(crate) struct Gate {
    lanes: [Line; Lane::ALL.len()],
    next: u64,
}

#[derive(Debug, Default)]
struct Line {
    under_way: usize,
    waiting: VecDeque<Ticket>,
}

impl Gate {
    /// A request wants to go. Tells who may: at once this one, or nobody.
    pub(crate) fn ask(&mut self, lane: Lane) -> (Ticket, Vec<Ticket>) {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.line(lane).waiting.push_back(ticket);
        (ticket, self.admit())
    }

    /// A request that was let go has ended. Tells who may go in its place.
    pub(crate) fn end(&mut self, lane: Lane) -> Vec<Ticket> {
        let line = self.line(lane);
        debug_assert!(line.under_way > 0, "an end without a beginning");
        line.under_way = line.under_way.saturating_sub(1);
        self.admit()
    }

    /// A request that still waits is no longer wanted.
    pub(crate) fn forget(&mut self, lane: Lane, ticket: Ticket) {
        self.line(lane).waiting.retain(|waiting| *waiting != ticket);
    }

    /// Waiting and under way.
    pub(crate) fn load(&self, lane: Lane) -> (usize, usize) {
        let line = &self.lanes[lane.index()];
        (line.waiting.len(), line.under_way)
    }

    fn line(&mut self, lane: Lane) -> &mut Line {
        &mut self.lanes[lane.index()]
    }

    fn admit(&mut self) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        while let Some(lane) = Lane::ALL.into_iter().find(|lane| self.may_go(*lane)) {
            let line = self.line(lane);
            if let Some(ticket) = line.waiting.pop_front() {
                line.under_way += 1;
                admitted.push(ticket);
            }
        }
        admitted
    }

    fn may_go(&self, lane: Lane) -> bool {
        let line = &self.lanes[lane.index()];
        if line.waiting.is_empty() || line.under_way >= lane.share().most {
            return false;
        }
        lane == Lane::Lease || self.taken_or_kept(lane) < IN_FLIGHT_MAX
    }

    /// Places that `lane` cannot have: those under way, and those kept for the other lanes and not used by them.
    fn taken_or_kept(&self, lane: Lane) -> usize {
        let counted = Lane::ALL.into_iter().filter(|counted| *counted != Lane::Lease);
        counted
            .map(|other| {
                let under_way = self.lanes[other.index()].under_way;
                if other == lane { under_way } else { under_way.max(other.share().kept) }
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gate: &mut Gate, lane: Lane, times: usize) -> usize {
        (0..times).map(|_| gate.ask(lane).1.len()).sum()
    }

    // R-BKT-2
    #[test]
    fn a_lease_write_goes_at_once_whatever_else_waits() {
        let mut gate = Gate::default();
        for lane in Lane::ALL.into_iter().filter(|lane| *lane != Lane::Lease) {
            ask(&mut gate, lane, 10_000);
        }
        for _ in 0..100 {
            let (ticket, admitted) = gate.ask(Lane::Lease);
            assert_eq!(admitted, [ticket]);
        }
    }

    #[test]
    fn a_lane_alone_has_its_share_and_leaves_what_is_kept_for_the_others() {
        for (lane, expected) in
            [(Lane::Durable, 48), (Lane::Upload, 32), (Lane::Restore, 32), (Lane::Housekeeping, 4)]
        {
            let mut gate = Gate::default();
            assert_eq!(ask(&mut gate, lane, 1000), expected, "{lane:?}");
            assert_eq!(gate.load(lane), (1000 - expected, expected));
        }
    }

    #[test]
    fn every_lane_gets_what_is_kept_for_it_when_the_lanes_before_it_are_full() {
        let mut gate = Gate::default();
        ask(&mut gate, Lane::Durable, 1000);
        ask(&mut gate, Lane::Upload, 1000);
        assert_eq!(ask(&mut gate, Lane::Restore, 1000), Lane::Restore.share().kept);
        assert_eq!(ask(&mut gate, Lane::Housekeeping, 1000), Lane::Housekeeping.share().kept);
        let under_way: usize = Lane::ALL.into_iter().map(|lane| gate.load(lane).1).sum();
        assert_eq!(under_way, IN_FLIGHT_MAX);
    }

    #[test]
    fn a_place_that_comes_free_goes_to_the_first_lane_and_there_to_who_asked_first() {
        let mut gate = Gate::default();
        ask(&mut gate, Lane::Upload, 32);
        ask(&mut gate, Lane::Restore, 23);
        let (read, none) = gate.ask(Lane::Restore);
        assert_eq!(none, []);
        let (first, admitted) = gate.ask(Lane::Durable);
        assert_eq!(admitted, [first], "kept for it");
        ask(&mut gate, Lane::Durable, 7);
        let (waiting, none) = gate.ask(Lane::Durable);
        assert_eq!(none, []);
        assert_eq!(gate.end(Lane::Upload), [waiting]);
        assert_eq!(gate.end(Lane::Upload), [read]);
    }

    #[test]
    fn who_no_longer_wants_to_go_takes_no_place() {
        let mut gate = Gate::default();
        ask(&mut gate, Lane::Housekeeping, 4);
        let (left, _) = gate.ask(Lane::Housekeeping);
        let (stays, _) = gate.ask(Lane::Housekeeping);
        gate.forget(Lane::Housekeeping, left);
        assert_eq!(gate.end(Lane::Housekeeping), [stays]);
        assert_eq!(gate.end(Lane::Housekeeping), []);
    }
}
