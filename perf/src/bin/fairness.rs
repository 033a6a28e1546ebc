//! Whether a busy neighbour is felt: one shard, one actor in an endless recursive query, one spinning in wasm,
//! and a third on the same core that is asked in a closed loop.
//!
//! Prints the third's latency alone and beside the two, whether its p99 stays under 5 ms, and how the two ended
//! at the event limit. The node's shard has one core to itself, the client runs on the others.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use wasmkeep_perf::{
    http::{Answer, Connection},
    machine, println, process,
    server::{Server, free_address},
};

/// The p99 that must hold beside the two.
const P99_MAX: Duration = Duration::from_millis(5);

/// Time for the two to be on their way before anything is measured.
const HEAD_START: Duration = Duration::from_millis(500);

/// Before the first measurement: the third actor is in memory then.
const WARM_UP: Duration = Duration::from_millis(500);

/// How long past the event limit an answer may come.
const GRACE: Duration = Duration::from_secs(15);

/// A query without an end.
const ENDLESS: &str =
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";

/// Measures how an actor is served beside two that never stop.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    guests: PathBuf,

    /// Seconds measured alone, and again beside the two.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// Folder for the data directory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let seconds = Duration::from_secs(flags.seconds);
    let event_limit = HEAD_START + seconds + Duration::from_secs(2);
    let folder = tempfile::Builder::new().prefix("wasmkeep-fairness-").tempdir_in(&flags.data_dir)?;
    // Before this process confines itself: it counts the cores it may use.
    let machine = machine::describe();
    let (core, others) = choose_cores()?;
    let server = start(&flags, folder.path(), core, event_limit)?;
    let address = server.address();
    // Only now: the node inherits what this process may use.
    sched_setaffinity(None, &others)?;

    closed_loop(address, WARM_UP)?;
    let alone = closed_loop(address, seconds)?;
    let patience = event_limit + GRACE;
    let offenders = [
        Offender::start("recursive query", address, "/actor/sql/query/sql?as=query", ENDLESS, patience),
        Offender::start("wasm loop", address, "/actor/sql/loop/spin", "", patience),
    ];
    thread::sleep(HEAD_START);
    let cpu_before = process::cpu_time(server.pid())?;
    let began = Instant::now();
    let beside = closed_loop(address, seconds)?;
    let cores = (process::cpu_time(server.pid())? - cpu_before).as_secs_f64() / began.elapsed().as_secs_f64();

    println!("machine: {machine}");
    println!("load average: {:.2}", process::load_average()?);
    println!("node: {}, one shard on CPU {core}", machine::version_of(&flags.wasmkeep, "--version")?);
    print_latency("third actor, alone", &alone);
    print_latency("third actor, beside the two", &beside);
    println!("CPU used by the node meanwhile: {cores:.2} cores");
    let mut ended_well = true;
    for offender in offenders {
        ended_well &= offender.end(event_limit)?;
    }
    server.stop()?;
    let p99 = Duration::from_micros(beside.value_at_quantile(0.99));
    let held = p99 < P99_MAX;
    println!("p99 under {P99_MAX:?}: {}", if held { "yes" } else { "NO" });
    Ok(if held && ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A CPU for the node's shard, and the rest for this process.
fn choose_cores() -> Result<(usize, CpuSet)> {
    let mut others = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).find(|cpu| others.is_set(*cpu)).context("this process may use no CPU")?;
    others.unset(core);
    ensure!(others.count() > 0, "two CPUs are needed: one for the shard, one for the client");
    Ok((core, others))
}

fn start(flags: &Flags, folder: &Path, core: usize, event_limit: Duration) -> Result<Server> {
    let address = free_address()?;
    let guest = |name: &str| -> Result<PathBuf> {
        fs::canonicalize(flags.guests.join(name)).with_context(|| format!("{name} in {:?}", flags.guests))
    };
    let mut command = Command::new(&flags.wasmkeep);
    command.arg("serve");
    command.arg(format!("--actor=counter={}", guest("counter.wasm")?.display()));
    command.arg(format!("--actor=sql={}", guest("sql.wasm")?.display()));
    command.arg(format!("--data-dir={}", folder.join("data").display()));
    command.arg(format!("--listen={address}")).args(["--shards=1", &format!("--cpuset={core}")]);
    command.arg(format!("--event-limit-secs={}", event_limit.as_secs_f64()));
    Server::start(command, address, &folder.join("log"))
}

/// Adds to one counter again and again, one request at a time; latencies in microseconds.
fn closed_loop(address: SocketAddr, duration: Duration) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::<u64>::new_with_bounds(1, 120_000_000, 3)?;
    let mut connection = Connection::open(address, Duration::from_secs(60))?;
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let began = Instant::now();
        let answer = connection.ask("POST", "/actor/counter/third", b"")?;
        latencies.record(u64::try_from(began.elapsed().as_micros())?.max(1))?;
        ensure!(answer.status == 200, "the third actor answered {} {:?}", answer.status, answer.text());
    }
    Ok(latencies)
}

fn print_latency(title: &str, latencies: &Histogram<u64>) {
    let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{title:28}: {:7} requests, p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms",
        latencies.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        latencies.max() as f64 / 1000.0,
    );
}

/// A request that never ends by itself.
struct Offender {
    name: &'static str,
    asking: JoinHandle<std::io::Result<(Answer, Duration)>>,
}

impl Offender {
    fn start(
        name: &'static str,
        address: SocketAddr,
        path: &'static str,
        body: &'static str,
        patience: Duration,
    ) -> Self {
        let asking = thread::spawn(move || {
            let began = Instant::now();
            let answer = Connection::open(address, patience)?.ask("POST", path, body.as_bytes())?;
            Ok((answer, began.elapsed()))
        });
        Self { name, asking }
    }

    /// Waits for its end; says whether it was an error, and neither before the limit nor long after it.
    fn end(self, event_limit: Duration) -> Result<bool> {
        let Ok(ended) = self.asking.join() else { bail!("the client of the {} panicked", self.name) };
        let (answer, after) = ended.with_context(|| format!("the {} got no answer", self.name))?;
        let limit = event_limit.as_secs_f64();
        println!(
            "{:28}: ended after {:.2} s (limit {limit} s) with {} {:?}",
            self.name,
            after.as_secs_f64(),
            answer.status,
            answer.text()
        );
        let in_time = (limit - 0.1..limit + 2.0).contains(&after.as_secs_f64());
        Ok(in_time && answer.status >= 400)
    }
}
