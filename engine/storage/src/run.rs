//! Runs SQL on a stack of its own, so that a long statement can give its core back and go on later.
//!
//! Owns the pooled stacks and the future that drives one of them. What runs there is the caller's business,
//! with two rules: it may not hold anything across a suspension but the connection, and once
//! [`Hooks::cancel`](crate::hooks::Hooks) is set it must come to its end without suspending.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use corosensei::{
    Coroutine, CoroutineResult,
    stack::{DefaultStack, Stack},
};

use crate::{connection::Connection, error::Error, limits::MEMORY_BYTES_MAX, memory};

/// Stack of a statement, in bytes of address space; pages are taken as they are touched (an ordinary
/// statement touches 16 to 32 KiB). The deepest statement the limits let through leaves a good part of it.
pub const STACK_BYTES: usize = 2 << 20;

/// Idle stacks a thread keeps. A stack in use belongs to a statement that is suspended, and most run through
/// without: more than a few idle ones would only hold the pages they once touched.
const STACKS_IDLE_MAX: usize = 8;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

fn take_stack() -> Result<DefaultStack, Error> {
    match STACKS.with_borrow_mut(Vec::pop) {
        Some(stack) => Ok(stack),
        None => DefaultStack::new(STACK_BYTES).map_err(|error| {
            Error::refused(format!("the node has no memory for another statement: {error}"))
        }),
    }
}

fn give_stack(stack: DefaultStack) {
    STACKS.with_borrow_mut(|stacks| {
        if stacks.len() < STACKS_IDLE_MAX {
            stacks.push(stack);
        }
    });
}

/// A job under way on its own stack.
///
/// Dropped before its end, it interrupts the statement and runs the job to its end: SQLite unwinds as from
/// any error and the connection stays usable.
pub(crate) struct Running<'a, R> {
    connection: &'a Connection,
    coroutine: Option<Coroutine<(), (), R, DefaultStack>>,
}

impl<'a, R> Running<'a, R> {
    /// Prepares `job`; it starts at the first poll. One job at a time runs on a connection.
    pub(crate) fn new<F>(connection: &'a Connection, job: F) -> Result<Self, Error>
    where
        F: FnOnce(&'a Connection) -> R + 'a,
        R: 'a,
    {
        if connection.is_busy.get() {
            return Err(Error::refused("another statement of this actor is running"));
        }
        let stack = take_stack()?;
        let limit = stack.limit().get();
        connection.is_busy.set(true);
        let hooks = &connection.hooks;
        // SAFETY: the job borrows for 'a. `Running` cannot outlive 'a, and its drop drives the job to its
        // end; if it is leaked instead, the stack is never entered again.
        let coroutine = unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder, ()| {
                hooks.yielder.set(yielder);
                hooks.stack_limit.set(limit);
                job(connection)
            })
        };
        Ok(Self { connection, coroutine: Some(coroutine) })
    }

    /// Runs until the job gives the core back or ends.
    fn resume(&mut self) -> Option<R> {
        let coroutine = self.coroutine.as_mut().expect("a job is not resumed after its end");
        let began = Instant::now();
        let connection = self.connection;
        connection.hooks.pacer.begin();
        let result = {
            let _paid = memory::enter(&connection.account, MEMORY_BYTES_MAX);
            coroutine.resume(())
        };
        connection.sql_time.set(connection.sql_time.get() + began.elapsed());
        match result {
            CoroutineResult::Yield(()) => None,
            CoroutineResult::Return(result) => {
                self.finish();
                Some(result)
            }
        }
    }

    fn finish(&mut self) {
        let hooks = &self.connection.hooks;
        hooks.yielder.set(std::ptr::null());
        hooks.stack_limit.set(0);
        hooks.cancel.set(false);
        self.connection.is_busy.set(false);
        if let Some(coroutine) = self.coroutine.take() {
            give_stack(coroutine.into_stack());
        }
    }
}

impl<R> Future for Running<'_, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        match self.resume() {
            Some(result) => Poll::Ready(result),
            None => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl<R> Drop for Running<'_, R> {
    fn drop(&mut self) {
        let Some(coroutine) = &self.coroutine else { return };
        if coroutine.done() {
            // A panic came out of it.
            self.finish();
            return;
        }
        if !coroutine.started() {
            self.coroutine = None;
            self.connection.is_busy.set(false);
            return;
        }
        self.connection.hooks.cancel.set(true);
        while self.coroutine.is_some() {
            drop(self.resume());
        }
    }
}

#[cfg(test)]
mod tests;
