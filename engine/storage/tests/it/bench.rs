//! Figures for people, not for gates: run with `--ignored --nocapture`.

use std::time::{Duration, Instant};

use wasmkeep_storage::{Config, Database, Inline, remove};

use crate::rig::{Rig, wait};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed<T>(count: usize, mut work: impl FnMut(usize) -> T) -> Duration {
    median(
        (0..count)
            .map(|index| {
                let began = Instant::now();
                let result = work(index);
                let took = began.elapsed();
                drop(result);
                took
            })
            .collect(),
    )
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(k PRIMARY KEY, v); INSERT INTO t VALUES('count', 0)").unwrap();
    println!(
        "one-row transaction {:?}",
        timed(20_000, |_| rig.exec("UPDATE t SET v = v + 1 WHERE k = 'count'").unwrap())
    );
    println!("one-row query {:?}", timed(20_000, |_| rig.rows("SELECT v FROM t WHERE k = 'count'").unwrap()));
    println!(
        "one-row durable {:?}",
        timed(500, |_| rig.durable("UPDATE t SET v = v + 1 WHERE k = 'count'").unwrap())
    );
    println!("checkpoint_due {:?}", timed(10_000, |_| rig.db.checkpoint_due()));
    println!("size_bytes {:?}", timed(10_000, |_| rig.db.size_bytes()));
    println!("end_event {:?}", timed(10_000, |_| wait(rig.db.end_event())));

    let folder = tempfile::tempdir().unwrap();
    let config = Config::default();
    let path = |index: usize| folder.path().join(format!("{index}.db"));
    let create = timed(2_000, |index| Database::open(&path(index), &config).unwrap());
    let reopen = timed(2_000, |index| Database::open(&path(index), &config).unwrap());
    println!("create {create:?}, reopen {reopen:?}");
    let wake = timed(2_000, |index| {
        let db = Database::open(&path(index), &config).unwrap();
        wait(db.exec("CREATE TABLE IF NOT EXISTS t(x)", vec![])).unwrap();
        wait(db.close(&Inline));
    });
    println!("wake, look, close {wake:?}");
    let doze = timed(2_000, |_| {
        wait(rig.db.wake(&Inline)).unwrap();
        rig.exec("UPDATE t SET v = v + 1 WHERE k = 'count'").unwrap();
        assert!(wait(rig.db.doze(&Inline)));
    });
    println!("wake, write, doze {doze:?}");
    let plain = timed(200, |index| {
        let path = folder.path().join(format!("plain{index}.db"));
        let db = rusqlite::Connection::open(path).unwrap();
        db.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(())).unwrap();
        db
    });
    println!("create, SQLite's own way {plain:?}");
    remove(&path(0)).unwrap();
}

#[test]
#[ignore = "prints figures"]
fn memory_of_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let rss = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    const COUNT: usize = 2_000;
    let before = rss();
    let open: Vec<_> = (0..COUNT)
        .map(|index| {
            let db = Database::open(&folder.path().join(format!("{index}.db")), &Config::default()).unwrap();
            wait(db.exec("CREATE TABLE t(k PRIMARY KEY, v)", vec![])).unwrap();
            wait(db.exec("INSERT INTO t VALUES('count', 0)", vec![])).unwrap();
            db
        })
        .collect();
    let used = rss();
    let counted = open.iter().map(Database::memory_bytes).sum::<usize>() / COUNT;
    open.iter().for_each(Database::shrink);
    let idle = open.iter().map(Database::memory_bytes).sum::<usize>() / COUNT;
    println!(
        "per connection: RSS {} bytes after use, SQLite {counted} after use and {idle} idle",
        (used - before) / COUNT
    );
    assert!(open.iter().all(|db| wait(db.doze(&Inline))));
    println!("dozing: RSS {} bytes", (rss() - before) / COUNT);
}
