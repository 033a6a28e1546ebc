//! Events that are not requests: one for each hook but `on-init`, which belongs to an actor's start.

use super::answer::{self, AnswerReceiver, AnswerSender};
use crate::bindings::websockets::Message;

/// What `on-websocket-open` returned: the subprotocol of the socket that was let in, or the HTTP status that
/// refuses it.
pub type OpenAnswer = Result<Option<String>, u16>;

/// The alarm may be due.
#[derive(Debug)]
pub struct AlarmEvent {
    pub(crate) answer: AnswerSender<()>,
}

impl AlarmEvent {
    /// The receiver learns that the event has ended, or that it was refused. Whether the alarm ran, and how that
    /// went, is in the actor's database.
    #[must_use]
    pub fn new() -> (Self, AnswerReceiver<()>) {
        let (answer, receiver) = answer::channel();
        (Self { answer }, receiver)
    }
}

/// A client asks for a WebSocket.
#[derive(Debug)]
pub struct SocketOpen {
    pub(crate) socket: u64,
    pub(crate) path_with_query: String,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) answer: AnswerSender<OpenAnswer>,
}

impl SocketOpen {
    /// `headers` are those of the upgrade request that a guest may see. Dropping the receiver says that the
    /// client is gone.
    #[must_use]
    pub fn new(
        socket: u64,
        path_with_query: String,
        headers: Vec<(String, Vec<u8>)>,
    ) -> (Self, AnswerReceiver<OpenAnswer>) {
        let (answer, receiver) = answer::channel();
        (Self { socket, path_with_query, headers, answer }, receiver)
    }
}

/// A whole message came in on a WebSocket.
#[derive(Debug)]
pub struct SocketMessage {
    pub(crate) socket: u64,
    pub(crate) message: Message,
    pub(crate) answer: AnswerSender<()>,
}

impl SocketMessage {
    /// The receiver learns when the hook has run, or that the event was refused.
    #[must_use]
    pub fn new(socket: u64, message: Message) -> (Self, AnswerReceiver<()>) {
        let (answer, receiver) = answer::channel();
        (Self { socket, message, answer }, receiver)
    }
}

/// A WebSocket is gone.
#[derive(Debug)]
pub struct SocketClose {
    pub(crate) socket: u64,
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) answer: AnswerSender<()>,
}

impl SocketClose {
    /// `code` is 1006 for a client that was lost.
    #[must_use]
    pub fn new(socket: u64, code: u16, reason: String) -> (Self, AnswerReceiver<()>) {
        let (answer, receiver) = answer::channel();
        (Self { socket, code, reason, answer }, receiver)
    }
}
