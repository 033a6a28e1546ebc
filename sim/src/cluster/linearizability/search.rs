//! The search of Wing and Gong, with the memory Lowe added to it: it tries orders until one explains what was said. It
//! serves any object, and may take longer than anybody waits; the tests hold against it what decides at once.
//!
//! An object is a [`Model`].

use std::{collections::HashSet, fmt::Debug, hash::Hash};

/// What an object does when nothing happens at the same time.
pub trait Model {
    /// What it remembers.
    type State: Clone + Eq + Hash + Default;
    /// What is asked of it.
    type Operation: Copy + Eq + Debug;
    /// What it says.
    type Answer: Copy + Eq + Debug;

    /// What it does and says.
    fn step(state: &Self::State, operation: Self::Operation) -> (Self::State, Self::Answer);
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Call<M: Model> {
    /// When it was made.
    pub began: u64,
    /// What was asked.
    pub operation: M::Operation,
    /// When it was answered, and with what.
    pub answered: Option<(u64, M::Answer)>,
}

/// What the search came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none.
    NotLinearizable,
    /// Not found within the steps allowed.
    Undecided,
}

/// Looks for an order, in at most `steps_max` steps.
pub fn judge<M: Model>(calls: &[Call<M>], steps_max: u64) -> Verdict {
    let mut calls: Vec<&Call<M>> = calls.iter().collect();
    calls.sort_by_key(|call| call.began);
    Search { done: vec![0; calls.len().div_ceil(64)], calls }.run(steps_max)
}

struct Search<'a, M: Model> {
    /// In the order of their beginnings.
    calls: Vec<&'a Call<M>>,
    /// Which of them have a place in the order, a bit each.
    done: Vec<u64>,
}

/// A place in the order: which call has it, what the object was before, and what else could have it.
struct Place<S> {
    chosen: usize,
    before: S,
    others: Vec<usize>,
}

impl<M: Model> Search<'_, M> {
    fn run(mut self, steps_max: u64) -> Verdict {
        let mut state = M::State::default();
        let mut order: Vec<Place<M::State>> = Vec::new();
        let mut seen = HashSet::new();
        let mut next = self.candidates();
        for _ in 0..steps_max {
            if self.is_complete() {
                return Verdict::Linearizable;
            }
            match next.pop() {
                Some(chosen) => {
                    let (after, answer) = M::step(&state, self.calls[chosen].operation);
                    if self.calls[chosen].answered.is_some_and(|(_, told)| told != answer) {
                        continue;
                    }
                    self.flip(chosen);
                    if seen.insert((self.done.clone(), after.clone())) {
                        let before = std::mem::replace(&mut state, after);
                        order.push(Place { chosen, before, others: next });
                        next = self.candidates();
                    } else {
                        self.flip(chosen);
                    }
                }
                None => {
                    let Some(place) = order.pop() else { return Verdict::NotLinearizable };
                    self.flip(place.chosen);
                    (state, next) = (place.before, place.others);
                }
            }
        }
        Verdict::Undecided
    }

    fn flip(&mut self, call: usize) {
        self.done[call / 64] ^= 1 << (call % 64);
    }

    fn is_done(&self, call: usize) -> bool {
        self.done[call / 64] >> (call % 64) & 1 == 1
    }

    fn is_complete(&self) -> bool {
        (0..self.calls.len()).all(|call| self.is_done(call) || self.calls[call].answered.is_none())
    }

    /// The calls that could come next; the likeliest last: what was answered, the earliest answer first.
    fn candidates(&self) -> Vec<usize> {
        let open = || (0..self.calls.len()).filter(|call| !self.is_done(*call));
        let first_answer = open().filter_map(|call| self.calls[call].answered).map(|(at, _)| at).min();
        let may_be_next =
            |call: &usize| first_answer.is_none_or(|first_answer| self.calls[*call].began <= first_answer);
        let mut candidates: Vec<usize> = Vec::new();
        for call in open().take_while(may_be_next) {
            // Of equal calls without an answer one is as good as the other.
            let has_equal = self.calls[call].answered.is_none()
                && candidates.iter().any(|other| {
                    self.calls[*other].answered.is_none()
                        && self.calls[*other].operation == self.calls[call].operation
                });
            if !has_equal {
                candidates.push(call);
            }
        }
        candidates
            .sort_by_key(|call| std::cmp::Reverse(self.calls[*call].answered.map_or(u64::MAX, |(at, _)| at)));
        candidates
    }
}
