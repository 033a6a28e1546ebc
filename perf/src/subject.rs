//! The servers that are compared, and what differs between them: how they are started and how their requests
//! are spelled. Everything else is the same for both.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use clap::Args;

use crate::server::{Server, free_address};

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Subject {
    /// The counter as a Durable Object with SQLite.
    Workerd,
    /// The counter sample on a node.
    Wasmkeep,
}

/// A way to count the actors a server has in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Census {
    /// Each keeps a file with this extension open.
    OpenDatabases(&'static str),
    /// The server tells, as the sum of this metric.
    Metric(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Workerd => "workerd",
            Self::Wasmkeep => "wasmkeep",
        })
    }
}

impl Subject {
    /// How its actors in memory are counted.
    #[must_use]
    pub fn census(self) -> Census {
        match self {
            Self::Workerd => Census::OpenDatabases("sqlite"),
            Self::Wasmkeep => Census::Metric("wasmkeep_actors_resident"),
        }
    }

    /// What follows an actor's name in a write that must be on disk when it is answered. workerd has only those.
    #[must_use]
    pub fn durable_suffix(self) -> &'static str {
        match self {
            Self::Workerd => "",
            Self::Wasmkeep => "/durable",
        }
    }
}

/// Where the servers are.
#[derive(Debug, Clone, Args)]
pub struct Programs {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    pub wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    pub guests: PathBuf,

    /// workerd's binary.
    #[arg(long, value_name = "FILE")]
    pub workerd: PathBuf,

    /// workerd's configuration with the counter.
    #[arg(long, value_name = "FILE")]
    pub workerd_config: PathBuf,

    /// A flag for the node, as one word (--node-flag=--shards=1). Repeatable.
    #[arg(long = "node-flag", value_name = "FLAG", allow_hyphen_values = true)]
    pub node_flags: Vec<String>,
}

impl Programs {
    /// Starts a server with a new data directory inside `folder`. `flags` are for the node and come after the
    /// ones given on the command line.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, subject: Subject, folder: &Path, flags: &[String]) -> Result<Server> {
        let data = folder.join("data");
        fs::create_dir_all(&data).with_context(|| format!("{data:?} cannot be made"))?;
        let address = free_address()?;
        let mut command = match subject {
            Subject::Workerd => Command::new(&self.workerd),
            Subject::Wasmkeep => Command::new(&self.wasmkeep),
        };
        match subject {
            Subject::Workerd => {
                command.arg("serve").arg(&self.workerd_config);
                command.arg(format!("--directory-path=data={}", data.display()));
                command.arg(format!("--socket-addr=http={address}"));
            }
            Subject::Wasmkeep => {
                command.arg("serve");
                command.arg(format!("--actor=counter={}", self.guests.join("counter.wasm").display()));
                command.arg(format!("--data-dir={}", data.display())).arg(format!("--listen={address}"));
                command.args(&self.node_flags).args(flags);
            }
        }
        Server::start(command, address, &folder.join("log"))
    }
}
