//! Events that are not requests: one for each hook but `on-init`, which belongs to an actor's start.

use super::answer::{self, AnswerReceiver, AnswerSender};
use crate::bindings::websockets::Message;

/// What `on-alarm` returned; the text of an error is for the log.
pub type AlarmAnswer = Result<(), String>;

/// What `on-websocket-open` returned: the subprotocol of the socket that was let in, or the HTTP status that
/// refuses it.
pub type OpenAnswer = Result<Option<String>, u16>;

/// The alarm is due.
#[derive(Debug)]
pub struct AlarmEvent {
    pub(crate) due_ms: u64,
    pub(crate) attempt: u32,
    pub(crate) answer: AnswerSender<AlarmAnswer>,
}

impl AlarmEvent {
    /// The alarm that came due at `due_ms` (milliseconds since the Unix epoch); `attempt` is 1 the first time.
    #[must_use]
    pub fn new(due_ms: u64, attempt: u32) -> (Self, AnswerReceiver<AlarmAnswer>) {
        let (answer, receiver) = answer::channel();
        (Self { due_ms, attempt, answer }, receiver)
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
