//! What the executor layer promises, on real executors.

mod fairness;
mod machine;
mod timers;
mod wakes;
mod watchdog;

use std::{sync::mpsc, time::Duration};
use wasmkeep_node::runtime::{Hooks, Placement, ShardContext, Shards, start};

/// Nothing here takes this long; what does has hung, and the test fails.
const HUNG: Duration = Duration::from_secs(60);

fn placement(shards: usize) -> Placement {
    Placement { pin: false, ..Placement::of(shards, 2) }
}

fn run<B, F, T>(shards: usize, hooks: Hooks, body: B) -> Shards<T>
where
    B: Fn(ShardContext) -> F + Clone + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    start(&placement(shards), hooks, body).unwrap()
}

/// Runs `work` on a thread of its own; hanging fails the test instead of blocking it.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let value = work();
        let _ = done.send(());
        value
    });
    match wait.recv_timeout(HUNG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hung: {what}"),
        // Done, or it panicked: joining tells which.
        _ => thread.join().unwrap(),
    }
}

/// Every shard's value.
fn join<T: Send + 'static>(what: &str, shards: Shards<T>) -> Vec<T> {
    within(what, || shards.join()).into_iter().map(|result| result.unwrap()).collect()
}
