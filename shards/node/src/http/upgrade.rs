//! Leaving HTTP: what a connection becomes when an answer takes it over. Owns the head of that answer; what is
//! spoken afterwards is the taker's business.

use super::{Stats, connections::Ticket};
use crate::stream::Stream;
use bytes::Bytes;
use http::{Response, response::Parts};
use std::{fmt, sync::Arc};

/// What takes a connection over.
pub(super) type Upgrade = Box<dyn FnOnce(Upgraded)>;

/// A connection that has left HTTP.
pub struct Upgraded {
    /// Its socket.
    pub(crate) stream: Stream,
    /// The head of the answer, not sent yet.
    pub answer: Bytes,
    /// What the client has sent behind its request.
    pub unread: Bytes,
    /// Its place among the node's connections.
    pub ticket: Ticket,
    /// Where its bytes are counted.
    pub stats: Arc<Stats>,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

/// An answer's head as it goes on the wire.
pub(super) fn head(response: Response<()>) -> Bytes {
    let (Parts { status, headers, .. }, ()) = response.into_parts();
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written_as_http_has_it() {
        let response = Response::builder().status(101).header("upgrade", "websocket").body(()).unwrap();
        assert_eq!(head(response), "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n");
    }
}
