//! From one shard to another and back: two executors, a message through the mesh, an answer through the mesh.
//!
//! Each iteration is a round trip, two hops; nothing else runs on the two shards, so each is asleep, or looking
//! for work if told to, when its message comes. That is the slow case: a busy shard finds it in its next pass.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wasmkeep_node::runtime::{Endpoint, Hooks, Placement, Shards, mesh, mesh::INBOX_MESSAGES, start};

enum Ball {
    Return,
    Drop,
}

struct Players {
    orders: Option<flume::Sender<u64>>,
    done: flume::Receiver<Duration>,
    shards: Option<Shards<()>>,
}

impl Players {
    fn start(spin_before_park: Duration) -> Self {
        let placement = Placement { pin: false, spin_before_park, ..Placement::of(2, 2) };
        let (orders, ordered) = flume::unbounded();
        let (report, done) = flume::unbounded();
        let seats: Vec<_> = mesh::<Ball>(2, INBOX_MESSAGES).into_iter().map(Some).collect();
        let seats = Arc::new(Mutex::new(seats));
        let shards = start(&placement, Hooks::default(), move |context| {
            let endpoint =
                seats.lock().expect("no panic under it")[context.index].take().expect("taken once");
            let (ordered, report) = (ordered.clone(), report.clone());
            async move {
                if context.index == 0 {
                    play(endpoint, ordered, report).await;
                } else {
                    give_back(endpoint).await;
                }
            }
        });
        Self { orders: Some(orders), done, shards: Some(shards.expect("two shards")) }
    }

    fn rounds(&self, rounds: u64) -> Duration {
        self.orders.as_ref().expect("kept until the drop").send(rounds).expect("a shard that runs");
        self.done.recv().expect("every ball comes back")
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.shards.take().map(Shards::join);
    }
}

async fn play(endpoint: Endpoint<Ball>, orders: flume::Receiver<u64>, report: flume::Sender<Duration>) {
    while let Ok(rounds) = orders.recv_async().await {
        let began = Instant::now();
        for _ in 0..rounds {
            endpoint.try_send(1, Ball::Return).map_err(|(_, error)| error).expect("room");
            endpoint.receive().await.expect("an answer");
        }
        // Whoever asked may have given up.
        let _ = report.send(began.elapsed());
    }
    endpoint.try_send(1, Ball::Drop).map_err(|(_, error)| error).expect("room");
}

async fn give_back(endpoint: Endpoint<Ball>) {
    while let Some(Ball::Return) = endpoint.receive().await {
        endpoint.try_send(0, Ball::Return).map_err(|(_, error)| error).expect("room");
    }
}

fn hop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hop");
    group.throughput(Throughput::Elements(2));
    for (name, spin_us) in [("parked", 0), ("spinning", 100)] {
        let players = Players::start(Duration::from_micros(spin_us));
        group.bench_function(BenchmarkId::new("round_trip", name), |b| {
            b.iter_custom(|rounds| players.rounds(rounds))
        });
    }
    group.finish();
}

criterion_group!(benches, hop);
criterion_main!(benches);
