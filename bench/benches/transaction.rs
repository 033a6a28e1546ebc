//! One row written or read by one statement, with what an actor's event does around it: the statement's own
//! stack, the end of the event, and a checkpoint whenever one is due.
//!
//! `write` and `read` are on a database in memory (tmpfs); `write_durable` is on the disk of the build folder,
//! and its sync runs on the bench's own thread instead of one for blocking work.

use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use wasmkeep_bench::{in_memory, wait};
use wasmkeep_storage::{Config, Database, Inline, Value};

const TABLE: &str = "CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER)";
const WRITE: &str = "INSERT INTO counter VALUES (1, ?1) ON CONFLICT DO UPDATE SET n = n + ?1";
const READ: &str = "SELECT n FROM counter WHERE id = ?1";

fn open(folder: &Path) -> Database {
    let config = Config { root: folder.to_owned(), ..Config::default() };
    let database = Database::open(&folder.join("counter/one.db"), &config).expect("a database");
    wait(database.exec_script(TABLE)).expect("a table");
    database
}

/// What follows an event.
async fn end(database: &Database) {
    let end = database.end_event().await;
    assert!(!end.rolled_back);
    if database.checkpoint_due() {
        database.checkpoint(&Inline).await.expect("a checkpoint");
    }
}

async fn write(database: &Database) {
    let changes = database.exec(WRITE, vec![Value::Integer(1)]).await.expect("a write");
    assert_eq!(changes.rows, 1);
    end(database).await;
}

async fn write_durable(database: &Database) {
    let changes = database.exec_durable(&Inline, WRITE, vec![Value::Integer(1)]).await.expect("a write");
    assert_eq!(changes.rows, 1);
    end(database).await;
}

async fn read(database: &Database) {
    let found = database.query(READ, vec![Value::Integer(1)]).await.expect("a row");
    assert_eq!(found.rows.len(), 1);
    end(database).await;
}

fn transaction(criterion: &mut Criterion) {
    let memory = in_memory();
    let database = open(memory.path());
    criterion.bench_function("transaction/write", |b| b.iter(|| wait(write(&database))));
    criterion.bench_function("transaction/read", |b| b.iter(|| wait(read(&database))));
    wait(database.close(&Inline));

    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let database = open(disk.path());
    criterion.bench_function("transaction/write_durable", |b| b.iter(|| wait(write_durable(&database))));
    wait(database.close(&Inline));
}

criterion_group!(benches, transaction);
criterion_main!(benches);
