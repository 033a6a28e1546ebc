//! Requests for actors this node may not hold: takes the actor, or sends the request to the node that has it, or
//! keeps it until one of the two is possible (R-FWD, R-WAIT). Who owns what is decided by `protocol`.

use std::{cell::RefCell, num::NonZeroUsize, rc::Rc, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, request::Parts};
use http_body::Body;
use http_body_util::Full;
use lru::LruCache;
use wasmkeep_host::strip_headers;
use wasmkeep_protocol::{
    ActorId, NodeId,
    access::Decision,
    clock::Moment,
    failover::End,
    forwarding::{Ask, Here, Origin, Refusal, Route, heir, route},
    headers,
    ownership::{Denial, Owner},
    trust::{Policy, Reach, reach},
    view::Standing,
};

use super::{
    Shard, answer, body,
    keeping::{Keeping, moment},
    requests::door,
};
use crate::{
    cluster::Cluster,
    http as front,
    peers::{PeerBody, Peers, Target},
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
    pub(super) hints: Hints,
}

/// Actors whose node is remembered by a shard.
const HINTS_MAX: NonZeroUsize = NonZeroUsize::new(16 << 10).expect("it is not zero");

/// Which node had an actor when its record was last read: a request to it then costs no read of the bucket. A hint that
/// is out of date leads to a node that says so and does nothing (R-FWD-1). It holds no longer than an actor stays awake
/// without a request: one that sleeps is nobody's, and whoever is asked takes it (R-WS-2).
pub(super) struct Hints {
    nodes: RefCell<LruCache<ActorId, (NodeId, Moment)>>,
    life: Duration,
}

impl Hints {
    /// `life`: idle time before an actor hibernates.
    pub(super) fn new(life: Duration) -> Self {
        Self { nodes: RefCell::new(LruCache::new(HINTS_MAX)), life }
    }

    fn get(&self, id: &ActorId) -> Option<NodeId> {
        let mut nodes = self.nodes.borrow_mut();
        let (node, used) = nodes.get_mut(id)?;
        let now = moment();
        if now.since(*used) >= self.life {
            nodes.pop(id);
            return None;
        }
        *used = now;
        Some(node.clone())
    }

    fn remember(&self, id: &ActorId, node: &NodeId) {
        self.nodes.borrow_mut().put(id.clone(), (node.clone(), moment()));
    }

    fn forget(&self, id: &ActorId) {
        self.nodes.borrow_mut().pop(id);
    }
}

