//! Metrics of WebSockets.

use std::cell::RefCell;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::ShardLabels;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessageLabels {
    /// `in` or `out`.
    direction: &'static str,
    shard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloseLabels {
    code: u16,
    shard: u64,
}

#[derive(Default)]
pub(super) struct SocketFamilies {
    open: Family<ShardLabels, Gauge>,
    messages: Family<MessageLabels, Counter>,
    closes: Family<CloseLabels, Counter>,
    slow: Family<ShardLabels, Counter>,
    sweep: Family<ShardLabels, Gauge>,
}

impl SocketFamilies {
    #[rustfmt::skip]
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("websockets", "WebSockets open, those of sleeping actors included", self.open.clone());
        registry.register("websocket_messages", "Messages of WebSockets, from clients (in) and to them (out)", self.messages.clone());
        registry.register("websocket_closes", "WebSockets closed, by code; applications' codes by thousand", self.closes.clone());
        registry.register("websocket_owner_sweep_seconds", "Longest time until it is noticed that another node has taken a sleeping actor with WebSockets", self.sweep.clone());
        registry.register("websocket_slow_readers", "WebSockets closed because their client did not read", self.slow.clone());
    }

    pub(super) fn shard(&self, shard: u64) -> SocketMetrics {
        let labels = ShardLabels { shard };
        let messages = |direction| self.messages.get_or_create_owned(&MessageLabels { direction, shard });
        SocketMetrics {
            open: self.open.get_or_create_owned(&labels),
            received: messages("in"),
            sent: messages("out"),
            slow: self.slow.get_or_create_owned(&labels),
            sweep: self.sweep.get_or_create_owned(&labels),
            closes: self.closes.clone(),
            by_code: RefCell::default(),
            shard,
        }
    }
}

/// What one shard's sockets count on.
pub(crate) struct SocketMetrics {
    pub(crate) open: Gauge,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    pub(crate) slow: Counter,
    /// In seconds.
    pub(crate) sweep: Gauge,
    closes: Family<CloseLabels, Counter>,
    by_code: RefCell<Vec<(u16, Counter)>>,
    shard: u64,
}

impl SocketMetrics {
    /// Counts the end of a socket.
    pub(crate) fn closed(&self, code: u16) {
        // A client chooses its own code: it must not be able to make a series of each.
        let code = if code < 3000 { code } else { code / 1000 * 1000 };
        let mut by_code = self.by_code.borrow_mut();
        let at = by_code.iter().position(|(known, _)| *known == code).unwrap_or_else(|| {
            let labels = CloseLabels { code, shard: self.shard };
            by_code.push((code, self.closes.get_or_create_owned(&labels)));
            by_code.len() - 1
        });
        by_code[at].1.inc();
    }
}
