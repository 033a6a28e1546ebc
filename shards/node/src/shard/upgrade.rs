//! Requests that want a connection to become a WebSocket: who may have one, and whether the actor lets it in.

use std::rc::{Rc, Weak};

use http::{HeaderValue, Response, StatusCode, request::Parts};
use http_body::Body;
use wasmkeep_actor::Failure;
use wasmkeep_host::{ActorEvent, Hooks, Mistake, SocketOpen, Unanswered, headers_for_hook};
use wasmkeep_protocol::{ActorId, placement::shard_of};

use super::{Shard, answer, body, route::guest_target};
use crate::{
    http as front,
    socket::{self, Handshake, Post, Refused},
};

/// The sockets' way to the actors of `shard`.
pub(super) fn post(shard: &Rc<Shard>) -> Box<dyn Post> {
    Box::new(ShardPost(Rc::downgrade(shard)))
}

/// Weak, since the shard holds the sockets.
struct ShardPost(Weak<Shard>);

impl Post for ShardPost {
    fn has_room(&self, actor: &ActorId) -> bool {
        self.0.upgrade().is_none_or(|shard| shard.actors.has_room(actor))
    }

    fn dispatch(&self, actor: &ActorId, event: ActorEvent) {
        if let Some(shard) = self.0.upgrade() {
            shard.dispatch(actor, event);
        }
    }

    fn hooks(&self, actor: &ActorId) -> Hooks {
        self.0.upgrade().map_or_else(Hooks::default, |shard| shard.hooks(actor))
    }
}

impl Shard {
    fn hooks(&self, actor: &ActorId) -> Hooks {
        self.node
            .classes
            .get(&actor.class)
            .map_or_else(Hooks::default, |class| class.code.load().version.hooks())
    }

    /// Answers a request for a WebSocket: with the upgrade, when all is in order and the actor lets it in.
    pub(super) async fn open_socket(
        self: &Rc<Self>,
        id: &ActorId,
        rest: &str,
        parts: Parts,
        request_body: front::RequestBody,
    ) -> Response<front::ResponseBody> {
        let plain = |response: Response<_>| response.map(|body| body::response(body, None));
        let handshake = match Handshake::of(&parts, !request_body.is_end_stream()) {
            Ok(handshake) => handshake,
            Err(refused) => return plain(not_a_handshake(&refused)),
        };
        if let Some(refused) = self.refused_access(id) {
            return plain(refused);
        }
        if !self.hooks(id).websocket_open {
            let text = format!("actors of {} take no WebSockets", id.class);
            return plain(answer::sentence(StatusCode::NOT_IMPLEMENTED, &text));
        }
        if let Some(abroad) = &self.abroad {
            match self.placed(abroad, id, &parts, &request_body).await {
                Ok(None) => {}
                Ok(Some((abroad, node))) => {
                    if let Some(answer) = self.relay(abroad, id, &node, &parts).await {
                        return answer;
                    }
                    if let Some(refused) = self.refused_existence(abroad, id).await {
                        return plain(refused);
                    }
                }
                Err(refused) => return plain(refused),
            }
        }
        if shard_of(id.hash(), self.context.count) != self.context.index {
            // The connection could not move to the actor's shard: that is full, or the node stops.
            let text = "the actor's shard takes no connection now; retry";
            return plain(answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        let hold = self.world.sockets.reserve(id);
        self.keep_sweeping_rooms();
        let headers = headers_for_hook(parts.headers);
        let (event, opened) = SocketOpen::new(hold.id(), guest_target(rest).into_owned(), headers);
        let lease = self.lease();
        self.dispatch(id, ActorEvent::SocketOpen(event));
        let protocol = match opened.await {
            Ok(_) if lease.is_some_and(|lease| !lease.is_valid()) => {
                return plain(answer::unanswered(&Unanswered::Failed(Failure::Lost), answer::Guest::Actor));
            }
            Ok(Ok(protocol)) => protocol,
            Ok(Err(status)) => return plain(turned_away(status)),
            Err(why) => return plain(answer::unanswered(&why, answer::Guest::Actor)),
        };
        let protocol = protocol.and_then(|protocol| HeaderValue::from_str(&protocol).ok());
        let upgrade = front::ResponseBody::upgrade(move |upgraded| socket::serve(hold, upgraded));
        let mut response = Response::new(upgrade);
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = handshake.answer(protocol);
        response
    }
}

fn not_a_handshake(refused: &Refused) -> Response<wasmkeep_host::ResponseBody> {
    let mut response = answer::sentence(refused.status, refused.reason);
    response.headers_mut().extend(refused.headers());
    response
}

/// What the client is told whom the actor does not let in.
fn turned_away(status: u16) -> Response<wasmkeep_host::ResponseBody> {
    match StatusCode::from_u16(status) {
        Ok(status) if status.is_client_error() || status.is_server_error() => {
            answer::sentence(status, "the actor did not let the WebSocket in")
        }
        _ => answer::unanswered(&Unanswered::Mistake(Mistake::Status(status)), answer::Guest::Actor),
    }
}
