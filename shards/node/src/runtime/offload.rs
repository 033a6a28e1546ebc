//! Threads for work that blocks: file copies, fsync, compilation. Owns the threads and their queue; a shard
//! itself never blocks.
//!
//! The executor's own `spawn_blocking` is not used: a panic in it leaves its caller waiting for ever and breaks
//! the next call. Here a job that panics is caught, counted, and told to whoever waits for it.

use futures::channel::oneshot;
use std::{
    any::Any,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Default number of threads. Their work waits for disks or is rare; four overlap fsyncs of as many actors.
pub const OFFLOAD_THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The job panicked; the pool goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a job off the shard panicked: {0}")]
pub struct Panicked(pub String);

/// A small pool of named threads. Clones share it; the threads end when the last clone is dropped and the queue
/// is empty.
#[derive(Clone)]
pub struct OffloadPool {
    queue: flume::Sender<Job>,
    panics: Arc<AtomicU64>,
}

impl OffloadPool {
    /// Starts `threads` threads (at least one).
    ///
    /// # Errors
    /// When a thread cannot be made.
    pub fn start(threads: usize) -> io::Result<OffloadPool> {
        let (queue, jobs) = flume::unbounded::<Job>();
        let panics = Arc::new(AtomicU64::new(0));
        for index in 0..threads.max(1) {
            let (jobs, panics) = (jobs.clone(), panics.clone());
            thread::Builder::new().name(format!("offload-{index}")).spawn(move || {
                yield_to_shards();
                while let Ok(job) = jobs.recv() {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                        panics.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(panic = text_of(&*panic), "a job off the shard panicked");
                    }
                }
            })?;
        }
        Ok(OffloadPool { queue, panics })
    }

    /// Runs `job` on a thread of the pool. Dropping the future does not stop the job.
    ///
    /// # Errors
    /// When the job panicked.
    pub fn run<T, J>(&self, job: J) -> impl Future<Output = Result<T, Panicked>> + Send + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce() -> T + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let panics = self.panics.clone();
        self.submit(Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(job)).map_err(|panic| {
                panics.fetch_add(1, Ordering::Relaxed);
                Panicked(text_of(&*panic))
            });
            // Nobody waits any more: the result goes with the channel.
            let _ = reply.send(result);
        }));
        async move { answer.await.unwrap_or_else(|_| Err(Panicked("its thread ended".into()))) }
    }

    /// Queues `job` without waiting for it.
    pub fn submit(&self, job: Job) {
        // The threads hold the receiver for as long as a sender lives.
        let _ = self.queue.send(job);
    }

    /// Jobs waiting for a thread.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Jobs that panicked since the start; expected to stay 0.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl wasmkeep_storage::Offload for OffloadPool {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        self.submit(job);
    }
}

impl fmt::Debug for OffloadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadPool").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// A thread that is woken with work takes the core of the shard that woke it, in the middle of an event. As batch work
/// it waits until that shard is done, or goes to an idle core; its share of a core is the same.
fn yield_to_shards() {
    // SAFETY: plain data.
    let parameters = unsafe { std::mem::zeroed::<libc::sched_param>() };
    // SAFETY: the calling thread, and parameters that live through the call. Needs no privilege; where it fails all the
    // same, the threads are as others.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    if set != 0 {
        tracing::debug!(
            "threads for blocking work are scheduled like shards: {}",
            io::Error::last_os_error()
        );
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<&'static str>() {
        Some(text) => (*text).to_owned(),
        None => panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".into()),
    }
}
