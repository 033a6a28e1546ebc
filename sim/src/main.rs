//! The command line of the simulator.

use std::{
    io,
    ops::Range,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand, ValueEnum};
use rayon::prelude::*;
use wasmkeep_sim::{
    Flaw, Outcome, ReplicaFlaw, ReplicaRequest, Request, Violation, cluster, eprintln, println, run,
    run_replica, run_replica_twice, run_twice, variants,
};

/// Seeds of `quick`: the same at every run, so that a failure is a change's doing.
const QUICK_SEEDS: Range<u64> = 0..300;

/// Seeds of `quick` that are run twice and compared.
const QUICK_SEEDS_TWICE: Range<u64> = 0..20;

/// Seeds that `soak` runs of a world before it goes on to the next, spread over the cores.
const SOAK_SEEDS: u64 = 16;

/// Simulates actors under load, faults and crashes, and checks what is promised.
#[derive(Debug, Parser)]
#[command(name = "sim")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs one seed twice, showing its parameters, and compares.
    Run {
        /// Which of the simulated worlds.
        #[arg(long, value_enum, default_value_t = Which::Shard)]
        world: Which,
        /// What decides everything.
        #[arg(long)]
        seed: u64,
        /// Actions in each life of a shard, in place of what the seed draws.
        #[arg(long)]
        steps: Option<u64>,
        /// Breaks one promise on purpose, by the name `broken` prints.
        #[arg(long)]
        broken: Option<String>,
        /// Shows everything that happens, on stderr.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Runs a fixed list of seeds and every broken variant.
    Quick,
    /// Runs one seed after another.
    Soak {
        /// One of the simulated worlds; all in turn if none is named.
        #[arg(long, value_enum)]
        world: Option<Which>,
        /// How long.
        #[arg(long)]
        minutes: u64,
        /// Where to begin.
        #[arg(long, default_value_t = 1_000_000)]
        from: u64,
    },
    /// Runs every broken variant until its checker notices.
    Broken,
}

/// The worlds there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// One shard of actors.
    Shard,
    /// Actors whose data is in a bucket, and the nodes that hold them in turn.
    Replica,
    /// Nodes that share a bucket and agree by it who runs which actor.
    Cluster,
}

impl Which {
    const ALL: [Self; 3] = [Self::Shard, Self::Replica, Self::Cluster];

    fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::Replica => "replica",
            Self::Cluster => "cluster",
        }
    }

    /// Its share of [`QUICK_SEEDS`]: one run of a cluster is several minutes of several nodes.
    fn quick_seeds(self) -> Range<u64> {
        match self {
            Self::Shard | Self::Replica => QUICK_SEEDS,
            Self::Cluster => 0..QUICK_SEEDS.end / 3,
        }
    }

    fn run(self, seed: u64) -> io::Result<Summary> {
        Ok(match self {
            Self::Shard => {
                let Outcome { events, crashes, records, violation, .. } = run(&Request::plain(seed))?;
                Summary { events, crashes, records, outside: None, violation }
            }
            Self::Replica => {
                let outcome = run_replica(&ReplicaRequest::plain(seed))?;
                Summary {
                    events: outcome.units,
                    crashes: outcome.crashes,
                    records: outcome.records,
                    outside: None,
                    violation: outcome.violation,
                }
            }
            Self::Cluster => {
                let outcome = cluster::run(&cluster::Request::plain(seed))?;
                Summary {
                    events: outcome.requests,
                    crashes: outcome.ended,
                    records: outcome.records,
                    outside: outcome.outside,
                    violation: outcome.violation,
                }
            }
        })
    }

    fn run_twice(self, seed: u64) -> io::Result<Option<Violation>> {
        Ok(match self {
            Self::Shard => run_twice(&Request::plain(seed))?.violation,
            Self::Replica => run_replica_twice(&ReplicaRequest::plain(seed))?.violation,
            Self::Cluster => cluster::run_twice(&cluster::Request::plain(seed))?.violation,
        })
    }
}

