//! A bucket whose requests take time and say when they left. For the tests.

use std::{cell::RefCell, ops::Range, time::Duration};

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wasmkeep_bucket::{
    Bucket, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition, ReadError,
};

pub(crate) struct Slow {
    pub(crate) inner: MemoryBucket,
    pub(crate) each: Duration,
    /// Requests so many of which fail before the store answers.
    pub(crate) silent: RefCell<usize>,
    began: Instant,
    left: RefCell<Vec<(String, Duration)>>,
}

impl Slow {
    pub(crate) fn new(each: Duration) -> Self {
        let silent = RefCell::new(0);
        Self { inner: MemoryBucket::new(), each, silent, began: Instant::now(), left: RefCell::default() }
    }

    /// When the first request for an object left, since the bucket was made.
    pub(crate) fn left(&self, key: &str) -> Option<Duration> {
        self.left.borrow().iter().find(|(name, _)| name == key).map(|(_, when)| *when)
    }

    async fn request(&self, key: &str) -> Result<(), Failure> {
        self.left.borrow_mut().push((key.to_owned(), self.began.elapsed()));
        sleep(self.each).await;
        let mut silent = self.silent.borrow_mut();
        if *silent > 0 {
            *silent -= 1;
            return Err(Failure::Unavailable("silence".into()));
        }
        Ok(())
    }
}

impl Bucket for Slow {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.request(key.as_str()).await.map_err(ReadError::Failed)?;
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.request(key.as_str()).await.map_err(ReadError::Failed)?;
        self.inner.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        match self.request(key.as_str()).await {
            Ok(()) => self.inner.put(key, body, condition).await,
            Err(failure) => Outcome::Failed(failure),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.request(key.as_str()).await?;
        self.inner.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.request("list").await.map_err(ReadError::Failed)?;
        self.inner.list(query).await
    }
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}
