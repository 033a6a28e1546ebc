//! Where a request for an actor goes that this node may not hold: here, once the actor is taken, or to the node that has
//! it, or it is kept until one of the two is possible (R-FWD, R-WAIT). Who owns what is decided by `protocol`.

use std::{cell::RefCell, num::NonZeroUsize, rc::Rc, sync::Arc, time::Duration};

use http::{Method, Response, StatusCode, request::Parts};
use http_body::Body;
use wasmkeep_cluster::Existence;
use wasmkeep_protocol::{
    ActorId, NodeId,
    access::Decision,
    failover::{End, Suspects},
    forwarding::{Ask, Heard, Here, Hints, Origin, Refusal, Route, heir, route},
    headers,
    ownership::{Denial, Owner},
    trust::{Policy, Reach, reach},
};
use wasmkeep_replica::HistoryError;

use super::{
    Shard, answer,
    keeping::{Keeping, moment},
    requests::door,
    sending_on::refused,
};
use crate::{
    cluster::Cluster,
    http as front,
    peers::{Peers, Reached, Target},
    socket::{self, Relays},
    tls,
};

/// One shard's side of its cluster.
pub(super) struct Abroad {
    pub(super) cluster: Cluster,
    pub(super) peers: Peers,
    /// On a node with a cluster listener.
    pub(super) tls: Option<(Arc<tls::Identity>, tls::Watch)>,
    pub(super) keeping: Rc<Keeping>,
    pub(super) relays: Relays,
    pub(super) hints: RefCell<Hints>,
}

/// Actors whose node is remembered by a shard.
const HINTS_MAX: NonZeroUsize = NonZeroUsize::new(16 << 10).expect("it is not zero");

/// Hints for a shard whose actors hibernate after so long.
pub(super) fn hints(hibernate_after: Duration) -> RefCell<Hints> {
    RefCell::new(Hints::new(HINTS_MAX, hibernate_after))
}

/// What is known of the node that had an actor last.
enum Hinted {
    /// It can be asked.
    Reached(NodeId),
    /// No connection to it could be opened.
    NotOpened(NodeId),
    /// The record is to be read.
    Nothing,
}

impl Abroad {
    /// The node that had the actor last, while it can be expected to have it still and can be reached: one that stopped
    /// a moment ago has given its actors up, and their records say so.
    async fn hinted(&self, id: &ActorId) -> Hinted {
        let Some(node) = self.hint(id) else { return Hinted::Nothing };
        let reached = match self.target(&node) {
            Ok(target) => self.peers.reach(&target).await,
            Err(_) => Reached::Closed,
        };
        if reached == Reached::Open {
            return Hinted::Reached(node);
        }
        self.hear(id, &node, Heard::NotServed);
        if reached == Reached::NotOpened {
            self.keeping.suspect(&node);
            return Hinted::NotOpened(node);
        }
        Hinted::Nothing
    }

    fn hint(&self, id: &ActorId) -> Option<NodeId> {
        let view = self.cluster.view.load_full();
        let find = |suspects: &Suspects| self.hints.borrow_mut().find(id, &view, suspects, moment());
        self.keeping.with_suspects(find)
    }

    /// The record of the actor names this node.
    fn learn(&self, id: &ActorId, node: &NodeId) {
        self.hints.borrow_mut().learn(id, node, moment());
    }

    /// What came of sending something for the actor there.
    pub(super) fn hear(&self, id: &ActorId, node: &NodeId, heard: Heard) {
        self.hints.borrow_mut().heard(id, node, heard, moment());
    }

    /// Takes the actor, for all who wait for it here.
    async fn claim(&self, id: &ActorId, fresh: bool) -> Result<(), Denial> {
        self.cluster.claim(id, fresh).await?;
        self.keeping.taken(id);
        Ok(())
    }

