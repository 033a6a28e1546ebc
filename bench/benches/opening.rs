//! An actor's database opened, known by its checksum and closed, as at each waking on a node with a bucket: `kept` when
//! it was closed well, `read` when what it left then is not there. In memory (tmpfs), so that reading costs the copying
//! and the checksums of pages and no disk.

use std::{fs, path::Path};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use wasmkeep_bench::{in_memory, wait};
use wasmkeep_storage::{Config, Database, Inline};

fn open(path: &Path) -> Database {
    Database::open(path, &Config::default()).expect("a database")
}

/// Opens it and closes it again.
fn once(path: &Path) {
    let database = open(path);
    wait(database.begin_capture(&Inline)).expect("a checksum");
    wait(database.close(&Inline));
}

fn opening(criterion: &mut Criterion) {
    let memory = in_memory();
    for mib in [1, 64] {
        let path = memory.path().join(format!("{mib}.db"));
        let database = open(&path);
        let sql = format!(
            "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {mib})
             INSERT INTO t SELECT randomblob(1 << 20) FROM n"
        );
        wait(database.exec_script(&sql)).expect("content");
        wait(database.close(&Inline));
        once(&path);
        criterion.bench_function(&format!("opening/kept/{mib}_mib"), |b| {
            b.iter(|| once(&path));
        });
        let kept = memory.path().join(format!("{mib}.db-sums"));
        // A small one leaves nothing.
        let forget = || drop(fs::remove_file(&kept));
        criterion.bench_function(&format!("opening/read/{mib}_mib"), |b| {
            b.iter_batched(forget, |()| once(&path), BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, opening);
criterion_main!(benches);
