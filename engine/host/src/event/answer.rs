//! A single-use channel for the answer of an event, whatever it answers with. Several may hold the sending end (the event, and the
//! ticket its actor keeps); the first to answer wins, and when the last goes without answering the receiver
//! learns that too.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use wasmkeep_actor::{Failure, Refusal};

use super::body::ResponseBody;

/// What a guest did wrong with its response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// It returned without setting one.
    #[error("the actor returned without a response")]
    NoResponse,
    /// It set an error code of `wasi:http` instead of a response.
    #[error("the actor answered with an error: {0}")]
    ErrorCode(String),
    /// A status that is no final answer.
    #[error("the actor answered with status {0}; 200 to 599 are answers")]
    Status(u16),
    /// A `content-length` that is not one number.
    #[error("the actor's response has a content-length that is not a number")]
    ContentLength,
    /// The body does not have the length its header promised.
    #[error("the actor's response body has {written} bytes, its content-length is {promised}")]
    BodyLength {
        /// From the header.
        promised: u64,
        /// What was written.
        written: u64,
    },
    /// It returned, or dropped the body, without finishing it.
    #[error("the actor did not finish its response body")]
    BodyUnfinished,
    /// It let a socket in as none can be.
    #[error("the actor let the socket in as none can be: {0}")]
    Acceptance(String),
}

/// What an HTTP request is answered with.
pub type HttpAnswer = http::Response<ResponseBody>;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// Nothing of it ran; it may be sent again (503).
    #[error("{0}")]
    Refused(Refusal),
    /// It began and did not end well (500).
    #[error("{0}")]
    Failed(Failure),
    /// It ran, and what it answered cannot be sent (500).
    #[error("{0}")]
    Mistake(Mistake),
    /// It was dropped before it was answered: its actor was stopped.
    #[error("the event was dropped before it was answered")]
    Dropped,
}

enum State<T> {
    Waiting,
    Polled(Waker),
    Answered(Result<T, Unanswered>),
    /// Given to the receiver.
    Taken,
    /// The receiver is gone.
    Abandoned,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    /// Sending ends still held.
    senders: AtomicUsize,
}

impl<T> Slot<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that panics runs under this lock; even if it did, the state is whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, answer: Result<T, Unanswered>) -> bool {
        let mut state = self.state();
        match &*state {
            State::Waiting | State::Polled(_) => {
                let before = mem::replace(&mut *state, State::Answered(answer));
                drop(state);
                if let State::Polled(waker) = before {
                    waker.wake();
                }
                true
            }
            State::Answered(_) | State::Taken | State::Abandoned => false,
        }
    }
}

pub(super) fn channel<T>() -> (AnswerSender<T>, AnswerReceiver<T>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), senders: AtomicUsize::new(1) });
    (AnswerSender(Arc::clone(&slot)), AnswerReceiver(slot))
}

/// The way to answer an event. Clones answer the same one.
pub struct AnswerSender<T = HttpAnswer>(Arc<Slot<T>>);

impl<T> AnswerSender<T> {
    /// Answers, unless it was answered before or nobody waits any more. Says whether it did.
    pub fn send(&self, answer: Result<T, Unanswered>) -> bool {
        self.0.answer(answer)
    }

    /// Whether whoever waited has left.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        matches!(*self.0.state(), State::Abandoned)
    }
}

impl<T> Clone for AnswerSender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for AnswerSender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.answer(Err(Unanswered::Dropped));
        }
    }
}

impl<T> fmt::Debug for AnswerSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSender").finish_non_exhaustive()
    }
}

/// Resolves to the answer, once. Dropping it says that nobody waits for the answer any more.
pub struct AnswerReceiver<T = HttpAnswer>(Arc<Slot<T>>);

impl<T> Future for AnswerReceiver<T> {
    type Output = Result<T, Unanswered>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match &mut *state {
            State::Waiting => *state = State::Polled(cx.waker().clone()),
            State::Polled(waker) => waker.clone_from(cx.waker()),
            State::Answered(_) => {
                if let State::Answered(answer) = mem::replace(&mut *state, State::Taken) {
                    return Poll::Ready(answer);
                }
            }
            State::Taken | State::Abandoned => {}
        }
        Poll::Pending
    }
}

impl<T> Drop for AnswerReceiver<T> {
    fn drop(&mut self) {
        // What it replaces may hold a response whose drop locks its own pipe: outside this lock.
        let before = mem::replace(&mut *self.0.state(), State::Abandoned);
        drop(before);
    }
}

impl<T> fmt::Debug for AnswerReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerReceiver").finish_non_exhaustive()
    }
}
