//! Wakes from other threads, the mesh, and work off the shard.

use crate::{join, run, within};
use futures::channel::oneshot;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use wasmkeep_node::runtime::{Endpoint, Hooks, Label, OffloadPool, Panicked, SendError, mesh};

type Ping = (u32, flume::Sender<u32>);

fn seats<M: Send + 'static>(shards: usize, room: usize) -> Arc<Mutex<Vec<Option<Endpoint<M>>>>> {
    Arc::new(Mutex::new(mesh(shards, room).into_iter().map(Some).collect()))
}

/// Busy threads that fight the shards for their cores.
struct Contention(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Contention {
    fn start() -> Contention {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = std::thread::available_parallelism().unwrap().get() * 2;
        let threads = (0..threads)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    while !stop.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        Contention(stop, threads)
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

// case G1
#[test]
fn cross_shard_round_trips_under_contention_never_hang() {
    let contention = Contention::start();
    for spin in [Duration::ZERO, Duration::from_micros(100)] {
        let seats = seats::<Ping>(2, 16);
        let placement = wasmkeep_node::runtime::Placement { spin_before_park: spin, ..crate::placement(2) };
        let shards = wasmkeep_node::runtime::start(&placement, Hooks::default(), move |context| {
            let endpoint = seats.lock().unwrap()[context.index].take().unwrap();
            async move {
                let label = Label::new("round trips");
                if context.index == 1 {
                    while let Some((number, reply)) = endpoint.receive().await {
                        let _entered = context.pulse.enter(&label);
                        if number == u32::MAX {
                            break;
                        }
                        let _ = reply.send(number + 1);
                    }
                    return 0;
                }
                let (reply, replies) = flume::bounded(1);
                for number in 0..10_000 {
                    let entered = context.pulse.enter(&label);
                    let sent = endpoint.try_send(1, (number, reply.clone()));
                    drop(entered);
                    assert!(sent.is_ok());
                    assert_eq!(replies.recv_async().await, Ok(number + 1));
                    if number % 64 == 0 {
                        glommio::executor().yield_now().await;
                    }
                }
                assert!(endpoint.try_send(1, (u32::MAX, reply)).is_ok());
                endpoint.hops()
            }
        })
        .unwrap();
        assert_eq!(join("round trips", shards)[0], 10_001);
    }
    drop(contention);
}

#[test]
fn a_wake_from_any_thread_reaches_a_parked_shard() {
    let (send, receive) = flume::unbounded::<oneshot::Sender<()>>();
    let shards = run(1, Hooks::default(), move |_| {
        let receive = receive.clone();
        async move {
            let mut seen = 0;
            while let Ok(reply) = receive.recv_async().await {
                seen += 1;
                reply.send(()).unwrap();
            }
            seen
        }
    });
    within("wakes", move || {
        for pause in [0, 1, 5, 50, 200] {
            // The shard has parked in between.
            std::thread::sleep(Duration::from_millis(pause));
            let (reply, answered) = oneshot::channel();
            send.send(reply).unwrap();
            futures_block_on(answered).unwrap();
        }
    });
    assert_eq!(join("the shard's end", shards), [5]);
}

/// Blocks this thread on a future that another thread completes.
fn futures_block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_full_inbox_refuses_and_an_ended_shard_says_so() {
    let seats = seats::<u32>(2, 2);
    let shards = run(1, Hooks::default(), move |context| {
        let here = seats.lock().unwrap()[0].take().unwrap();
        let there = seats.lock().unwrap()[1].take().unwrap();
        async move {
            let wait = Duration::from_millis(60);
            assert_eq!(here.try_send(1, 1), Ok(()));
            assert_eq!(here.send(1, 2, wait, &context.sleeper).await, Ok(()));
            assert_eq!(here.try_send(1, 3), Err((3, SendError::Full(1))));
            assert_eq!(here.send(1, 3, wait, &context.sleeper).await, Err(SendError::Full(1)));
            assert_eq!(there.waiting(), 2);
            let waiting = here.send(1, 4, Duration::from_secs(60), &context.sleeper);
            let reading = async {
                glommio::timer::sleep(Duration::from_millis(5)).await;
                there.receive().await
            };
            assert_eq!(futures::join!(waiting, reading), (Ok(()), Some(1)));
            assert_eq!((there.receive().await, there.receive().await), (Some(2), Some(4)));
            assert_eq!(here.hops(), 3);
            drop(there);
            assert_eq!(here.try_send(1, 5), Err((5, SendError::Closed(1))));
            assert_eq!(here.send(9, 5, wait, &context.sleeper).await, Err(SendError::Closed(9)));
        }
    });
    join("the mesh", shards);
}

// case G2
#[test]
fn a_panic_off_the_shard_is_told_and_the_pool_goes_on() {
    let pool = OffloadPool::start(2).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let shards = run(1, Hooks::default(), {
        let (pool, ran) = (pool.clone(), ran.clone());
        move |_| {
            let (pool, ran) = (pool.clone(), ran.clone());
            async move {
                for round in 0..10 {
                    assert_eq!(pool.run(move || round * 2).await, Ok(round * 2));
                    let panicked: Result<(), _> = pool.run(|| panic!("on purpose")).await;
                    assert_eq!(panicked, Err(Panicked("on purpose".into())));
                    let text = format!("round {round}");
                    let panicked: Result<(), _> = pool.run(move || panic!("{text}")).await;
                    assert_eq!(panicked, Err(Panicked(format!("round {round}"))));
                }
                let job = |ran: Arc<AtomicUsize>| {
                    move || {
                        ran.fetch_add(1, SeqCst);
                    }
                };
                // A future that nobody polls or keeps: the job runs all the same.
                drop(pool.run(job(ran.clone())));
                wasmkeep_storage::Offload::offload(&pool, Box::new(job(ran.clone())));
                wasmkeep_storage::Offload::offload(&pool, Box::new(|| panic!("on purpose")));
                while ran.load(SeqCst) < 2 || pool.panics() < 21 {
                    glommio::timer::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    });
    join("offloaded work", shards);
    assert_eq!(pool.panics(), 21);
}
