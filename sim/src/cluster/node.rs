//! What a simulated node runs beside its requests: the shipped cluster service, and a session for each open actor, over
//! real SQLite files.
//!
//! Owns the tasks of one process and their way to the world. A task asks the bucket over the network, stands still with
//! its process and is gone with it. Decides nothing about leases, ownership and uploads: the service does.

mod broken;
mod bucket;
mod resident;
mod runtime;
mod side;

pub use self::runtime::{NodeRuntime, Saying};

use std::{cell::RefCell, collections::BTreeMap, path::PathBuf, rc::Rc, time::Duration};

use futures::channel::{mpsc, oneshot};
use wasmkeep_cluster::{ClusterEvent, ClusterService, LaneBuckets, ServiceConfig};
use wasmkeep_protocol::{
    lease::{Identity, Timing},
    records::{Presence, Process as ProcessId},
};

use self::{
    bucket::NetworkBucket,
    resident::{Job, Resident},
    runtime::Simulated,
    side::{Service, Side},
};
use super::{
    bucket::Reply,
    flaw::Flaw,
    parameters::Parameters,
    process::{Input, Out, Residency},
    record::{Operation, Pid, Record, RequestNumber},
    stage,
    time::{Clocks, Time},
};
use crate::dice::Dice;

/// Polls within which the tasks of a process come to rest.
const POLLS_MAX: u64 = 1_000_000;

/// Pages of the largest database a restore takes.
const PAGES_MAX: u32 = 1 << 16;

/// See the module.
#[derive(Debug)]
pub struct Node {
    runtime: Rc<NodeRuntime>,
    service: Rc<Service>,
    side: Side,
    residents: RefCell<BTreeMap<Residency, Open>>,
}

/// An actor that is being opened, open, or being closed.
#[derive(Debug)]
struct Open {
    jobs: mpsc::UnboundedSender<Job>,
    /// Dropped: its event is cut off, and it is closed.
    lost: Option<oneshot::Sender<()>>,
}

impl Node {
    /// Of a process that starts at `time` with what `disk` has.
    pub fn new(
        (pid, id): (Pid, wasmkeep_protocol::NodeId),
        disk: PathBuf,
        parameters: &Parameters,
        flaw: Option<Flaw>,
        (time, clocks): (Time, Clocks),
        dice: Dice,
    ) -> Self {
        let runtime = NodeRuntime::new((pid, id.clone()), parameters, flaw, (time, clocks), dice);
        let bucket = NetworkBucket::new(&runtime);
        let buckets = LaneBuckets {
            lease: bucket.for_lease(),
            durable: bucket.clone(),
            upload: bucket.clone(),
            restore: bucket.clone(),
            housekeeping: bucket.clone(),
        };
        let mut timing = Timing::default();
        if flaw == Some(Flaw::NoGrace) {
            timing.grace = Duration::ZERO;
        }
        let config = ServiceConfig {
            identity: Identity { node: id, process: ProcessId::from_bits(pid.into()) },
            presence: Presence {
                advertise: format!("http://p{pid}"),
                cluster_advertise: Some(format!("https://p{pid}")),
                fingerprint: Some(stage::fingerprint(pid).to_string()),
                ..Presence::default()
            },
            tenant: stage::tenant(),
            timing,
            retention: Duration::from_millis(parameters.retention_ms),
            pages_max: PAGES_MAX,
        };
        let notify = {
            let runtime = Rc::clone(&runtime);
            move |event| {
                if matches!(event, ClusterEvent::View(_)) && runtime.ends_look() {
                    runtime.record(Record::LookEnded { pid });
                }
                runtime.tell(Input::Cluster(event));
            }
        };
        let service = ClusterService::new(buckets, Simulated(Rc::clone(&runtime)), config, notify);
        let side = Side::new(Rc::clone(&runtime), Rc::clone(&service), bucket, disk);
        let node = Self { runtime, service, side, residents: RefCell::default() };
        node.live();
        node
    }

    fn live(&self) {
        let (runtime, service) = (Rc::clone(&self.runtime), Rc::clone(&self.service));
        self.runtime.executor().spawn(async move {
            let exit = service.live().await;
            runtime.tell(Input::Exited(exit));
        });
    }

    /// Does what a process wants done.
    pub fn carry_out(&self, out: Out) {
        match out {
            Out::Claim { actor, request, fresh } => {
                let (runtime, service) = (Rc::clone(&self.runtime), Rc::clone(&self.service));
                self.runtime.executor().spawn(async move {
                    let claimed = service.claim(&actor, fresh).await;
                    runtime.hop().await;
                    runtime.tell(Input::Claimed { actor, request, claimed });
                });
            }
            Out::Open { actor, residency } => {
                let (jobs, todo) = mpsc::unbounded();
                let (lost, losing) = oneshot::channel();
                let resident = Resident { side: self.side.clone(), actor, residency };
                self.runtime.executor().spawn(resident.run(todo, losing));
                self.residents.borrow_mut().insert(residency, Open { jobs, lost: Some(lost) });
            }
            Out::Run { residency, run, request, operation } => {
                self.give(residency, Job::Run { run, request, operation });
            }
            Out::Close { residency } => self.give(residency, Job::Close),
            // It ends its event, and only then closes.
            Out::Lose { residency } if self.runtime.flawed(Flaw::AcksWithoutLease) => {
                self.give(residency, Job::Close);
            }
            Out::Lose { residency } => {
                if let Some(open) = self.residents.borrow_mut().get_mut(&residency) {
                    drop(open.lost.take());
                }
            }
            Out::Gone { residency } => drop(self.residents.borrow_mut().remove(&residency)),
            Out::StopTaking => self.service.stop(),
            Out::ActorsClosed => {
                let service = Rc::clone(&self.service);
                self.runtime.executor().spawn(async move { service.closed().await });
            }
            Out::Peek { actor, request, operation } => self.peek(&actor, request, operation),
            _ => {}
        }
    }

    fn give(&self, residency: Residency, job: Job) {
        if let Some(open) = self.residents.borrow().get(&residency) {
            // One that has ended has said so.
            let _ = open.jobs.unbounded_send(job);
        }
    }

    /// The bucket answered.
    pub fn reply(&self, id: u64, reply: Reply) {
        self.runtime.reply(id, reply);
    }

    /// Lets the tasks go on as far as they get by themselves; what they said.
    pub fn drive(&self, time: Time, clocks: Clocks) -> Vec<Saying> {
        self.runtime.drive(time, clocks, POLLS_MAX)
    }

    /// From here on events are short.
    pub fn calm_down(&self) {
        self.runtime.calm_down();
    }

    /// When a task is due, in true time.
    pub fn wake(&self) -> Option<Time> {
        self.runtime.wake()
    }

    /// What this node's disk has of an actor, whoever owns it: the variant that answers from there.
    fn peek(&self, actor: &wasmkeep_protocol::ActorId, request: RequestNumber, operation: Operation) {
        let (runtime, path) = (Rc::clone(&self.runtime), self.side.path(actor));
        self.runtime.executor().spawn(async move {
            let found = resident::peek(&path, operation).await;
            runtime.tell(Input::Peeked(request, found));
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The tasks hold the runtime, and the runtime the tasks.
        self.runtime.executor().clear();
    }
}
