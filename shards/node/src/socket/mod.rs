//! WebSockets of a shard's actors, from the upgrade to the end of the connection (R-WS-1 to R-WS-3).
//!
//! Owns: the handshake, the frames of both directions, the registry of sockets with their tags and attachments,
//! the task of each connection, and the way of a message into its actor's mailbox. A socket belongs to its actor's
//! name, not to its instance: an actor that sleeps keeps its sockets, and all it costs is what is here. Does not
//! own: whether a socket is let in, which the actor's hook says, nor when an actor wakes.
//!
//! The path of a message: the [`connection`] reads → the [`decoder`] makes it whole → the [`mail`] waits for a
//! place and hands it to the actor. The way back: the actor's import → the [`registry`] → the [`line`] queues a
//! frame → the connection writes.
//!
//! A client of another node's actor is [relayed](relay): that node has the socket, this one carries its bytes.

mod actor;
mod boundary;
mod connection;
mod decoder;
mod frame;
mod handshake;
mod line;
mod mail;
mod registry;
mod relay;
mod relays;

pub(crate) use actor::ActorSockets;
pub(crate) use connection::serve;
pub(crate) use handshake::{Handshake, Refused, is_wanted};
pub(crate) use line::Rules;
pub(crate) use registry::{Post, Sockets};
pub(crate) use relay::{OWNER_LOST, join};
pub(crate) use relays::Relays;
