//! A replica made of our files is restored by the real Litestream, page for page.
//!
//! Needs the `litestream` program, so it runs only when asked for: `scripts/test-litestream`.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use wasmkeep_ltx::{
    Chain, CompactOptions, Encoder, File, FileName, Header, PageChecksums, PageSize, Tracking, WalSource,
    compact,
};

const DROP: CompactOptions = CompactOptions { tracking: Tracking::Drop, pages_max: 100_000 };

/// Each step is one transaction or more; together they grow, shrink, rewrite and restructure the database.
const STEPS: [&str; 7] = [
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, noise BLOB)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
     INSERT INTO notes SELECT i, 'note ' || i, randomblob(300) FROM n",
    "UPDATE notes SET text = upper(text) WHERE id % 7 = 0",
    "CREATE INDEX by_text ON notes (text); ALTER TABLE notes ADD COLUMN tag TEXT",
    "INSERT INTO notes (text, noise) VALUES ('large', zeroblob(400000))",
    "DELETE FROM notes WHERE id > 100; VACUUM",
    "CREATE VIRTUAL TABLE words USING fts5(text); INSERT INTO words SELECT text FROM notes",
];

/// A database file and the LTX files of its changes, checksums tracked.
struct Source {
    path: PathBuf,
    connection: Connection,
    page_size: PageSize,
    sums: PageChecksums,
    before: Vec<u8>,
    files: Vec<Vec<u8>>,
}

impl Source {
    fn create(directory: &Path, page_size: u32) -> Self {
        let path = directory.join("source.db");
        let connection = Connection::open(&path).expect("a database");
        connection
            .execute_batch(&format!("PRAGMA page_size = {page_size}; PRAGMA journal_mode = DELETE"))
            .expect("settings");
        let page_size = PageSize::new(page_size).expect("a page size");
        let sums = PageChecksums::new(page_size);
        Self { path, connection, page_size, sums, before: vec![], files: vec![] }
    }

    /// Runs `sql` and writes down which pages of the database file it changed.
    fn step(&mut self, sql: &str) {
        self.connection.execute_batch(sql).expect(sql);
        let after = std::fs::read(&self.path).expect("the database file");
        let size = self.page_size.bytes();
        let commit = (after.len() / size) as u32;
        let txid = self.files.len() as u64 + 1;
        let pre = self.sums.database();
        let header = Header {
            page_size: self.page_size,
            commit,
            min_txid: txid,
            max_txid: txid,
            // One day in 2026, a second later for each transaction.
            timestamp_ms: 1_780_000_000_000 + 1000 * txid as i64,
            chain: if txid == 1 { Chain::Snapshot } else { Chain::After(pre) },
            wal: WalSource::default(),
            node_id: 0,
        };
        let mut encoder = Encoder::new(header).expect("a sound header");
        self.sums.resize(commit);
        for (pgno, page) in (1..).zip(after.chunks(size)) {
            if self.before.chunks(size).nth(pgno as usize - 1) != Some(page) {
                self.sums.set(pgno, page);
                encoder.page(pgno, page).expect("a page in order");
            }
        }
        self.files.push(encoder.finish(Some(self.sums.database())).expect("a file").bytes);
        self.before = after;
    }
}

/// Writes `files` merged into one file without checksums at `level` of a replica.
fn place(replica: &Path, level: u32, files: &[Vec<u8>]) {
    let verified: Vec<_> =
        files.iter().map(|file| File::parse(file).and_then(File::verify).expect("a sound file")).collect();
    let merged = compact(&verified, DROP).expect("a merged file").bytes;
    let header = *File::parse(&merged).expect("a sound file").header();
    let name = FileName::new(header.min_txid, header.max_txid).expect("a range");
    let directory = replica.join("ltx").join(level.to_string());
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join(name.to_string()), merged).expect("a file");
}

fn restore(litestream: &Path, replica: &Path, output: &Path) -> Vec<u8> {
    let run = Command::new(litestream)
        .arg("restore")
        .arg("-o")
        .arg(output)
        .arg(format!("file://{}", replica.display()))
        .output()
        .expect("litestream runs");
    assert!(
        run.status.success(),
        "{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );
    std::fs::read(output).expect("the restored database")
}

#[test]
#[ignore = "needs the litestream program: scripts/test-litestream"]
fn litestream_restores_what_was_exported_without_checksums() {
    let litestream = PathBuf::from(std::env::var_os("LITESTREAM").expect("LITESTREAM names the program"));
    for page_size in [512, 4096, 65536] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut source = Source::create(directory.path(), page_size);
        STEPS.iter().for_each(|sql| source.step(sql));
        let path = |name: &str| directory.path().join(name);

        // Every transaction on its own, at the lowest level.
        source.files.iter().for_each(|file| place(&path("raw"), 0, std::slice::from_ref(file)));
        let raw = restore(&litestream, &path("raw"), &path("raw.db"));
        assert!(raw == source.before, "page size {page_size}: restored from single files");

        // A snapshot, a merged file and a single one, each at its level.
        place(&path("levels"), 9, &source.files[..3]);
        place(&path("levels"), 1, &source.files[3..6]);
        place(&path("levels"), 0, &source.files[6..]);
        let levels = restore(&litestream, &path("levels"), &path("levels.db"));
        assert!(levels == source.before, "page size {page_size}: restored from levels");

        let restored = Connection::open(path("levels.db")).expect("a database");
        let check: String =
            restored.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(check, "ok");
    }
}
