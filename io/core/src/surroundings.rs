//! Time and threads for what runs on the bucket thread.
//!
//! The thread itself never computes for long and never touches a file: everything on it waits while it does,
//! heartbeats included.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use wasmkeep_replica::Surroundings;

/// The bucket thread's own: this machine's clocks, and Tokio's threads for work that blocks, which has to be asked
/// for on it. The clocks are the machine's.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnThread;

impl Surroundings for OnThread {
    /// `CLOCK_BOOTTIME`, which goes on while the machine sleeps (case L6).
    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanoseconds) = (time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32);
        Duration::new(seconds, nanoseconds)
    }

    fn unix_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        // A panic there is an error here, like work that was dropped.
        tokio::task::spawn_blocking(job).await.ok()
    }
}

#[cfg(test)]
mod tests;
