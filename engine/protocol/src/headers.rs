//! Names of the HTTP headers the platform itself writes or believes.

/// Every header with this prefix belongs to the platform: removed from what clients and guests send.
pub const PLATFORM_PREFIX: &str = "x-wasmkeep-";

/// The node that answered (R-FWD-1).
pub const NODE: &str = "x-wasmkeep-node";

/// The node that sent a request on to this one: it goes no further (R-FWD-1).
pub const FORWARDED: &str = "x-wasmkeep-forwarded";

/// The actor that called, on a signed call between nodes only (R-CALL-2).
pub const CALLER: &str = "x-wasmkeep-caller";

/// Headers that concern one connection (RFC 9110 section 7.6.1) and never pass between client and guest.
pub const HOP_BY_HOP: [&str; 9] = [
    "connection",
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
        assert!(is_hop_by_hop("connection") && is_hop_by_hop("transfer-encoding"));
        assert!(!is_hop_by_hop("content-length"));
    }
}