fn main() -> ExitCode {
    let passed = match Arguments::parse().command {
        Command::Run { world: Which::Shard, seed, steps, broken, verbose } => {
            one(seed, steps, broken.as_deref(), verbose)
        }
        Command::Run { world: Which::Replica, seed, broken, verbose, .. } => {
            one_replica(seed, broken.as_deref(), verbose)
        }
        Command::Run { world: Which::Cluster, seed, broken, verbose, .. } => {
            one_cluster(seed, broken.as_deref(), verbose)
        }
        Command::Quick => quick(),
        Command::Soak { world, minutes, from } => soak(world, Duration::from_secs(minutes * 60), from),
        Command::Broken => broken(),
    };
    match passed {
        Ok(true) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the scratch folder cannot be used: {error}");
            println!("failed");
            ExitCode::FAILURE
        }
    }
}

fn one(seed: u64, actions: Option<u64>, broken: Option<&str>, verbose: bool) -> io::Result<bool> {
    let flaw = match broken {
        None => None,
        Some(name) => {
            let known = Flaw::ALL.iter().copied().find(|flaw| flaw.name() == name);
            if known.is_none() {
                eprintln!("there is no broken variant {name:?}; `sim broken` lists them");
                return Ok(false);
            }
            known
        }
    };
    let request = Request { seed, actions, flaw, verbose };
    println!("{}", request.parameters());
    let outcome = run_twice(&request)?;
    println!(
        "{} events, {} crashes, {} records, hash {:016x}",
        outcome.events, outcome.crashes, outcome.records, outcome.hash
    );
    Ok(report(Which::Shard, seed, outcome.violation.as_ref()))
}

fn one_replica(seed: u64, broken: Option<&str>, verbose: bool) -> io::Result<bool> {
    let flaw = match broken {
        None => None,
        Some(name) => {
            let known = ReplicaFlaw::ALL.iter().copied().find(|flaw| flaw.name() == name);
            if known.is_none() {
                eprintln!("there is no broken variant {name:?} of this world; `sim broken` lists them");
                return Ok(false);
            }
            known
        }
    };
    let request = ReplicaRequest { seed, flaw, verbose };
    println!("{}", request.parameters());
    let outcome = run_replica_twice(&request)?;
    println!("{} rows written, {} records, hash {:016x}", outcome.units, outcome.records, outcome.hash);
    Ok(report(Which::Replica, seed, outcome.violation.as_ref()))
}

fn one_cluster(seed: u64, broken: Option<&str>, verbose: bool) -> io::Result<bool> {
    let flaw = match broken {
        None => None,
        Some(name) => {
            let known = cluster::Flaw::ALL.iter().copied().find(|flaw| flaw.name() == name);
            if known.is_none() {
                eprintln!("there is no broken variant {name:?} of this world; `sim broken` lists them");
                return Ok(false);
            }
            known
        }
    };
    let request = cluster::Request { seed, flaw, verbose };
    println!("{}", request.parameters());
    let outcome = cluster::run_twice(&request)?;
    println!(
        "{} requests, {} processes ended, {} virtual seconds, {} records, hash {:016x}",
        outcome.requests, outcome.ended, outcome.seconds, outcome.records, outcome.hash
    );
    if let Some(outside) = &outcome.outside {
        println!("beyond what is assumed: {outside}");
    }
    Ok(report(Which::Cluster, seed, outcome.violation.as_ref()))
}

/// Says what a run broke, and how to see it again.
fn report(world: Which, seed: u64, violation: Option<&Violation>) -> bool {
    let Some(violation) = violation else { return true };
    println!("{} seed {seed}: {violation}", world.name());
    println!("see it again: cargo run -p wasmkeep-sim -- run --world {} --seed {seed} -v", world.name());
    false
}

