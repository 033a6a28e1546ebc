//! `nodes/<id>`: a node's heartbeat, which is its lease.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{FORMAT, Nonce, Process, RecordError, Shape, decode, encode};
use crate::NodeId;

/// Longest ttl a record may claim: a node that claims a year is never fenced.
const TTL_MAX: Duration = Duration::from_secs(3600);

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// The run of the program whose lease it is.
    pub process: Process,
    /// Counts this process's writes. A fence and a release keep the last live write's.
    pub sequence: u64,
    /// Of this very write.
    pub nonce: Nonce,
    /// Whether the lease stands.
    pub state: NodeState,
    /// When the last *live* write began, by the wall clock of whoever made it.
    pub written_at_ms: u64,
    /// How long that write keeps the lease.
    pub ttl: Duration,
    /// Stands for all of this but the sequence, the nonce and the date.
    pub shape: Shape,
    /// Where and what the node is. Decides nothing about the lease.
    pub presence: Arc<Presence>,
}

/// Whether a lease stands. For one process it only ever goes from live to one of the others, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// Its process renews it.
    Live,
    /// Taken from its process, which stops at its next write.
    Fenced {
        /// How long the writer of the fence had watched the last live write stand unchanged, by its own clock.
        /// It is a length of time and no date, so whoever reads it can rely on it.
        watched: Duration,
        /// The node that wrote it; `None`: an operator did.
        by: Option<NodeId>,
    },
    /// Given up by its own process after its last actor was dropped.
    Released,
}

/// What a node tells the others about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Presence {
    /// URL clients' requests are forwarded to where plain HTTP between nodes is accepted.
    pub advertise: String,
    /// URL of the cluster listener.
    pub cluster_advertise: Option<String>,
    /// SHA-256 of its certificate, in hexadecimal digits.
    pub fingerprint: Option<String>,
    /// The WasmKeep it runs.
    pub version: String,
    /// The app it serves, as `TENANT/APP`.
    pub app: Option<String>,
    /// It renews its lease only until its actors are given up, and takes no connection any more.
    #[serde(skip_serializing_if = "is_false")]
    pub stopping: bool,
}

fn is_false(said: &bool) -> bool {
    !said
}

impl NodeRecord {
    /// Reads a heartbeat.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let wire = decode::<Wire>(bytes)?;
        let shape = Shape::claimed(wire.shape, bytes.len(), wire.written_at_ms);
        Ok(Self { shape, ..wire.try_into()? })
    }

    /// The heartbeat's text, as long as its shape and its date ask for.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = encode(&Wire::from(self));
        text.resize(self.shape.length(text.len(), self.written_at_ms), b' ');
        text
    }

    /// Whether `next` says the same as this live heartbeat, later.
    #[must_use]
    pub fn is_renewed_by(&self, next: &Self) -> bool {
        let live = self.is_live() && next.is_live();
        live && self.process == next.process && self.ttl == next.ttl && self.presence == next.presence
    }

    /// Whether its process renews it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == NodeState::Live
    }

    /// Whether its process, and every earlier one of this node, holds nothing any more (R-LEASE-4, R-LEASE-6):
    /// it said so itself, or somebody watched its last live write stand for longer than it was worth.
    ///
    /// A fence nobody watched (an operator's) proves nothing until a node has watched it and said so.
    #[must_use]
    pub fn is_gone(&self, grace: Duration) -> bool {
        match &self.state {
            NodeState::Live => false,
            NodeState::Fenced { watched, .. } => *watched >= self.ttl.saturating_add(grace),
            NodeState::Released => true,
        }
    }

    /// The fence for this heartbeat: the lease is no longer live, its date and sequence stay (R-LEASE-4).
    #[must_use]
    pub fn fence(&self, watched: Duration, by: Option<NodeId>, nonce: Nonce) -> Self {
        let state = NodeState::Fenced { watched, by };
        Self { nonce, state, shape: self.shape.next(), ..self.clone() }
    }

    /// The fence for a node without a heartbeat, written by an operator (R-LEASE-7). `process` is a fresh one, so
    /// that whichever process held the node's actors is an earlier one.
    #[must_use]
    pub fn fence_for_absent(process: Process, ttl: Duration, written_at_ms: u64, nonce: Nonce) -> Self {
        Self {
            process,
            sequence: 0,
            nonce,
            state: NodeState::Fenced { watched: Duration::ZERO, by: None },
            written_at_ms,
            ttl,
            shape: Shape::NONE,
            presence: Arc::default(),
        }
    }
}

/// A heartbeat as it is written.
#[derive(Serialize, Deserialize)]
struct Wire {
    format: u64,
    process: String,
    sequence: u64,
    nonce: String,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watched_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fenced_by: Option<String>,
    written_at_ms: u64,
    ttl_ms: u64,
    #[serde(default)]
    shape: u8,
    #[serde(default)]
    node: Presence,
}

impl From<&NodeRecord> for Wire {
    fn from(record: &NodeRecord) -> Self {
        let (state, watched, by) = match &record.state {
            NodeState::Live => ("live", None, None),
            NodeState::Fenced { watched, by } => ("fenced", Some(*watched), by.as_ref()),
            NodeState::Released => ("released", None, None),
        };
        Self {
            format: FORMAT,
            process: record.process.to_string(),
            sequence: record.sequence,
            nonce: record.nonce.to_string(),
            state: state.into(),
            watched_ms: watched.map(millis),
            fenced_by: by.map(ToString::to_string),
            written_at_ms: record.written_at_ms,
            ttl_ms: millis(record.ttl),
            shape: record.shape.number(),
            node: Presence::clone(&record.presence),
        }
    }
}

impl TryFrom<Wire> for NodeRecord {
    type Error = RecordError;

    fn try_from(wire: Wire) -> Result<Self, RecordError> {
        let state = match (wire.state.as_str(), wire.watched_ms) {
            ("live", _) => NodeState::Live,
            ("released", _) => NodeState::Released,
            ("fenced", Some(watched)) => NodeState::Fenced {
                watched: Duration::from_millis(watched),
                by: match wire.fenced_by.map(|by| by.parse()).transpose() {
                    Ok(by) => by,
                    Err(_) => return Err(RecordError::Field("fenced_by")),
                },
            },
            ("fenced", None) => return Err(RecordError::Field("watched_ms")),
            _ => return Err(RecordError::Field("state")),
        };
        let ttl = Duration::from_millis(wire.ttl_ms);
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(RecordError::Field("ttl_ms"));
        }
        Ok(Self {
            process: wire.process.parse()?,
            sequence: wire.sequence,
            nonce: wire.nonce.parse()?,
            state,
            written_at_ms: wire.written_at_ms,
            ttl,
            shape: Shape::NONE,
            presence: Arc::new(wire.node),
        })
    }
}

/// Whole milliseconds. Rounded down, so that a fence never claims to have watched longer than it did.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
