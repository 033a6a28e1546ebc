//! Hurts the nodes of a real cluster one after another, with clients writing all the while, and compares what the
//! actors have in the end with what the clients were told: nothing acknowledged may be lost, nothing may be there twice,
//! nothing refused may have run. Prints how long the actors of a killed node were away.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Parser;
use hdrhistogram::Histogram;
use wasmkeep_perf::{
    chaos::{
        nodes::{Harm, Nodes},
        record::{Fate, Record, numbers},
    },
    machine, process,
};

/// Kills, freezes and stops nodes of a cluster under load.
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
    #[arg(long, value_name = "N", default_value_t = 6)]
    harms: usize,

    /// Actors written to, each by one client of its own.
    #[arg(long, value_name = "N", default_value_t = 12)]
    actors: usize,

    /// Folder for the bucket and the data directories.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

/// Between two writes of one client.
const PAUSE: Duration = Duration::from_millis(30);

/// Between a node that came back and the next harm.
const CALM: Duration = Duration::from_secs(4);

/// Longest time an actor may be away: the takeover at its latest and its restore, with room for a loaded machine.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Every number an actor has, as one value: a query gives a bounded number of rows.
const ALL: &str = "SELECT json_group_array(n) FROM (SELECT n FROM w ORDER BY rowid)";

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let folder = tempfile::Builder::new().prefix("wasmkeep-chaos-").tempdir_in(&flags.data_dir)?;
    println!("machine: {}", machine::describe());
    println!("node: {}", machine::version_of(&flags.wasmkeep, "--version")?);
    let nodes = Nodes::start(&flags.wasmkeep, &flags.guests, folder.path(), flags.nodes)?;
    let done = AtomicBool::new(false);
    let turn = AtomicUsize::new(0);
    let (records, away) = thread::scope(|scope| -> Result<_> {
        let clients: Vec<_> = (0..flags.actors)
            .map(|actor| {
                let (nodes, done, turn) = (&nodes, &done, &turn);
                scope.spawn(move || write(nodes, actor, done, turn))
            })
            .collect();
        let away = harm(&nodes, flags.harms);
        done.store(true, Ordering::Relaxed);
        let records: Result<Vec<Record>> =
            clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        Ok((records?, away?))
    })?;
    let mut wrong = Vec::new();
    for (actor, record) in records.iter().enumerate() {
        wrong.extend(record.judge(&name(actor), &stored(&nodes, actor)?));
    }
    nodes.stop()?;
    let acknowledged: usize = records.iter().map(Record::acknowledged).sum();
    println!("load average: {:.2}", process::load_average()?);
    println!("{} harms to {} nodes, {acknowledged} acknowledged durable writes", flags.harms, flags.nodes);
    let ms = |quantile| away.value_at_quantile(quantile);
    println!("actors of a killed node were away: p50 {} ms, p99 {} ms, of {}", ms(0.5), ms(0.99), away.len());
    wrong.iter().for_each(|text| println!("WRONG: {text}"));
    println!("nothing acknowledged lost, nothing twice: {}", if wrong.is_empty() { "yes" } else { "NO" });
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn name(actor: usize) -> String {
    format!("actor-{actor}")
}

/// One client's life: writes numbers to its actor through one node after another, and notes what it is told.
fn write(nodes: &Nodes, actor: usize, done: &AtomicBool, turn: &AtomicUsize) -> Result<Record> {
    let mut record = Record::default();
    let mut has_table = false;
    while !done.load(Ordering::Relaxed) {
        let node = turn.fetch_add(1, Ordering::Relaxed) % nodes.count();
        let sql = |kind: &str| format!("/actor/sql/{}/sql?as={kind}", name(actor));
        if !has_table {
            let answer =
                nodes.ask(node, "POST", &sql("durable"), b"CREATE TABLE IF NOT EXISTS w (n INTEGER)");
            has_table = Fate::of(&answer)? == Fate::Acknowledged;
            continue;
        }
        let number = record.next();
        let insert = format!("INSERT INTO w VALUES ({number})");
        let answer = nodes.ask(node, "POST", &sql("durable"), insert.as_bytes());
        record.note(number, Fate::of(&answer)?);
        thread::sleep(PAUSE);
    }
    Ok(record)
}

/// Hurts one node after another; how long its actors were away, in milliseconds.
fn harm(nodes: &Nodes, harms: usize) -> Result<Histogram<u64>> {
    let mut away = Histogram::new(3)?;
    thread::sleep(CALM);
    for turn in 0..harms {
        let (victim, harm) = (turn % nodes.count(), Harm::of(turn));
        let probe = actor_of(nodes, victim)?;
        let began = Instant::now();
        nodes.hurt(victim, harm)?;
        let back = wait_for(nodes, victim, &probe)?;
        println!("{harm:?} of {}: its actor was away for {:.1} s", Nodes::name(victim), back.as_secs_f64());
        if harm != Harm::Terminate {
            away.record(u64::try_from(back.as_millis())?)?;
        }
        if harm == Harm::Freeze {
            // Longer than its lease already: the others have its actors.
            thread::sleep(Duration::from_secs(20).saturating_sub(began.elapsed()));
            nodes.thaw(victim)?;
        }
        nodes.revive(victim)?;
        thread::sleep(CALM);
    }
    Ok(away)
}

/// An actor that the node has: a new one, first asked for there.
fn actor_of(nodes: &Nodes, node: usize) -> Result<String> {
    for attempt in 0..100 {
        let path = format!("/actor/sql/probe-{node}-{attempt}-{}/size", process_time());
        let answer = nodes.ask(node, "GET", &path, b"")?;
        if answer.status == 200 && answer.node.as_deref() == Some(&Nodes::name(node)) {
            return Ok(path);
        }
        thread::sleep(Duration::from_millis(100));
    }
    bail!("{} takes no actor", Nodes::name(node))
}

fn process_time() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// How long it takes until another node answers for the actor.
fn wait_for(nodes: &Nodes, victim: usize, path: &str) -> Result<Duration> {
    let began = Instant::now();
    let other = (victim + 1) % nodes.count();
    while began.elapsed() < AWAY_MAX {
        match nodes.ask(other, "GET", path, b"") {
            Ok(answer) if answer.status == 200 => return Ok(began.elapsed()),
            Ok(answer) if matches!(answer.status, 503 | 504) => {}
            Ok(answer) => bail!("{path} was answered {}: {}", answer.status, answer.text()),
            Err(error) => bail!("{}, which was not hurt, did not answer: {error}", Nodes::name(other)),
        }
        thread::sleep(Duration::from_millis(100));
    }
    bail!("nobody answers for {path} after {AWAY_MAX:?}")
}

/// What the actor has, once it can be asked.
fn stored(nodes: &Nodes, actor: usize) -> Result<Vec<u64>> {
    let began = Instant::now();
    let path = format!("/actor/sql/{}/sql?as=query", name(actor));
    loop {
        match nodes.ask(actor % nodes.count(), "POST", &path, ALL.as_bytes()) {
            Ok(answer) if answer.status == 200 => return numbers(&answer),
            Ok(answer) if began.elapsed() > AWAY_MAX => bail!("{path}: {} {}", answer.status, answer.text()),
            Err(error) if began.elapsed() > AWAY_MAX => bail!("{path}: {error}"),
            Ok(_) | Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}
