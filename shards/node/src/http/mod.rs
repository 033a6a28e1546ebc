//! The HTTP/1.1 front of a shard: listeners, connections, and the strict reading of what comes in.
//!
//! Owns sockets of clients from accept to close, or to the upgrade that takes one out of HTTP, framing, limits of size and time on a connection, moving a
//! connection to the shard its requests belong to, and the orderly end of all connections. Does not own what a
//! request means: a handler answers it, and a route function says which shard a path belongs to.
//!
//! The path of a request: [`listen`] → [`Front::accept`] → the wire reads the socket, the [`guard`] judges each
//! byte, hyper parses what passed → the handler → hyper → the wire. One request at a time reaches hyper, so a
//! connection between two requests holds nothing but its socket and the bytes it has not passed on.

mod answer;
pub mod body;
mod connection;
mod connections;
mod front;
pub mod guard;
mod io;
mod linger;
pub mod listen;
mod listening;
mod moves;
mod stats;
mod upgrade;
mod wire;

pub(crate) use body::Waits;
pub use body::{BodyError, RequestBody, ResponseBody};
pub use connections::{Admission, Connections, Ticket};
pub(crate) use front::NodesListener;
pub use front::{Config, Front, Inbound};
pub use guard::{Limits, Violation};
pub(crate) use linger::answer_and_close;
pub use listen::{Bound, ListenError, Reserved, reserve};
pub use moves::Handover;
pub use stats::Stats;
pub use upgrade::Upgraded;
