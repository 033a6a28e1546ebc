//! What a simulated node does with the data of its actors: restores, events over real SQLite files, uploads, snapshots
//! and collection, all by the shipped code.
//!
//! Owns the tasks of one process and their way to the world. A task asks the bucket over the same network as the
//! machines do, stands still with its process and is gone with it. Decides nothing about leases and ownership: it is
//! told which actors to open, and asks whether they are still held.

mod desk;
mod hold;
mod store;
mod way;

use self::hold::Job;
pub use desk::{Desk, Saying, Standing};
pub use store::{DataCall, DataReply, Objects};

use std::{cell::RefCell, collections::BTreeMap, path::PathBuf, rc::Rc};

use futures::channel::{mpsc, oneshot};
use wasmkeep_bucket::Key;
use wasmkeep_protocol::{NodeId, alarm::Post};
use wasmkeep_replica::{Restorer, overdue};

use self::{desk::Simulated, hold::Hold, way::Way};
use super::{
    flaw::Flaw,
    parameters::Parameters,
    process::{Input, Out},
    record::{ActorNumber, Generation, Operation, Pid, RequestNumber},
    stage,
    time::{Clocks, Time},
};
use crate::dice::Dice;

/// Polls within which the tasks of a process come to rest.
const POLLS_MAX: u64 = 1_000_000;

/// Pages of the largest database a restore takes.
const PAGES_MAX: u32 = 1 << 16;

/// The data of one process.
#[derive(Debug)]
pub struct Data {
    desk: Rc<Desk>,
    restorer: Rc<Restorer<Way, Simulated>>,
    disk: PathBuf,
    retention_ms: u64,
    holds: RefCell<BTreeMap<ActorNumber, Open>>,
}

/// An actor that is being opened, open, or being closed.
#[derive(Debug)]
struct Open {
    jobs: mpsc::UnboundedSender<Job>,
    /// Dropped: the hold ends where it stands.
    _stays: oneshot::Sender<()>,
}

impl Data {
    /// Of a process that starts at `time` with what `disk` has.
    pub fn new(
        (pid, node): (Pid, NodeId),
        disk: PathBuf,
        parameters: &Parameters,
        flaw: Option<Flaw>,
        (time, clocks): (Time, Clocks),
        dice: Dice,
    ) -> Self {
        let desk = Desk::new((pid, node), parameters, flaw, (time, clocks), dice);
        let way = || Way::new(&desk);
        let budget = wasmkeep_replica::ReadBudget::default();
        let restorer = Restorer::new(way(), way(), Simulated(desk.clone()), budget, PAGES_MAX);
        Self {
            restorer: Rc::new(restorer),
            desk,
            disk,
            retention_ms: parameters.retention_ms,
            holds: RefCell::default(),
        }
    }

    /// Does what a process wants done with one of its actors.
    pub fn carry_out(&self, out: Out) {
        match out {
            Out::Open { actor, generation } => self.open(actor, generation),
            Out::Run { actor, run, request, operation } => {
                self.give(actor, Job::Run { run, request, operation });
            }
            Out::Close { actor } => self.give(actor, Job::Close),
            Out::Drop { .. } if self.desk.flawed(Flaw::AcksWithoutLease) => {}
            // Whatever it does.
            Out::Drop { actor } => drop(self.holds.borrow_mut().remove(&actor)),
            Out::ListOverdue { from, until_ms } => self.list_overdue(from, until_ms),
            Out::Notice { actor, post } => self.notice(actor, post),
            Out::Peek { actor, request, operation } => self.peek(actor, request, operation),
            _ => {}
        }
    }

    fn open(&self, actor: ActorNumber, generation: Generation) {
        let (jobs, todo) = mpsc::unbounded();
        let (stays, gone) = oneshot::channel();
        let hold = Hold {
            desk: self.desk.clone(),
            restorer: self.restorer.clone(),
            actor,
            generation,
            path: self.path(actor),
            retention_ms: self.retention_ms,
        };
        self.desk.executor().spawn(hold.run(todo, gone));
        self.holds.borrow_mut().insert(actor, Open { jobs, _stays: stays });
    }

    fn path(&self, actor: ActorNumber) -> PathBuf {
        self.disk.join(format!("a{actor}.db"))
    }

    fn give(&self, actor: ActorNumber, job: Job) {
        if let Some(open) = self.holds.borrow().get(&actor) {
            // One that has ended has said so.
            let _ = open.jobs.unbounded_send(job);
        }
    }

    fn list_overdue(&self, from: Option<Key>, until_ms: u64) {
        let desk = self.desk.clone();
        self.desk.executor().spawn(async move {
            let is_first = from.is_none();
            let (way, runtime) = (Way::new(&desk), Simulated(desk.clone()));
            let listed = overdue(&way, &runtime, &stage::tenant(), from, until_ms).await;
            let overdue = listed.ok().map(|listed| (listed.entries, listed.rest));
            desk.say(Saying::Tell(Input::Overdue { is_first, overdue }));
        });
    }

    fn notice(&self, actor: ActorNumber, post: Post) {
        if self.holds.borrow().get(&actor).is_some_and(|open| !open.jobs.is_closed()) {
            return self.give(actor, Job::Notice(post));
        }
        self.desk.entries.notice(&stage::actor(actor), &post);
    }

    /// What the lease and the claims say now.
    pub fn stands(&self, standing: Standing) {
        self.desk.stands(standing);
    }

    /// The bucket answered.
    pub fn reply(&self, id: u64, reply: DataReply) {
        self.desk.reply(id, reply);
    }

    /// Lets the tasks go on as far as they get by themselves; what they said.
    pub fn drive(&self, time: Time, clocks: Clocks) -> Vec<Saying> {
        self.desk.drive(time, clocks, POLLS_MAX)
    }

    /// From here on events are short.
    pub fn calm_down(&self) {
        self.desk.calm_down();
    }

    /// When a task is due, in true time.
    pub fn wake(&self) -> Option<Time> {
        self.desk.wake()
    }

    /// What this node's disk has of an actor, whoever owns it: the variant that answers from there.
    fn peek(&self, actor: ActorNumber, request: RequestNumber, operation: Operation) {
        let (desk, path) = (self.desk.clone(), self.path(actor));
        self.desk.executor().spawn(async move {
            let found = hold::peek(&path, operation).await;
            desk.say(Saying::Tell(Input::Peeked(request, found)));
        });
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // The tasks hold the desk, and the desk the tasks.
        self.desk.executor().clear();
    }
}
