//! One shard: its actors, and the requests that reach them from its own connections and from other shards.

mod alarms;
mod answer;
mod body;
mod calls;
mod calls_abroad;
mod elsewhere;
mod gate;
mod guest;
mod instances;
mod keeping;
mod relaying;
mod replica;
mod resending;
mod route;
mod spares;
mod upgrade;
mod world;

use std::{cell::Cell, future::poll_fn, pin::pin, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use wasmkeep_actor::{
    Actors, Event, Failure, Guest, Limits, Refusal,
    alarm::{self, Book},
};
use wasmkeep_host::{ActorEvent, HttpEvent, RequestBody, ResponseBody, Unanswered};
use wasmkeep_protocol::{
    ActorClass, ActorId,
    access::Decision,
    close, headers,
    limits::{DOZE_AFTER, SOCKET_CLOSE_WITHIN},
    placement::shard_of,
    trust::Door,
};

use self::{
    body::Pump,
    calls::ShardCalls,
    elsewhere::Abroad,
    keeping::Keeping,
    route::{Route, guest_target},
    world::ShardWorld,
};
use crate::{
    alarm::ShardAlarms,
    http as front,
    metrics::ShardMetrics,
    peers::Peers,
    runtime::{Endpoint, Label, SendError, ShardContext},
    socket,
    state::NodeState,
    tls,
};

/// How long a request waits for room in another shard's inbox.
const MESH_WAIT: Duration = Duration::from_secs(1);

/// How often idle actors are looked for, at most; less often when nothing could be idle long enough.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Actors that close their databases at the same time when many fall idle together, and the pause before the next
/// so many: an offload thread is at it for a few milliseconds each time, and 3,000 actors take a second.
const DOZES_AT_ONCE: usize = 32;
const DOZE_PAUSE: Duration = Duration::from_millis(10);

/// What shards send each other.
pub(crate) enum Message {
    /// An event for an actor of the receiving shard. Boxed, so that an inbox's places are small.
    Event(Box<(ActorId, ActorEvent)>),
    /// A connection whose requests belong to the receiving shard.
    Connection(front::Handover),
    /// Bring the gauges up to date, then drop this.
    Gauges(flume::Sender<()>),
}

/// One shard.
pub(crate) struct Shard {
    node: Arc<NodeState>,
    context: ShardContext,
    world: Rc<ShardWorld>,
    actors: Rc<Actors<ShardWorld>>,
    pub(crate) endpoint: Endpoint<Message>,
    pub(crate) metrics: Rc<ShardMetrics>,
    node_header: HeaderValue,
    sweeping: Cell<bool>,
    sweeping_rooms: Cell<bool>,
    watching_owners: Cell<bool>,
    /// On a node with a bucket.
    abroad: Option<Abroad>,
}

impl Shard {
    pub(crate) fn new(
        node: Arc<NodeState>,
        context: ShardContext,
        endpoint: Endpoint<Message>,
        alarms: ShardAlarms,
    ) -> Rc<Self> {
        let metrics = Rc::new(node.metrics.shard(context.index));
        let ShardAlarms { index, known, found } = alarms;
        let book = Rc::new(Book::new(index, known));
        let world = Rc::new(ShardWorld::new(Arc::clone(&node), context.clone(), Rc::clone(&metrics), book));
        let limits = Limits {
            mailbox_events_max: node.limits.mailbox_events_max,
            resident_max: node.limits.resident_max.div_ceil(context.count),
            event_wall_clock: node.limits.event_wall_clock,
            doze_after: DOZE_AFTER,
            hibernate_after: node.limits.hibernate_after,
        };
        let actors = Actors::new(Rc::clone(&world), limits);
        // A checked node id is made of letters a header may hold.
        let node_header = HeaderValue::from_str(node.node_id.as_str())
            .unwrap_or_else(|_| HeaderValue::from_static("invalid"));
        let tls = node.cluster.as_ref().and_then(|cluster| {
            let watch = tls::Watch::new(Arc::clone(&cluster.view), context.sleeper.clone());
            Some((cluster.identity.clone()?, watch))
        });
        let abroad = node.cluster.clone().map(|cluster| Abroad {
            peers: Peers::new(Rc::clone(&world.offload), context.sleeper.clone(), tls.clone()),
            tls,
            keeping: Keeping::new(
                cluster.clone(),
                context.sleeper.clone(),
                node.metrics.cluster.clone(),
                node.connections_max / context.count,
            ),
            hints: elsewhere::Hints::new(node.limits.hibernate_after),
            relays: socket::Relays::new(
                context.sleeper.clone(),
                node.limits.socket_ping_after * 2,
                node.metrics.cluster.relayed.clone(),
            ),
            cluster,
        });
        let shard = Rc::new(Self {
            abroad,
            node,
            context,
            world,
            actors,
            endpoint,
            metrics,
            node_header,
            sweeping: Cell::new(false),
            sweeping_rooms: Cell::new(false),
            watching_owners: Cell::new(false),
        });
        // Set here and nowhere else.
        let _ = shard.world.calls.set(ShardCalls::new(&shard));
        shard.world.sockets.connect(upgrade::post(&shard));
        let _ = shard.world.shard.set(Rc::downgrade(&shard));
        glommio::spawn_local(alarm::keep(Rc::clone(&shard.world), Rc::clone(&shard.actors))).detach();
        if let Some(found) = found {
            glommio::spawn_local(alarms::take_found(Rc::clone(&shard.world), found)).detach();
        }
        shard
    }

    /// This node's certificate, and the connections on which other nodes have shown theirs.
    pub(crate) fn tls(&self) -> Option<(Arc<tls::Identity>, tls::Watch)> {
        self.abroad.as_ref()?.tls.clone()
    }

    /// Hands an event to an actor of this shard.
    pub(crate) fn dispatch(self: &Rc<Self>, id: &ActorId, event: ActorEvent) {
        self.actors.dispatch(id, event);
    }

    /// Hands an event to its actor, here or on the shard that owns it.
    pub(crate) async fn deliver(self: &Rc<Self>, id: &ActorId, event: ActorEvent) -> Result<(), SendError> {
        let owner = shard_of(id.hash(), self.context.count);
        if owner == self.context.index {
            self.dispatch(id, event);
            return Ok(());
        }
        self.metrics.hops.inc();
        let message = Message::Event(Box::new((id.clone(), event)));
        self.endpoint.send(owner, message, MESH_WAIT, &self.context.sleeper).await
    }

    /// The node lost an actor, or every one of this shard (R-LEASE-3, R-WS-1).
    pub(crate) fn lose(&self, actor: Option<&ActorId>, why: String) {
        self.actors.lose(actor, &Refusal::NotHeld(why));
        match actor {
            Some(actor) => self.world.sockets.close_actor(actor, close::RESTART, "the actor moved"),
            None => self.world.sockets.close_all(close::RESTART, "the actor moved"),
        }
    }

    /// A class has a new version.
    pub(crate) fn renew(&self, class: &ActorClass) {
        self.actors.renew(class);
    }

    /// Sends a connection to the shard it belongs to; one that cannot be taken there now is given back.
    pub(crate) fn hand_over(&self, handover: front::Handover) -> Result<(), front::Handover> {
        let shard = handover.shard;
        match self.endpoint.try_send(shard, Message::Connection(handover)) {
            Err((Message::Connection(handover), _)) => Err(handover),
            _ => Ok(()),
        }
    }

    /// The shard that owns what this request target names; `None` when any shard may answer.
    pub(crate) fn owner(&self, target: &str) -> Option<usize> {
        route::actor_hash_of(target).map(|hash| shard_of(hash, self.context.count))
    }

    /// Answers one request. Dropping the future says that the client left.
    pub(crate) async fn answer(
        self: Rc<Self>,
        request: Request<front::RequestBody>,
    ) -> Response<front::ResponseBody> {
        let (parts, request_body) = request.into_parts();
        let target = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let (mut class, mut pump) = (None, None);
        let mut response = match route::route(target.as_str()) {
            Route::Actor { id, rest } if socket::is_wanted(&parts.headers) => {
                let mut response = self.open_socket(&id, rest, parts, request_body).await;
                response.headers_mut().entry(headers::NODE).or_insert_with(|| self.node_header.clone());
                let class = Some(&id.class).filter(|class| self.node.classes.contains_key(*class));
                self.metrics.answered(class, response.status());
                return response;
            }
            Route::Actor { id, rest } if self.is_call(&parts) => match &self.abroad {
                Some(abroad) => self.called(abroad, &id, rest, parts, request_body).await,
                None => answer::sentence(StatusCode::FORBIDDEN, "this node is in no cluster"),
            },
            Route::Actor { id, rest } => {
                let placed = match &self.abroad {
                    Some(abroad) => self.placed(abroad, &id, &parts, &request_body).await,
                    None => Ok(None),
                };
                let here = match placed {
                    Ok(None) => Ok((parts, request_body)),
                    Ok(Some((abroad, node))) => {
                        match self.forward(abroad, &id, &node, parts, request_body).await {
                            Ok(response) => {
                                self.metrics.answered(Some(&id.class), response.status());
                                return response;
                            }
                            Err(taken) => self.refused_existence(abroad, &id).await.map_or(Ok(taken), Err),
                        }
                    }
                    Err(refused) => Err(refused),
                };
                match here {
                    Ok((parts, request_body)) => {
                        let answered = self.actor(&id, rest, parts, request_body, &mut pump).await;
                        class = Some(id.class).filter(|class| self.node.classes.contains_key(class));
                        answered
                    }
                    Err(refused) => refused,
                }
            }
            Route::Stateless | Route::Metrics | Route::Reserved if door(&parts) == Door::Nodes => {
                answer::sentence(StatusCode::NOT_FOUND, FOR_NODES)
            }
            Route::Stateless => self.stateless(parts, request_body).await,
            Route::Health => answer::sentence(StatusCode::OK, "ok"),
            Route::Ready if self.node.is_ready() => answer::sentence(StatusCode::OK, "ready"),
            Route::Ready => {
                answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, "the node is starting or stopping")
            }
            Route::Metrics => self.metrics().await,
            Route::Reserved => answer::sentence(StatusCode::NOT_FOUND, RESERVED),
            Route::BadActor(why) => answer::sentence(StatusCode::BAD_REQUEST, &why.to_string()),
        };
        response.headers_mut().insert(headers::NODE, self.node_header.clone());
        self.metrics.answered(class.as_ref(), response.status());
        response.map(|answer_body| body::response(answer_body, pump))
    }

    async fn actor(
        self: &Rc<Self>,
        id: &ActorId,
        rest: &str,
        parts: Parts,
        request_body: front::RequestBody,
        pump: &mut Option<Pump>,
    ) -> Response<ResponseBody> {
        if let Some(refused) = self.refused_access(id) {
            return refused;
        }
        let target = guest_target(rest);
        let owner = shard_of(id.hash(), self.context.count);
        if owner == self.context.index {
            let (event, answer) = HttpEvent::new(for_guest(parts, &target, body::local(request_body)));
            self.dispatch(id, event.into());
            return answer.await.unwrap_or_else(|why| answer::unanswered(&why));
        }
        let (guest_body, moving) = body::remote(request_body);
        *pump = moving;
        let (event, answer) = HttpEvent::new(for_guest(parts, &target, guest_body));
        if let Err(error) = self.deliver(id, event.into()).await {
            return answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        }
        pumping(answer, pump).await.unwrap_or_else(|why| answer::unanswered(&why))
    }

    fn refused_access(&self, id: &ActorId) -> Option<Response<ResponseBody>> {
        let Some(class) = self.node.classes.get(&id.class) else {
            return Some(answer::sentence(StatusCode::NOT_FOUND, &self.unknown_class(&id.class)));
        };
        // On a node with a bucket the bucket tells, once it is known where the actor is.
        let exists = || self.abroad.is_some() || self.world.database_path(id).exists();
        match class.access.decide(&id.name, exists) {
            Decision::Allow => None,
            Decision::NotFound => Some(answer::sentence(StatusCode::NOT_FOUND, "there is no such actor")),
            Decision::Forbidden => {
                let text = format!("actors of {} are not reachable from outside", id.class);
                Some(answer::sentence(StatusCode::FORBIDDEN, &text))
            }
        }
    }

    /// A fresh instance for each request: nothing one request leaves can reach the next.
    async fn stateless(
        self: &Rc<Self>,
        parts: Parts,
        request_body: front::RequestBody,
    ) -> Response<ResponseBody> {
        let mut instance = match self.world.start_stateless().await {
            None => return answer::sentence(StatusCode::NOT_FOUND, &self.nothing_here()),
            Some(Ok(instance)) => instance,
            Some(Err(refusal)) => return answer::unanswered(&Unanswered::Refused(refusal)),
        };
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        let (event, answer) = HttpEvent::new(for_guest(parts, &target, body::local(request_body)));
        let event = ActorEvent::from(event);
        let ticket = event.ticket();
        let wall_clock = self.node.limits.event_wall_clock;
        let limit = self.context.sleeper.sleep(wall_clock);
        // A task of its own: the response body streams on after this function has answered.
        let work = async move {
            if let Either::Right(_) = select(pin!(instance.deliver(event)), pin!(limit)).await {
                ActorEvent::fail(ticket, &Failure::TimeLimit(wall_clock));
            }
        };
        let label = Label::new("the stateless component");
        glommio::spawn_local(self.context.pulse.hold(label, work)).detach();
        answer.await.unwrap_or_else(|why| answer::unanswered(&why))
    }

    async fn metrics(self: &Rc<Self>) -> Response<ResponseBody> {
        self.update_gauges();
        let (done, waiting) = flume::bounded::<()>(1);
        for shard in (0..self.context.count).filter(|shard| *shard != self.context.index) {
            // A shard too busy to take this shows the gauges of the last time.
            let _ = self.endpoint.try_send(shard, Message::Gauges(done.clone()));
        }
        drop(done);
        let _ = self.context.sleeper.timeout(MESH_WAIT, waiting.recv_async()).await;
        let mut response = Response::new(ResponseBody::full(Bytes::from(self.node.metrics.encode())));
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    /// Sets the gauges that are counted rather than kept.
    pub(crate) fn update_gauges(&self) {
        let (resident, asleep) = self.actors.counts();
        self.metrics.resident.set(resident as i64);
        self.metrics.hibernated.set(asleep as i64);
        self.metrics.mailbox.set(self.actors.waiting() as i64);
        self.metrics.alarms.set(self.world.book.len() as i64);
        self.metrics.memory.set(self.world.memory.bytes() as i64);
    }

    /// Looks for idle actors as long as there are resident ones; a shard without any has no timer.
    pub(super) fn keep_sweeping(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        glommio::spawn_local(async move {
            let every = SWEEP_EVERY.min(shard.node.limits.hibernate_after);
            while shard.actors.counts().0 > 0 {
                shard.context.sleeper.sleep(every).await;
                shard.actors.sweep();
                shard.world.instances.sweep(shard.node.now());
                while shard.actors.doze(DOZES_AT_ONCE) {
                    shard.context.sleeper.sleep(DOZE_PAUSE).await;
                }
            }
            shard.world.instances.clear();
            shard.sweeping.set(false);
        })
        .detach();
    }

    /// Finishes what waits within `grace`, closes every actor and every socket, and says how many actors did not
    /// end in time.
    pub(crate) async fn stop(&self, grace: Duration) -> usize {
        self.world.book.stop();
        if let Some(abroad) = &self.abroad {
            abroad.keeping.stop();
        }
        self.actors.stop();
        if self.context.sleeper.timeout(grace, self.actors.stopped()).await.is_err() {
            self.actors.give_up();
            // Those that only waited sleep at once; one that still runs is cut when the process ends.
            let _ = self.context.sleeper.timeout(Duration::from_secs(1), self.actors.stopped()).await;
        }
        // After the events: what they send still goes out.
        // In a cluster another node has the actors at once.
        let code = if self.abroad.is_some() { close::RESTART } else { close::GOING_AWAY };
        let sockets = &self.world.sockets;
        sockets.close_all(code, STOPPING);
        let none_left = async {
            if let Some(abroad) = &self.abroad {
                abroad.relays.close(code, STOPPING, |_| true);
                abroad.relays.none_left().await;
            }
            sockets.none_left().await;
        };
        let _ = self.context.sleeper.timeout(SOCKET_CLOSE_WITHIN, none_left).await;
        self.world.instances.clear();
        self.actors.counts().0
    }

    fn unknown_class(&self, class: &ActorClass) -> String {
        let mut known: Vec<&str> = self.node.classes.keys().map(ActorClass::as_str).collect();
        known.sort_unstable();
        format!("this node serves no class {class}; it serves: {}", known.join(", "))
    }

    fn nothing_here(&self) -> String {
        let mut known: Vec<&str> = self.node.classes.keys().map(ActorClass::as_str).collect();
        known.sort_unstable();
        let classes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!(
            "nothing is served here. Actors answer at /actor/CLASS/NAME (classes: {classes}), the node at \
             /_wasmkeep/health, /_wasmkeep/ready and /_wasmkeep/metrics"
        )
    }
}

/// What the clients of WebSockets are told.
const STOPPING: &str = "the node is stopping";

const RESERVED: &str =
    "nothing here; the node answers at /_wasmkeep/health, /_wasmkeep/ready and /_wasmkeep/metrics";

const FOR_NODES: &str = "nothing here; nodes are served actors, /_wasmkeep/health and /_wasmkeep/ready";

/// The port by which a request came.
fn door(parts: &Parts) -> Door {
    parts.extensions.get().copied().unwrap_or(Door::Clients)
}

/// Waits for `work` and moves the request's body meanwhile.
async fn pumping<F: Future>(work: F, pump: &mut Option<Pump>) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Some(moving) = pump
            && moving.as_mut().poll(cx).is_ready()
        {
            *pump = None;
        }
        work.as_mut().poll(cx)
    })
    .await
}

/// The request as the guest sees it.
fn for_guest(mut parts: Parts, target: &str, body: RequestBody) -> Request<RequestBody> {
    // A suffix of a target that was parsed already; the fallback keeps a mistake of ours from being a panic.
    parts.uri = target.parse().unwrap_or_else(|_| http::Uri::from_static("/"));
    Request::from_parts(parts, body)
}
