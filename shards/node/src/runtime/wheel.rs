//! The timing wheel under [`Sleeper`](super::Sleeper): which waits are due at which tick. Pure: knows ticks, not
//! clocks; hands wakers back instead of waking.
//!
//! 1,024 slots of doubly linked lists in one slab: inserting and cancelling are O(1) and allocate nothing once the
//! slab has grown. A wait further away than one turn stays in its slot until its own tick comes.

use std::task::Waker;

const SLOTS: usize = 1024;
const NONE: u32 = u32::MAX;

/// A wait in the wheel. Its holder gives it back with [`Wheel::remove`], fired or not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key(u32);

#[derive(Debug)]
struct Node {
    previous: u32,
    next: u32,
    tick: u64,
    /// Present while the wait is linked.
    waker: Option<Waker>,
}

/// Waits by tick.
#[derive(Debug)]
pub(super) struct Wheel {
    heads: Box<[u32; SLOTS]>,
    /// One bit per slot that has a wait.
    occupied: [u64; SLOTS / 64],
    nodes: Vec<Node>,
    free: u32,
    /// All ticks up to this one have been served.
    now: u64,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        Wheel {
            heads: Box::new([NONE; SLOTS]),
            occupied: [0; SLOTS / 64],
            nodes: Vec::new(),
            free: NONE,
            now: 0,
        }
    }

    /// Adds a wait for `tick`; one that has passed is due at the next tick.
    pub(super) fn insert(&mut self, tick: u64, waker: Waker) -> Key {
        let tick = tick.max(self.now + 1);
        let slot = tick as usize % SLOTS;
        let node = Node { previous: NONE, next: self.heads[slot], tick, waker: Some(waker) };
        let index = if self.free == NONE {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        let next = self.heads[slot];
        if next != NONE {
            self.nodes[next as usize].previous = index;
        }
        self.heads[slot] = index;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        Key(index)
    }

    /// Whether the wait has come due.
    pub(super) fn fired(&self, key: &Key) -> bool {
        self.nodes[key.0 as usize].waker.is_none()
    }

    /// Replaces the waker of a wait that is not due yet.
    pub(super) fn set_waker(&mut self, key: &Key, waker: &Waker) {
        if let Some(old) = &mut self.nodes[key.0 as usize].waker {
            old.clone_from(waker);
        }
    }

    /// Takes a wait out, due or not, and frees its place. The waker is returned so that it is dropped by the
    /// caller, outside any borrow of the wheel.
    pub(super) fn remove(&mut self, key: Key) -> Option<Waker> {
        let waker = self.nodes[key.0 as usize].waker.take();
        if waker.is_some() {
            self.unlink(key.0);
        }
        self.nodes[key.0 as usize].next = self.free;
        self.free = key.0;
        waker
    }

    /// Serves all ticks up to `to`; the wakers of the waits that came due are appended to `due`.
    pub(super) fn advance(&mut self, to: u64, due: &mut Vec<Waker>) {
        let from = self.now;
        if to <= from {
            return;
        }
        self.now = to;
        let slots = (to - from).min(SLOTS as u64);
        for tick in from + 1..=from + slots {
            self.serve(tick as usize % SLOTS, to, due);
        }
    }

    fn serve(&mut self, slot: usize, to: u64, due: &mut Vec<Waker>) {
        let mut index = self.heads[slot];
        while index != NONE {
            let next = self.nodes[index as usize].next;
            if self.nodes[index as usize].tick <= to
                && let Some(waker) = self.nodes[index as usize].waker.take()
            {
                due.push(waker);
                self.unlink(index);
            }
            index = next;
        }
    }

    /// The next tick whose slot has a wait: nothing is due before it, though what is there may be due a turn later.
    pub(super) fn next_tick(&self) -> Option<u64> {
        let start = (self.now + 1) as usize % SLOTS;
        for step in 0..=SLOTS / 64 {
            let word = (start / 64 + step) % (SLOTS / 64);
            let mut bits = self.occupied[word];
            // The first word counts from `start` on, and again at the end for what lies before it.
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let distance = (slot + SLOTS - start) % SLOTS;
                return Some(self.now + 1 + distance as u64);
            }
        }
        None
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, tick, .. } = self.nodes[index as usize];
        let slot = tick as usize % SLOTS;
        if previous == NONE {
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / 64] &= !(1 << (slot % 64));
            }
        } else {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Insert { after: u64 },
        Remove { which: usize },
        Advance { by: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![0..5u64, 0..2000u64, 1000..1100u64, 0..10_000u64].prop_map(|after| Step::Insert { after }),
            2 => any::<usize>().prop_map(|which| Step::Remove { which }),
            2 => prop_oneof![0..3u64, 0..1500u64, 1020..1030u64].prop_map(|by| Step::Advance { by }),
        ];
        proptest::collection::vec(step, 0..120)
    }

    proptest! {
        #[test]
        fn every_wait_fires_at_its_tick_and_never_before(steps in steps()) {
            let mut wheel = Wheel::new();
            let mut now = 0u64;
            let mut waits: BTreeMap<usize, (u64, Key)> = BTreeMap::new();
            for (id, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { after } => {
                        let key = wheel.insert(now + after, Waker::noop().clone());
                        waits.insert(id, ((now + after).max(now + 1), key));
                    }
                    Step::Remove { which } => {
                        let pick = waits.keys().nth(which % waits.len().max(1)).copied();
                        if let Some((tick, key)) = pick.and_then(|id| waits.remove(&id)) {
                            let pending = tick > now;
                            prop_assert_eq!(wheel.remove(key).is_some(), pending);
                        }
                    }
                    Step::Advance { by } => {
                        let expected = waits.values().filter(|(tick, _)| *tick > now && *tick <= now + by).count();
                        now += by;
                        let mut due = Vec::new();
                        wheel.advance(now, &mut due);
                        prop_assert_eq!(due.len(), expected);
                    }
                }
                for (tick, key) in waits.values() {
                    prop_assert_eq!(wheel.fired(key), *tick <= now);
                }
                let first = waits.values().map(|(tick, _)| *tick).filter(|tick| *tick > now).min();
                match (wheel.next_tick(), first) {
                    (None, None) => (),
                    (Some(next), Some(first)) => prop_assert!(now < next && next <= first, "{} {} {}", now, next, first),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut wheel = Wheel::new();
        for _ in 0..10_000 {
            let key = wheel.insert(600, Waker::noop().clone());
            wheel.remove(key);
        }
        assert_eq!(wheel.nodes.len(), 1);
        assert_eq!(wheel.next_tick(), None);
    }
}
