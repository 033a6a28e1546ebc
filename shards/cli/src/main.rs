//! `wasmkeep`: the node and the operator's command line in one binary.
//!
//! The composition root: only this crate reads flags, files and signals, and only it ends the process.
// These macros wait for whoever reads, and panic when nobody does.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod actor;
mod args;
mod bucket;
mod cluster;
mod demo;
mod dev;
mod exit;
mod logs;
mod new;
mod say;
mod serve;
mod signals;

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

use clap::Parser;
use mimalloc::MiMalloc;
use rustix::fs::Mode;

use crate::{
    args::{Cli, Command},
    logs::Reader,
};

// Many small allocations of short life on every core: what mimalloc is made for.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let ended = std::panic::catch_unwind(run).unwrap_or(exit::Status::Internal);
    logs::flush();
    ended.into()
}

fn run() -> exit::Status {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    logs::start(if matches!(cli.command, Command::Dev(_)) { Reader::Person } else { Reader::OfStderr });
    if !matches!(cli.command, Command::New(_) | Command::Dev(_)) {
        // Databases and secrets are for this user alone. What `new` and the compiler of `dev` write is not ours to hide.
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
    }
    let ended = match cli.command {
        Command::Serve(flags) => serve::serve(*flags),
        Command::Demo(flags) => demo::demo(*flags),
        Command::Actor(command) => actor::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::New(flags) => new::new(&flags),
        Command::Dev(flags) => dev::dev(*flags),
    };
    match ended {
        Ok(()) => exit::Status::Clean,
        Err(failure) => {
            logs::say(&failure);
            failure.status
        }
    }
}

/// Flags that cannot be used, or what is no failure: help and version, which go to stdout.
fn refuse(error: &clap::Error) -> exit::Status {
    let written = error.print().and_then(|()| io::stdout().flush());
    match written {
        _ if error.use_stderr() => exit::Status::Usage,
        Err(error) if error.kind() != ErrorKind::BrokenPipe => exit::Status::Output,
        _ => exit::Status::Clean,
    }
}
