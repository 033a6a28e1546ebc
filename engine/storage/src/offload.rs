//! The way to blocking work: opening, fsync, checkpoints and closing do not run on a shard.

use futures::channel::oneshot;

/// Runs blocking work off the shard.
pub trait Offload {
    /// Runs `job` once, on any thread. A job that is dropped instead counts as failed.
    fn offload(&self, job: Box<dyn FnOnce() + Send>);
}

/// Runs the work at once on the calling thread: for tests and the simulator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl Offload for Inline {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// Runs `work` off the shard and gives its result; `None` when it was dropped or panicked.
pub async fn offloaded<T: Send + 'static>(
    offload: &dyn Offload,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    offload.offload(Box::new(move || {
        // The asker may have left: the work was done all the same.
        let _ = answer.send(work());
    }));
    answered.await.ok()
}
