//! What one process runs on: its executor, its clocks, its chance, and its way to the world.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    rc::Rc,
    time::Duration,
};

use futures::channel::oneshot;
use wasmkeep_protocol::{NodeId, clock::Now, object_keys};
use wasmkeep_runtime::Runtime;

use crate::{
    cluster::{
        bucket::{Call, Reply},
        flaw::Flaw,
        parameters::Parameters,
        process::Input,
        record::{Pid, Record},
        time::{Clocks, Time},
    },
    dice::Dice,
    executor::Executor,
};

/// What a task says to the world.
#[derive(Debug)]
pub enum Saying {
    /// It asks the bucket.
    Call(u64, Call),
    /// To its process.
    Tell(Input),
    /// For the record.
    Record(Record),
}

/// See the module.
#[derive(Debug)]
pub struct NodeRuntime {
    /// Its process.
    pub pid: Pid,
    /// The node it runs as.
    pub id: NodeId,
    own_heartbeat: String,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// Files before a snapshot is made whatever the schedule says; 0 leaves it to the schedule.
    pub eager_snapshots: u64,
    /// Longest event.
    event_max: Time,
    executor: Rc<Executor>,
    clocks: Cell<Clocks>,
    dice: RefCell<Dice>,
    sayings: RefCell<Vec<Saying>>,
    calls: RefCell<BTreeMap<u64, oneshot::Sender<Reply>>>,
    numbers: Cell<u64>,
    calm: Cell<bool>,
    /// Requests of the look at the heartbeats that are under way.
    look_parts: Cell<usize>,
    /// All of them so far succeeded.
    look_succeeds: Cell<bool>,
}

/// A request of a look at the heartbeats, until it ends or is not waited for any more.
pub(super) struct LookPart<'a>(&'a NodeRuntime);

impl LookPart<'_> {
    pub(super) fn ended(self, succeeded: bool) {
        if succeeded {
            return;
        }
        self.0.look_succeeds.set(false);
    }
}

impl Drop for LookPart<'_> {
    fn drop(&mut self) {
        self.0.look_parts.set(self.0.look_parts.get() - 1);
    }
}

impl NodeRuntime {
    pub(super) fn new(
        (pid, id): (Pid, NodeId),
        parameters: &Parameters,
        flaw: Option<Flaw>,
        (time, clocks): (Time, Clocks),
        mut dice: Dice,
    ) -> Rc<Self> {
        Rc::new(Self {
            pid,
            own_heartbeat: object_keys::node(&id),
            id,
            flaw,
            eager_snapshots: parameters.eager_snapshots,
            event_max: parameters.event_max,
            executor: Executor::new(Duration::from_micros(time), dice.fork(), 1),
            clocks: Cell::new(clocks),
            dice: RefCell::new(dice),
            sayings: RefCell::default(),
            calls: RefCell::default(),
            numbers: Cell::new(0),
            calm: Cell::new(false),
            look_parts: Cell::new(0),
            look_succeeds: Cell::new(false),
        })
    }

    pub(super) fn executor(&self) -> &Rc<Executor> {
        &self.executor
    }

    pub(super) fn flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The key of its own heartbeat.
    pub(super) fn own_heartbeat(&self) -> &str {
        &self.own_heartbeat
    }

    pub(super) fn say(&self, saying: Saying) {
        self.sayings.borrow_mut().push(saying);
    }

    pub(super) fn tell(&self, input: Input) {
        self.say(Saying::Tell(input));
    }

    pub(super) fn record(&self, record: Record) {
        if matches!(record, Record::LookBegan { .. }) {
            self.look_succeeds.set(true);
        }
        self.say(Saying::Record(record));
    }

    pub(super) fn look_part(&self) -> LookPart<'_> {
        self.look_parts.set(self.look_parts.get() + 1);
        LookPart(self)
    }

    /// There is a new view: whether it is what a look showed.
    pub(super) fn ends_look(&self) -> bool {
        self.look_parts.get() == 0 && self.look_succeeds.take()
    }

    pub(super) fn chance(&self, per_mille: u64) -> bool {
        self.dice.borrow_mut().chance(per_mille)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.dice.borrow_mut().below(bound)
    }

    pub(super) fn random(&self) -> u128 {
        let mut dice = self.dice.borrow_mut();
        (u128::from(dice.next()) << 64) | u128::from(dice.next())
    }

    /// A part of an event's time goes by.
    pub(super) async fn linger(&self) {
        let longest = if self.calm.get() { 5_000 } else { self.event_max / 2 };
        let micros = self.dice.borrow_mut().within(1..=longest.max(1));
        self.executor.sleep(Duration::from_micros(micros)).await;
    }

    /// The way of a word between a shard and the bucket thread.
    pub(super) async fn hop(&self) {
        let micros = self.dice.borrow_mut().within(1..=if self.calm.get() { 50 } else { 2_000 });
        self.executor.sleep(Duration::from_micros(micros)).await;
    }

    /// Asks the bucket. An answer that is lost never comes.
    pub(super) async fn ask(&self, call: Call) -> Option<Reply> {
        let id = self.numbers.replace(self.numbers.get() + 1);
        let (answer, answered) = oneshot::channel();
        self.calls.borrow_mut().insert(id, answer);
        self.say(Saying::Call(id, call));
        answered.await.ok()
    }

    pub(super) fn reply(&self, id: u64, reply: Reply) {
        // Whoever asked may be gone, and a second copy of a request has a second answer.
        if let Some(answer) = self.calls.borrow_mut().remove(&id) {
            let _ = answer.send(reply);
        }
    }

    pub(super) fn drive(&self, time: Time, clocks: Clocks, polls_max: u64) -> Vec<Saying> {
        self.clocks.set(clocks);
        assert!(
            self.executor.run_ready(Duration::from_micros(time), polls_max),
            "the tasks of process {} do not come to rest",
            self.pid
        );
        self.sayings.take()
    }

    pub(super) fn wake(&self) -> Option<Time> {
        self.executor.next_timer().map(|at| at.as_micros() as Time)
    }

    /// From here on events are short.
    pub fn calm_down(&self) {
        self.calm.set(true);
    }

    fn clock(&self) -> Now {
        self.clocks.get().now(self.executor.now().as_micros() as Time)
    }

    /// Time since boot on its machine.
    pub(super) fn moment(&self) -> Duration {
        self.clock().moment.since_boot()
    }

    /// The time of day on its machine.
    pub(super) fn wall_ms(&self) -> u64 {
        self.clock().wall_ms
    }

    /// For as long by its machine's clock.
    pub(super) async fn sleep(&self, length: Duration) {
        let now = self.executor.now().as_micros() as Time;
        let until = self.clocks.get().when(self.clock().moment + length, now);
        // Never early, not by a part of a microsecond: whoever sleeps until a moment would do so again and again.
        self.executor.sleep(Duration::from_micros(until - now + 1)).await;
    }
}

/// What the shipped code is given in place of a bucket thread.
#[derive(Debug, Clone)]
pub struct Simulated(pub(super) Rc<NodeRuntime>);

impl Runtime for Simulated {
    fn now(&self) -> Duration {
        self.0.moment()
    }

    fn unix_ms(&self) -> u64 {
        self.0.wall_ms()
    }

    fn random(&self) -> u128 {
        self.0.random()
    }

    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let micros = self.0.dice.borrow_mut().below(3_000);
        self.0.executor.sleep(Duration::from_micros(micros)).await;
        Some(job())
    }
}
