//! One shard without a network: a real executor with its ticker, actors, host and storage. Requests are made
//! where the HTTP front would hand them over.

use std::{
    io::{self, Write},
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use wasmkeep_actor::{
    Actors, Happening, Limits, Refusal, Started, World,
    alarm::{Book, Target},
};
use wasmkeep_host::{ActorEvent, AlarmEvent, Instance, Setting, Timers, Version};
use wasmkeep_node::runtime::{
    Hooks, Label, OffloadPool, Placement, ShardContext, Shards, offload::OFFLOAD_THREADS, start,
};
use wasmkeep_protocol::{ActorId, limits};
use wasmkeep_storage::{Database, Offload};

use crate::guests::{event, identity, received, runtime, sample};

/// Actors in memory at most. A bench of first requests makes thousands: the least recently used leave, as on a
/// full node, and the open-file limit of an ordinary shell (1,024) is kept.
const RESIDENT_MAX: usize = 256;

/// Instances beyond that: those that are just leaving.
const SPARE_INSTANCES: usize = 64;

/// What to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Add one to a counter that is in memory.
    Write,
    /// Read it.
    Read,
    /// Add one to a counter that never existed.
    First,
}

struct Order {
    ask: Ask,
    times: u64,
}

/// A running shard with the counter sample.
pub struct CounterShard {
    orders: Option<flume::Sender<Order>>,
    done: flume::Receiver<Duration>,
    shards: Option<Shards<()>>,
    _timers: Timers,
    _folder: TempDir,
}

impl CounterShard {
    /// Starts it, with its databases in memory.
    ///
    /// # Panics
    /// When anything of it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        let folder = crate::in_memory();
        let timers = Timers::start().expect("a timer thread");
        let runtime = runtime(folder.path(), RESIDENT_MAX + SPARE_INSTANCES);
        let parts = Parts {
            version: runtime.load_actor(&sample("counter")).expect("the counter loads"),
            databases: folder.path().join("actors"),
            offload: OffloadPool::start(OFFLOAD_THREADS).expect("threads"),
            timers: timers.handle(),
        };
        let hooks = Hooks { on_tick: Box::new(move || runtime.advance_epoch()), ..Hooks::default() };
        let placement = Placement { pin: false, ..Placement::of(1, 1) };
        let (orders, ordered) = flume::unbounded::<Order>();
        let (report, done) = flume::unbounded();
        let shards = start(&placement, hooks, move |context| {
            serve(context, parts.clone(), ordered.clone(), report.clone())
        });
        let shards = shards.expect("a shard");
        Self { orders: Some(orders), done, shards: Some(shards), _timers: timers, _folder: folder }
    }

    /// Asks so many times, one after the other; the time from the first event handed over to the last answer
    /// read.
    ///
    /// # Panics
    /// When the shard is gone: an answer was not a 200.
    #[must_use]
    pub fn ask(&self, ask: Ask, times: u64) -> Duration {
        let orders = self.orders.as_ref().expect("kept until the drop");
        orders.send(Order { ask, times }).expect("a shard that runs");
        self.done.recv().expect("every answer is a 200")
    }
}

impl Drop for CounterShard {
    fn drop(&mut self) {
        drop(self.orders.take());
        for ended in self.shards.take().map(Shards::join).unwrap_or_default() {
            if let Err(failed) = ended {
                // A reader that went away costs the line alone.
                let _ = writeln!(io::stderr(), "{failed}");
            }
        }
    }
}

async fn serve(
    context: ShardContext,
    parts: Parts,
    orders: flume::Receiver<Order>,
    report: flume::Sender<Duration>,
) {
    let world = Rc::new(BenchWorld {
        context,
        offload: Rc::new(parts.offload.clone()),
        parts,
        began: Instant::now(),
        alarms: Book::new((), []),
    });
    let limits = Limits {
        mailbox_events_max: limits::MAILBOX_EVENTS_MAX,
        resident_max: RESIDENT_MAX,
        event_wall_clock: limits::EVENT_WALL_CLOCK,
        doze_after: limits::DOZE_AFTER,
        hibernate_after: limits::HIBERNATE_AFTER,
    };
    let actors = Actors::new(world, limits);
    let mut firsts = 0u64;
    while let Ok(Order { ask, times }) = orders.recv_async().await {
        let began = Instant::now();
        for _ in 0..times {
            let (method, id) = match ask {
                Ask::Write => ("POST", counter("one")),
                Ask::Read => ("GET", counter("one")),
                Ask::First => {
                    firsts += 1;
                    ("POST", counter(&format!("first-{firsts}")))
                }
            };
            let (event, answer) = event(method, "/");
            actors.dispatch(&id, event.into());
            received(answer).await;
        }
        // Whoever asked may have given up.
        let _ = report.send(began.elapsed());
    }
    actors.stop();
    actors.stopped().await;
}

fn counter(name: &str) -> ActorId {
    ActorId { class: "counter".parse().expect("a class"), name: name.parse().expect("a name") }
}

/// What is made once, before the shard.
#[derive(Clone)]
struct Parts {
    version: Version,
    databases: PathBuf,
    offload: OffloadPool,
    timers: tokio::runtime::Handle,
}

/// As a node's, less metrics and logs.
struct BenchWorld {
    context: ShardContext,
    parts: Parts,
    offload: Rc<OffloadPool>,
    began: Instant,
    alarms: Book,
}

impl World for BenchWorld {
    type Guest = Instance;

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.context.sleeper.sleep(duration)
    }

    fn spawn(&self, id: &ActorId, task: impl Future<Output = ()> + 'static) {
        let label = Label::new(&format!("actor {id}"));
        glommio::spawn_local(self.context.pulse.hold(label, task)).detach();
    }

    fn offload(&self) -> &dyn Offload {
        &*self.offload
    }

    async fn open(&self, id: &ActorId) -> Result<Database, Refusal> {
        let path = self.parts.databases.join(format!("{}.db", id.name.file_stem()));
        let config = wasmkeep_storage::Config { root: self.parts.databases.clone(), ..Default::default() };
        let opened = Database::begin_open(&*self.offload, &path, &config);
        opened.map_err(|error| Refusal::Storage(error.to_string()))
    }

    async fn start(&self, id: &ActorId, database: &Rc<Database>) -> Result<Started<Instance>, Refusal> {
        let setting = Setting {
            identity: identity(id.name.as_str()),
            database: Some(Rc::clone(database)),
            sockets: None,
            offload: Rc::clone(&self.offload) as Rc<dyn Offload>,
            env: Default::default(),
            alarms: None,
            calls: None,
            timers: self.parts.timers.clone(),
            outbound: None,
        };
        let started = self.parts.version.instantiate(setting).await;
        let guest = started.map_err(|error| Refusal::Start(error.to_string()))?;
        Ok(Started { guest, version: self.parts.version.id().to_owned() })
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn alarms(&self) -> &Book {
        &self.alarms
    }

    fn alarm_target(&self, _: &ActorId) -> Target {
        Target::Mute
    }

    fn alarm_event(&self) -> (ActorEvent, impl Future<Output = bool> + 'static) {
        let (event, answer) = AlarmEvent::new();
        (ActorEvent::Alarm(event), async move { answer.await.is_ok() })
    }

    async fn erase(&self, _: &ActorId) {
        unreachable!("no counter deletes itself")
    }

    fn observe(&self, _: &ActorId, _: Happening<'_>) {}
}
