//! A live instance: what it costs to make one, and to hand it a request and read its answer.
//!
//! On the bench's own thread, without executor and database. `call` is the stateless sample answering a small
//! page; a node makes an instance for each such request and keeps those of actors.

use std::{rc::Rc, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use wasmkeep_bench::{exchange, identity, in_memory, runtime, sample, wait};
use wasmkeep_host::{Setting, Timers};
use wasmkeep_storage::Inline;

fn setting(timers: &Timers) -> Setting {
    Setting {
        identity: identity("one"),
        database: None,
        sockets: None,
        offload: Rc::new(Inline),
        env: Arc::default(),
        alarms: None,
        calls: None,
        timers: timers.handle(),
        outbound: None,
    }
}

/// Made and dropped: the pool must not run out of slots.
fn instantiate(criterion: &mut Criterion) {
    let folder = in_memory();
    let timers = Timers::start().expect("a timer thread");
    let version = runtime(folder.path(), 16).load_actor(&sample("counter")).expect("loads");
    let setting = setting(&timers);
    criterion.bench_function("instance/instantiate_and_drop", |b| {
        b.iter(|| wait(version.instantiate(setting.clone())).expect("an instance"));
    });
}

fn call(criterion: &mut Criterion) {
    let folder = in_memory();
    let timers = Timers::start().expect("a timer thread");
    let version = runtime(folder.path(), 16).load_stateless(&sample("site")).expect("loads");
    let mut instance = wait(version.instantiate(setting(&timers))).expect("an instance");
    criterion.bench_function("instance/call", |b| b.iter(|| wait(exchange(&mut instance, "GET", "/"))));
}

criterion_group!(benches, instantiate, call);
criterion_main!(benches);