    /// How another node is reached, while its heartbeat is in view (R-TLS-3).
    pub(super) fn target(&self, node: &NodeId) -> Result<Target, Refusal> {
        let view = self.cluster.view.load();
        let record = view.peer(node).and_then(|peer| peer.record.as_ref().ok());
        let presence = &record.ok_or(Refusal::NotReachable)?.presence;
        match reach(self.cluster.policy(), presence) {
            Reach::Encrypted { url, fingerprint } if view.trusts(node, fingerprint, moment()) => {
                Ok(Target::encrypted(url, node, fingerprint))
            }
            Reach::Encrypted { .. } => Err(Refusal::NotReachable),
            Reach::Plain { url } => Ok(Target::plain(url)),
            Reach::Never(_) => {
                self.cluster.warn_of_unused();
                Err(Refusal::NodeUnused)
            }
        }
    }
}

/// Where a request is served.
pub(super) enum Place {
    /// Here: the actor is this node's.
    Here,
    /// By this node.
    There(NodeId),
    /// Nowhere now.
    Refused(Refusal),
}

/// What a request is to the routing. One that another node may not send here is a client's.
pub(super) fn ask(policy: Policy, parts: &Parts, is_empty: bool) -> Ask {
    let is_upgrade = socket::is_wanted(&parts.headers);
    let forwarded = parts.headers.contains_key(headers::FORWARDED) && policy.believes(door(parts));
    let reads = is_empty && matches!(parts.method, Method::GET | Method::HEAD);
    Ask { origin: if forwarded { Origin::Peer } else { Origin::Outside }, bodiless: is_upgrade || reads }
}

