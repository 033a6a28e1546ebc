//! Names of the HTTP headers the platform itself writes or believes.

/// Every header with this prefix belongs to the platform: removed from what clients and guests send.
pub const PLATFORM_PREFIX: &str = "x-wasmkeep-";

/// The node that answered (R-FWD-1).
pub const NODE: &str = "x-wasmkeep-node";

/// The node that sent a request on to this one: it goes no further (R-FWD-1).
pub const FORWARDED: &str = "x-wasmkeep-forwarded";

/// In a node's answer to another: it does not hold the actor and did nothing with the request. The value is
/// [`ELSEWHERE_STOPPING`] or anything else.
pub const ELSEWHERE: &str = "x-wasmkeep-elsewhere";

/// It does not because it stops: it gives up whatever it holds.
pub const ELSEWHERE_STOPPING: &str = "stopping";

/// The actor that called, on a signed call between nodes only (R-CALL-2).
pub const CALLER: &str = "x-wasmkeep-caller";

/// The actors that wait for a call between nodes, `CLASS/NAME` each, the calling one last; signed.
pub const CALL_CHAIN: &str = "x-wasmkeep-call-chain";

/// When a call between nodes was signed, in milliseconds since the Unix epoch; signed.
pub const CALL_TIMESTAMP: &str = "x-wasmkeep-call-timestamp";

/// 32 hexadecimal digits, unique to each send of a call between nodes; signed.
pub const CALL_NONCE: &str = "x-wasmkeep-call-nonce";

/// The signature of a call between nodes, in 64 hexadecimal digits (R-CALL-1).
pub const CALL_SIGNATURE: &str = "x-wasmkeep-call-signature";

/// Milliseconds that the callee has. The calling node keeps its own time, so nothing rests on it.
pub const CALL_TIME: &str = "x-wasmkeep-call-time";

/// In the answer to a call between nodes: how the call ended.
pub const CALL_OUTCOME: &str = "x-wasmkeep-call-outcome";

/// Headers that concern one connection (RFC 9110 section 7.6.1) and never pass between client and guest.
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether `name` (lower case) may not pass between a client and a guest in either direction.
#[must_use]
pub fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Whether `name` (lower case) is one only the platform writes.
#[must_use]
pub fn is_platform(name: &str) -> bool {
    name.starts_with(PLATFORM_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_and_hop_by_hop_headers_are_recognised() {
        assert!(is_platform(NODE) && is_platform(CALLER));
        assert!(!is_platform("x-wasm"));
        assert!(is_hop_by_hop("http2-settings"));
        assert!(is_hop_by_hop("connection") && is_hop_by_hop("transfer-encoding"));
        assert!(!is_hop_by_hop("content-length"));
    }
}
