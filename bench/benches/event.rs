//! A whole event of the counter sample without the network: from the request handed to the shard's actors to
//! its answer read, through mailbox, guest, SQLite and back. One event at a time, the next after the answer.
//!
//! Differs from production in that nothing else runs on the shard, databases are in memory, and there are no
//! metrics. `first` is the first event of a new actor: a database is made (on a thread for blocking work),
//! `on-init` runs, and once 256 actors are in memory another one leaves.

use criterion::{Criterion, criterion_group, criterion_main};
use wasmkeep_bench::shard::{Ask, CounterShard};

fn event(criterion: &mut Criterion) {
    let shard = CounterShard::start();
    let mut group = criterion.benchmark_group("event");
    for (name, ask) in [("write", Ask::Write), ("read", Ask::Read)] {
        group.bench_function(name, |b| b.iter_custom(|times| shard.ask(ask, times)));
    }
    // Thousands of databases are enough.
    group.sample_size(20);
    group.bench_function("first", |b| b.iter_custom(|times| shard.ask(Ask::First, times)));
    group.finish();
}

criterion_group!(benches, event);
criterion_main!(benches);
