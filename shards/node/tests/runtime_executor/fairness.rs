//! The ticker, the stall detector and the watchdog.

use crate::{HUNG, join, run};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use std::{
    cell::Cell,
    io::{Read, Write},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use wasmkeep_node::runtime::{Hooks, Label};

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn spinning_tasks_starve_neither_sockets_nor_timers_nor_foreign_wakes() {
    for spinners in [1, 2, 50] {
        starve(spinners);
    }
}

fn starve(spinners: usize) {
    let (port, ports) = flume::bounded(1);
    let (foreign, wakes) = flume::unbounded::<()>();
    let shards = run(1, Hooks::default(), move |context| {
        let (port, wakes) = (port.clone(), wakes.clone());
        async move {
            let listener = glommio::net::TcpListener::bind("127.0.0.1:0").unwrap();
            port.send(listener.local_addr().unwrap()).unwrap();
            let done = Rc::new(Cell::new(false));
            // They never wait for anything: only a tick makes the executor look at the rest.
            let spinners: Vec<_> = (0..spinners)
                .map(|_| {
                    let (done, pulse) = (done.clone(), context.pulse.clone());
                    let spinning = async move {
                        let label = Label::new("spinner");
                        while !done.get() {
                            let entered = pulse.enter(&label);
                            spin(Duration::from_micros(200));
                            drop(entered);
                            glommio::executor().yield_now().await;
                        }
                    };
                    glommio::spawn_local(spinning).detach()
                })
                .collect();
            let mut stream = listener.accept().await.unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).await.unwrap() == 1 {
                glommio::timer::sleep(Duration::from_millis(1)).await;
                wakes.recv_async().await.unwrap();
                stream.write_all(&byte).await.unwrap();
            }
            done.set(true);
            for spinner in spinners {
                spinner.await;
            }
            context.pulse.beat().ticks()
        }
    });
    let mut client = std::net::TcpStream::connect(ports.recv().unwrap()).unwrap();
    client.set_read_timeout(Some(HUNG)).unwrap();
    for number in 0..50 {
        client.write_all(&[number]).unwrap();
        foreign.send(()).unwrap();
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [number]);
    }
    drop(client);
    assert!(join("the spinner", shards)[0] > 0);
}

#[test]
fn an_idle_node_is_not_ticked() {
    let ticks = Arc::new(AtomicU64::new(0));
    let hooks = Hooks {
        on_tick: Box::new({
            let ticks = ticks.clone();
            move || {
                ticks.fetch_add(1, SeqCst);
            }
        }),
        ..Hooks::default()
    };
    let ticked = ticks.clone();
    let shards = run(2, hooks, move |context| {
        let ticks = ticked.clone();
        async move {
            let beat = context.pulse.beat().clone();
            assert_eq!(beat.ticks(), 0, "nothing was busy yet");
            if context.index == 0 {
                // Twice: the second time the ticker has to be woken from its park.
                for _ in 0..2 {
                    let before = (beat.ticks(), ticks.load(SeqCst));
                    let label = Label::new("busy");
                    let entered = context.pulse.enter(&label);
                    let began = Instant::now();
                    while ticks.load(SeqCst) < before.1 + 3 {
                        assert!(began.elapsed() < HUNG, "a busy shard was never ticked");
                        std::hint::spin_loop();
                    }
                    drop(entered);
                    glommio::timer::sleep(Duration::from_millis(300)).await;
                    let idle = (beat.ticks(), ticks.load(SeqCst));
                    glommio::timer::sleep(Duration::from_millis(200)).await;
                    assert_eq!((beat.ticks(), ticks.load(SeqCst)), idle, "an idle node ticked");
                }
            } else {
                glommio::timer::sleep(Duration::from_millis(500)).await;
                assert_eq!(beat.ticks(), 0, "the idle shard was ticked with the busy one");
            }
        }
    });
    join("the idle node", shards);
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("wasmkeep_node")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_stall_is_logged_with_who_held_the_core_and_a_silent_shard_is_named() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let hooks = Hooks {
        stall_after: Duration::from_millis(20),
        silent_after: Duration::from_millis(200),
        ..Hooks::default()
    };
    let shards = run(1, hooks, |context| async move {
        let (quick, slow) = (Label::new("actor counter/quick"), Label::new("actor counter/slow"));
        drop(context.pulse.enter(&quick));
        context.pulse.hold(slow, async { spin(Duration::from_millis(50)) }).await;
        let beat = context.pulse.beat().clone();
        assert_eq!((beat.stalls(), beat.silences()), (1, 0));
        assert!(beat.busy() >= Duration::from_millis(50));
        let held = context.pulse.enter(&quick);
        let began = Instant::now();
        while beat.silences() == 0 {
            assert!(began.elapsed() < HUNG, "the watchdog never spoke");
            std::hint::spin_loop();
        }
        spin(Duration::from_millis(300));
        drop(held);
        (beat.stalls(), beat.silences())
    });
    assert_eq!(join("the stalls", shards), [(2, 1)], "a stall is named once");
    let lines = log.0.lock().unwrap();
    let find = |what: &str, who: &str| lines.iter().any(|line| line.contains(what) && line.contains(who));
    assert!(find("held its core too long", "actor counter/slow"), "{lines:?}");
    assert!(find("a shard is silent", "actor counter/quick"), "{lines:?}");
}
