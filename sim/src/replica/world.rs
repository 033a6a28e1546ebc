//! What all parts of one run share.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    rc::Rc,
};

use wasmkeep_bucket::MemoryBucket;
use wasmkeep_replica::{ReadBudget, Restorer};

use super::{
    bucket::{Books, SimBucket},
    flaw::ReplicaFlaw,
    parameters::ReplicaParameters,
    record::{Line, Record},
    runtime::Simulated,
};
use crate::{dice::Dice, executor::Executor};

/// Pages of the largest database a restore takes.
const PAGES_MAX: u32 = 1 << 18;

/// One run.
pub(crate) struct World {
    pub(crate) executor: Rc<Executor>,
    pub(crate) parameters: ReplicaParameters,
    pub(crate) flaw: Option<ReplicaFlaw>,
    pub(crate) line: Rc<Line>,
    pub(crate) dice: RefCell<Dice>,
    /// Faults strike.
    pub(crate) faults: Cell<bool>,
    /// What the bucket holds.
    pub(crate) memory: MemoryBucket,
    pub(crate) books: Books,
    pub(crate) budget: ReadBudget,
    /// Where the nodes' disks are.
    pub(crate) scratch: PathBuf,
    pub(crate) units: Cell<u64>,
    pub(crate) crashes: Cell<u64>,
    /// The latest hold of each actor.
    pub(crate) generations: RefCell<Vec<u64>>,
}

impl World {
    pub(crate) fn record(&self, record: &Record) {
        self.line.record(self.executor.now(), record);
    }

    pub(crate) fn flawed(&self, flaw: ReplicaFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Whether a fault of this chance strikes now.
    pub(crate) fn strikes(&self, chance: impl FnOnce(&ReplicaParameters) -> u64) -> bool {
        self.faults.get() && self.chance(chance(&self.parameters))
    }

    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.dice.borrow_mut().chance(per_mille)
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.dice.borrow_mut().below(bound)
    }

    /// The next number for a row.
    pub(crate) fn unit(&self) -> u64 {
        self.units.set(self.units.get() + 1);
        self.units.get()
    }

    pub(crate) fn restorer(self: &Rc<Self>) -> Restorer<SimBucket, Simulated> {
        let bucket = SimBucket::new(self);
        let budget =
            if self.flawed(ReplicaFlaw::SplitsBudget) { ReadBudget::default() } else { self.budget.clone() };
        Restorer::new(bucket.clone(), bucket, Simulated(self.clone()), budget, PAGES_MAX)
    }
}
