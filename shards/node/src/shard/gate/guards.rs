//! What stands between an actor's code and its ways out: each knocks at the gate first.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use wasmkeep_host::{
    Call, CallError, CallOutcome, Calls, Connection, Message, SocketGone, Sockets,
    outbound::{Outbound, OutboundBody, OutboundError, OutboundOptions, Sending},
};
use wasmkeep_protocol::{close, limits::SOCKET_QUEUE_BYTES_MAX};

use super::{Door, Gate, Held};
use crate::socket::ActorSockets;

/// Calls of a gated actor.
pub(in super::super) struct GatedCalls {
    pub(in super::super) calls: Rc<dyn Calls>,
    pub(in super::super) door: Door,
}

impl Calls for GatedCalls {
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>> {
        let (calls, knock) = (Rc::clone(&self.calls), self.door.knock());
        Box::pin(async move {
            if knock.await {
                return calls.call(call).await;
            }
            let sentence = "what the caller wrote before it could not be put in the bucket; it was not sent";
            Err(CallError::Failed(sentence.to_owned()))
        })
    }
}

/// Outbound requests of a gated actor.
pub(in super::super) struct GatedOutbound {
    pub(in super::super) outbound: Arc<dyn Outbound>,
    pub(in super::super) door: Door,
}

impl Outbound for GatedOutbound {
    fn send(&self, request: Request<OutboundBody>, options: OutboundOptions) -> Sending {
        let (outbound, door, knock) = (Arc::clone(&self.outbound), self.door.clone(), self.door.knock());
        Box::pin(async move {
            if !knock.await {
                return Err(closed());
            }
            let request = request.map(|body| match body.is_end_stream() {
                true => body,
                false => GatedBody { body, door, held: None }.boxed_unsync(),
            });
            outbound.send(request, options).await
        })
    }
}

fn closed() -> OutboundError {
    OutboundError::InternalError(Some(
        "what the actor wrote before it could not be put in the bucket".to_owned(),
    ))
}

type Knock = Pin<Box<dyn Future<Output = bool> + Send>>;

type Part = Option<Result<Frame<Bytes>, OutboundError>>;

/// A request's body, of which each part knocks too: the actor may have written between two of them.
struct GatedBody {
    body: OutboundBody,
    door: Door,
    held: Option<(Part, Knock)>,
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = OutboundError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Part> {
        let this = &mut *self;
        if this.held.is_none() {
            let part = ready!(Pin::new(&mut this.body).poll_frame(cx));
            this.held = Some((part, Box::pin(this.door.knock())));
        }
        let Some((_, knock)) = &mut this.held else { return Poll::Pending };
        let may_leave = ready!(knock.as_mut().poll(cx));
        match this.held.take() {
            Some((part, _)) if may_leave => Poll::Ready(part),
            _ => Poll::Ready(Some(Err(closed()))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What is on its way to a socket.
#[derive(Default)]
pub(super) struct HeldSocket {
    messages: usize,
    bytes: usize,
    /// The actor has closed it; the close waits behind the messages.
    is_closing: bool,
}

/// Sockets of a gated actor. To its code a message that waits is sent and a close that waits is done.
pub(in super::super) struct GatedSockets {
    sockets: Rc<ActorSockets>,
    gate: Rc<Gate>,
}

impl GatedSockets {
    pub(in super::super) fn new(sockets: ActorSockets, gate: &Rc<Gate>) -> Self {
        Self { sockets: Rc::new(sockets), gate: Rc::clone(gate) }
    }

    fn is_closing(&self, socket: u64) -> bool {
        self.gate.sockets.borrow().get(&socket).is_some_and(|held| held.is_closing)
    }

    /// Queues for each of `to` what `send` sends to all of them.
    fn hold(&self, to: Vec<u64>, bytes: usize, send: impl FnOnce(&ActorSockets, &[u64]) + 'static) {
        for socket in &to {
            let mut sockets = self.gate.sockets.borrow_mut();
            let held = sockets.entry(*socket).or_default();
            (held.messages, held.bytes) = (held.messages + 1, held.bytes + bytes);
        }
        let (sockets, gate) = (Rc::clone(&self.sockets), Rc::clone(&self.gate));
        let leave = move || {
            for socket in &to {
                gate.socket_sent(*socket, bytes);
            }
            send(&sockets, &to);
        };
        self.gate.hold(Held::Message(bytes, Box::new(leave)));
    }

    /// Whether a message for the socket may wait. A client that would be too far behind once it left is closed at
    /// once, as the socket's own queue would do.
    fn has_room(&self, socket: u64, bytes: usize) -> bool {
        let held = self.gate.sockets.borrow().get(&socket).map_or(0, |held| held.bytes);
        let has_room = held + bytes <= SOCKET_QUEUE_BYTES_MAX;
        if !has_room {
            // One that is gone needs no close.
            let _ = self.sockets.close(socket, close::POLICY, "too many messages wait for this client");
        }
        has_room
    }
}

fn length(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
    }
}

impl Sockets for GatedSockets {
    fn open(&self, socket: u64, tags: Vec<String>, attachment: Vec<u8>) {
        self.sockets.open(socket, tags, attachment);
    }

    fn connections(&self, tag: Option<&str>) -> Vec<Connection> {
        let mut open = self.sockets.connections(tag);
        open.retain(|socket| !self.is_closing(socket.id));
        open
    }

    fn send(&self, socket: u64, message: Message) -> Result<(), SocketGone> {
        let bytes = length(&message);
        if !self.sockets.is_open(socket) || self.is_closing(socket) || !self.has_room(socket, bytes) {
            return Err(SocketGone);
        }
        self.hold(vec![socket], bytes, move |sockets, to| {
            sockets.send_to(to, message);
        });
        Ok(())
    }

    fn broadcast(&self, tag: Option<&str>, message: Message) -> u32 {
        let bytes = length(&message);
        let mut to = self.sockets.open_ones(tag);
        to.retain(|socket| !self.is_closing(*socket) && self.has_room(*socket, bytes));
        let count = u32::try_from(to.len()).unwrap_or(u32::MAX);
        if count > 0 {
            self.hold(to, bytes, move |sockets, to| {
                sockets.send_to(to, message);
            });
        }
        count
    }

    fn set_attachment(&self, socket: u64, attachment: Vec<u8>) -> Result<(), SocketGone> {
        match self.is_closing(socket) {
            true => Err(SocketGone),
            false => self.sockets.set_attachment(socket, attachment),
        }
    }

    fn close(&self, socket: u64, code: u16, reason: &str) -> Result<(), SocketGone> {
        if !self.sockets.is_in(socket) || self.is_closing(socket) {
            return Err(SocketGone);
        }
        let reason = reason.to_owned();
        self.hold(vec![socket], 0, move |sockets, to| {
            for socket in to {
                // Its client may have left meanwhile.
                let _ = sockets.close(*socket, code, &reason);
            }
        });
        if let Some(held) = self.gate.sockets.borrow_mut().get_mut(&socket) {
            held.is_closing = true;
        }
        Ok(())
    }
}

impl Gate {
    /// One thing for a socket has left.
    fn socket_sent(&self, socket: u64, bytes: usize) {
        let mut sockets = self.sockets.borrow_mut();
        let Some(held) = sockets.get_mut(&socket) else { return };
        (held.messages, held.bytes) = (held.messages - 1, held.bytes - bytes);
        if held.messages == 0 {
            sockets.remove(&socket);
        }
    }
}