fn quick() -> io::Result<bool> {
    let began = Instant::now();
    for world in Which::ALL {
        let outcomes = seeds(QUICK_SEEDS_TWICE, |seed| world.run_twice(seed))?;
        if !outcomes.iter().all(|(seed, violation)| report(world, *seed, violation.as_ref())) {
            return Ok(false);
        }
    }
    println!("the first {} seeds of each world gave the same run twice", QUICK_SEEDS_TWICE.end);
    for world in Which::ALL {
        let began = Instant::now();
        let mut totals = Totals::new(world);
        if !totals.add(world.quick_seeds())? {
            return Ok(false);
        }
        totals.print(began.elapsed());
    }
    let noticed = broken()?;
    println!("took {:.0} s", began.elapsed().as_secs_f64());
    Ok(noticed)
}

/// Runs one world, or all in turn, some seeds each.
fn soak(world: Option<Which>, time: Duration, from: u64) -> io::Result<bool> {
    let began = Instant::now();
    let mut shown = Instant::now();
    let chosen = Which::ALL.into_iter().filter(|each| world.is_none_or(|world| world == *each));
    let mut totals: Vec<Totals> = chosen.map(Totals::new).collect();
    for from in (from..).step_by(SOAK_SEEDS as usize) {
        for world in &mut totals {
            if !world.add(from..from + SOAK_SEEDS)? {
                return Ok(false);
            }
        }
        if shown.elapsed() > Duration::from_secs(30) {
            totals.iter().for_each(|world| world.print(began.elapsed()));
            shown = Instant::now();
        }
        if began.elapsed() > time {
            break;
        }
    }
    totals.iter().for_each(|world| world.print(began.elapsed()));
    Ok(true)
}

/// Runs seeds on every core; what came of them, in their order.
fn seeds<T: Send>(seeds: Range<u64>, run: impl Fn(u64) -> io::Result<T> + Sync) -> io::Result<Vec<(u64, T)>> {
    let seeds: Vec<u64> = seeds.collect();
    seeds.into_par_iter().with_max_len(1).map(|seed| Ok((seed, run(seed)?))).collect()
}

/// What came of one seed, whatever its world.
#[derive(Debug)]
struct Summary {
    /// Events of a shard, rows of a replica, requests to a cluster.
    events: u64,
    /// Processes that ended.
    crashes: u64,
    records: u64,
    /// What broke beyond what is assumed.
    outside: Option<Violation>,
    violation: Option<Violation>,
}

/// Sums over seeds of one world.
#[derive(Debug)]
struct Totals {
    world: Which,
    seeds: u64,
    events: u64,
    crashes: u64,
    records: u64,
    /// Runs in which a promise broke beyond what is assumed.
    outside: u64,
}

impl Totals {
    fn new(world: Which) -> Self {
        Self { world, seeds: 0, events: 0, crashes: 0, records: 0, outside: 0 }
    }

    /// Runs these seeds, too; `false`: a promise broke.
    fn add(&mut self, range: Range<u64>) -> io::Result<bool> {
        let world = self.world;
        let mut passed = true;
        for (seed, summary) in seeds(range, |seed| world.run(seed))? {
            self.seeds += 1;
            self.events += summary.events;
            self.crashes += summary.crashes;
            self.records += summary.records;
            if let Some(outside) = &summary.outside {
                self.outside += 1;
                println!("{} seed {seed}, beyond what is assumed: {outside}", world.name());
            }
            passed &= report(world, seed, summary.violation.as_ref());
        }
        Ok(passed)
    }

    fn print(&self, took: Duration) {
        println!(
            "{}: {} seeds ({} events, {} crashes, {} records, {} beyond what is assumed) in {:.1} s: {:.1} seeds/s",
            self.world.name(),
            self.seeds,
            self.events,
            self.crashes,
            self.records,
            self.outside,
            took.as_secs_f64(),
            self.seeds as f64 / took.as_secs_f64().max(0.001)
        );
    }
}

fn broken() -> io::Result<bool> {
    let mut all = true;
    for of_world in [variants::of_shards, variants::of_replicas, variants::of_clusters] {
        for tried in of_world()? {
            println!("broken: {tried}");
            all &= tried.is_caught();
        }
    }
    Ok(all)
}
