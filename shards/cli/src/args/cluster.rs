//! Flags of `wasmkeep cluster`.

use clap::{Args, Subcommand};
use wasmkeep_protocol::NodeId;

use super::Bucket;

/// `wasmkeep cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes of a cluster by their heartbeats, and what is wrong with them.
    ///
    /// Ages are measured on this machine's clock. Ends with status 1 when no node is live.
    Status(ClusterStatus),
    /// Take a node's lease away: its process stops at its next heartbeat, then others take its actors.
    ///
    /// Without --force a dead node is not fenced: the others of its cluster do so by themselves. One whose heartbeat was
    /// deleted is.
    Fence(Fence),
    /// Remove an object in a heartbeat's place that is none.
    ///
    /// A node's lease is never removed: without it nobody knows whether the node's actors are free.
    Forget(Forget),
}

/// `wasmkeep cluster status`
#[derive(Debug, Args)]
pub struct ClusterStatus {
    /// The cluster's bucket.
    #[command(flatten)]
    pub bucket: Bucket,
    /// Write one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `wasmkeep cluster fence`
#[derive(Debug, Args)]
pub struct Fence {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: NodeId,
    /// The cluster's bucket.
    #[command(flatten)]
    pub bucket: Bucket,
    /// Also when the node is dead, or what is in the place of its heartbeat is none.
    #[arg(long)]
    pub force: bool,
}

/// `wasmkeep cluster forget`
#[derive(Debug, Args)]
pub struct Forget {
    /// The node.
    #[arg(value_name = "NODE")]
    pub node: NodeId,
    /// The cluster's bucket.
    #[command(flatten)]
    pub bucket: Bucket,
}
