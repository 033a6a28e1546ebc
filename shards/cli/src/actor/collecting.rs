//! A bucket in which an owner collects history while a command reads it.

use std::{cell::Cell, ops::Range};

use bytes::Bytes;
use wasmkeep_bucket::{
    Bucket, Failure, Key, ListQuery, MemoryBucket, Meta, Object, Outcome, Page, Precondition, ReadError,
};
use wasmkeep_ltx::{Chain, Encoder, Header, PageSize, WalSource};
use wasmkeep_protocol::{
    history::{HistoryFile, Point},
    object_keys,
};

use crate::args::ActorPath;

/// Before each of the first reads, all files give way to a snapshot of the next transaction.
pub struct Collecting {
    inner: MemoryBucket,
    folder: String,
    txid: Cell<u64>,
    collections_left: Cell<usize>,
}

/// A database of one page that says which transaction it is of.
fn snapshot(txid: u64) -> (HistoryFile, Bytes) {
    let header = Header {
        page_size: PageSize::DEFAULT,
        commit: 1,
        min_txid: 1,
        max_txid: txid,
        timestamp_ms: 0,
        chain: Chain::Snapshot,
        wal: WalSource::default(),
        node_id: 0,
    };
    let mut encoder = Encoder::new(header).unwrap();
    encoder.page(1, &page(txid)).unwrap();
    let encoded = encoder.finish(None).unwrap();
    let checksum = encoded.trailer.post_apply.unwrap().get();
    (HistoryFile::snapshot(1, Point { txid, checksum }), encoded.bytes.into())
}

/// The page of that database.
pub fn page(txid: u64) -> Vec<u8> {
    vec![u8::try_from(txid).unwrap(); 4096]
}

impl Collecting {
    pub async fn new(actor: &ActorPath, collections: usize) -> Self {
        let folder = object_keys::history_folder(&actor.tenant, &actor.actor);
        let inner = MemoryBucket::default();
        let bucket = Self { inner, folder, txid: Cell::new(1), collections_left: Cell::new(collections) };
        bucket.store(1).await;
        bucket
    }

    fn key(&self, file: &HistoryFile) -> Key {
        object_keys::history_file(&self.folder, file).parse().unwrap()
    }

    async fn store(&self, txid: u64) {
        let (file, bytes) = snapshot(txid);
        let outcome = self.inner.put(&self.key(&file), bytes, &Precondition::None).await;
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    }

    async fn collect(&self) {
        let old = self.txid.replace(self.txid.get() + 1);
        self.store(self.txid.get()).await;
        self.inner.delete(&self.key(&snapshot(old).0)).await.unwrap();
    }
}

impl Bucket for Collecting {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        if let Some(left) = self.collections_left.get().checked_sub(1) {
            self.collections_left.set(left);
            self.collect().await;
        }
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.inner.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.inner.put(key, body, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.inner.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.inner.list(query).await
    }
}

/// Runs a command's work on such a bucket.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
