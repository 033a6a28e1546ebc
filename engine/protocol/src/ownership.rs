//! Who holds an actor: `owners/<tenant>/<class>/<name>`.
//!
//! [`owner_of`] judges a record by the cluster's view, [`Claim`] takes and gives up one actor. Owns the generations.
//! It knows no mailbox and no database, and nothing is ever renewed here: a hold stands as long as its process's
//! lease.

mod claim;

pub use claim::{Claim, Context, Denial, Effect, Input};

use crate::{
    NodeId,
    clock::Moment,
    records::{Hold, NodeRecord, OwnerRecord},
    store::Found,
    view::{Standing, View},
};

/// Whose an actor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's: never taken, released, or its owner holds nothing any more.
    Nobody,
    /// This node's: its own earlier process held it (R-OWN-3), or this one before its lease lapsed.
    Ourselves,
    /// Held by a node that renews its lease.
    Live(NodeId),
    /// Held by a node that does not, and that nobody has fenced.
    Silent(NodeId),
    /// Held by a node that was fenced and may still run events.
    Ending(NodeId),
    /// The node's lease in this view has ended, and it is another process's than the record names: which of the two
    /// came first only a read of the heartbeat tells, begun after the record was read.
    Unclear(NodeId),
}

/// Whose an actor with this record is, at `now`, to the node `me`. `me` has passed its start check, so nothing of an
/// earlier process of it runs.
#[must_use]
pub fn owner_of(record: &OwnerRecord, me: &NodeId, view: &View, now: Moment) -> Owner {
    let node = &record.node;
    if record.hold == Hold::Released {
        return Owner::Nobody;
    }
    if node == me {
        return Owner::Ourselves;
    }
    match view.standing(node, now) {
        Standing::Live => Owner::Live(node.clone()),
        Standing::Silent | Standing::Absent => Owner::Silent(node.clone()),
        Standing::Ending => Owner::Ending(node.clone()),
        // For one process a lease that ended stays ended, so a view of the same process is never too old for this.
        Standing::Gone if names_process(view, record) => Owner::Nobody,
        Standing::Gone => Owner::Unclear(node.clone()),
    }
}

fn names_process(view: &View, record: &OwnerRecord) -> bool {
    let heartbeat = view.peer(&record.node).and_then(|peer| peer.record.as_ref().ok());
    heartbeat.is_some_and(|heartbeat| heartbeat.process == record.process)
}

/// The same for [`Owner::Unclear`], with a heartbeat that was read after the record was. `None`: it was not read.
///
/// Whichever process the record names had a heartbeat before it took anything. If another one's stands there now, it
/// came later, and no process starts before the one before it has lapsed.
#[must_use]
pub fn owner_by_heartbeat(record: &OwnerRecord, heartbeat: &Found<NodeRecord>, view: &View) -> Option<Owner> {
    let node = record.node.clone();
    match heartbeat {
        Found::Failed => None,
        Found::Absent | Found::Object(_, Err(_)) => Some(Owner::Silent(node)),
        Found::Object(_, Ok(heartbeat)) => Some(match view.standing_of(heartbeat) {
            Standing::Live => Owner::Live(node),
            Standing::Silent | Standing::Absent => Owner::Silent(node),
            Standing::Ending => Owner::Ending(node),
            Standing::Gone => Owner::Nobody,
        }),
    }
}
