//! Metrics of a node with a bucket. One set for the node: what they count is rare.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Counters of a node with a bucket. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterMetrics {
    waits: Family<Outcome, Counter>,
    forwards: Family<Outcome, Counter>,
    looks: Family<Outcome, Counter>,
    /// WebSockets relayed to other nodes now.
    pub(crate) relayed: Gauge,
    /// Restores that did not end in an open database.
    pub(crate) restore_failures: Counter,
    /// Periodic snapshots the bucket did not acknowledge.
    pub(crate) snapshot_failures: Counter,
    /// Objects of old history deleted.
    pub(crate) collected: Counter,
    /// Passes over old history that ended early.
    pub(crate) collect_failures: Counter,
}

impl ClusterMetrics {
    #[rustfmt::skip]
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("failover_waits", "Requests kept for an actor whose node was gone, by how the wait ended", self.waits.clone());
        registry.register("forwards", "Requests sent to the node of their actor, by how that ended", self.forwards.clone());
        registry.register("alarm_looks", "Actors asked for their alarm because the bucket lists it as overdue, by whether they were here to answer", self.looks.clone());
        registry.register("websockets_relayed", "WebSockets open here whose actor is another node's", self.relayed.clone());
        registry.register("restore_failures", "Actors that could not be restored from the bucket", self.restore_failures.clone());
        registry.register("snapshot_upload_failures", "Snapshots the bucket did not acknowledge", self.snapshot_failures.clone());
        registry.register("history_collected", "Objects of old history deleted", self.collected.clone());
        registry.register("history_collect_failures", "Passes over old history that ended early", self.collect_failures.clone());
    }

    /// A wait ended (R-WAIT-5).
    pub(crate) fn waited(&self, outcome: &'static str) {
        self.waits.get_or_create(&Outcome { outcome }).inc();
    }

    /// An actor was to be asked for its alarm (R-ALM-1).
    pub(crate) fn looked(&self, asked: bool) {
        let outcome = if asked { "asked" } else { "not_now" };
        self.looks.get_or_create(&Outcome { outcome }).inc();
    }

    /// A request was sent to another node.
    pub(crate) fn forwarded(&self, outcome: &'static str) {
        self.forwards.get_or_create(&Outcome { outcome }).inc();
    }
}
