//! The line between host and guest code: what is at hand while a guest is polled, and what a panic or a trap on
//! the other side becomes.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use wasmkeep_actor::{Failure, panic_text};
use wasmtime::WasmBacktrace;
use wasmtime_wasi::I32Exit;

/// Panics of the host caught at the event boundary since the process started. Expected to stay 0.
static BUGS_CAUGHT: AtomicU64 = AtomicU64::new(0);

/// Panics of the host that were caught while an event ran, since the process started. Each poisoned one
/// instance. A correct build keeps it at 0.
#[must_use]
pub fn bugs_caught() -> u64 {
    BUGS_CAUGHT.load(Ordering::Relaxed)
}

/// Polls `future` with the clock of `timers` at hand, and turns a panic into a failure. Only while polling:
/// between two polls the thread runs other tasks.
pub(crate) fn poll_guarded<F: Future>(
    timers: &Handle,
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Failure>> {
    let _entered = timers.enter();
    // What a panic leaves half done is the instance's alone, and that is dropped: it comes back as poisoned.
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => {
            BUGS_CAUGHT.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Err(Failure::Bug(panic_text(&*panic))))
        }
    }
}

/// As [`poll_guarded`], to the end.
pub(crate) async fn guarded<F: Future>(timers: &Handle, future: F) -> Result<F::Output, Failure> {
    let mut future = pin!(future);
    poll_fn(|cx| poll_guarded(timers, future.as_mut(), cx)).await
}

/// What a trap says, in one line and without the stack.
pub(crate) fn trap(error: &wasmtime::Error) -> Failure {
    Failure::Trap(reason(error))
}

fn reason(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<I32Exit>() {
        Some(exit) => format!("it called exit with status {}", exit.0),
        None => match error.downcast_ref::<wasmtime::Trap>() {
            Some(trap) => trap.to_string(),
            None => error.root_cause().to_string(),
        },
    }
}

/// What a trap says, with the guest's stack below it. The host's own stack, which an error has too when the
/// process was started with `RUST_BACKTRACE`, is of no use to who wrote the guest.
pub(crate) struct TrapReport<'a>(pub(crate) &'a wasmtime::Error);

impl fmt::Display for TrapReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reason(self.0))?;
        match self.0.downcast_ref::<WasmBacktrace>() {
            // Its first line is a title.
            Some(stack) => stack.to_string().lines().skip(1).try_for_each(|line| write!(f, "\n{line}")),
            None => Ok(()),
        }
    }
}
