//! A runtime whose clock jumps, and a made-up database whose commits are uploaded.

use std::{cell::Cell, collections::BTreeMap, fs, future::Future, path::PathBuf, rc::Rc, time::Duration};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wasmkeep_ltx::{Chain, Changes, Encoder, Header, PageChecksums, PageSize, WalSource};
use wasmkeep_protocol::{
    ActorId, NodeId,
    alarm::{Outlook, Posts},
    history::Point,
    replication::SnapshotSchedule,
};
use wasmkeep_replica::{
    Commit, Content, Hold, ReadBudget, RestoreError, Restored, Restorer, Subject, Uploader, Ways,
};
use wasmkeep_runtime::Runtime;

use crate::scripted::ScriptedBucket;

pub const FOLDER: &str = "actors/acme/room/lobby/wal/";
const PAGE: usize = 4096;

/// Whose history that is.
pub fn subject() -> Subject {
    let actor = ActorId { class: "room".parse().unwrap(), name: "lobby".parse().unwrap() };
    Subject { tenant: "acme".parse().unwrap(), actor }
}

pub fn node() -> NodeId {
    "a".parse().unwrap()
}

/// Runs a future with a clock that jumps to the next timer.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), work)
}

/// Tokio's clock; heavy work is done at once.
#[derive(Debug, Clone, Copy)]
pub struct Jumping(Instant);

impl Jumping {
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Runtime for Jumping {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix_ms(&self) -> u64 {
        1_000_000 + self.now().as_millis() as u64
    }

    fn random(&self) -> u128 {
        7
    }

    async fn sleep(&self, time: Duration) {
        sleep(time).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(task);
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        Some(job())
    }
}

/// Whether the actor is held, as the test says.
#[derive(Debug, Clone, Default)]
pub struct Held(Rc<Cell<bool>>);

impl Held {
    pub fn set(&self, held: bool) {
        self.0.set(held);
    }
}

impl Hold for Held {
    fn is_held(&self) -> bool {
        self.0.get()
    }
}

/// A database of made-up pages.
pub struct Model {
    pages: Vec<Vec<u8>>,
    sums: PageChecksums,
    pub txid: u64,
    noise: u64,
}

impl Model {
    pub fn new() -> Self {
        Self { pages: vec![], sums: PageChecksums::new(PageSize::DEFAULT), txid: 0, noise: 1 }
    }

    pub fn point(&self) -> Point {
        Point { txid: self.txid, checksum: self.sums.database().get() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.pages.concat()
    }

    /// Resizes and writes one page, for the next transaction.
    pub fn change(&mut self, pages: usize, pgno: usize) -> Changes {
        let before = self.sums.database();
        self.pages.resize(pages, vec![0; PAGE]);
        self.sums.resize(pages as u32);
        let mut state = self.noise;
        let page: Vec<u8> = (0..PAGE)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        self.noise = state;
        self.sums.set(pgno as u32, &page);
        let written = BTreeMap::from([(pgno as u32, page.clone().into_boxed_slice())]);
        self.pages[pgno - 1] = page;
        self.txid += 1;
        Changes::new(PageSize::DEFAULT, written, pages as u32, before, self.sums.database())
    }

    pub fn commit(&mut self, pages: usize, pgno: usize) -> Commit {
        let changes = self.change(pages, pgno);
        Commit { to: self.point(), content: Content::Changes(changes), alarm: Outlook::exact(None) }
    }

    /// The whole database as it stands.
    pub fn whole(&self) -> Vec<u8> {
        let header = Header {
            page_size: PageSize::DEFAULT,
            commit: self.pages.len() as u32,
            min_txid: 1,
            max_txid: self.txid,
            timestamp_ms: 0,
            chain: Chain::Snapshot,
            wal: WalSource::default(),
            node_id: 0,
        };
        let mut encoder = Encoder::new(header).unwrap();
        for (pgno, page) in (1..).zip(&self.pages) {
            encoder.page(pgno, page).unwrap();
        }
        encoder.finish(None).unwrap().bytes
    }

    /// The first commit: everything.
    pub fn first(&mut self, pages: usize) -> Commit {
        for pgno in 1..=pages {
            self.change(pages, pgno);
        }
        Commit { to: self.point(), content: Content::Whole(self.whole().into()), alarm: Outlook::exact(None) }
    }
}

pub type TestUploader = Uploader<ScriptedBucket, Jumping, Held>;

/// A bucket, a clock and a folder for local files.
pub struct Rig {
    pub bucket: ScriptedBucket,
    pub clock: Jumping,
    pub held: Held,
    pub budget: ReadBudget,
    pub folder: TempDir,
}

impl Rig {
    /// Inside [`run`].
    pub fn new() -> Self {
        let held = Held::default();
        held.set(true);
        let folder = tempfile::tempdir().unwrap();
        let budget = ReadBudget::default();
        Self { bucket: ScriptedBucket::new(), clock: Jumping::new(), held, budget, folder }
    }

    pub fn uploader(&self, generation: u64, landed: Point) -> TestUploader {
        self.uploader_with(Posts::new(node(), generation), landed)
    }

    pub fn uploader_with(&self, posts: Posts, landed: Point) -> TestUploader {
        let way = || self.bucket.clone();
        let ways = Ways { urgent: way(), ordinary: way(), spare: way() };
        let (clock, held) = (self.clock, self.held.clone());
        Uploader::new(ways, clock, held, subject(), posts, landed, SnapshotSchedule::new(0))
    }

    /// A history of a snapshot and `changes` files after it.
    pub async fn history(&self, model: &mut Model, changes: usize) {
        let uploader = self.uploader(1, model.point());
        let uploading = async {
            uploader.push(model.first(4)).unwrap();
            uploader.landed(model.txid, wasmkeep_replica::Need::Replicated).await.unwrap();
            for number in 0..changes {
                uploader.push(model.commit(4 + number % 3, 1 + number % 4)).unwrap();
                uploader.landed(model.txid, wasmkeep_replica::Need::Replicated).await.unwrap();
            }
        };
        driven(&uploader, uploading).await;
    }

    pub fn restorer(&self) -> Restorer<ScriptedBucket, Jumping> {
        let (reads, lists) = (self.bucket.clone(), self.bucket.clone());
        Restorer::new(reads, lists, self.clock, self.budget.clone(), 1 << 18)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("room/lobby.db")
    }

    pub async fn restore(&self) -> Result<Restored, RestoreError> {
        self.restorer().rebuild(FOLDER, &self.path(), None).await
    }

    /// The names in the actor's local folder.
    pub fn local(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.folder.path().join("room")) else { return vec![] };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Runs `work` while the uploader uploads.
pub async fn driven<T>(uploader: &TestUploader, work: impl Future<Output = T>) -> T {
    let running = std::pin::pin!(uploader.run());
    let work = std::pin::pin!(work);
    match futures::future::select(work, running).await {
        futures::future::Either::Left((done, _)) => done,
        futures::future::Either::Right((ended, work)) => {
            let _ = ended;
            work.await
        }
    }
}
