//! The end of a start that is not over: it is told to whoever waits, whatever for.

use std::{convert::Infallible, panic::resume_unwind, thread};

use futures::{
    executor::block_on,
    future::{Either, select},
};

use super::NodeError;

/// Whether the node is to stop. Cheap to clone; once raised it stays so.
#[derive(Debug, Clone)]
pub struct Interrupt(flume::Receiver<Infallible>);

/// Raises an [`Interrupt`] when dropped.
#[derive(Debug)]
pub struct Raise(#[expect(dead_code, reason = "its end is what is told")] flume::Sender<Infallible>);

impl Interrupt {
    /// One that is not raised yet, and what raises it.
    #[must_use]
    pub fn new() -> (Raise, Self) {
        let (raise, raised) = flume::bounded(0);
        (Raise(raise), Self(raised))
    }

    /// Whether it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.is_disconnected()
    }

    /// Waits until it is.
    pub fn wait(&self) {
        // Nothing is ever sent.
        let Err(_) = self.0.recv();
    }

    /// Waits for `work` on a thread that has nothing else to do, but not longer than until it is raised.
    pub(crate) fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, NodeError> {
        let raised = self.0.recv_async();
        match block_on(select(std::pin::pin!(work), raised)) {
            Either::Left((value, _)) => Ok(value),
            Either::Right((Err(_), _)) => Err(NodeError::Interrupted),
        }
    }

    /// Runs `work`, which blocks, on a thread of its own, and waits for it as [`Interrupt::or`] does. It is left alone
    /// when that wait is cut short: the process is about to end.
    pub(crate) fn or_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NodeError> {
        let (done, finished) = flume::bounded(1);
        let thread = thread::Builder::new().name("start".into()).spawn(move || {
            // Nobody waits any more when it was raised.
            let _ = done.send(work());
        });
        let thread = thread.map_err(NodeError::Thread)?;
        match self.or(finished.recv_async())? {
            Ok(value) => Ok(value),
            Err(flume::RecvError::Disconnected) => match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => Err(NodeError::Interrupted),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_waited_for_until_it_is_raised_and_not_after() {
        let (raise, interrupt) = Interrupt::new();
        assert!(!interrupt.is_raised());
        assert_eq!(interrupt.or(async { 1 }).unwrap(), 1);
        assert_eq!(interrupt.or_blocking(|| 2).unwrap(), 2);
        let (_blocked, never) = flume::bounded::<()>(0);
        let waiting = interrupt.clone();
        let waits = thread::spawn(move || waiting.or_blocking(move || never.recv().is_ok()));
        drop(raise);
        assert!(matches!(waits.join().unwrap(), Err(NodeError::Interrupted)));
        interrupt.wait();
        assert!(interrupt.is_raised());
        assert!(matches!(interrupt.or(std::future::pending::<()>()), Err(NodeError::Interrupted)));
    }
}
