//! Time and threads for what runs on the bucket thread.
//!
//! The thread itself never computes for long and never touches a file: everything on it waits while it does,
//! heartbeats included.

use std::{
    future::Future,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::channel::oneshot;
use rustix::{
    process::{getpriority_process, setpriority_process},
    time::{ClockId, clock_gettime},
};
use wasmkeep_runtime::Runtime;

/// What a thread for heavy work is nicer than the one that asks for it: it gets a ninth of a core that a shard wants, too.
const HEAVY_WORK_NICENESS: i32 = 10;

/// The bucket thread's own: this machine's clocks, and threads for heavy work.
#[derive(Debug, Clone, Copy, Default)]
pub struct BucketThreadRuntime;

impl Runtime for BucketThreadRuntime {
    /// `CLOCK_BOOTTIME`, which goes on while the machine sleeps (case L6).
    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanoseconds) = (time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32);
        Duration::new(seconds, nanoseconds)
    }

    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn random(&self) -> u128 {
        rand::random()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // Whoever wants to know how it ended is told by the task itself.
        drop(tokio::task::spawn_local(task));
    }

    /// On a thread of its own: such work computes for milliseconds at least. Where it meets a shard on a core, the shard
    /// goes first, and so does the I/O of a bucket that is a folder, which Tokio's threads do.
    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (report, done) = oneshot::channel();
        let work = move || {
            give_way();
            // Whoever asked may have left.
            let _ = report.send(job());
        };
        thread::Builder::new().name("wasmkeep-heavy".into()).spawn(work).ok()?;
        // A panic there is an error here.
        done.await.ok()
    }
}

fn give_way() {
    // Linux sets it for the thread. One that keeps its place does the work all the same.
    if let Ok(niceness) = getpriority_process(None) {
        let _ = setpriority_process(None, niceness.saturating_add(HEAVY_WORK_NICENESS));
    }
}

#[cfg(test)]
mod tests;
