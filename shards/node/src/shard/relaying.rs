//! WebSockets whose actor is another node's: asks that node for the upgrade and joins the two connections (R-WS-1). And
//! the sockets of actors that sleep here and that another node has taken (R-WS-2).

use std::rc::Rc;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use wasmkeep_host::strip_headers;
use wasmkeep_protocol::{
    ActorId, NodeId, close,
    forwarding::{Again, Refusal, Trouble, remedy},
    headers,
    limits::{OWNER_SWEEP_EVERY, OWNER_SWEEP_READS_MAX, RELAY_LOOK_EVERY},
    view::Standing,
};

use super::{
    Shard, body,
    elsewhere::{Abroad, named, refused},
    keeping::moment,
};
use crate::{
    http as front,
    peers::{Joining, PeerBody},
    socket,
};

impl Shard {
    /// Asks the actor's node for a WebSocket, once, and gives its answer: the upgrade, or what it said instead.
    pub(super) async fn relay(
        self: &Rc<Self>,
        abroad: &Abroad,
        node: &NodeId,
        mut parts: Parts,
        request_body: front::RequestBody,
    ) -> Response<front::ResponseBody> {
        let refuse = |refusal: Refusal| {
            self.node.metrics.cluster.forwarded("refused");
            refused(refusal).map(|body| body::response(body, None))
        };
        strip_headers(&mut parts.headers);
        want_websocket(&mut parts.headers);
        parts.headers.insert(headers::FORWARDED, self.node_header.clone());
        let (answer, joining) = match self.ask_to_join(abroad, node, parts, request_body).await {
            Ok(answered) => answered,
            Err(refusal) => return refuse(refusal),
        };
        let (mut head, incoming) = answer.into_parts();
        let by = head.headers.get(headers::NODE).cloned();
        strip_headers(&mut head.headers);
        head.headers.insert(headers::NODE, by.unwrap_or_else(|| named(node)));
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            self.node.metrics.cluster.forwarded("answered");
            return Response::from_parts(head, front::ResponseBody::stream(incoming));
        }
        let Some(joint) = joining.joint().await else { return refuse(remedy(Trouble::Lost).refusal) };
        self.node.metrics.cluster.forwarded("answered");
        want_websocket(&mut head.headers);
        let hold = abroad.relays.enter(node);
        self.keep_watching_owners();
        let upgrade = front::ResponseBody::upgrade(move |upgraded| socket::join(hold, joint, upgraded));
        Response::from_parts(head, upgrade)
    }

    /// Sends a request for a WebSocket, and once more when the node refused this node's certificate (R-TLS-5): it has no
    /// body, and the client waits meanwhile.
    async fn ask_to_join(
        &self,
        abroad: &Abroad,
        node: &NodeId,
        parts: Parts,
        request_body: front::RequestBody,
    ) -> Result<(Response<Incoming>, Joining), Refusal> {
        let request = Request::from_parts(parts.clone(), PeerBody::Client(request_body));
        let first = abroad.peers.send_to_join(&abroad.target(node)?, request).await;
        let sent = match first {
            Err(remedy) if remedy.again == Again::Later => {
                if !self.may_send_again(abroad).await {
                    return Err(remedy.refusal);
                }
                let request = Request::from_parts(parts, PeerBody::Whole(Full::default()));
                abroad.peers.send_to_join(&abroad.target(node)?, request).await
            }
            sent => sent,
        };
        sent.map_err(|remedy| {
            if remedy.suspect {
                abroad.keeping.suspect(node);
            }
            remedy.refusal
        })
    }

    /// Ends the relays to nodes that left the view, as long as there are relays: such a node may be frozen or cut off,
    /// and its actors are somebody else's soon (R-WS-3).
    fn keep_watching_owners(self: &Rc<Self>) {
        if self.watching_owners.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        glommio::spawn_local(async move {
            while let Some(abroad) = shard.abroad.as_ref().filter(|abroad| !abroad.relays.is_empty()) {
                shard.context.sleeper.sleep(RELAY_LOOK_EVERY).await;
                let (view, now) = (abroad.cluster.view.load_full(), moment());
                let is_lost = |owner: &NodeId| view.standing(owner, now) != Standing::Live;
                abroad.relays.close(close::RESTART, socket::OWNER_LOST, is_lost);
            }
            shard.watching_owners.set(false);
        })
        .detach();
    }

    /// Looks for actors that sleep here with sockets and were taken by another node, as long as the shard has sockets.
    /// What the actor says there does not reach them, and clients that only listen would never learn of it.
    pub(super) fn keep_sweeping_rooms(self: &Rc<Self>) {
        if self.abroad.is_none() || self.sweeping_rooms.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        glommio::spawn_local(async move {
            let mut rounds = Rounds::default();
            while !shard.world.sockets.is_empty() {
                shard.context.sleeper.sleep(OWNER_SWEEP_EVERY).await;
                let mut asleep = shard.world.sockets.actors();
                asleep.retain(|actor| !shard.actors.is_resident(actor));
                for actor in rounds.next(asleep, OWNER_SWEEP_READS_MAX.div_ceil(shard.context.count)) {
                    shard.sweep_room(&actor).await;
                }
            }
            shard.sweeping_rooms.set(false);
        })
        .detach();
    }

    async fn sweep_room(&self, actor: &ActorId) {
        let Some(abroad) = &self.abroad else { return };
        if abroad.cluster.is_elsewhere(actor).await && !self.actors.is_resident(actor) {
            self.world.sockets.close_actor(actor, close::RESTART, "the actor moved");
        }
    }
}

/// Who is looked at next when there are more than one sweep may look at.
#[derive(Default)]
struct Rounds {
    /// The last one looked at, if there were more.
    after: Option<Rc<ActorId>>,
}

impl Rounds {
    /// The next `most` of `actors`, in the order of their ids; the round begins again behind its last.
    fn next(&mut self, mut actors: Vec<Rc<ActorId>>, most: usize) -> Vec<Rc<ActorId>> {
        if let Some(after) = self.after.take() {
            actors.retain(|actor| *actor > after);
        }
        actors.sort_unstable();
        if actors.len() > most {
            actors.truncate(most);
            self.after = actors.last().cloned();
        }
        actors
    }
}

fn want_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-WS-2
    #[test]
    fn each_sweep_looks_at_so_many_and_the_next_goes_on_behind_them() {
        let actors = |names: &str| -> Vec<Rc<ActorId>> {
            let named = |name: char| ActorId {
                class: "room".parse().unwrap(),
                name: name.to_string().parse().unwrap(),
            };
            names.chars().map(named).map(Rc::new).collect()
        };
        let mut rounds = Rounds::default();
        for (present, looked_at) in [
            ("cbaed", "ab"),
            ("cbaed", "cd"),
            // Some left, one came.
            ("afe", "ef"),
            ("afe", "ae"),
            ("a", ""),
            ("ba", "ab"),
            ("ba", "ab"),
        ] {
            assert_eq!(rounds.next(actors(present), 2), actors(looked_at), "{present}");
        }
    }
}
