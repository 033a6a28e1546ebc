//! Buckets in a directory, with histories of actors made by a real SQLite, and the commands that look at them.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, SystemTime},
};

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;
use wasmkeep_bucket::{Bucket as _, FileBucket, Listing, Outcome, Precondition, Version};
use wasmkeep_ltx::{Chain, Encoder, Header, PageChecksums, PageSize, WalSource, encode_deletion};
use wasmkeep_protocol::{
    ActorId, Tenant,
    history::{HistoryFile, Point},
    object_keys,
};

/// The binary, with a clean environment for what it reads from it.
pub fn wasmkeep(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
    command.env_remove("WASMKEEP_LOG").env("RUST_BACKTRACE", "0").args(arguments);
    command
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Said {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    pub fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the command ended with `status` and one sentence on stderr that has `part`.
    #[track_caller]
    pub fn refused(&self, status: i32, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.stderr.starts_with("wasmkeep: ") && self.stderr.contains(part), "{part:?}: {self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
    }

    /// Fails unless the command succeeded without a word on stderr.
    #[track_caller]
    pub fn done(self) -> Self {
        assert!(self.status == 0 && self.stderr.is_empty(), "{self:?}");
        self
    }
}

/// A bucket in a directory of its own.
pub struct Bucket {
    folder: TempDir,
    bucket: FileBucket,
    runtime: tokio::runtime::Runtime,
}

impl Bucket {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bucket = FileBucket::open(&folder.path().join("bucket")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { folder, bucket, runtime }
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.folder.path().join("bucket").display())
    }

    /// A path beside the bucket.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command on this bucket.
    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(wasmkeep(arguments).args(["--bucket", &self.url()]))
    }

    pub fn put(&self, key: &str, body: &[u8]) {
        let (key, body) = (key.parse().unwrap(), body.to_vec().into());
        let outcome = self.runtime.block_on(self.bucket.put(&key, body, &Precondition::None));
        assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    }

    pub fn get(&self, key: &str) -> Vec<u8> {
        let key = key.parse().unwrap();
        let read = async { self.bucket.get(&key, None).await.unwrap().bytes(u64::MAX).await.unwrap() };
        self.runtime.block_on(read).to_vec()
    }

    /// Replaces an object in a version; whether it was still in that version.
    pub fn replace(&self, key: &str, version: &Version, body: &[u8]) -> Option<Version> {
        let (key, body) = (key.parse().unwrap(), body.to_vec().into());
        let condition = Precondition::Version(version.clone());
        match self.runtime.block_on(self.bucket.put(&key, body, &condition)) {
            Outcome::Written(version) => Some(version),
            Outcome::ConditionFailed => None,
            other => panic!("{other:?}"),
        }
    }

    pub fn version(&self, key: &str) -> Version {
        self.runtime.block_on(self.bucket.head(&key.parse().unwrap())).unwrap().version
    }

    /// Makes an object look as if it had been written `ago`.
    pub fn backdate(&self, key: &str, ago: Duration) {
        let path = self.folder.path().join(format!("bucket/objects/{key}#"));
        std::fs::File::open(path).unwrap().set_modified(SystemTime::now() - ago).unwrap();
    }

    pub fn delete(&self, key: &str) {
        self.runtime.block_on(self.bucket.delete(&key.parse().unwrap())).unwrap();
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        let entries = self.runtime.block_on(Listing::new(&self.bucket, "").all(10_000)).unwrap();
        entries.into_iter().map(|entry| entry.key.to_string()).collect()
    }
}

/// The name every actor of these tests has.
pub const ACTOR: &str = "acme/room/lobby";

/// An actor whose owner writes its history as a node does.
pub struct Actor {
    pub generation: u64,
    pub at: Point,
    /// How many transactions the next file says it holds.
    pub transactions: u64,
    path: PathBuf,
    connection: Connection,
    folder: String,
    sums: PageChecksums,
    image: Vec<u8>,
}

/// When a transaction was committed, in milliseconds since 1970: a second after the one before.
pub fn committed_ms(txid: u64) -> i64 {
    1_780_000_000_000 + 1000 * i64::try_from(txid).unwrap()
}

fn size() -> PageSize {
    PageSize::DEFAULT
}

