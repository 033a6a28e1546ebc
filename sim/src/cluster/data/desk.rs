//! Where the tasks of one process meet the world: what they ask and say, and what they are told of time, of the lease
//! and of the bucket's answers.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use futures::channel::oneshot;
use wasmkeep_protocol::{
    NodeId,
    clock::{Moment, Now},
};
use wasmkeep_replica::{Entries, Hold};
use wasmkeep_runtime::Runtime;

use super::{DataCall, DataReply};
use crate::{
    cluster::{
        flaw::Flaw,
        parameters::Parameters,
        process::Input,
        record::{ActorNumber, Generation, Pid, Record},
        time::{Clocks, Time},
    },
    dice::Dice,
    executor::Executor,
};

/// What a task says to the world.
#[derive(Debug)]
pub enum Saying {
    /// It asks the bucket.
    Call(u64, DataCall),
    /// To its process.
    Tell(Input),
    /// For the record.
    Record(Record),
}

/// Which actors the process holds, and until when.
#[derive(Debug, Default, Clone)]
pub struct Standing {
    /// The lease ends then, unless it is renewed; `None`: it has.
    pub until: Option<Moment>,
    /// The holds under it.
    pub held: BTreeMap<ActorNumber, Generation>,
}

/// See the module.
#[derive(Debug)]
pub struct Desk {
    /// Its process.
    pub pid: Pid,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// Of the alarms of its actors.
    pub(super) entries: Entries,
    /// Files before a snapshot is made whatever the schedule says; 0 leaves it to the schedule.
    pub eager_snapshots: u64,
    /// Longest event.
    event_max: Time,
    executor: Rc<Executor>,
    clocks: Cell<Clocks>,
    dice: RefCell<Dice>,
    sayings: RefCell<Vec<Saying>>,
    calls: RefCell<BTreeMap<u64, oneshot::Sender<DataReply>>>,
    numbers: Cell<u64>,
    standing: RefCell<Standing>,
    calm: Cell<bool>,
}

impl Desk {
    pub(super) fn new(
        (pid, node): (Pid, NodeId),
        parameters: &Parameters,
        flaw: Option<Flaw>,
        (time, clocks): (Time, Clocks),
        mut dice: Dice,
    ) -> Rc<Self> {
        Rc::new(Self {
            pid,
            flaw,
            entries: Entries::new(node),
            eager_snapshots: parameters.eager_snapshots,
            event_max: parameters.event_max,
            executor: Executor::new(Duration::from_micros(time), dice.fork(), 1),
            clocks: Cell::new(clocks),
            dice: RefCell::new(dice),
            sayings: RefCell::default(),
            calls: RefCell::default(),
            numbers: Cell::new(0),
            standing: RefCell::default(),
            calm: Cell::new(false),
        })
    }

    pub(super) fn executor(&self) -> &Rc<Executor> {
        &self.executor
    }

    pub(super) fn flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn say(&self, saying: Saying) {
        self.sayings.borrow_mut().push(saying);
    }

    pub(super) fn record(&self, record: Record) {
        self.say(Saying::Record(record));
    }

    pub(super) fn chance(&self, per_mille: u64) -> bool {
        self.dice.borrow_mut().chance(per_mille)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.dice.borrow_mut().below(bound)
    }

    /// A part of an event's time goes by.
    pub(super) async fn linger(&self) {
        let longest = if self.calm.get() { 5_000 } else { self.event_max / 2 };
        let micros = self.dice.borrow_mut().within(1..=longest.max(1));
        self.executor.sleep(Duration::from_micros(micros)).await;
    }

    /// Asks the bucket. An answer that is lost never comes.
    pub(super) async fn ask(&self, call: DataCall) -> Option<DataReply> {
        let id = self.numbers.replace(self.numbers.get() + 1);
        let (answer, answered) = oneshot::channel();
        self.calls.borrow_mut().insert(id, answer);
        self.say(Saying::Call(id, call));
        answered.await.ok()
    }

    pub(super) fn reply(&self, id: u64, reply: DataReply) {
        // Whoever asked may be gone, and a second copy of a request has a second answer.
        if let Some(answer) = self.calls.borrow_mut().remove(&id) {
            let _ = answer.send(reply);
        }
    }

    pub(super) fn stands(&self, standing: Standing) {
        self.standing.replace(standing);
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

    /// The time of day on its machine.
    pub(super) fn wall_ms(&self) -> u64 {
        self.clock().wall_ms
    }
}

/// What replication is given in place of a node.
#[derive(Debug, Clone)]
pub struct Simulated(pub(super) Rc<Desk>);

impl Runtime for Simulated {
    fn now(&self) -> Duration {
        self.0.clock().moment.since_boot()
    }

    fn unix_ms(&self) -> u64 {
        self.0.wall_ms()
    }

    fn random(&self) -> u128 {
        u128::from(self.0.dice.borrow_mut().next())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    async fn sleep(&self, time: Duration) {
        self.0.executor.sleep(time).await;
    }

    async fn work<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let micros = self.0.dice.borrow_mut().below(3_000);
        self.0.executor.sleep(Duration::from_micros(micros)).await;
        Some(job())
    }
}

/// Whether the process still holds an actor at a generation.
#[derive(Debug, Clone)]
pub struct Held {
    pub(super) desk: Rc<Desk>,
    pub(super) actor: ActorNumber,
    pub(super) generation: Generation,
}

impl Hold for Held {
    fn is_held(&self) -> bool {
        if self.desk.flawed(Flaw::AcksWithoutLease) || self.desk.flawed(Flaw::IgnoresLapse) {
            return true;
        }
        let standing = self.desk.standing.borrow();
        let is_valid = standing.until.is_some_and(|until| self.desk.clock().moment < until);
        is_valid && standing.held.get(&self.actor) == Some(&self.generation)
    }
}