impl Shard {
    /// Whether a request is served here (`None`), or by which node; who refuses it says how.
    pub(super) async fn placed<'a>(
        &self,
        abroad: &'a Abroad,
        id: &ActorId,
        parts: &Parts,
        request_body: &front::RequestBody,
    ) -> Result<Option<(&'a Abroad, NodeId)>, Response<wasmkeep_host::ResponseBody>> {
        // A class that nobody may reach is refused before any wait.
        if let Some(refused) = self.refused_access(id) {
            return Err(refused);
        }
        let ask = ask(abroad.cluster.policy(), parts, request_body.is_end_stream());
        let known = self.actors.is_resident(id) || (ask.origin != Origin::Peer && abroad.hint(id).is_some());
        // Before anything is taken: asking for what does not exist leaves nothing in the bucket.
        let existence = if known { Ok(Existence::Elsewhere) } else { self.existence(abroad, id).await };
        match existence {
            Ok(Existence::Sure | Existence::Elsewhere) => {}
            Ok(Existence::Not) => return Err(no_such_actor()),
            Err(_) => return Err(refused(Refusal::BucketSilent)),
        }
        match self.place(abroad, id, ask).await {
            // Again: it may have been deleted during the wait.
            Place::Here => match self.refused_existence(abroad, id).await {
                None => Ok(None),
                Some(refused) => Err(refused),
            },
            Place::There(node) => Ok(Some((abroad, node))),
            Place::Refused(refusal) => Err(refused(refusal)),
        }
    }

    /// Whether the actor exists, as far as its class wants to know.
    async fn existence(&self, abroad: &Abroad, id: &ActorId) -> Result<Existence, HistoryError> {
        let class = self.node.classes.get(&id.class);
        if class.is_none_or(|class| class.access.decide(&id.name, || false) != Decision::NotFound) {
            return Ok(Existence::Sure);
        }
        if abroad.cluster.lease.epoch().is_none() {
            // Nothing is taken now; why not is said at once, and not when the bucket has been waited for.
            return Ok(Existence::Elsewhere);
        }
        abroad.cluster.existence(id).await
    }

    /// Where the actor's events run, taking it if nobody has it. The wait for a takeover is part of it.
    pub(super) async fn place(&self, abroad: &Abroad, id: &ActorId, ask: Ask) -> Place {
        if self.actors.is_resident(id) {
            return Place::Here;
        }
        if ask.origin == Origin::Peer {
            return self.place_anew(abroad, id, ask, false).await;
        }
        match abroad.hinted(id).await {
            Hinted::Reached(node) => Place::There(node),
            Hinted::Nothing => self.place_anew(abroad, id, ask, false).await,
            // It may have stopped and given the actor up. If not, its next caller tries again, and not this one: it has
            // waited for a connection already (R-FWD-3).
            Hinted::NotOpened(node) => {
                let waits = self.waits_for(abroad, &node, ask);
                match self.place_anew(abroad, id, ask, true).await {
                    Place::There(same) if same == node && !waits => Place::Refused(Refusal::NotAnswered),
                    place => place,
                }
            }
        }
    }

    /// Whether this node keeps a request for an actor of a node that did not serve it.
    pub(super) fn waits_for(&self, abroad: &Abroad, node: &NodeId, ask: Ask) -> bool {
        ask.may_wait()
            && self.keeps(abroad)
            && abroad.keeping.with_suspects(|suspects| suspects.suspects(node))
    }

    /// Whether this node keeps requests for takeovers at all.
    pub(super) fn keeps(&self, abroad: &Abroad) -> bool {
        !abroad.cluster.config.failover_wait.is_zero() && self.node.is_serving()
    }

    /// As [`Shard::place`], asking the bucket core; `fresh`: and the bucket, whatever is remembered.
    pub(super) async fn place_anew(&self, abroad: &Abroad, id: &ActorId, ask: Ask, fresh: bool) -> Place {
        let keeps = self.keeps(abroad);
        let decide = |denial: &Denial| {
            let view = abroad.cluster.view.load();
            abroad.keeping.with_suspects(|suspects| {
                let heir =
                    self.node.is_stopping().then(|| heir(id, &self.node.node_id, &view, suspects, moment()));
                route(ask, denial, Here { keeps, heir: heir.flatten() }, suspects)
            })
        };
        let mut denial = match abroad.claim(id, fresh).await {
            Ok(()) => return Place::Here,
            Err(denial) => denial,
        };
        // An owner that cannot be reached may have stopped and given the actor up since.
        if !fresh && let (Denial::Owned(Owner::Live(_)), Route::Keep(_)) = (&denial, decide(&denial)) {
            match abroad.claim(id, true).await {
                Ok(()) => return Place::Here,
                Err(now) => denial = now,
            }
        }
        match decide(&denial) {
            Route::Forward(node) => {
                abroad.learn(id, &node);
                Place::There(node)
            }
            Route::Refuse(refusal) => Place::Refused(refusal),
            Route::Keep(owner) => self.keep(abroad, id, &owner).await,
        }
    }

    /// Where a request is served once its wait has ended.
    async fn keep(&self, abroad: &Abroad, id: &ActorId, owner: &NodeId) -> Place {
        match abroad.keeping.keep(id, owner).await {
            Ok(End::Served) => Place::Here,
            Ok(End::Sent(node) | End::OwnerAlive(node)) => {
                abroad.learn(id, &node);
                Place::There(node)
            }
            Ok(end) => Place::Refused(end.refusal().unwrap_or(Refusal::NotReachable)),
            Err(_) => Place::Refused(Refusal::NotReachable),
        }
    }

    /// Whether the access rule lets a request in to an actor that is this node's (R-ACC-1). One that does not exist is
    /// given up again.
    pub(super) async fn refused_existence(
        &self,
        abroad: &Abroad,
        id: &ActorId,
    ) -> Option<Response<wasmkeep_host::ResponseBody>> {
        if self.actors.is_resident(id) {
            return None;
        }
        match self.existence(abroad, id).await {
            Ok(Existence::Sure) => None,
            Ok(existence) => {
                abroad.cluster.unused(id).await;
                // Lost since it was taken: whoever has it knows.
                let is_lost = existence == Existence::Elsewhere;
                Some(if is_lost { refused(Refusal::Elsewhere) } else { no_such_actor() })
            }
            Err(_) => Some(refused(Refusal::BucketSilent)),
        }
    }
}

fn no_such_actor() -> Response<wasmkeep_host::ResponseBody> {
    answer::sentence(StatusCode::NOT_FOUND, "there is no such actor")
}
