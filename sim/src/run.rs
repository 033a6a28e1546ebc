//! One run: the lives of a shard, one after another over the same data, as a seed decides.

use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use crate::{
    checkers::DETERMINISM,
    dice::Dice,
    executor::Executor,
    files,
    flaw::Flaw,
    history::{ActorNumber, History, LifeEnd, Record, Rules, Violation},
    inspect::inspect,
    life::{Left, Life},
    parameters::Parameters,
    script::micros,
    stage::{CLASSES, Counter, Run, Stage, cast},
};

/// What a run is asked to be.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Decides everything.
    pub seed: u64,
    /// Actions of each life, in place of what the seed draws.
    pub actions: Option<u64>,
    /// What is broken on purpose.
    pub flaw: Option<Flaw>,
    /// Each record goes to stderr.
    pub verbose: bool,
}

impl Request {
    /// A plain run of `seed`.
    #[must_use]
    pub const fn plain(seed: u64) -> Self {
        Self { seed, actions: None, flaw: None, verbose: false }
    }

    /// The parameters its seed draws.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::draw(self.seed, &mut Dice::new(self.seed));
        parameters.actions = self.actions.unwrap_or(parameters.actions);
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
    /// Events sent.
    pub events: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// The first broken promise.
    pub violation: Option<Violation>,
}

/// Runs a request.
///
/// # Errors
/// What the file system of the scratch folder says.
pub fn run(request: &Request) -> io::Result<Outcome> {
    let scratch = files::scratch()?;
    let mut dice = Dice::new(request.seed ^ 0xd1ce);
    let parameters = request.parameters();
    let cast = cast(parameters.actors);
    let rules = Rules {
        mailbox_events_max: parameters.mailbox_events_max as usize,
        resident_max: parameters.resident_max as usize,
        event_limit: micros(parameters.event_limit_us),
    };
    let history = History::new(rules, cast.iter().map(ToString::to_string).collect(), request.verbose);
    let run = Rc::new(Run {
        parameters,
        flaw: request.flaw,
        history,
        cast,
        dice: RefCell::new(dice.fork()),
        faults: Cell::new(true),
        versions: RefCell::new(vec![1; CLASSES.len()]),
        wall_ms: Cell::new(WALL_MS),
        events: Counter::default(),
        units: Counter::default(),
        attempts: Counter::default(),
        spares: Counter::default(),
    });
    let crashes = lives(&run, &mut dice, scratch.path())?;
    let history = &run.history;
    Ok(Outcome {
        hash: history.hash(),
        records: history.count(),
        events: run.events.latest(),
        crashes,
        violation: history.violation(),
    })
}

/// Runs a request twice and compares.
///
/// # Errors
/// As [`run`].
pub fn run_twice(request: &Request) -> io::Result<Outcome> {
    let first = run(request)?;
    let second = run(&Request { verbose: false, ..*request })?;
    if first.violation.is_some() || first == second {
        return Ok(first);
    }
    let text = format!(
        "the same seed gave {} records with hash {:016x} and then {} with {:016x}",
        first.records, first.hash, second.records, second.hash
    );
    Ok(Outcome { violation: Some(Violation { checker: DETERMINISM, text }), ..first })
}

/// The wall clock at the beginning of a run: November 2023.
const WALL_MS: u64 = 1_700_000_000_000;

fn lives(run: &Rc<Run>, dice: &mut Dice, scratch: &Path) -> io::Result<u64> {
    let mut folder = scratch.join("life-0");
    fs::create_dir_all(&folder)?;
    let (mut now, mut crashes, mut is_torn) = (Duration::from_secs(1), 0, false);
    for life in 1..=run.parameters.lives {
        let stage = stage(run, now, dice, &folder, is_torn);
        let left = Life::new(&stage, dice.fork()).run(life == run.parameters.lives);
        now = stage.executor.now();
        if run.history.violation().is_some() {
            put_away(run, &stage);
            return Ok(crashes);
        }
        match left {
            Left::Stopped => {
                put_away(run, &stage);
                is_torn = false;
                run.history.record(now, &Record::LifeEnded(LifeEnd::Stopped));
            }
            Left::Running => {
                crashes += 1;
                folder = scratch.join(format!("life-{life}"));
                let torn = kill(&stage, dice, &folder)?;
                is_torn = torn.is_some();
                run.history.record(now, &Record::LifeEnded(LifeEnd::Killed { torn }));
            }
        }
        look(run, now, dice, &folder, scratch)?;
    }
    Ok(crashes)
}

fn stage(run: &Rc<Run>, now: Duration, dice: &mut Dice, folder: &Path, is_torn: bool) -> Rc<Stage> {
    let executor = Executor::new(now, dice.fork(), run.parameters.poll_cost_us_max);
    Stage::new(run.clone(), executor, folder.to_owned(), is_torn)
}

/// Ends what a life may have left, unseen.
fn put_away(run: &Run, stage: &Stage) {
    run.history.seal(true);
    stage.executor.clear();
    run.history.seal(false);
}

/// Takes the files as a kill at this moment leaves them, to `folder`. Of one actor the commit that was last
/// being written may be there in part: a WAL is only ever appended to.
fn kill(stage: &Stage, dice: &mut Dice, folder: &Path) -> io::Result<Option<ActorNumber>> {
    files::copy(&stage.folder, folder)?;
    put_away(&stage.run, stage);
    let copy_of = |actor: ActorNumber| files::path(folder, &stage.run.cast[actor]);
    let marks = stage.acknowledged.borrow();
    if stage.flawed(Flaw::LosesAcknowledged) {
        for actor in marks.keys() {
            let _ = fs::remove_file(files::wal_of(&copy_of(*actor)));
        }
    }
    let grown: Vec<_> = marks
        .iter()
        .filter_map(|(actor, mark)| Some((*actor, mark, mark.growth(&copy_of(*actor))?)))
        .filter(|(_, _, growth)| *growth > 0)
        .collect();
    if grown.is_empty() || dice.chance(300) || stage.run.flaw.is_some_and(|flaw| flaw != Flaw::TrustsIndex) {
        return Ok(None);
    }
    let (actor, mark, growth) = dice.pick(&grown);
    mark.cut(&copy_of(*actor), dice.below(*growth))?;
    Ok(Some(*actor))
}

/// Reads every database between two lives: as it lies, or a copy of it, so that either the look or the next
/// life is the first to recover it.
fn look(run: &Rc<Run>, now: Duration, dice: &mut Dice, folder: &Path, scratch: &Path) -> io::Result<()> {
    let in_place = dice.chance(500);
    let looked_at: PathBuf = if in_place { folder.to_owned() } else { scratch.join("copy") };
    if !in_place {
        files::copy(folder, &looked_at)?;
    }
    let stage = stage(run, now, dice, &looked_at, false);
    inspect(&stage);
    put_away(run, &stage);
    if !in_place {
        fs::remove_dir_all(&looked_at)?;
    }
    Ok(())
}
