//! How the process ends: one status per reason, so that a service manager can tell them apart.

use std::{fmt, process::ExitCode};

use wasmkeep_node::{
    ClusterError, CoreStartError, NodeError,
    runtime::{PreflightError, StartError},
};
use wasmkeep_protocol::lease::Exit;

use crate::logs;

/// Exit statuses. Documented in the help of each command; a number never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Stopped as asked.
    Clean = 0,
    /// No node of the cluster is live (R-OPS-1).
    NoLiveNode = 1,
    /// A flag, or a combination of them, cannot be used (R-FLAG-5).
    Usage = 2,
    /// A component, or a file of values, cannot be served.
    Component = 3,
    /// The data directory cannot be used.
    DataDir = 4,
    /// The address cannot be listened on.
    Address = 5,
    /// Too little memory may be locked, or too few files opened.
    Limits = 6,
    /// io_uring is not available.
    IoUring = 7,
    /// The cores cannot be used as asked, or their timers do not work.
    Cores = 8,
    /// The bucket cannot be opened, or did not answer.
    Bucket = 9,
    /// The bucket does not have what was asked for.
    NotFound = 10,
    /// A history in the bucket is damaged or incomplete.
    Damaged = 11,
    /// The command was refused, and nothing was changed.
    Refused = 12,
    /// What was asked for cannot be written here.
    Output = 13,
    /// Another process runs with this node id, or took it over.
    NodeId = 14,
    /// The node was fenced, or its heartbeat taken away.
    Fenced = 15,
    /// Nothing on this machine builds components.
    Toolchain = 16,
    /// A shard of a node with a bucket made no progress, so that the node gave its lease up.
    Frozen = 17,
    /// A second signal ended it before it had stopped.
    CutShort = 18,
    /// A fault of ours.
    Internal = 70,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Ends the process at once, with what was logged written: other threads are still at work, which the usual end would
/// pull the ground from under.
pub fn now(status: Status) -> ! {
    logs::flush();
    signal_hook::low_level::exit(i32::from(status as u8))
}

/// Why a command failed: one sentence, and its status.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub status: Status,
    sentence: String,
}

impl Failure {
    /// A failure told by `sentence`.
    pub fn new(status: Status, sentence: impl fmt::Display) -> Self {
        Self { status, sentence: sentence.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl From<Exit> for Failure {
    fn from(exit: Exit) -> Self {
        let status = match &exit {
            Exit::Stopped { .. } => Status::Clean,
            Exit::Refused(_) | Exit::Replaced { .. } => Status::NodeId,
            Exit::Unsettled => Status::Bucket,
            Exit::Fenced { .. } | Exit::Deleted | Exit::Overwritten(_) => Status::Fenced,
        };
        Self::new(status, exit)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        let status = match &error {
            // As asked.
            NodeError::Interrupted => Status::Clean,
            NodeError::Component { .. } => Status::Component,
            NodeError::DataDir { .. } | NodeError::DataDirInUse(_) => Status::DataDir,
            NodeError::Listen(_) => Status::Address,
            NodeError::OpenFiles(_) | NodeError::Preflight(PreflightError::Memlock { .. }) => Status::Limits,
            NodeError::Preflight(PreflightError::IoUring(_)) => Status::IoUring,
            NodeError::Preflight(_)
            | NodeError::Start(StartError::SelfTest { .. } | StartError::Executor { .. }) => Status::Cores,
            NodeError::Cluster(ClusterError::Membership(exit)) => return exit.clone().into(),
            NodeError::Cluster(ClusterError::Core(CoreStartError::Open(_)) | ClusterError::Store(_)) => {
                Status::Bucket
            }
            NodeError::Cluster(ClusterError::Core(CoreStartError::Pin { .. })) => Status::Cores,
            NodeError::Cluster(ClusterError::OtherTtl { .. }) => Status::Usage,
            NodeError::Cluster(_)
            | NodeError::Start(_)
            | NodeError::UnknownClass(_)
            | NodeError::Runtime(_)
            | NodeError::Outbound(_)
            | NodeError::Sqlite(_)
            | NodeError::Thread(_) => Status::Internal,
        };
        Self::new(status, error)
    }
}
