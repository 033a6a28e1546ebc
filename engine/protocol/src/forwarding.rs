//! What becomes of a request for an actor this node does not hold, and of one that another node did not answer.
//!
//! Owns the choice and the words of a refusal. It knows no connection: who opens one reports how it went.

mod hints;

use std::collections::BTreeMap;

use crate::{
    ActorId, NodeId,
    clock::Moment,
    failover::Suspects,
    limits::PEER_SKIP,
    ownership::{Denial, Owner},
    view::View,
};
pub use hints::{Heard, Hints};

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Outside,
    /// Another node, which forwarded it: it goes no further (R-FWD-1).
    Peer,
    /// An actor of this node.
    Call,
}

/// What matters about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Where it comes from.
    pub origin: Origin,
    /// A GET or HEAD without a body, or a WebSocket upgrade.
    pub bodiless: bool,
}

impl Ask {
    /// Whether it may wait for a takeover (R-WAIT-1): nothing that could write is run late for a caller who gave up.
    #[must_use]
    pub fn may_wait(self) -> bool {
        self.bodiless && self.origin == Origin::Outside
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To this node, once.
    Forward(NodeId),
    /// Kept until this node's actors are free, or it proves alive.
    Keep(NodeId),
    /// Answered at once.
    Refuse(Refusal),
}

/// Why a request was not served. None of these says that it ran; [`Refusal::NotAnswered`] and
/// [`Refusal::TimedOut`] do not say that it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its actor's node does not renew its lease, or the wait for a takeover ended without one.
    #[error("the actor's node is not reachable; retry")]
    NotReachable,
    /// The node was asked, or could not be, and did not answer (R-FWD-2).
    #[error("the actor's node did not answer; retry")]
    NotAnswered,
    /// It was asked and did not answer within its time (R-FWD-3).
    #[error("the actor's node did not answer in time")]
    TimedOut,
    /// It reached this node as the actor's, and is another's.
    #[error("the actor is on another node; retry")]
    Elsewhere,
    /// The node refused this node's certificate and read nothing (R-TLS-5).
    #[error("the actor's node refused this node's certificate; retry")]
    CertificateRefused,
    /// This node's certificate may be new to the others, so none of them is asked yet (R-TLS-5).
    #[error("this node's certificate may be new to the actor's node; retry")]
    CertificateNew,
    /// The node talks plain HTTP, and this one does not (R-TLS-3).
    #[error("the actor's node has no cluster listener, and this node uses no plain HTTP; retry")]
    NodeUnused,
    /// This node's lease is not valid.
    #[error("this node cannot reach the cluster's bucket; retry")]
    NoLease,
    /// This node takes no actor.
    #[error("this node takes no actors; retry")]
    NotTaking,
    /// The bucket did not answer.
    #[error("the cluster's bucket did not answer; retry")]
    BucketSilent,
    /// The actor's ownership record is damaged.
    #[error("the actor's ownership record cannot be read")]
    Unreadable,
}

impl Refusal {
    /// The HTTP status. Each 503 carries `Retry-After: 1`.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TimedOut => 504,
            Self::Unreadable => 500,
            _ => 503,
        }
    }
}

/// What this node is, to a request it does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here<'a> {
    /// It keeps requests: `--failover-wait-secs` is not 0, and it neither drains nor stops.
    pub keeps: bool,
    /// It stops, and this node takes what it takes no more ([`heir`]).
    pub heir: Option<&'a NodeId>,
}

/// Who is asked to take an actor that this node, which stops, takes no more: a live node that is not suspected. It is
/// chosen by the actor's hash, so that all requests for an actor go to the same.
#[must_use]
pub fn heir<'a>(
    actor: &ActorId,
    me: &NodeId,
    view: &'a View,
    suspects: &Suspects,
    now: Moment,
) -> Option<&'a NodeId> {
    let app = |node| view.peer(node).and_then(|peer| Some(peer.record.as_ref().ok()?.presence.app.as_ref()));
    let heirs = || {
        let live = view.live(now).map(|(node, _)| node);
        live.filter(|node| *node != me && !suspects.suspects(node) && app(node) == app(me))
    };
    let count = u64::try_from(heirs().count()).unwrap_or(u64::MAX);
    let chosen = actor.hash().checked_rem(count)?;
    heirs().nth(usize::try_from(chosen).ok()?)
}

