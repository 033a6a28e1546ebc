//! What an actor's code needs of its WebSockets, and what it may ask of them. Where sockets are kept and how their
//! bytes travel is the node's business.

use wasmkeep_protocol::{
    close,
    limits::{SOCKET_ATTACHMENT_BYTES_MAX, SOCKET_MESSAGE_BYTES_MAX, SOCKET_TAG_BYTES_MAX, SOCKET_TAGS_MAX},
};

use crate::bindings::websockets::{Acceptance, Connection, Message};

/// The socket is closed, or was never this actor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the socket is gone")]
pub struct SocketGone;

/// The sockets of one actor.
///
/// Limits are checked before any of this is called.
pub trait Sockets {
    /// The actor's hook has let a socket in: it is among [`Sockets::connections`] from here on. One whose client
    /// left meanwhile is told to `on-websocket-close`.
    fn open(&self, socket: u64, tags: Vec<String>, attachment: Vec<u8>);

    /// Those that are open, or those with `tag`, in the order in which they were opened.
    fn connections(&self, tag: Option<&str>) -> Vec<Connection>;

    /// Queues a message.
    ///
    /// # Errors
    /// [`SocketGone`].
    fn send(&self, socket: u64, message: Message) -> Result<(), SocketGone>;

    /// Queues one message for all open sockets, or those with `tag`; says for how many.
    fn broadcast(&self, tag: Option<&str>, message: Message) -> u32;

    /// Replaces the actor's note on a socket.
    ///
    /// # Errors
    /// [`SocketGone`].
    fn set_attachment(&self, socket: u64, attachment: Vec<u8>) -> Result<(), SocketGone>;

    /// Closes a socket behind what is queued for it.
    ///
    /// # Errors
    /// [`SocketGone`].
    fn close(&self, socket: u64, code: u16, reason: &str) -> Result<(), SocketGone>;
}

/// Why a message may not be sent.
pub(crate) fn check_message(message: &Message) -> Result<(), String> {
    let len = match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
    };
    within(len <= SOCKET_MESSAGE_BYTES_MAX, || {
        format!("a message of {len} bytes; at most {SOCKET_MESSAGE_BYTES_MAX} can be sent")
    })
}

/// Why an attachment may not be kept.
pub(crate) fn check_attachment(attachment: &[u8]) -> Result<(), String> {
    let len = attachment.len();
    within(len <= SOCKET_ATTACHMENT_BYTES_MAX, || {
        format!("an attachment of {len} bytes; at most {SOCKET_ATTACHMENT_BYTES_MAX} are kept")
    })
}

/// Why a socket may not be closed so.
pub(crate) fn check_close(code: u16, reason: &str) -> Result<(), String> {
    within(close::may_come_from_actor(code), || format!("an actor cannot close with code {code}"))?;
    within(reason.len() <= close::REASON_BYTES_MAX, || {
        format!("a reason of {} bytes; at most {} can be sent", reason.len(), close::REASON_BYTES_MAX)
    })
}

/// Why a socket cannot be let in so; `offered` are the subprotocols the client offered.
pub(crate) fn check_acceptance(acceptance: &Acceptance, offered: &[String]) -> Result<(), String> {
    let Acceptance { tags, attachment, protocol } = acceptance;
    within(tags.len() <= SOCKET_TAGS_MAX, || format!("{} tags; at most {SOCKET_TAGS_MAX}", tags.len()))?;
    let odd = tags.iter().find(|tag| !(1..=SOCKET_TAG_BYTES_MAX).contains(&tag.len()));
    within(odd.is_none(), || format!("a tag has 1 to {SOCKET_TAG_BYTES_MAX} bytes"))?;
    check_attachment(attachment)?;
    let unknown = protocol.as_ref().filter(|protocol| !offered.contains(protocol));
    within(unknown.is_none(), || "a subprotocol that the client did not offer".to_owned())
}

/// The subprotocols a client offered.
pub(crate) fn offered_protocols(headers: &[(String, Vec<u8>)]) -> Vec<String> {
    let values = headers.iter().filter(|(name, _)| name == "sec-websocket-protocol");
    let values = values.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    values.flat_map(|value| value.split(',')).map(|protocol| protocol.trim().to_owned()).collect()
}

fn within(is_within: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if is_within { Ok(()) } else { Err(reason()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_actor_may_ask_of_a_socket_is_bounded() {
        // R-WS-1
        let text = |len| Message::Text("x".repeat(len));
        assert_eq!(check_message(&text(SOCKET_MESSAGE_BYTES_MAX)), Ok(()));
        assert!(check_message(&text(SOCKET_MESSAGE_BYTES_MAX + 1)).is_err());
        assert_eq!(check_attachment(&vec![0; SOCKET_ATTACHMENT_BYTES_MAX]), Ok(()));
        assert!(check_attachment(&vec![0; SOCKET_ATTACHMENT_BYTES_MAX + 1]).is_err());
        for (code, reason, fine) in [
            (1000, "x".repeat(123), true),
            (1000, "x".repeat(124), false),
            (1001, String::new(), false),
            (1006, String::new(), false),
            (3000, String::new(), true),
            (4999, String::new(), true),
            (5000, String::new(), false),
        ] {
            assert_eq!(check_close(code, &reason).is_ok(), fine, "{code}");
        }
    }

    #[test]
    fn a_socket_is_let_in_within_the_limits_only() {
        // R-WS-1
        let acceptance = |tags: Vec<String>, protocol: Option<&str>| Acceptance {
            tags,
            attachment: vec![],
            protocol: protocol.map(Into::into),
        };
        let headers = [("sec-websocket-protocol".to_owned(), b"chat, superchat".to_vec())];
        let offered = offered_protocols(&headers);
        for (tags, protocol, fine) in [
            (vec!["t".repeat(128)], None, true),
            (vec!["t".into(); 16], Some("superchat"), true),
            (vec!["t".into(); 17], None, false),
            (vec![String::new()], None, false),
            (vec!["t".repeat(129)], None, false),
            (vec![], Some("other"), false),
        ] {
            let accepted = acceptance(tags, protocol);
            assert_eq!(check_acceptance(&accepted, &offered).is_ok(), fine, "{accepted:?}");
        }
    }
}
