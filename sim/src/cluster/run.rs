//! One run: a cluster in trouble, then calm, then examined.

use std::io;

use super::{
    flaw::Flaw,
    parameters::Parameters,
    record::{DELETABLE, History, Operation, Pid, Record},
    stage,
    time::{SECOND, Time},
    world::{Event, World},
};
use crate::{checkers::DETERMINISM, dice::Dice, files, history::Violation};

/// What a run is asked to be.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Decides everything.
    pub seed: u64,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// Each record goes to stderr.
    pub verbose: bool,
}

impl Request {
    /// A plain run of `seed`.
    #[must_use]
    pub const fn plain(seed: u64) -> Self {
        Self { seed, flaw: None, verbose: false }
    }

    /// The parameters its seed draws.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::draw(self.seed, &mut Dice::new(self.seed));
        if let Some(fault) = self.flaw.and_then(Flaw::provoked_by) {
            parameters.faults[fault as usize] = 50;
        }
        if self.flaw == Some(Flaw::DeletesHereAlone) {
            parameters.deletes = parameters.deletes.max(200);
        }
        parameters
    }
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Stands for everything that happened, in order.
    pub hash: u64,
    /// Records.
    pub records: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Processes that ended or were killed.
    pub ended: u64,
    /// Virtual seconds.
    pub seconds: u64,
    /// The first promise that broke where what it rests on does not hold: no fault of the code.
    pub outside: Option<Violation>,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

/// Runs a request.
///
/// # Errors
/// What the file system of the scratch folder says.
pub fn run(request: &Request) -> io::Result<Outcome> {
    let scratch = files::scratch()?;
    let parameters = request.parameters();
    let history = History::new(&parameters, request.verbose);
    let dice = Dice::new(request.seed ^ 0xc105_7e12);
    let mut world = World::new(parameters, request.flaw, dice, history, scratch.path().to_owned());
    trouble(&mut world);
    calm(&mut world);
    death(&mut world);
    farewell(&mut world);
    world.record(&Record::Over);
    Ok(Outcome {
        hash: world.history.hash(),
        records: world.history.count(),
        requests: world.requests(),
        ended: world.network.ended.len() as u64,
        seconds: world.time / SECOND,
        outside: world.history.outside(),
        violation: world.history.violation(),
    })
}

/// Runs it twice; a difference is a violation of its own.
///
/// # Errors
/// As [`run`].
pub fn run_twice(request: &Request) -> io::Result<Outcome> {
    let first = run(request)?;
    let second = run(&Request { verbose: false, ..*request })?;
    if first.hash == second.hash {
        return Ok(first);
    }
    let text = format!("one run has the hash {:016x}, the next {:016x}", first.hash, second.hash);
    Ok(Outcome { violation: Some(Violation { checker: DETERMINISM, text }), ..first })
}

/// Nodes start, clients ask, and things go wrong.
fn trouble(world: &mut World) {
    for node in 0..world.parameters.nodes {
        let wait = world.dice.below(3 * SECOND);
        world.after(wait, Event::Start(node));
    }
    world.after(10 * SECOND, Event::Client);
    world.after(25 * SECOND, Event::Fault);
    let until = 25 * SECOND + world.parameters.faults_for;
    world.run_until(until);
}

/// After a while without trouble every actor is served, whoever is asked.
fn calm(world: &mut World) {
    world.calm_down();
    // A start check, a takeover, a stop that had begun, the last kept requests; and the alarms of nodes that are gone, to
    // which each node looks in its turn and, after looks that came to nothing, after a wait.
    run_for(world, 150 * SECOND);
    world.record(&Record::MustServe);
    ask_all(world);
    run_for(world, 2 * SECOND);
}

/// One node dies, and the others take its actors over in the time they have for it.
fn death(world: &mut World) {
    // A node whose clock is wrong is not fenced before its date, and one whose own is behind fences nobody.
    let sane =
        |pid: &Pid| world.slots.get(pid).is_some_and(|slot| slot.process.clocks.skew_ms.abs() <= 1_000);
    let pids: Vec<Pid> = world.listening().into_iter().filter(sane).collect();
    if pids.len() < 2 {
        return;
    }
    let pid = *world.dice.pick(&pids);
    let Some(slot) = world.slots.get(&pid) else { return };
    let node = stage::node_number(slot.process.node());
    world.record(&Record::Dies { node, pid });
    world.kill(pid);
    // Requests that wait: sent when it has left every view, before its actors are free.
    run_for(world, 14 * SECOND);
    for pid in world.listening() {
        for actor in 0..world.parameters.actors {
            world.ask(pid, actor, Operation::Count);
        }
    }
    run_for(world, 40 * SECOND);
    world.record(&Record::MustServe);
    ask_all(world);
    run_for(world, 2 * SECOND);
}

/// One node stops cleanly, and its actors are free as soon as the others have listed that.
fn farewell(world: &mut World) {
    if world.listening().len() < 2 {
        return;
    }
    let Some(pid) = any(world) else { return };
    world.input(pid, super::process::Input::Stop);
    run_for(world, 4 * SECOND);
    world.record(&Record::MustServe);
    ask_all(world);
    run_for(world, 35 * SECOND);
}

fn run_for(world: &mut World, length: Time) {
    let until = world.time + length;
    world.run_until(until);
}

fn any(world: &mut World) -> Option<Pid> {
    let pids = world.listening();
    if pids.is_empty() { None } else { Some(*world.dice.pick(&pids)) }
}

/// Every node is asked for every actor, with a body and without.
fn ask_all(world: &mut World) {
    for pid in world.listening() {
        let deletable = (world.parameters.deletes > 0).then_some(DELETABLE);
        for actor in (0..world.parameters.actors).chain(deletable) {
            for operation in [Operation::Add, Operation::Count] {
                world.ask(pid, actor, operation);
            }
        }
        run_for(world, SECOND);
    }
}
