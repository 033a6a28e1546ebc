//! What all restores of a node may read at once (R-BKT-3), given out in the order it is asked for.
//!
//! Whoever waits longest goes next, however large its file: smaller ones do not overtake it, so none waits for
//! ever. A file larger than the whole budget goes alone.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use wasmkeep_protocol::limits::{RESTORE_BYTES_MAX, RESTORE_READS_MAX};

/// The budget of one node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ReadBudget(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    /// Numbers for reads, waiting and under way, and for restores.
    numbers: u64,
    waiting: VecDeque<Waiting>,
    reads: BTreeMap<u64, Read>,
    bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Option<Waker>,
}

/// A read under way, and the most that was under way beside it so far.
#[derive(Debug)]
struct Read {
    restore: u64,
    bytes: u64,
    peak_bytes: u64,
    peak_own_bytes: u64,
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn has_room(&self, bytes: u64) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= RESTORE_BYTES_MAX || self.reads.is_empty();
        self.reads.len() < RESTORE_READS_MAX && fits
    }

    fn enter(&mut self, number: u64, restore: u64, bytes: u64) {
        self.bytes += bytes;
        self.reads.insert(number, Read { restore, bytes, peak_bytes: 0, peak_own_bytes: 0 });
        let mut own: BTreeMap<u64, u64> = BTreeMap::new();
        for read in self.reads.values() {
            *own.entry(read.restore).or_default() += read.bytes;
        }
        for read in self.reads.values_mut() {
            read.peak_bytes = read.peak_bytes.max(self.bytes);
            read.peak_own_bytes = read.peak_own_bytes.max(own[&read.restore]);
        }
    }

    /// The waker of the read that is next in line.
    fn next(&self) -> Option<Waker> {
        self.waiting.front().and_then(|waiting| waiting.waker.clone())
    }
}

impl ReadBudget {
    /// Number of reads under way and their bytes.
    #[must_use]
    pub fn in_flight(&self) -> (usize, u64) {
        let state = self.0.borrow();
        (state.reads.len(), state.bytes)
    }

    /// A number for a restore: the reads of one count as its own.
    pub(crate) fn restore(&self) -> u64 {
        self.0.borrow_mut().number()
    }

    /// Waits for its turn to read `bytes`.
    pub(crate) async fn enter(&self, restore: u64, bytes: u64) -> Place {
        let number = self.0.borrow_mut().number();
        self.0.borrow_mut().waiting.push_back(Waiting { number, waker: None });
        let place = Place { budget: self.clone(), number };
        poll_fn(|context| {
            let mut state = self.0.borrow_mut();
            let is_next = state.waiting.front().is_some_and(|waiting| waiting.number == number);
            if is_next && state.has_room(bytes) {
                state.waiting.pop_front();
                state.enter(number, restore, bytes);
                let next = state.next();
                drop(state);
                next.into_iter().for_each(Waker::wake);
                return Poll::Ready(());
            }
            if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.number == number) {
                waiting.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        place
    }
}

/// A place in the line or among the reads under way; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    budget: ReadBudget,
    number: u64,
}

impl Place {
    /// The most bytes that were under way on the node during this read.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.budget.0.borrow().reads.get(&self.number).map_or(0, |read| read.peak_bytes)
    }

    /// The most bytes of its own restore among them.
    pub(crate) fn peak_own_bytes(&self) -> u64 {
        self.budget.0.borrow().reads.get(&self.number).map_or(0, |read| read.peak_own_bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.budget.0.borrow_mut();
        if let Some(read) = state.reads.remove(&self.number) {
            state.bytes -= read.bytes;
        }
        state.waiting.retain(|waiting| waiting.number != self.number);
        let next = state.next();
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    // R-BKT-3
    #[test]
    fn a_large_read_is_not_overtaken_and_one_larger_than_everything_goes_alone() {
        let budget = ReadBudget::default();
        let mut first = Vec::new();
        for _ in 0..2 {
            first.push(budget.enter(1, 100 * MIB).now_or_never().expect("there is room"));
        }
        assert_eq!(budget.in_flight(), (2, 200 * MIB));
        let mut large = pin!(budget.enter(2, 300 * MIB));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = pin!(budget.enter(3, MIB));
        assert!(small.as_mut().now_or_never().is_none(), "it came later");
        first.pop();
        assert!(large.as_mut().now_or_never().is_none() && small.as_mut().now_or_never().is_none());
        first.pop();
        let alone = large.now_or_never().expect("nothing else is read");
        assert_eq!(budget.in_flight(), (1, 300 * MIB));
        assert!(small.as_mut().now_or_never().is_none());
        drop(alone);
        assert!(small.now_or_never().is_some());
    }

    #[test]
    fn thirty_two_reads_go_at_once_and_one_that_leaves_the_line_holds_nobody_up() {
        let budget = ReadBudget::default();
        let mut places: Vec<Place> = (0..RESTORE_READS_MAX)
            .map(|_| budget.enter(1, 1).now_or_never().expect("there is room"))
            .collect();
        let mut next = pin!(budget.enter(1, 1));
        {
            let mut leaves = Box::pin(budget.enter(1, 1));
            assert!(leaves.as_mut().now_or_never().is_none());
            assert!(next.as_mut().now_or_never().is_none());
            places.pop();
            assert!(next.as_mut().now_or_never().is_none(), "it is not its turn");
        }
        assert!(next.now_or_never().is_some());
    }

    #[test]
    fn a_read_knows_the_most_that_was_read_beside_it() {
        let budget = ReadBudget::default();
        let enter = |restore, bytes| budget.enter(restore, bytes).now_or_never().expect("there is room");
        let one = enter(1, 10);
        let other = enter(2, 5);
        let own = enter(1, 3);
        drop(other);
        assert_eq!((one.peak_bytes(), one.peak_own_bytes()), (18, 13));
        assert_eq!((own.peak_bytes(), own.peak_own_bytes()), (18, 13));
    }
}
