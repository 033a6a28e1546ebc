//! What whole databases on their way to the bucket may take of a node's memory, from before they are made until they
//! are uploaded. Given out in the order it is asked for; one larger than the whole budget goes alone.
//!
//! Shards make them and the bucket thread sends them, so this is shared between threads.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use bytes::Bytes;
use wasmkeep_protocol::limits::UPLOAD_BYTES_MAX;

/// The budget of one node. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct UploadBudget(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    numbers: u64,
    waiting: VecDeque<(u64, Option<Waker>)>,
}

impl State {
    fn has_room(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= UPLOAD_BYTES_MAX
    }
}

impl UploadBudget {
    /// Bytes given out.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked under it left numbers that are whole at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a database of so many bytes, if there is some now and nobody waits for it.
    pub(crate) fn try_enter(&self, bytes: u64) -> Option<UploadPlace> {
        let mut state = self.state();
        let enters = state.waiting.is_empty() && state.has_room(bytes);
        enters.then(|| {
            state.bytes += bytes;
            UploadPlace { budget: self.clone(), bytes }
        })
    }

    /// Waits for it.
    pub(crate) async fn enter(&self, bytes: u64) -> UploadPlace {
        let number = {
            let mut state = self.state();
            state.numbers += 1;
            let number = state.numbers;
            state.waiting.push_back((number, None));
            number
        };
        let _line = InLine { budget: self, number };
        poll_fn(|context| {
            let mut state = self.state();
            let is_next = state.waiting.front().is_some_and(|(first, _)| *first == number);
            if is_next && state.has_room(bytes) {
                state.bytes += bytes;
                return Poll::Ready(UploadPlace { budget: self.clone(), bytes });
            }
            if let Some((_, waker)) = state.waiting.iter_mut().find(|(other, _)| *other == number) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn wake_next(&self) {
        let next = self.state().waiting.front().and_then(|(_, waker)| waker.clone());
        next.into_iter().for_each(Waker::wake);
    }
}

/// A place in the line, left when dropped.
struct InLine<'a> {
    budget: &'a UploadBudget,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.budget.state().waiting.retain(|(number, _)| *number != self.number);
        self.budget.wake_next();
    }
}

/// Room for one database, given back when dropped.
#[derive(Debug)]
pub(crate) struct UploadPlace {
    budget: UploadBudget,
    bytes: u64,
}

impl UploadPlace {
    /// The database, which has this place for as long as anything of it is kept.
    pub(crate) fn hold(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(Placed { body, _place: self })
    }
}

impl Drop for UploadPlace {
    fn drop(&mut self) {
        self.budget.state().bytes -= self.bytes;
        self.budget.wake_next();
    }
}

struct Placed {
    body: Vec<u8>,
    _place: UploadPlace,
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    // R-REPL-1
    #[test]
    fn databases_wait_in_line_for_their_room_and_keep_it_while_they_are_kept() {
        let budget = UploadBudget::default();
        let first = budget.try_enter(200 * MIB).expect("there is room").hold(vec![1, 2, 3]);
        let copy = first.slice(1..2);
        assert!(budget.try_enter(100 * MIB).is_none());
        let mut large = pin!(budget.enter(300 * MIB));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = pin!(budget.enter(MIB));
        assert!(small.as_mut().now_or_never().is_none(), "it came later");
        drop(first);
        assert!(large.as_mut().now_or_never().is_none(), "a part is kept");
        drop(copy);
        assert!(budget.try_enter(MIB).is_none(), "others wait");
        let alone = large.now_or_never().expect("nothing else is there");
        assert_eq!(budget.in_use(), 300 * MIB);
        assert!(small.as_mut().now_or_never().is_none());
        {
            let mut leaves = Box::pin(budget.enter(MIB));
            assert!(leaves.as_mut().now_or_never().is_none());
        }
        drop(alone);
        drop(small.now_or_never().expect("there is room"));
        assert_eq!(budget.in_use(), 0);
        assert!(budget.try_enter(MIB).is_some(), "nobody is in the line");
    }
}
