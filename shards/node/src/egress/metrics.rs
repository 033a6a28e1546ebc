//! What outbound requests are counted on.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// What became of an outbound request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// The guest has the whole response.
    Answered,
    /// The guest let go of it, or its event ended.
    GivenUp,
    /// The address may not be reached.
    Prohibited,
    /// The actor or the node has too many open.
    OverLimit,
    /// It could not be sent as it was.
    Invalid,
    /// The name was not found.
    Lookup,
    /// Nobody took the connection.
    Unreachable,
    /// A certificate or a handshake.
    Tls,
    /// A time that the guest or the node sets ran out.
    Timeout,
    /// The connection or the response broke off.
    Broken,
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name = match self {
            Self::Answered => "answered",
            Self::GivenUp => "given_up",
            Self::Prohibited => "prohibited",
            Self::OverLimit => "over_limit",
            Self::Invalid => "invalid",
            Self::Lookup => "lookup",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
        };
        EncodeLabelValue::encode(&name, encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: Outcome,
}

/// Counts outbound requests. They all end on one thread, so no label tells shards apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutboundMetrics {
    /// Requests under way.
    pub(super) open: Gauge,
    requests: Family<Labels, Counter>,
}

impl OutboundMetrics {
    #[rustfmt::skip]
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("outbound_requests", "Outbound requests of actors that ended, by outcome", self.requests.clone());
        registry.register("outbound_open", "Outbound requests of actors under way", self.open.clone());
    }

    pub(super) fn ended(&self, outcome: Outcome) {
        self.requests.get_or_create_owned(&Labels { outcome }).inc();
    }
}
