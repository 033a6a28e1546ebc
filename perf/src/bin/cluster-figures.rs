//! What a cluster costs and what callers see of it: a forwarded request beside a bare round trip, what an idle cluster
//! asks of its bucket, a clean stop under load, a takeover.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Parser, ValueEnum};
use wasmkeep_perf::{
    cluster::{Programs, echo, failover, forwarding, http_relay, idle, relay, stop},
    figure::{self, Figure},
    machine, println, process,
};

/// One part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Forwarding,
    Idle,
    Stop,
    Failover,
}

/// Measures forwarding, idle traffic, a clean stop and failover.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE", required_unless_present = "role")]
    wasmkeep: Option<PathBuf>,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR", required_unless_present = "role")]
    guests: Option<PathBuf>,

    /// What to measure; repeat for more.
    #[arg(long, value_name = "PART", value_enum, default_values_t = Part::value_variants().to_vec())]
    part: Vec<Part>,

    /// Actors that a node has in memory while it is idle.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    actors: usize,

    /// Times that nodes are killed.
    #[arg(long, value_name = "N", default_value_t = 2)]
    failovers: usize,

    /// Folder for the data directories.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,

    #[command(flatten)]
    role: Role,
}

/// What to be instead, for the program itself.
#[derive(Debug, Args)]
#[group(id = "role", multiple = false)]
struct Role {
    /// The process that answers. What, it reads.
    #[arg(long, hide = true)]
    echo: bool,

    /// A process in between, which sends to this one.
    #[arg(long, value_name = "ADDRESS", hide = true)]
    relay: Option<SocketAddr>,

    /// One that speaks HTTP.
    #[arg(long, value_name = "ADDRESS", hide = true)]
    http_relay: Option<SocketAddr>,
}

impl Role {
    /// Is that until its connection closes; `None`: there is nothing to be.
    fn serve(self) -> Option<Result<()>> {
        match self {
            Self { echo: true, .. } => Some(echo::serve()),
            Self { relay: Some(beyond), .. } => Some(relay::serve(beyond).map_err(Into::into)),
            Self { http_relay: Some(beyond), .. } => Some(http_relay::serve(beyond).map_err(Into::into)),
            _ => None,
        }
    }
}

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    if let Some(served) = flags.role.serve() {
        return served.map(|()| ExitCode::SUCCESS);
    }
    let (wasmkeep, guests) = flags.wasmkeep.zip(flags.guests).context("no node, or no samples")?;
    let (programs, data) = (Programs { wasmkeep, guests }, &flags.data_dir);
    println!("machine: {}", machine::describe());
    println!("data: {}", machine::file_system(data));
    println!("load average: {:.2}", process::load_average()?);

    let mut is_reached = true;
    for part in flags.part {
        let figures: Vec<Figure> = match part {
            Part::Forwarding => forwarding::figures(&programs, data)?,
            Part::Idle => idle::figures(&programs, data, flags.actors)?,
            Part::Stop => stop::figures(&programs, data)?,
            Part::Failover => failover::figures(&programs, data, flags.failovers)?,
        };
        is_reached &= figure::print(&figures);
    }
    Ok(if is_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
