//! A few at a time, in the order in which they came.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use futures::channel::oneshot;

/// So many turns at once. Clones share them.
#[derive(Debug, Clone)]
pub struct Turns(Rc<State>);

#[derive(Debug)]
struct State {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<Turn>>>,
}

/// A turn, until it is dropped; `None` for one that was handed on.
#[derive(Debug)]
pub struct Turn(Option<Turns>);

impl Turns {
    /// `at_once` of them, at least 1.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self(Rc::new(State { free: Cell::new(at_once), waiting: RefCell::default() }))
    }

    /// Waits for one.
    pub async fn take(&self) -> Turn {
        let free = self.0.free.get();
        if free > 0 {
            self.0.free.set(free - 1);
            return Turn(Some(self.clone()));
        }
        let (give, given) = oneshot::channel();
        self.0.waiting.borrow_mut().push_back(give);
        // Never an error: `self` keeps the line.
        given.await.unwrap_or(Turn(None))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        let mut turn = Self(Some(turns.clone()));
        loop {
            let next = turns.0.waiting.borrow_mut().pop_front();
            let Some(next) = next else { break };
            match next.send(turn) {
                Ok(()) => return,
                // Whoever waited has left.
                Err(back) => turn = back,
            }
        }
        turn.0 = None;
        turns.0.free.set(turns.0.free.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn turns_go_to_who_came_first_and_none_is_lost_when_somebody_leaves() {
        let turns = Turns::new(2);
        let mut first: Vec<Turn> = (0..2).map(|_| turns.take().now_or_never().expect("a turn")).collect();
        let (mut one, mut two) = (pin!(turns.take()), pin!(turns.take()));
        let mut leaves = Box::pin(turns.take());
        let mut given_and_leaves = Box::pin(turns.take());
        assert!(
            leaves.as_mut().now_or_never().is_none() && given_and_leaves.as_mut().now_or_never().is_none()
        );
        assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
        drop(leaves);
        first.pop();
        // It is the turn of the one that came next, which goes without having taken it.
        assert!(one.as_mut().now_or_never().is_none());
        drop(given_and_leaves);
        let one = one.now_or_never().expect("its turn");
        assert!(two.as_mut().now_or_never().is_none());
        drop(one);
        let two = two.now_or_never().expect("its turn");
        drop((two, first));
        assert_eq!(turns.0.free.get(), 2);
    }
}
