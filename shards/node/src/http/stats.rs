//! Counters of one shard's front. Owns the numbers; how they are published is the metrics' business.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Readable from any thread; written by one shard.
#[derive(Debug, Default)]
pub struct Stats {
    accepted: AtomicU64,
    over_limit: AtomicU64,
    accept_errors: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    timeouts: AtomicU64,
    moved_away: AtomicU64,
    panics: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident, $count:ident;)*) => {
        impl Stats {
            $($(#[$doc])* pub fn $name(&self) -> u64 { self.$name.load(Relaxed) }
            pub(crate) fn $count(&self, by: u64) { self.$name.fetch_add(by, Relaxed); })*
        }
    };
}

counters! {
    /// Connections accepted, those over the limit not counted.
    accepted, count_accepted;
    /// Connections answered 503 because the node had too many.
    over_limit, count_over_limit;
    /// Failed accepts, out of descriptors for instance.
    accept_errors, count_accept_error;
    /// Request heads that passed.
    requests, count_request;
    /// Requests refused by the guard, answered 4xx or 505 with the connection closed.
    refused, count_refused;
    /// Connections cut or refused because a client was too slow.
    timeouts, count_timeout;
    /// Connections handed to another shard.
    moved_away, count_moved_away;
    /// Panics that reached a connection's edge; expected to stay 0.
    panics, count_panic;
    /// Bytes read from clients.
    bytes_read, count_read;
    /// Bytes written to clients.
    bytes_written, count_written;
}
