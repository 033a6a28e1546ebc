//! One request: what its path names, and who answers it.

use std::{future::poll_fn, pin::pin, rc::Rc};

use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use http_body::Body as _;
use wasmkeep_actor::{Event, Failure, Guest as _};
use wasmkeep_host::{ActorEvent, HttpEvent, RequestBody, ResponseBody, Unanswered};
use wasmkeep_protocol::{ActorClass, ActorId, access::Decision, headers, placement::shard_of, trust::Door};

use super::{
    MESH_WAIT, Message, Shard,
    answer::{self, Guest},
    body::{self, Pump},
    leased,
    route::{self, Route, guest_target},
};
use crate::{http as front, runtime::Label, socket};

const RESERVED: &str =
    "nothing here; the node answers at /_wasmkeep/health, /_wasmkeep/ready and /_wasmkeep/metrics";

const FOR_NODES: &str = "nothing here; nodes are served actors, /_wasmkeep/health and /_wasmkeep/ready";

impl Shard {
    /// Answers one request. Dropping the future says that the client left.
    pub(crate) async fn answer(
        self: Rc<Self>,
        request: Request<front::RequestBody>,
    ) -> Response<front::ResponseBody> {
        let (parts, mut request_body) = request.into_parts();
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
                let placed = match (self.take_body(&id, &mut request_body).await, &self.abroad) {
                    (Err(refused), _) => Err(refused),
                    (Ok(()), Some(abroad)) => self.placed(abroad, &id, &parts, &request_body).await,
                    (Ok(()), None) => Ok(None),
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
                        let answered = self.actor_or_heir(&id, rest, parts, request_body, &mut pump).await;
                        class = Some(id.class).filter(|class| self.node.classes.contains_key(class));
                        match answered {
                            Ok(answered) => answered,
                            Err(elsewhere) => {
                                self.metrics.answered(class.as_ref(), elsewhere.status());
                                return elsewhere;
                            }
                        }
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
                let failure = self.node.cluster.as_ref().and_then(|cluster| cluster.lease.failure());
                let why = match failure {
                    Some(reason) => format!("the node has no lease: {reason}"),
                    None => "the node is starting or stopping".to_owned(),
                };
                answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, &why)
            }
            Route::Metrics => self.metrics().await,
            Route::Reserved => answer::sentence(StatusCode::NOT_FOUND, RESERVED),
            Route::BadActor(why) => answer::sentence(StatusCode::BAD_REQUEST, &why.to_string()),
        };
        response.headers_mut().insert(headers::NODE, self.node_header.clone());
        self.metrics.answered(class.as_ref(), response.status());
        response.map(|answer_body| body::response(answer_body, pump))
    }

    /// Reads a body that is not long before anything waits for it: a client that sends it slowly holds nobody up then.
    async fn take_body(
        &self,
        id: &ActorId,
        request_body: &mut front::RequestBody,
    ) -> Result<(), Response<ResponseBody>> {
        if request_body.is_end_stream() {
            return Ok(());
        }
        // Whoever may not reach the actor need not send.
        match self.refused_access(id) {
            Some(refused) => Err(refused),
            None => self.buffer(request_body).await,
        }
    }

    async fn buffer(&self, request_body: &mut front::RequestBody) -> Result<(), Response<ResponseBody>> {
        let most = self.node.limits.buffered_body_bytes_max;
        request_body.buffer(most).await.map_err(|error| {
            // For the metrics: the front says it itself, and closes.
            let status = match error {
                front::BodyError::Refused(violation) => violation.status,
                front::BodyError::Gone => 400,
            };
            answer::sentence(
                StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST),
                &error.to_string(),
            )
        })
    }

    pub(super) async fn actor(
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
        let lease = self.lease();
        if owner == self.context.index {
            let (event, answer) = HttpEvent::new(for_guest(parts, &target, body::local(request_body)));
            self.dispatch(id, event.into());
            return leased::answered(answer.await, lease)
                .unwrap_or_else(|why| answer::unanswered(&why, Guest::Actor));
        }
        let (guest_body, moving) = body::remote(request_body);
        *pump = moving;
        let (event, answer) = HttpEvent::new(for_guest(parts, &target, guest_body));
        if let Err(error) = self.deliver(id, event.into()).await {
            return answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
        }
        let answer = pumping(answer, pump).await;
        leased::answered(answer, lease).unwrap_or_else(|why| answer::unanswered(&why, Guest::Actor))
    }

    pub(super) fn refused_access(&self, id: &ActorId) -> Option<Response<ResponseBody>> {
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
        mut request_body: front::RequestBody,
    ) -> Response<ResponseBody> {
        if self.node.stateless.is_some()
            && let Err(refused) = self.buffer(&mut request_body).await
        {
            return refused;
        }
        let mut instance = match self.world.start_stateless().await {
            None => return answer::sentence(StatusCode::NOT_FOUND, &self.nothing_here()),
            Some(Ok(instance)) => instance,
            Some(Err(refusal)) => return answer::unanswered(&Unanswered::Refused(refusal), Guest::Stateless),
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
        answer.await.unwrap_or_else(|why| answer::unanswered(&why, Guest::Stateless))
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

/// The port by which a request came.
pub(super) fn door(parts: &Parts) -> Door {
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
