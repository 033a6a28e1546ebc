//! Why a process ends. Owns the reasons and their words; the exit statuses are the command line's.

use super::{Refused, start::at};
use crate::{NodeId, records::RecordError};

/// Why a process ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Exit {
    /// It was asked to.
    #[error("stopped")]
    Stopped {
        /// Its heartbeat says so. If not, others wait for its lease to lapse.
        released: bool,
    },
    /// The start check found another process, or lost the first write to one.
    #[error("{0}: stop it first, or start this node with another --node-id")]
    Refused(Refused),
    /// Its lease was taken.
    #[error("this node was fenced by {}", fencer(.by))]
    Fenced {
        /// The node that did; `None`: an operator.
        by: Option<NodeId>,
    },
    /// Another process took the node id over.
    #[error("another process took this node id over{}", at(.address))]
    Replaced {
        /// Where it says it is reached.
        address: String,
    },
    /// Its heartbeat was deleted.
    #[error("this node's heartbeat was deleted from the bucket")]
    Deleted,
    /// Its first heartbeat may have stood, and been fenced and deleted, before anybody told it that it landed.
    #[error(
        "this node's first heartbeat had no clear answer for too long to be relied on: start the node again"
    )]
    Unsettled,
    /// Something that is no heartbeat stands in its place.
    #[error("this node's heartbeat was overwritten: {0}")]
    Overwritten(RecordError),
}

fn fencer(by: &Option<NodeId>) -> String {
    by.as_ref().map_or_else(|| "an operator".into(), |node| format!("node {node}"))
}