/// What becomes of a request whose actor this node could not take.
#[must_use]
pub fn route(ask: Ask, denial: &Denial, here: Here<'_>, suspects: &Suspects) -> Route {
    let keep = |node: &NodeId| {
        if ask.may_wait() && here.keeps {
            Route::Keep(node.clone())
        } else {
            Route::Refuse(Refusal::NotReachable)
        }
    };
    match denial {
        Denial::Owned(Owner::Live(_)) if ask.origin == Origin::Peer => Route::Refuse(Refusal::Elsewhere),
        // Only what may wait waits: anything else is sent, and told at once how it went.
        Denial::Owned(Owner::Live(node)) if suspects.suspects(node) && ask.may_wait() && here.keeps => {
            Route::Keep(node.clone())
        }
        Denial::Owned(Owner::Live(node)) => Route::Forward(node.clone()),
        Denial::Owned(Owner::Silent(node) | Owner::Ending(node) | Owner::Unclear(node)) => keep(node),
        Denial::Owned(Owner::Nobody | Owner::Ourselves) | Denial::BucketSilent => {
            Route::Refuse(Refusal::BucketSilent)
        }
        Denial::NoLease => Route::Refuse(Refusal::NoLease),
        // Nothing ran, so it goes there whatever it is; what was forwarded here goes back to who knows better.
        Denial::NotTaking => match here.heir {
            Some(heir) if ask.origin != Origin::Peer => Route::Forward(heir.clone()),
            _ => Route::Refuse(Refusal::NotTaking),
        },
        Denial::Unreadable(_) => Route::Refuse(Refusal::Unreadable),
    }
}

/// How an attempt to have a request served by another node failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The node answered [`Refusal::Elsewhere`]: what this node remembered of the actor's record is out of date.
    Elsewhere,
    /// No connection could be opened, within [`crate::limits::FORWARD_CONNECT`], or a new one in plain HTTP ended before
    /// anything was written.
    NotOpened,
    /// A connection kept open turned out to be closed before anything was written into it.
    ClosedUnused,
    /// The connection failed after something was written.
    Lost,
    /// The node refused this node's certificate, or a new connection with TLS gave the request back unsent: whatever
    /// closed it, nothing was read (R-TLS-5).
    Untrusted,
    /// This node's certificate may be new to the node, which was not asked (R-TLS-5).
    Unknown,
    /// No answer within [`crate::limits::FORWARD_ANSWER`].
    Silent,
}

/// Why a node surely did nothing with what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotExecuted {
    /// It says that the actor is not its own, or not any more.
    Elsewhere,
    /// The same, because it stops: it gives up all it has, and its records may not say so yet.
    Stopping,
    /// No connection to it could be opened.
    NotOpened,
}

impl NotExecuted {
    /// What the value of [`crate::headers::ELSEWHERE`] says.
    #[must_use]
    pub fn of_header(value: &[u8]) -> Self {
        if value == crate::headers::ELSEWHERE_STOPPING.as_bytes() { Self::Stopping } else { Self::Elsewhere }
    }

    /// Whether the record is read again and the request sent on. `keeps`: [`Here::keeps`].
    ///
    /// What another node disowned has run nowhere, whatever it is. What could not be sent goes on only if it may wait
    /// for a takeover; without waits it is answered at once, as the node did not answer.
    #[must_use]
    pub fn goes_on(self, ask: Ask, keeps: bool) -> bool {
        match self {
            Self::Elsewhere | Self::Stopping => ask.origin != Origin::Peer,
            Self::NotOpened => ask.may_wait() && keeps,
        }
    }
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remedy {
    /// Whether to send the request again, once, if all of it can still be sent. Only what surely did not run is.
    pub again: Again,
    /// What to answer if not.
    pub refusal: Refusal,
    /// Whether the node is suspected from now on (R-WAIT-1).
    pub suspect: bool,
}

/// Whether and how a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Not at all.
    No,
    /// To the same node, on a new connection.
    SameNode,
    /// To the node that the actor's record names when it is read now.
    ReadRecord,
    /// To the same node, when [`crate::trust::Resend`] says so; a forwarded request is not, its body is not kept.
    Later,
}

/// A request that may have been written is never sent again (R-FWD-2), unless the node it was written to says that
/// it did nothing with it.
#[must_use]
pub fn remedy(trouble: Trouble) -> Remedy {
    let refuse = |refusal| Remedy { again: Again::No, refusal, suspect: false };
    match trouble {
        Trouble::Elsewhere => Remedy { again: Again::ReadRecord, ..refuse(Refusal::Elsewhere) },
        Trouble::NotOpened => Remedy { suspect: true, ..refuse(Refusal::NotAnswered) },
        Trouble::ClosedUnused => Remedy { again: Again::SameNode, ..refuse(Refusal::NotAnswered) },
        Trouble::Untrusted => Remedy { again: Again::Later, ..refuse(Refusal::CertificateRefused) },
        Trouble::Unknown => Remedy { again: Again::Later, ..refuse(Refusal::CertificateNew) },
        Trouble::Lost => refuse(Refusal::NotAnswered),
        Trouble::Silent => refuse(Refusal::TimedOut),
    }
}

/// Nodes that failed to take an event, passed over for a while when one is chosen to take an actor (R-FWD-4).
#[derive(Debug, Default)]
pub struct Skipped(BTreeMap<NodeId, Moment>);

impl Skipped {
    /// This node failed to take an event.
    pub fn failed(&mut self, node: NodeId, now: Moment) {
        self.0.retain(|_, until| now < *until);
        self.0.insert(node, now + PEER_SKIP);
    }

    /// Whether to pass it over.
    #[must_use]
    pub fn skips(&self, node: &NodeId, now: Moment) -> bool {
        self.0.get(node).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests;
