//! The command line of the simulator.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use wasmkeep_sim::{Flaw, Outcome, Request, run, run_twice};

/// Seeds of `quick`: the same at every run, so that a failure is a change's doing.
const QUICK_SEEDS: std::ops::Range<u64> = 0..300;

/// Seeds of `quick` that are run twice and compared.
const QUICK_SEEDS_TWICE: std::ops::Range<u64> = 0..20;

/// Seeds within which each broken variant must be noticed.
const BROKEN_SEEDS_MAX: u64 = 60;

/// Simulates a shard of actors under load, faults and crashes, and checks what it promises.
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
        /// What decides everything.
        #[arg(long)]
        seed: u64,
        /// Actions in each life, in place of what the seed draws.
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

fn main() -> ExitCode {
    let passed = match Arguments::parse().command {
        Command::Run { seed, steps, broken, verbose } => one(seed, steps, broken.as_deref(), verbose),
        Command::Quick => quick(),
        Command::Soak { minutes, from } => soak(Duration::from_secs(minutes * 60), from),
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
    Ok(report(&request, &outcome))
}

/// Says what a run broke, and how to see it again.
fn report(request: &Request, outcome: &Outcome) -> bool {
    let Some(violation) = &outcome.violation else { return true };
    println!("seed {}: {violation}", request.seed);
    println!("see it again: cargo run -p wasmkeep-sim -- run --seed {} -v", request.seed);
    false
}

fn quick() -> io::Result<bool> {
    let began = Instant::now();
    for seed in QUICK_SEEDS_TWICE {
        let request = Request::plain(seed);
        if !report(&request, &run_twice(&request)?) {
            return Ok(false);
        }
    }
    println!("the first {} seeds gave the same run twice", QUICK_SEEDS_TWICE.end);
    let mut totals = Totals::default();
    for seed in QUICK_SEEDS {
        if !totals.add(&Request::plain(seed))? {
            return Ok(false);
        }
    }
    totals.print(began.elapsed());
    broken()
}

fn soak(time: Duration, from: u64) -> io::Result<bool> {
    let began = Instant::now();
    let mut shown = Instant::now();
    let mut totals = Totals::default();
    for seed in from.. {
        if !totals.add(&Request::plain(seed))? {
            return Ok(false);
        }
        if shown.elapsed() > Duration::from_secs(30) {
            totals.print(began.elapsed());
            shown = Instant::now();
        }
        if began.elapsed() > time {
            break;
        }
    }
    totals.print(began.elapsed());
    Ok(true)
}

/// Sums over seeds.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    events: u64,
    crashes: u64,
    records: u64,
}

impl Totals {
    fn add(&mut self, request: &Request) -> io::Result<bool> {
        let outcome = run(request)?;
        self.seeds += 1;
        self.events += outcome.events;
        self.crashes += outcome.crashes;
        self.records += outcome.records;
        Ok(report(request, &outcome))
    }

    fn print(&self, took: Duration) {
        println!(
            "{} seeds ({} events, {} crashes, {} records) in {:.1} s: {:.1} seeds/s",
            self.seeds,
            self.events,
            self.crashes,
            self.records,
            took.as_secs_f64(),
            self.seeds as f64 / took.as_secs_f64().max(0.001)
        );
    }
}

fn broken() -> io::Result<bool> {
    let mut all = true;
    for flaw in Flaw::ALL.iter().copied() {
        let mut noticed = None;
        for seed in 0..BROKEN_SEEDS_MAX {
            let request = Request { flaw: Some(flaw), ..Request::plain(seed) };
            let outcome = if flaw == Flaw::UsesEntropy { run_twice(&request)? } else { run(&request)? };
            if let Some(violation) = outcome.violation {
                noticed = Some((seed, violation));
                break;
            }
        }
        let expected = flaw.noticed_by();
        match noticed {
            Some((seed, violation)) if expected.contains(&violation.checker) => {
                println!("broken: {} noticed at seed {seed} by {violation}", flaw.name());
            }
            Some((seed, violation)) => {
                println!("broken: {} met {violation} at seed {seed}, not {expected:?}", flaw.name());
                all = false;
            }
            None => {
                println!("broken: {} was not noticed within {BROKEN_SEEDS_MAX} seeds", flaw.name());
                all = false;
            }
        }
    }
    Ok(all)
}
