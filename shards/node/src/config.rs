//! What a node is started with. Reading flags and files is the command line's business.

use std::{
    any::Any,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use wasmkeep_protocol::{ActorClass, NodeId, Tenant, access::Rule, durability::Durability};

pub use crate::cluster::{ClusterConfig, ClusterListener};
pub use crate::egress::OutboundRange;
use crate::runtime::Placement;

/// Everything a node needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where databases and compiled code are kept.
    pub data_dir: PathBuf,
    /// In the `x-wasmkeep-node` header.
    pub node_id: NodeId,
    /// Whose actors these are.
    pub tenant: Tenant,
    /// The classes it serves.
    pub classes: Vec<ClassConfig>,
    /// What answers outside `/actor` and `/_wasmkeep`.
    pub stateless: Option<ComponentConfig>,
    /// Addresses that are not public and that actors may connect to all the same.
    pub allow_outbound: Vec<OutboundRange>,
    /// Keep the line numbers that components bring, so that the log of a trap shows them. Costs memory.
    pub line_numbers: bool,
    /// Client connections at once, before the open-file limit lowers it.
    pub connections_max: usize,
    /// Limits of actors.
    pub limits: ActorLimits,
    /// Cores.
    pub placement: Placement,
    /// The bucket and the cluster, if the node is part of one.
    pub cluster: Option<ClusterConfig>,
    /// A poll of one actor that holds its core longer than this is logged.
    pub stall_after: Duration,
    /// A shard of a node with a bucket that makes no progress for longer than this ends the node's part in its cluster.
    pub frozen_after: Duration,
    /// Called with a component that is not compiled yet and its size in bytes; what it gives is dropped once that is done.
    pub while_compiling: fn(&Path, usize) -> Box<dyn Any>,
    /// Counts log lines that were lost, for the metrics.
    pub log_lines_lost: Arc<AtomicU64>,
}

/// A component and the values it sees in its environment.
#[derive(Debug, Clone)]
pub struct ComponentConfig {
    /// Where it was read from, for messages.
    pub path: PathBuf,
    /// The component.
    pub wasm: Arc<[u8]>,
    /// Environment variables.
    pub env: Arc<Vec<(String, String)>>,
}

/// A class of actors.
#[derive(Debug, Clone)]
pub struct ClassConfig {
    /// Its name.
    pub class: ActorClass,
    /// Its code.
    pub component: ComponentConfig,
    /// Who may reach it from outside.
    pub access: Rule,
    /// What is in the bucket before its answers leave; on a node with a bucket.
    pub durability: Durability,
}

/// Limits of actors. See `wasmkeep_protocol::limits` for the defaults.
#[derive(Debug, Clone, Copy)]
pub struct ActorLimits {
    /// Actors in memory at once, over all shards.
    pub resident_max: usize,
    /// Idle time before an actor hibernates.
    pub hibernate_after: Duration,
    /// Wall clock of one event.
    pub event_wall_clock: Duration,
    /// Waiting events per actor.
    pub mailbox_events_max: usize,
    /// Linear memory per actor, in bytes.
    pub memory_bytes_max: usize,
    /// Database per actor, in bytes.
    pub storage_bytes_max: u64,
    /// Request body, in bytes.
    pub body_bytes_max: u64,
    /// Request bodies up to this size, in bytes, are read before their event waits for its actor.
    pub buffered_body_bytes_max: usize,
    /// Silence of a WebSocket's client after which it is asked for a sign of life.
    pub socket_ping_after: Duration,
}
