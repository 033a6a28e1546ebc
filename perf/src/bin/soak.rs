//! Everything an actor does at once, on one node: chat rooms with two sockets each, reminders with alarms, accounts
//! booked on by calls. The check: every message reaches everyone in its room once and in order, every reminder comes
//! once, every booking that was acknowledged stands once. Fewer actors may be in memory than there are, so they
//! hibernate and wake all the while.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Parser;
use wasmkeep_perf::{
    http::Connection,
    machine, println, process,
    server::{Server, free_address},
    soak::{Share, Tally, accounts, reminders, rooms},
};

/// Runs actors with sockets, alarms and calls side by side and loses nothing.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    guests: PathBuf,

    /// Actors: four tenths rooms, three reminders, three accounts.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    actors: u32,

    /// How long to go on.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,

    /// Actors in memory at once.
    #[arg(long, value_name = "N", default_value_t = 600)]
    max_resident: u32,

    /// Folder for the data directory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

/// Threads of the client for each kind of work.
const THREADS: u32 = 2;

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    machine::raise_open_files()?;
    let folder = tempfile::Builder::new().prefix("wasmkeep-soak-").tempdir_in(&flags.data_dir)?;
    let server = start(&flags, folder.path())?;
    let address = server.address();
    let until = Instant::now() + Duration::from_secs(flags.seconds);
    let (room_count, others) = (flags.actors * 4 / 10, flags.actors * 3 / 10);
    let tally = thread::scope(|scope| {
        let work: Vec<_> = (0..THREADS)
            .flat_map(|thread| {
                let share = move |of| Share { address, until, first: thread, step: THREADS, count: of };
                [
                    scope.spawn(move || rooms::run(&share(room_count))),
                    scope.spawn(move || reminders::run(&share(others))),
                    scope.spawn(move || accounts::run(&share(others))),
                ]
            })
            .collect();
        work.into_iter().try_fold(Tally::default(), |mut sum, work| {
            sum.add(work.join().expect("no panic")?);
            anyhow::Ok(sum)
        })
    })?;
    report(&flags, &server, &tally)?;
    server.stop()?;
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(flags: &Flags, folder: &Path) -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(&flags.wasmkeep);
    command.arg("serve").arg(format!("--listen={address}")).arg("--data-dir").arg(folder.join("data"));
    for class in ["chat", "reminder", "bank", "account"] {
        let guest = flags.guests.join(format!("{class}.wasm"));
        let guest = fs::canonicalize(&guest).with_context(|| format!("{guest:?}"))?;
        command.arg(format!("--actor={class}={}", guest.display()));
    }
    command.arg(format!("--max-resident={}", flags.max_resident));
    command.args(["--access=account=internal", "--hibernate-after-secs=2"]);
    // Calls are to cross shards.
    command.args(["--shards=2", "--overprovisioned"]);
    Server::start(command, address, &folder.join("log"))
}

fn report(flags: &Flags, server: &Server, tally: &Tally) -> Result<()> {
    let metrics = Connection::open(server.address(), Duration::from_secs(30))?
        .ask("GET", "/_wasmkeep/metrics", b"")?
        .text();
    let sum = |name: &str| -> f64 {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    println!("machine: {}", machine::describe());
    println!("load average: {:.2}", process::load_average()?);
    println!("node: {}", machine::version_of(&flags.wasmkeep, "--version")?);
    println!("{} actors for {} s, at most {} in memory", flags.actors, flags.seconds, flags.max_resident);
    println!("{tally}");
    println!(
        "wakes: {}, hibernations: {}",
        sum("wasmkeep_actor_wakes_total"),
        sum("wasmkeep_actor_hibernations_total")
    );
    println!("stalls: {}", sum("wasmkeep_stalls_total"));
    println!("nothing lost, nothing twice: {}", if tally.is_clean() { "yes" } else { "NO" });
    Ok(())
}