impl Abroad {
    /// The node that had the actor last, while it is live and can be reached: one that stopped a moment ago has given
    /// its actors up, and their records say so.
    async fn hinted(&self, id: &ActorId) -> Option<NodeId> {
        let node = self.hints.get(id)?;
        let is_live = self.cluster.view.load().standing(&node, moment()) == Standing::Live;
        if is_live
            && !self.keeping.with_suspects(|suspects| suspects.suspects(&node))
            && let Ok(target) = self.target(&node)
            && self.peers.reach(&target).await
        {
            return Some(node);
        }
        self.hints.forget(id);
        None
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

/// Other nodes that a request without a body is sent on to.
const SENT_ON_MAX: usize = 2;

/// Pauses, in milliseconds, in which the record of an actor is read again whose node says that it does not serve it.
const GIVEN_UP_AFTER_MS: [u64; 5] = [50, 50, 100, 200, 400];

/// What came of sending a request to another node.
struct Sent {
    answer: Response<front::ResponseBody>,
    undone: Option<Undone>,
}

/// Why a node surely did nothing with a request.
enum Undone {
    /// It says that the actor is not its own, or not any more.
    Elsewhere,
    /// No connection to it could be opened.
    NotReached,
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
        match self.place(abroad, id, ask).await {
            Place::Here => match self.refused_existence(abroad, id).await {
                None => Ok(None),
                Some(refused) => Err(refused),
            },
            Place::There(node) => Ok(Some((abroad, node))),
            Place::Refused(refusal) => Err(refused(refusal)),
        }
    }

    /// Where the actor's events run, taking it if nobody has it. The wait for a takeover is part of it.
    pub(super) async fn place(&self, abroad: &Abroad, id: &ActorId, ask: Ask) -> Place {
        if self.actors.is_resident(id) {
            return Place::Here;
        }
        if ask.origin != Origin::Peer
            && let Some(node) = abroad.hinted(id).await
        {
            return Place::There(node);
        }
        self.place_anew(abroad, id, ask, false).await
    }

    /// As [`Shard::place`], asking the bucket core; `fresh`: and the bucket, whatever is remembered.
    pub(super) async fn place_anew(&self, abroad: &Abroad, id: &ActorId, ask: Ask, fresh: bool) -> Place {
        let keeps = !abroad.cluster.config.failover_wait.is_zero() && self.node.is_serving();
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
                abroad.hints.remember(id, &node);
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
                abroad.hints.remember(id, &node);
                Place::There(node)
            }
            Ok(End::LeaseLapsed) => Place::Refused(Refusal::NoLease),
            Ok(_) | Err(_) => Place::Refused(Refusal::NotReachable),
        }
    }

    /// Whether the access rule lets a request in to an actor that is this node's (R-ACC-1).
    pub(super) async fn refused_existence(
        &self,
        abroad: &Abroad,
        id: &ActorId,
    ) -> Option<Response<wasmkeep_host::ResponseBody>> {
        let class = self.node.classes.get(&id.class)?;
        if class.access.decide(&id.name, || self.actors.is_resident(id)) == Decision::Allow {
            return None;
        }
        match abroad.cluster.exists(id).await {
            Ok(true) => None,
            Ok(false) => Some(answer::sentence(StatusCode::NOT_FOUND, "there is no such actor")),
            Err(_) => Some(refused(Refusal::BucketSilent)),
        }
    }

    /// Sends a request to the node that holds its actor, and gives its answer (R-FWD-1 to R-FWD-3). `Err`: this node has
    /// the actor by now.
    pub(super) async fn forward(
        &self,
        abroad: &Abroad,
        id: &ActorId,
        node: &NodeId,
        mut parts: Parts,
        request_body: front::RequestBody,
    ) -> Result<Response<front::ResponseBody>, (Parts, front::RequestBody)> {
        request_body.watch_client();
        if !request_body.is_end_stream() {
            let length = parts.headers.get(http::header::CONTENT_LENGTH).cloned();
            self.for_peer(&mut parts);
            if let Some(length) = length {
                parts.headers.insert(http::header::CONTENT_LENGTH, length);
            }
            let request = Request::from_parts(parts, PeerBody::Client(request_body));
            return Ok(self.send_there(abroad, id, node, request).await.answer);
        }
        self.forward_bodiless(abroad, id, node, parts).await.map_err(|parts| (parts, request_body))
    }

    /// As [`Shard::forward`]. What has no body goes on to another node when the first surely did nothing with it: it
    /// says so, as one does that gives its actors up, or it could not be reached.
    pub(super) async fn forward_bodiless(
        &self,
        abroad: &Abroad,
        id: &ActorId,
        node: &NodeId,
        parts: Parts,
    ) -> Result<Response<front::ResponseBody>, Parts> {
        let ask = ask(abroad.cluster.policy(), &parts, true);
        let mut node = node.clone();
        let mut left = SENT_ON_MAX;
        loop {
            let mut theirs = parts.clone();
            self.for_peer(&mut theirs);
            let request = Request::from_parts(theirs, PeerBody::Whole(Full::default()));
            let Sent { answer, undone } = self.send_there(abroad, id, &node, request).await;
            let goes_on = match undone {
                Some(Undone::Elsewhere) => true,
                Some(Undone::NotReached) => ask.may_wait(),
                None => false,
            };
            if !goes_on || left == 0 {
                return Ok(answer);
            }
            left -= 1;
            match self.place_after(abroad, id, ask, &node).await {
                Place::There(other) => node = other,
                Place::Here => return Err(parts),
                Place::Refused(_) => return Ok(answer),
            }
        }
    }

    /// Where an actor is that `node` does not serve, whatever its record said. A node that stops says so a moment
    /// before its records do.
    async fn place_after(&self, abroad: &Abroad, id: &ActorId, ask: Ask, node: &NodeId) -> Place {
        for pause in GIVEN_UP_AFTER_MS.map(Duration::from_millis) {
            match self.place_anew(abroad, id, ask, true).await {
                Place::There(same) if same == *node => self.context.sleeper.sleep(pause).await,
                place => return place,
            }
        }
        // Its heartbeat will tell; what may wait waits for that.
        abroad.keeping.suspect(node);
        self.place_anew(abroad, id, ask, true).await
    }

    /// What passes to another node of a client's headers.
    fn for_peer(&self, parts: &mut Parts) {
        strip_headers(&mut parts.headers);
        parts.headers.remove(http::header::EXPECT);
        parts.headers.insert(headers::FORWARDED, self.node_header.clone());
    }

    async fn send_there(
        &self,
        abroad: &Abroad,
        id: &ActorId,
        node: &NodeId,
        request: Request<PeerBody>,
    ) -> Sent {
        let refuse = |refusal: Refusal, undone| {
            abroad.hints.forget(id);
            self.node.metrics.cluster.forwarded("refused");
            Sent { answer: refused(refusal).map(|body| body::response(body, None)), undone }
        };
        let target = match abroad.target(node) {
            Ok(target) => target,
            Err(refusal) => return refuse(refusal, None),
        };
        match abroad.peers.send(&target, request).await {
            Ok(answer) => {
                self.node.metrics.cluster.forwarded("answered");
                let (mut head, incoming) = answer.into_parts();
                let by = head.headers.get(headers::NODE).cloned();
                let elsewhere = head.headers.get(headers::ELSEWHERE).cloned();
                strip_headers(&mut head.headers);
                head.headers.insert(headers::NODE, by.unwrap_or_else(|| named(node)));
                let undone = elsewhere.map(|elsewhere| {
                    abroad.hints.forget(id);
                    head.headers.insert(headers::ELSEWHERE, elsewhere);
                    Undone::Elsewhere
                });
                Sent { answer: Response::from_parts(head, incoming.into()), undone }
            }
            Err(remedy) => {
                let undone = remedy.suspect.then(|| {
                    abroad.keeping.suspect(node);
                    Undone::NotReached
                });
                refuse(remedy.refusal, undone)
            }
        }
    }
}

/// The answer that says why a request was not served.
pub(super) fn refused(refusal: Refusal) -> Response<wasmkeep_host::ResponseBody> {
    let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut response = if status == StatusCode::SERVICE_UNAVAILABLE {
        answer::retry_later(status, &refusal.to_string())
    } else {
        answer::sentence(status, &refusal.to_string())
    };
    if matches!(refusal, Refusal::Elsewhere | Refusal::NotTaking) {
        response.headers_mut().insert(headers::ELSEWHERE, HeaderValue::from_static("1"));
    }
    response
}

pub(super) fn named(node: &NodeId) -> HeaderValue {
    // A checked node id is made of letters a header may hold.
    HeaderValue::from_str(node.as_str()).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}