impl Actor {
    /// An actor that never was, to be held in generation 1.
    pub fn new(bucket: &Bucket) -> Self {
        let path = bucket.beside("source.db");
        let connection = open(&path);
        let tenant: Tenant = "acme".parse().unwrap();
        let actor = ActorId { class: "room".parse().unwrap(), name: "lobby".parse().unwrap() };
        Self {
            generation: 1,
            at: Point::START,
            transactions: 1,
            path,
            connection,
            folder: object_keys::history_folder(&tenant, &actor),
            sums: PageChecksums::new(size()),
            image: Vec::new(),
        }
    }

    /// The database file's bytes after the last transaction.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    pub fn key(&self, file: &HistoryFile) -> String {
        object_keys::history_file(&self.folder, file)
    }

    fn header(&self, min_txid: u64, max_txid: u64, chain: Chain) -> Header {
        Header {
            page_size: size(),
            commit: u32::try_from(self.image.len() / size().bytes()).unwrap(),
            min_txid,
            max_txid,
            timestamp_ms: committed_ms(max_txid),
            chain,
            wal: WalSource::default(),
            node_id: 0,
        }
    }

    /// Commits `sql` and gives the file of what it changed, without uploading it.
    pub fn commit(&mut self, sql: &str) -> (HistoryFile, Vec<u8>) {
        self.connection.execute_batch(sql).unwrap();
        let before = std::mem::replace(&mut self.image, std::fs::read(&self.path).unwrap());
        let from = self.at;
        let last = from.txid + self.transactions;
        let chain = if from.txid == 0 { Chain::Snapshot } else { Chain::After(self.sums.database()) };
        let mut encoder = Encoder::new(self.header(from.txid + 1, last, chain)).unwrap();
        self.sums.resize(encoder.header().commit);
        for (pgno, page) in (1u32..).zip(self.image.chunks(size().bytes())) {
            if before.chunks(size().bytes()).nth(pgno as usize - 1) != Some(page) {
                self.sums.set(pgno, page);
                encoder.page(pgno, page).unwrap();
            }
        }
        self.at = Point { txid: last, checksum: self.sums.database().get() };
        let bytes = encoder.finish(Some(self.sums.database())).unwrap().bytes;
        (HistoryFile::changes(self.generation, from, self.at), bytes)
    }

    /// Commits `sql` and uploads what it changed.
    pub fn write(&mut self, bucket: &Bucket, sql: &str) -> HistoryFile {
        let (file, bytes) = self.commit(sql);
        bucket.put(&self.key(&file), &bytes);
        file
    }

    /// Uploads the whole database.
    pub fn snapshot(&self, bucket: &Bucket) -> HistoryFile {
        let mut encoder = Encoder::new(self.header(1, self.at.txid, Chain::Snapshot)).unwrap();
        for (pgno, page) in (1u32..).zip(self.image.chunks(size().bytes())) {
            encoder.page(pgno, page).unwrap();
        }
        let file = HistoryFile::snapshot(self.generation, self.at);
        bucket.put(&self.key(&file), &encoder.finish(Some(self.sums.database())).unwrap().bytes);
        file
    }

    /// Deletes the database, and uploads that.
    pub fn delete(&mut self, bucket: &Bucket) -> HistoryFile {
        let txid = self.at.txid + 1;
        self.image = Vec::new();
        self.sums = PageChecksums::new(size());
        let file = HistoryFile::deletion(self.generation, txid);
        bucket.put(&self.key(&file), &encode_deletion(self.header(1, txid, Chain::Snapshot)).unwrap().bytes);
        self.at = file.end();
        std::fs::remove_file(&self.path).unwrap();
        self.connection = open(&self.path);
        file
    }
}

/// A database whose file holds all of it after every transaction.
fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA page_size = 4096; PRAGMA journal_mode = DELETE").unwrap();
    connection
}

/// What a chat room does: the first creates it, the others write into it.
pub const TALK: [&str; 5] = [
    "CREATE TABLE said (id INTEGER PRIMARY KEY, text TEXT)",
    "INSERT INTO said (text) VALUES ('hello'), ('anybody there?')",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
     INSERT INTO said (text) SELECT printf('%0900d', i) FROM n",
    "DELETE FROM said WHERE id % 3 = 0",
    "DELETE FROM said WHERE id > 4; VACUUM",
];
