//! The thread: its runtime, and the lanes by which other threads hand it work.

use std::{io, rc::Rc, thread};

use futures::{channel::oneshot, future::LocalBoxFuture};
use tokio::task::{JoinSet, LocalSet};
use wasmkeep_bucket::BucketUrl;
use wasmkeep_s3::{AnyBucket, OpenError, open};

use crate::{lane::Lane, laned::Laned};

/// Jobs that may wait in one lane before who hands in more has to wait. A node's shards hand in one per event
/// that committed at most.
const WAITING_MAX: usize = 4096;

/// What a bucket core is started with.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// The bucket.
    pub url: BucketUrl,
    /// The process's environment, of which the `AWS_*` variables are used (R-FLAG-4).
    pub environment: Vec<(String, String)>,
    /// The CPU the thread stays on; anywhere when there is none (R-FLAG-7).
    pub cpu: Option<usize>,
}

/// Why a bucket core did not start. Nothing was asked of a server yet.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings of the bucket cannot work.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system gave no thread or runtime.
    #[error("the bucket thread could not be started: {0}")]
    Thread(#[from] io::Error),
    /// The CPU is not one this process may use.
    #[error("the bucket thread cannot be pinned to CPU {cpu}: {source}")]
    Pin {
        /// As configured.
        cpu: usize,
        /// The system's reason.
        source: io::Error,
    },
}

/// The bucket core has ended; nothing more goes to the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bucket thread has ended")]
pub struct Gone;

type Job<T> = Box<dyn FnOnce(Rc<T>) -> LocalBoxFuture<'static, ()> + Send>;

/// The bucket core as the other threads see it. Clones share the thread; it ends once all of them are gone and
/// its jobs are done. `T` is what jobs find on the thread.
#[derive(Debug)]
pub struct BucketCore<T> {
    lanes: [flume::Sender<Job<T>>; Lane::ALL.len()],
}

impl<T> Clone for BucketCore<T> {
    fn clone(&self) -> Self {
        Self { lanes: self.lanes.clone() }
    }
}

impl<T: 'static> BucketCore<T> {
    /// Starts the thread, opens the bucket, which asks nothing of it yet, and settles in with `furnish`; tasks of
    /// its own may be spawned there. [`Laned::on`] chooses the lane of a request.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: CoreConfig,
        furnish: impl FnOnce(Laned<AnyBucket>) -> T + Send + 'static,
    ) -> Result<Self, StartError> {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            Lane::ALL.iter().map(|_| flume::bounded(WAITING_MAX)).unzip();
        let (report, started) = std::sync::mpsc::channel();
        thread::Builder::new().name("wasmkeep-bucket".into()).spawn(move || {
            let (runtime, bucket) = match prepare(&config) {
                Ok(prepared) => prepared,
                // Whoever started it waits for this.
                Err(error) => return drop(report.send(Err(error))),
            };
            if report.send(Ok(())).is_ok() {
                LocalSet::new().block_on(&runtime, async move {
                    let place = Rc::new(furnish(bucket));
                    serve(receivers, place).await;
                });
            }
        })?;
        let lanes = senders.try_into().unwrap_or_else(|_| unreachable!("as many senders as lanes"));
        match started.recv() {
            Ok(Ok(())) => Ok(Self { lanes }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Thread(io::Error::other("it ended at once"))),
        }
    }

    /// Runs a job on the thread and gives what it came to. Jobs start in the order of their lanes, those of
    /// one lane in the order in which they came; once started, they share the thread.
    ///
    /// Dropping the future does not stop a job that was handed in.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn run<R, F, W>(&self, lane: Lane, job: F) -> Result<R, Gone>
    where
        R: Send + 'static,
        F: FnOnce(Rc<T>) -> W + Send + 'static,
        W: Future<Output = R> + 'static,
    {
        let (report, done) = oneshot::channel();
        let job: Job<T> = Box::new(move |place| {
            let work = job(place);
            // Whoever asked may have left.
            Box::pin(async move { drop(report.send(work.await)) })
        });
        self.lanes[lane.index()].send_async(job).await.map_err(|_| Gone)?;
        done.await.map_err(|_| Gone)
    }

    /// Hands in a job and does not wait for it; waits only while its lane is full.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn post(&self, lane: Lane, job: impl FnOnce(&Rc<T>) + Send + 'static) -> Result<(), Gone> {
        let job: Job<T> = Box::new(move |place| {
            job(&place);
            Box::pin(std::future::ready(()))
        });
        self.lanes[lane.index()].send_async(job).await.map_err(|_| Gone)
    }
}

fn prepare(config: &CoreConfig) -> Result<(tokio::runtime::Runtime, Laned<AnyBucket>), StartError> {
    if let Some(cpu) = config.cpu {
        pin(cpu).map_err(|source| StartError::Pin { cpu, source })?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bucket = {
        let _inside = runtime.enter();
        open(&config.url, config.environment.iter().cloned())?
    };
    Ok((runtime, Laned::new(bucket)))
}

fn pin(cpu: usize) -> io::Result<()> {
    let mut cpus = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    cpus.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
}

/// Starts jobs until nobody can hand in any more, then waits for those that are under way. What else runs on the
/// thread ends with it.
async fn serve<T: 'static>(lanes: Vec<flume::Receiver<Job<T>>>, place: Rc<T>) {
    let mut under_way = JoinSet::new();
    while let Some(job) = next_job(&lanes).await {
        under_way.spawn_local(job(Rc::clone(&place)));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

/// The first job of the first lane that has one.
async fn next_job<T>(lanes: &[flume::Receiver<Job<T>>]) -> Option<Job<T>> {
    if let Some(job) = lanes.iter().find_map(|lane| lane.try_recv().ok()) {
        return Some(job);
    }
    let mut waits: Vec<_> = lanes.iter().map(flume::Receiver::recv_async).collect();
    std::future::poll_fn(|cx| {
        let mut closed = 0;
        for wait in &mut waits {
            match std::pin::Pin::new(wait).poll(cx) {
                std::task::Poll::Ready(Ok(job)) => return std::task::Poll::Ready(Some(job)),
                std::task::Poll::Ready(Err(flume::RecvError::Disconnected)) => closed += 1,
                std::task::Poll::Pending => {}
            }
        }
        if closed == lanes.len() { std::task::Poll::Ready(None) } else { std::task::Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests;
