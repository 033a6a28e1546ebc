//! The guard: decides from bytes alone whether what a client sends is one unambiguous HTTP/1 request after
//! another. Pure: no socket, no clock.
//!
//! Owns framing (where a head ends, where a body ends) and every rule whose breach could make two parsers
//! disagree. The server behind it parses again; it never sees a byte that the guard has not passed, nor a byte of
//! the next request before the answer to this one is complete. Does not own what a valid request means.

mod body;
mod head;

pub use body::BodyFraming;
pub use head::{Head, HeadScan, parse_head};

/// Limits the guard enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Request line and headers together, in bytes, the empty line included. Over it: 431.
    pub head_bytes_max: usize,
    /// Headers of one request. Over it: 431.
    pub headers_max: usize,
    /// Body, in bytes, after removing chunk framing. Over it: 413.
    pub body_bytes_max: u64,
}

/// Why a request is refused. After it the connection is closed and nothing that follows on it is read as a
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Violation {
    /// Status of the answer.
    pub status: u16,
    /// One sentence for the body of the answer.
    pub reason: &'static str,
}

impl Violation {
    /// A violation answered with `status`.
    pub const fn new(status: u16, reason: &'static str) -> Violation {
        Violation { status, reason }
    }
}

/// A malformed request.
const fn bad(reason: &'static str) -> Violation {
    Violation::new(400, reason)
}

/// Bytes of a token (RFC 9110 section 5.6.2): methods and header names.
const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Bytes of a request target as this server takes them: visible ASCII without what URI parsers disagree on
/// (`#` begins a fragment, which a request target has none of).
const TARGET: [bool; 256] = table(b"!$%&'()*+,-./:;=?@[]_~|");

/// Bytes of a host with an optional port. No `@`: user information has no place in one.
const HOST: [bool; 256] = table(b"!$&'()*+,-.:;=_~[]%");

/// Letters, digits and `extra`.
const fn table(extra: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < extra.len() {
        table[extra[index] as usize] = true;
        index += 1;
    }
    table
}

fn all(bytes: &[u8], table: &[bool; 256]) -> bool {
    bytes.iter().all(|byte| table[*byte as usize])
}

#[cfg(test)]
mod tests;
