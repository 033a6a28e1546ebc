//! What replication asks of the node around it: time, threads for heavy work, and whether the actor is still its.

use std::{future::Future, pin::pin, time::Duration};

use futures::future::{Either, select};

/// Time, and threads for work that blocks or computes for long.
#[allow(async_fn_in_trait)] // No `Send` bound is wanted: everything here runs on one thread.
pub trait Surroundings {
    /// Time since some fixed moment; it counts while the machine is suspended.
    fn now(&self) -> Duration;

    /// The time of day, in milliseconds since 1970. For dates in files and ages, never for order.
    fn unix_ms(&self) -> u64;

    /// Ends after `time`.
    async fn sleep(&self, time: Duration);

    /// Runs `job` elsewhere and gives its result; `None` when it was dropped or panicked.
    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T>;
}

/// Whether this node holds the actor. Asked when something would be acknowledged or deleted: what was uploaded
/// after the lease ran out may be what the next owner has already left behind.
pub trait Hold {
    /// Whether the node's lease is valid and the actor is its own.
    fn is_held(&self) -> bool;
}

impl<F: Fn() -> bool> Hold for F {
    fn is_held(&self) -> bool {
        self()
    }
}

/// What `work` gives, or `None` when it takes longer than `limit`.
pub(crate) async fn within<T>(
    surroundings: &impl Surroundings,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let end = surroundings.now() + limit;
    within_moving(surroundings, || end.saturating_sub(surroundings.now()), work).await
}

/// As [`within`], for a limit that may move while it is waited for: `left` says how much of it is left.
pub(crate) async fn within_moving<T>(
    surroundings: &impl Surroundings,
    mut left: impl FnMut() -> Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let time = left();
        if time.is_zero() {
            return None;
        }
        match select(work.as_mut(), pin!(surroundings.sleep(time))).await {
            Either::Left((done, _)) => return Some(done),
            Either::Right(_) => {}
        }
    }
}
