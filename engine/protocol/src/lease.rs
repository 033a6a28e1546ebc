//! A node's lease: `nodes/<id>`, kept by its own process and watched by the others.
//!
//! [`Keeper`] is the node's own side (start check, renewal, loss, clean stop), [`Watch`] what it makes of the
//! others' heartbeats (view, fences, warnings). Both are step functions: time and chance are arguments, requests
//! to the bucket are effects, their answers inputs. Neither knows an actor.
//!
//! Why at most one node runs an actor: a process runs events for less than the ttl after one of its writes
//! *began*; whoever frees its actors has seen that write in the bucket, then watched it stand for ttl plus grace
//! by its own clock, and replaced exactly it. No clock of one machine is compared with one of another.

mod exit;
mod keeper;
mod start;
mod timing;
mod watch;

pub use exit::Exit;
pub use keeper::{Effect, Input, Keeper, ValidLease};
pub use start::Refused;
pub use timing::Timing;
pub use watch::{Listed, Notice, Watch, WatchEffect, WatchInput};

use crate::{NodeId, records::Process};

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The node id it was started with.
    pub node: NodeId,
    /// Its own run.
    pub process: Process,
}
