//! What code that runs beside a bucket asks of the thread it runs on: time, chance, tasks, and threads for heavy work.
//!
//! Owns the trait and time limits made of it. Does not own an executor: the bucket thread has one, and the simulator
//! another.

use std::{future::Future, pin::pin, time::Duration};

use futures::future::{Either, select};

/// Time, chance, tasks, and threads for work that blocks or computes for long. Clones are the same runtime.
#[allow(async_fn_in_trait)] // No `Send` bound is wanted: everything here runs on one thread.
pub trait Runtime: Clone + 'static {
    /// Time since some fixed moment; it counts while the machine is suspended.
    fn now(&self) -> Duration;

    /// The time of day, in milliseconds since 1970. For dates in files and ages, never for order.
    fn unix_ms(&self) -> u64;

    /// Bits that nobody else draws.
    fn random(&self) -> u128;

    /// Ends after `time`.
    async fn sleep(&self, time: Duration);

    /// Runs `task` beside the others of this thread, from its next turn on.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Runs `job` elsewhere and gives its result; `None` when it was dropped or panicked.
    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T>;
}

/// What `work` gives, or `None` when it takes longer than `limit`.
pub async fn within<T>(runtime: &impl Runtime, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let end = runtime.now() + limit;
    within_moving(runtime, || end.saturating_sub(runtime.now()), work).await
}

/// As [`within`], for a limit that may move while it is waited for: `left` says how much of it is left.
pub async fn within_moving<T>(
    runtime: &impl Runtime,
    mut left: impl FnMut() -> Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let time = left();
        if time.is_zero() {
            return None;
        }
        match select(work.as_mut(), pin!(runtime.sleep(time))).await {
            Either::Left((done, _)) => return Some(done),
            Either::Right(_) => {}
        }
    }
}
