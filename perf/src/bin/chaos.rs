//! Hurts the nodes of a real cluster and cuts their ways one after another, with clients writing and reading all the
//! while, and compares what the actors have in the end with what the clients were told: nothing acknowledged may be lost,
//! nothing may be there twice, nothing refused may have run, no alarm may be missed, and no answer may be one that is
//! not documented. Prints how long the actors of a lost node were away.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use hdrhistogram::Histogram;
use wasmkeep_perf::{
    chaos::{
        alarms::{Alarms, Fired},
        clients::{Clients, Reads, name, stored},
        harm::Harm,
        nodes::{Nodes, Setting, sample},
        record::Record,
    },
    machine, println, process,
};

/// Kills, freezes and stops nodes of a cluster under load, and cuts them off from the bucket and from each other.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    guests: PathBuf,

    /// Nodes.
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: usize,

    /// How many times a node is hurt.
    #[arg(long, value_name = "N", default_value_t = 15)]
    harms: usize,

    /// Which harm of the round comes first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: usize,

    /// Kills and wiped disks alone.
    #[arg(long)]
    kills_only: bool,

    /// Actors written to and read, each by a client of its own.
    #[arg(long, value_name = "N", default_value_t = 12)]
    actors: usize,

    /// Nodes talk plain HTTP with each other, and not TLS.
    #[arg(long)]
    plaintext: bool,

    /// Folder for the data directories.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

/// Between a cluster that is whole again and the next harm.
const CALM: Duration = Duration::from_secs(4);

/// What was done, and what came of it. How long actors were away is in milliseconds.
struct Harms {
    /// Of killed nodes.
    killed: Histogram<u64>,
    /// Of nodes that were frozen or cut off from the bucket.
    silent: Histogram<u64>,
    /// One set before each harm.
    alarms: Alarms,
}

/// What the clients know in the end.
struct Told {
    records: Vec<Record>,
    reads: Vec<Reads>,
    harms: Harms,
}

impl Flags {
    fn harms(&self) -> impl Iterator<Item = (usize, Harm)> {
        let kills_only = self.kills_only;
        (self.from..self.from + self.harms).map(move |turn| (turn, Harm::of(turn, kills_only)))
    }
}

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let folder = tempfile::Builder::new().prefix("wasmkeep-chaos-").tempdir_in(&flags.data_dir)?;
    println!("machine: {}", machine::describe());
    println!("node: {}", machine::version_of(&flags.wasmkeep, "--version")?);
    println!("between nodes: {}", if flags.plaintext { "plain HTTP" } else { "TLS" });
    let setting = Setting {
        binary: flags.wasmkeep.clone(),
        guest: sample(&flags.guests)?,
        folder: folder.path().to_owned(),
        plaintext: flags.plaintext,
    };
    let nodes = Nodes::start(setting, flags.nodes)?;
    let told = hurt(&nodes, &flags)?;
    let mut wrong = Vec::new();
    for (actor, record) in told.records.iter().enumerate() {
        wrong.extend(record.judge(&name(actor), &stored(&nodes, actor)?));
    }
    let fired = told.harms.alarms.look(&nodes)?;
    wrong.extend(fired.wrong.iter().cloned());
    nodes.stop()?;
    report(&flags, &told, &fired)?;
    wrong.iter().for_each(|text| println!("WRONG: {text}"));
    println!(
        "nothing acknowledged lost, nothing twice, no alarm missed: {}",
        if wrong.is_empty() { "yes" } else { "NO" }
    );
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the clients while the nodes are hurt.
fn hurt(nodes: &Nodes, flags: &Flags) -> Result<Told> {
    let clients = Clients::new(nodes);
    thread::scope(|scope| -> Result<_> {
        let clients = &clients;
        let writers: Vec<_> =
            (0..flags.actors).map(|actor| scope.spawn(move || clients.write(actor))).collect();
        let readers: Vec<_> =
            (0..flags.actors).map(|actor| scope.spawn(move || clients.read(actor))).collect();
        let harms = harm(nodes, flags.harms());
        clients.stop();
        let records: Result<Vec<_>> =
            writers.into_iter().map(|client| client.join().expect("no panic")).collect();
        let reads: Result<Vec<_>> =
            readers.into_iter().map(|client| client.join().expect("no panic")).collect();
        Ok(Told { records: records?, reads: reads?, harms: harms? })
    })
}

/// Hurts one node after another.
fn harm(nodes: &Nodes, harms: impl Iterator<Item = (usize, Harm)>) -> Result<Harms> {
    let mut hurt =
        Harms { killed: Histogram::new(3)?, silent: Histogram::new(3)?, alarms: Alarms::default() };
    thread::sleep(CALM);
    for (turn, harm) in harms {
        let victim = turn % nodes.count();
        let probe = format!("/actor/sql/{}/size", nodes.actor_of(victim, "probe")?);
        hurt.alarms.set(nodes, victim)?;
        let began = Instant::now();
        let away = harm.carry_out(nodes, victim, &probe)?;
        let took = began.elapsed().as_secs_f64();
        match away {
            Some(away) => println!(
                "{harm:?} of {}: its actor was away for {:.1} s; whole again after {took:.1} s",
                Nodes::name(victim),
                away.as_secs_f64()
            ),
            None => println!("{harm:?} of {}: whole again after {took:.1} s", Nodes::name(victim)),
        }
        if let Some(away) = away {
            let is_killed = matches!(harm, Harm::Kill | Harm::KillAndWipe);
            let of = if is_killed { &mut hurt.killed } else { &mut hurt.silent };
            of.record(u64::try_from(away.as_millis())?)?;
        }
        thread::sleep(CALM);
    }
    Ok(hurt)
}

fn report(flags: &Flags, told: &Told, fired: &Fired) -> Result<()> {
    println!("load average: {:.2}", process::load_average()?);
    let mut counts = BTreeMap::new();
    for (_, harm) in flags.harms() {
        *counts.entry(harm).or_insert(0) += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(harm, count)| format!("{count} {harm:?}")).collect();
    println!("{} harms to {} nodes: {}", flags.harms, flags.nodes, counts.join(", "));
    let kills = told.harms.killed.len();
    for (what, away) in [("killed", &told.harms.killed), ("silent", &told.harms.silent)] {
        let ms = |quantile| away.value_at_quantile(quantile);
        let (p50, p99, count) = (ms(0.5), ms(0.99), away.len());
        println!("an actor of a {what} node was away: p50 {p50} ms, p99 {p99} ms, of {count}");
    }
    println!("kills: {kills}");
    let acknowledged: usize = told.records.iter().map(Record::acknowledged).sum();
    println!("acknowledged durable writes: {acknowledged}");
    let sum = |of: fn(&Reads) -> usize| told.reads.iter().map(of).sum::<usize>();
    let longest = told.reads.iter().map(|reads| reads.longest).max().unwrap_or_default();
    println!(
        "GETs: {} served, {} of them kept for a takeover, {} refused; the longest took {:.1} s",
        sum(|reads| reads.served),
        sum(|reads| reads.kept),
        sum(|reads| reads.refused),
        longest.as_secs_f64()
    );
    println!(
        "alarms: {} of {} fired, {} more than once; late by p50 {} ms, at most {} ms",
        fired.late_ms.len(),
        told.harms.alarms.count(),
        fired.again,
        fired.late_ms.get(fired.late_ms.len() / 2).copied().unwrap_or_default(),
        fired.late_ms.last().copied().unwrap_or_default()
    );
    Ok(())
}
