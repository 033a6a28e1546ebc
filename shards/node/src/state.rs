//! What all shards of a node share: read-only after the start, but for a few flags.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use wasmkeep_host::{Identity, Timers, Version};
use wasmkeep_protocol::{ActorClass, NodeId, Tenant, access::Rule, durability::Durability, failover::Places};

use crate::{cluster::Cluster, config::ActorLimits, egress::Egress, metrics::Metrics, runtime::OffloadPool};

/// A class that is served.
pub(crate) struct Class {
    /// What instances are made of from now on.
    pub(crate) code: ArcSwap<Code>,
    pub(crate) access: Rule,
    pub(crate) durability: Durability,
}

/// A component, loaded, with the values it sees.
pub(crate) struct Code {
    pub(crate) version: Version,
    pub(crate) env: Arc<Vec<(String, String)>>,
}

/// The stateless component, loaded.
pub(crate) struct Stateless {
    pub(crate) version: Version,
    pub(crate) identity: Arc<Identity>,
    pub(crate) env: Arc<Vec<(String, String)>>,
}

/// The node as its shards see it.
pub(crate) struct NodeState {
    pub(crate) node_id: NodeId,
    pub(crate) tenant: Tenant,
    pub(crate) classes: HashMap<ActorClass, Class>,
    pub(crate) stateless: Option<Stateless>,
    pub(crate) databases_dir: PathBuf,
    /// Of databases that are no actor's yet.
    pub(crate) spares_dir: PathBuf,
    pub(crate) storage: wasmkeep_storage::Config,
    pub(crate) limits: ActorLimits,
    pub(crate) shards: usize,
    pub(crate) connections_max: usize,
    /// Places of requests kept for takeovers. Locked for moments, by requests that wait for seconds.
    pub(crate) kept: Mutex<Places>,
    pub(crate) offload: OffloadPool,
    pub(crate) timers: Timers,
    /// On a node with a bucket.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) metrics: Metrics,
    pub(crate) shards_ready: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Databases are being looked at for alarms: each is open for a moment.
    pub(crate) looking_for_alarms: AtomicBool,
    /// Where the clock of its actors begins.
    pub(crate) began: Instant,
}

impl NodeState {
    /// Time since the node began: one clock for all shards, so that a moment means the same on each.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The places of requests kept for takeovers (R-WAIT-3).
    pub(crate) fn kept(&self) -> MutexGuard<'_, Places> {
        // Whoever panicked under it left counts, which are whole at every step.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether clients should be sent here.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_serving() && self.cluster.as_ref().is_none_or(Cluster::is_ready)
    }

    /// Whether it gives its actors up.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether it serves those who come: it has started and does not stop.
    pub(crate) fn is_serving(&self) -> bool {
        !self.is_stopping() && self.shards_ready.load(Ordering::Relaxed) == self.shards
    }
}
