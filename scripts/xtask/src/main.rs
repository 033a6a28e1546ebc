//! Checks of the repository itself, run by CI.

mod arrows;
mod requirements;
#[cfg(test)]
mod single;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check that crates use only what docs/architecture.md says they may.
    Arrows,
    /// Check that docs/requirements.md names code and tests that are there.
    Requirements,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Arrows => arrows::check(),
        Task::Requirements => requirements::check(),
    }
}
