//! Why a node does not start.

use std::{io, path::PathBuf};

use wasmkeep_host::{LoadError, RuntimeError};
use wasmkeep_protocol::ActorClass;

use crate::{
    cluster::ClusterError,
    http::ListenError,
    runtime::{PreflightError, StartError},
};

/// Why a node does not start. One sentence each.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It was told to stop before it had started.
    #[error("stopped before it had started")]
    Interrupted,
    /// A component cannot be served.
    #[error("{path:?} cannot be served: {source}")]
    Component {
        /// Where it was read from.
        path: PathBuf,
        /// Why.
        source: LoadError,
    },
    /// A class that is not served was to be replaced.
    #[error("this node serves no class {0}")]
    UnknownClass(ActorClass),
    /// The data directory.
    #[error("the data directory {path:?} cannot be used: {source}")]
    DataDir {
        /// As given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another node has it.
    #[error("the data directory {0:?} is in use by another node; stop it or choose another --data-dir")]
    DataDirInUse(PathBuf),
    /// The address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The machine.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The executors.
    #[error(transparent)]
    Start(#[from] StartError),
    /// wasmtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The client of outbound requests.
    #[error("outbound requests cannot be set up: {0}")]
    Outbound(#[from] reqwest::Error),
    /// The linked SQLite.
    #[error(transparent)]
    Sqlite(#[from] wasmkeep_storage::VersionError),
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Threads.
    #[error("a thread could not be started: {0}; free threads or descriptors and start again")]
    Thread(io::Error),
    /// Too few descriptors for even one connection and one actor.
    #[error(
        "the open-file limit of {0} is too low; raise it with `ulimit -n 65536` or LimitNOFILE=65536 in the systemd unit"
    )]
    OpenFiles(u64),
}
