//! What waits at an actor's gate, in the order in which it came. Pure.

use std::collections::VecDeque;

/// Things that wait for transactions to land.
pub(super) struct Queue<T> {
    /// Which transaction they wait for is not known yet; all of them came after the marked ones.
    unmarked: VecDeque<T>,
    /// With the transaction each waits for, which never falls.
    marked: VecDeque<(u64, T)>,
    /// Up to here everything is in the bucket.
    landed: u64,
}

impl<T> Queue<T> {
    /// Nothing waits, and everything up to `landed` is in the bucket.
    pub(super) fn new(landed: u64) -> Self {
        Self { unmarked: VecDeque::new(), marked: VecDeque::new(), landed }
    }

    pub(super) fn push(&mut self, thing: T) {
        self.unmarked.push_back(thing);
    }

    /// Everything that waits.
    pub(super) fn len(&self) -> usize {
        self.unmarked.len() + self.marked.len()
    }

    /// Things without a transaction.
    pub(super) fn unmarked(&self) -> usize {
        self.unmarked.len()
    }

    /// The first `count` of those without one wait for `txid`.
    pub(super) fn mark(&mut self, count: usize, txid: u64) {
        let txid = self.marked.back().map_or(txid, |(last, _)| txid.max(*last));
        let count = count.min(self.unmarked.len());
        self.marked.extend(self.unmarked.drain(..count).map(|thing| (txid, thing)));
    }

    /// Everything up to `txid` is in the bucket.
    pub(super) fn land(&mut self, txid: u64) {
        self.landed = self.landed.max(txid);
    }

    /// The first transaction that something waits for.
    pub(super) fn next(&self) -> Option<u64> {
        self.marked.front().map(|(txid, _)| *txid).filter(|txid| *txid > self.landed)
    }

    /// What waits no longer, in order.
    pub(super) fn open(&mut self) -> Vec<T> {
        let due = self.marked.partition_point(|(txid, _)| *txid <= self.landed);
        self.marked.drain(..due).map(|(_, thing)| thing).collect()
    }

    /// Takes those without a transaction that `which` picks.
    pub(super) fn take_unmarked(&mut self, which: impl Fn(&T) -> bool) -> Vec<T> {
        let (taken, left) = self.unmarked.drain(..).partition(which);
        self.unmarked = left;
        Vec::from_iter::<VecDeque<T>>(taken)
    }

    /// Takes all that waits, in order.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.marked.drain(..).map(|(_, thing)| thing).chain(self.unmarked.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Push(u32),
        Mark(usize, u64),
        Land(u64),
    }

    #[test]
    fn what_waits_leaves_in_order_once_its_transaction_has_landed() {
        use Step::{Land, Mark, Push};
        for (steps, left, next) in [
            (vec![Push(1)], vec![], None),
            // Everything it could have seen is there already.
            (vec![Push(1), Mark(1, 5)], vec![1], None),
            (vec![Push(1), Mark(1, 6)], vec![], Some(6)),
            (vec![Push(1), Mark(1, 6), Land(6)], vec![1], None),
            // One that came later is not let past one that came before.
            (vec![Push(1), Mark(1, 7), Push(2), Mark(1, 6), Land(6)], vec![], Some(7)),
            (vec![Push(1), Push(2), Mark(1, 6), Land(6)], vec![1], None),
            (vec![Push(1), Mark(1, 6), Push(2), Mark(1, 8), Push(3), Land(7)], vec![1], Some(8)),
            (
                vec![Push(1), Mark(1, 6), Push(2), Mark(1, 8), Push(3), Mark(1, 8), Land(9)],
                vec![1, 2, 3],
                None,
            ),
            // What is known to have landed is never unlearnt.
            (vec![Land(9), Land(6), Push(1), Mark(1, 9)], vec![1], None),
        ] {
            let mut queue = Queue::new(5);
            for step in steps {
                match step {
                    Push(thing) => queue.push(thing),
                    Mark(count, txid) => queue.mark(count, txid),
                    Land(txid) => queue.land(txid),
                }
            }
            assert_eq!(queue.open(), left);
            assert_eq!(queue.next(), next);
        }
    }

    #[test]
    fn all_that_waits_can_be_taken_in_order() {
        let mut queue = Queue::new(0);
        for thing in 1..=4 {
            queue.push(thing);
        }
        queue.mark(2, 1);
        assert_eq!(queue.take_unmarked(|thing| thing % 2 == 1), [3]);
        assert_eq!((queue.len(), queue.unmarked()), (3, 1));
        assert_eq!(queue.drain(), [1, 2, 4]);
        assert_eq!(queue.len(), 0);
    }
}
