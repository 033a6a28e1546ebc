//! The hooks of WebSockets.

use crate::{
    Exports,
    actors::Headers,
    bindings::{websocket_close, websocket_message, websocket_open},
    websockets::{Acceptance, Message, SocketId},
};

/// Lets WebSockets in: the `on-websocket-open` hook.
pub trait WebSocketOpen {
    /// A client asks for an upgrade.
    ///
    /// # Errors
    /// The HTTP status, 400 to 599, that refuses it.
    fn websocket_open(socket: SocketId, path_with_query: String, headers: Headers)
    -> Result<Acceptance, u16>;
}

/// Takes messages from WebSockets: the `on-websocket-message` hook.
pub trait WebSocketMessage {
    /// Takes one whole message.
    fn websocket_message(socket: SocketId, message: Message);
}

/// Learns of closed WebSockets: the `on-websocket-close` hook.
pub trait WebSocketClose {
    /// The client closed `socket` or was lost (`code` 1006).
    fn websocket_close(socket: SocketId, code: u16, reason: String);
}

impl<A: WebSocketOpen> websocket_open::Guest for Exports<A> {
    fn on_websocket_open(
        socket: SocketId,
        path_with_query: String,
        headers: Headers,
    ) -> Result<Acceptance, u16> {
        A::websocket_open(socket, path_with_query, headers)
    }
}

impl<A: WebSocketMessage> websocket_message::Guest for Exports<A> {
    fn on_websocket_message(socket: SocketId, message: Message) {
        A::websocket_message(socket, message);
    }
}

impl<A: WebSocketClose> websocket_close::Guest for Exports<A> {
    fn on_websocket_close(socket: SocketId, code: u16, reason: String) {
        A::websocket_close(socket, code, reason);
    }
}

/// Without tags, attachment and subprotocol.
impl Default for Acceptance {
    fn default() -> Acceptance {
        Acceptance { tags: Vec::new(), attachment: Vec::new(), protocol: None }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Message {
        Message::Text(text.to_owned())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Message {
        Message::Text(text)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes)
    }
}
