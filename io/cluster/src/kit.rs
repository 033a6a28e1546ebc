//! A clock that a test moves, and a bucket behind a cable that it cuts. For the tests.

use std::{cell::Cell, future::Future, ops::Range, rc::Rc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;
use wasmkeep_bucket::{
    Bucket, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition, ReadError,
};
use wasmkeep_runtime::Runtime;

/// The test's paused clock.
#[derive(Debug, Clone)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Runtime for Clock {
    fn now(&self) -> Duration {
        self.0.elapsed() + Duration::from_secs(1000)
    }

    fn unix_ms(&self) -> u64 {
        1_800_000_000_000 + self.0.elapsed().as_millis() as u64
    }

    fn random(&self) -> u128 {
        rand::random()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(task);
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        Some(job())
    }
}

/// A bucket that may be cut off from its member.
#[derive(Debug, Clone)]
pub(crate) struct Cable {
    pub(crate) bucket: Rc<MemoryBucket>,
    pub(crate) cut: Rc<Cell<bool>>,
    pub(crate) requests: Rc<Cell<usize>>,
    /// Time each request takes.
    pub(crate) delay: Rc<Cell<Duration>>,
    /// So many of the next deletes are refused.
    pub(crate) refused_deletes: Rc<Cell<usize>>,
    /// Puts that came through.
    pub(crate) puts: Rc<Cell<usize>>,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let bucket = Rc::new(MemoryBucket::new());
        Self {
            bucket,
            cut: Rc::default(),
            requests: Rc::default(),
            delay: Rc::default(),
            refused_deletes: Rc::default(),
            puts: Rc::default(),
        }
    }

    pub(crate) fn another(&self) -> Self {
        Self { bucket: Rc::clone(&self.bucket), ..Self::new() }
    }

    async fn pass(&self) {
        self.requests.set(self.requests.get() + 1);
        if self.cut.get() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.delay.get()).await;
    }
}

impl Bucket for Cable {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.pass().await;
        self.bucket.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.pass().await;
        self.bucket.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.pass().await;
        self.puts.set(self.puts.get() + 1);
        self.bucket.put(key, body, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.pass().await;
        if let Some(left) = self.refused_deletes.get().checked_sub(1) {
            self.refused_deletes.set(left);
            return Err(Failure::Refused("not now".to_owned()));
        }
        self.bucket.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.pass().await;
        self.bucket.list(query).await
    }
}

pub(crate) async fn secs(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), test);
}
