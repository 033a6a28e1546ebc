//! One run: each actor's way through its holds, side by side, as a seed decides; then one hold each in which
//! nothing fails.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use futures::future::{Either, select};
use wasmkeep_bucket::MemoryBucket;

use super::{
    bucket::Books,
    checkers::Rules,
    flaw::ReplicaFlaw,
    hold::Hold,
    local,
    parameters::ReplicaParameters,
    record::{Actor, Line, Record},
    world::World,
};
use crate::{checkers::DETERMINISM, dice::Dice, executor::Executor, files, history::Violation};

/// Polls within which a run has to come to its end.
const STEPS_MAX: u64 = 20_000_000;

/// The disk of a node that comes last.
const NEW_DISK: u64 = u64::MAX;

/// What a run is asked to be.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaRequest {
    /// Decides everything.
    pub seed: u64,
    /// What is broken on purpose.
    pub flaw: Option<ReplicaFlaw>,
    /// Each record goes to stderr.
    pub verbose: bool,
}

impl ReplicaRequest {
    /// A plain run of `seed`.
    #[must_use]
    pub const fn plain(seed: u64) -> Self {
        Self { seed, flaw: None, verbose: false }
    }

    /// The parameters its seed draws.
    #[must_use]
    pub fn parameters(&self) -> ReplicaParameters {
        ReplicaParameters::draw(self.seed, &mut Dice::new(self.seed))
    }
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaOutcome {
    /// Stands for everything that happened, in order.
    pub hash: u64,
    /// Records.
    pub records: u64,
    /// Rows written.
    pub units: u64,
    /// Processes that died.
    pub crashes: u64,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

/// Runs a request.
///
/// # Errors
/// What the file system of the scratch folder says.
pub fn run_replica(request: &ReplicaRequest) -> io::Result<ReplicaOutcome> {
    let scratch = files::scratch()?;
    let mut dice = Dice::new(request.seed ^ 0x0b0c_4e7d);
    let parameters = request.parameters();
    let executor = Executor::new(Duration::from_secs(1), dice.fork(), 50);
    let clock = executor.clone();
    let actors = parameters.actors as usize;
    let world = Rc::new(World {
        line: Line::new(Rules { retention_ms: parameters.retention_ms }, request.verbose),
        flaw: request.flaw,
        dice: RefCell::new(dice.fork()),
        faults: Cell::new(true),
        memory: MemoryBucket::with_clock(move || super::runtime::calendar(clock.now())),
        books: Books::default(),
        budget: wasmkeep_replica::ReadBudget::default(),
        scratch: scratch.path().to_owned(),
        units: Cell::new(0),
        crashes: Cell::new(0),
        generations: RefCell::new(vec![0; actors]),
        parameters,
        executor,
    });
    for actor in 0..actors {
        world.executor.spawn(life(world.clone(), actor));
    }
    // Late writes are tasks too: after this all of them have landed.
    let mut ended = world.executor.drain(STEPS_MAX);
    world.faults.set(false);
    world.record(&Record::FaultsOff);
    for actor in 0..actors {
        let disk = if world.parameters.new_node { NEW_DISK } else { world.below(2) };
        let hold = hold(&world, actor, disk, true);
        world.executor.spawn(hold.run());
    }
    ended &= world.executor.drain(STEPS_MAX);
    world.record(&Record::Ended { tasks: if ended { world.executor.task_count() } else { usize::MAX } });
    world.executor.clear();
    let line = &world.line;
    Ok(ReplicaOutcome {
        hash: line.hash(),
        records: line.count(),
        units: world.units.get(),
        crashes: world.crashes.get(),
        violation: line.violation(),
    })
}

/// Runs a request twice and compares.
///
/// # Errors
/// As [`run_replica`].
pub fn run_replica_twice(request: &ReplicaRequest) -> io::Result<ReplicaOutcome> {
    let first = run_replica(request)?;
    let second = run_replica(&ReplicaRequest { verbose: false, ..*request })?;
    if first.violation.is_some() || first == second {
        return Ok(first);
    }
    let text = format!(
        "the same seed gave {} records with hash {:016x} and then {} with {:016x}",
        first.records, first.hash, second.records, second.hash
    );
    Ok(ReplicaOutcome { violation: Some(Violation { checker: DETERMINISM, text }), ..first })
}

/// The next hold of an actor, on a node with this disk.
fn hold(world: &Rc<World>, actor: Actor, disk: u64, is_last: bool) -> Hold {
    let mut generations = world.generations.borrow_mut();
    if !world.flawed(ReplicaFlaw::RepeatsGenerations) || generations[actor] == 0 {
        generations[actor] += 1;
    }
    Hold {
        world: world.clone(),
        actor,
        generation: generations[actor],
        held: Rc::new(Cell::new(true)),
        path: local::path(&world.scratch, disk, actor),
        is_last,
    }
}

/// The holds of one actor, one after another: each ends by itself, by a crash, or by a lease it does not know it
/// has lost.
async fn life(world: Rc<World>, actor: Actor) {
    let parameters = &world.parameters;
    // A disk a process may still be at work on is not used by another.
    let mut disk = world.below(2);
    let mut next_disk = 2;
    let mut fresh = || {
        next_disk += 1;
        next_disk
    };
    for _ in 0..parameters.holds {
        let hold = hold(&world, actor, disk, false);
        let (held, generation, path) = (hold.held.clone(), hold.generation, hold.path.clone());
        let time = Duration::from_millis(world.below(if world.chance(500) { 2_000 } else { 60_000 }));
        if world.chance(parameters.stalls) {
            world.executor.spawn(hold.run());
            world.executor.sleep(time).await;
            held.set(false);
            world.record(&Record::Lost { actor, generation });
            disk = fresh();
        } else if world.chance(parameters.crashes) {
            let is_dead = {
                let (running, timer) = (pin!(hold.run()), pin!(world.executor.sleep(time)));
                matches!(select(running, timer).await, Either::Right(_))
            };
            held.set(false);
            if is_dead {
                world.crashes.set(world.crashes.get() + 1);
                let takes_disk = world.chance(parameters.disk_losses);
                world.record(&Record::Crashed { actor, generation, disk: takes_disk });
                if takes_disk {
                    disk = fresh();
                } else if world.chance(300) {
                    // A log that is not there, or is shorter than it was, is found out by its checksum.
                    let _ = local::tear(&path, world.below(1 << 20));
                }
            }
        } else {
            hold.run().await;
        }
        if world.chance(200) {
            disk = fresh();
        }
        world.executor.sleep(Duration::from_millis(world.below(3_000))).await;
    }
}
