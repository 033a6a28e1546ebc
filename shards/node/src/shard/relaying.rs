//! WebSockets whose actor is another node's: asks that node for the upgrade and joins the two connections (R-WS-1). And
//! the sockets of actors that sleep here and that another node has taken (R-WS-2).

use std::{rc::Rc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use hyper::body::Incoming;
use wasmkeep_host::strip_headers;
use wasmkeep_protocol::{
    ActorId, NodeId, close,
    forwarding::{Again, Refusal, Remedy, Trouble, remedy},
    headers,
    limits::{OWNER_SWEEP_EVERY, OWNER_SWEEP_READS_MAX, RELAY_LOOK_EVERY},
    view::Standing,
};

use super::{
    Shard,
    elsewhere::{Abroad, Place, ask},
    keeping::moment,
    sending_on::{Next, SENT_ON_MAX, named, plain},
};
use crate::{
    http as front,
    peers::{Joining, PeerBody},
    socket,
};

impl Shard {
    /// Asks the actor's node for a WebSocket and gives its answer: the upgrade, or what it said instead. `None`: this
    /// node has the actor by now.
    pub(super) async fn relay(
        self: &Rc<Self>,
        abroad: &Abroad,
        id: &ActorId,
        node: &NodeId,
        parts: &Parts,
    ) -> Option<Response<front::ResponseBody>> {
        let ask = ask(abroad.cluster.policy(), parts, true);
        let mut node = node.clone();
        for sent_on in 0.. {
            let (answer, not_executed) = match self.ask_to_join(abroad, &node, parts).await {
                Ok((answer, joining)) => {
                    let not_executed = abroad.heard(id, &node, &answer);
                    (self.joined(abroad, &node, answer, joining).await, not_executed)
                }
                Err(remedy) => {
                    self.node.metrics.cluster.forwarded("refused");
                    (plain(remedy.refusal), abroad.failed(id, &node, &remedy))
                }
            };
            let Some(why) = not_executed.filter(|_| sent_on < SENT_ON_MAX) else { return Some(answer) };
            match self.next_after(abroad, id, ask, &node, why).await {
                Next::To(Place::There(other)) => node = other,
                Next::To(Place::Here) => return None,
                Next::To(Place::Refused(refusal)) => return Some(plain(refusal)),
                Next::Nothing => return Some(answer),
            }
        }
        // The loop ends by an answer.
        Some(plain(Refusal::NotReachable))
    }

    /// What the client gets of the node's answer.
    async fn joined(
        self: &Rc<Self>,
        abroad: &Abroad,
        node: &NodeId,
        answer: Response<Incoming>,
        joining: Joining,
    ) -> Response<front::ResponseBody> {
        let (mut head, incoming) = answer.into_parts();
        let by = head.headers.get(headers::NODE).cloned();
        strip_headers(&mut head.headers);
        head.headers.insert(headers::NODE, by.unwrap_or_else(|| named(node)));
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            self.node.metrics.cluster.forwarded("answered");
            return Response::from_parts(head, front::ResponseBody::stream(incoming));
        }
        let Some(joint) = joining.joint().await else {
            self.node.metrics.cluster.forwarded("refused");
            return plain(remedy(Trouble::Lost).refusal);
        };
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
        parts: &Parts,
    ) -> Result<(Response<Incoming>, Joining), Remedy> {
        let mut parts = parts.clone();
        strip_headers(&mut parts.headers);
        want_websocket(&mut parts.headers);
        parts.headers.insert(headers::FORWARDED, self.node_header.clone());
        let send = async || {
            let not_reachable = |refusal| Remedy { again: Again::No, refusal, suspect: false };
            let target = abroad.target(node).map_err(not_reachable)?;
            let request = Request::from_parts(parts.clone(), PeerBody::Whole(Full::default()));
            abroad.peers.send_to_join(&target, request).await
        };
        match send().await {
            Err(remedy)
                if remedy.again == Again::Later && self.may_send_again(abroad, remedy.refusal).await =>
            {
                send().await
            }
            sent => sent,
        }
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
                let most = OWNER_SWEEP_READS_MAX.div_ceil(shard.context.count);
                let whole = OWNER_SWEEP_EVERY * sweeps_of(asleep.len(), most);
                let before = shard.world.sockets.note_sweep(whole);
                if before <= OWNER_SWEEP_EVERY && whole > OWNER_SWEEP_EVERY {
                    tracing::warn!(
                        rooms = asleep.len(),
                        "so many actors sleep with WebSockets that clients who only listen learn within {whole:?} that another node took theirs"
                    );
                }
                for actor in rounds.next(asleep, most) {
                    shard.sweep_room(&actor).await;
                }
            }
            shard.world.sockets.note_sweep(Duration::ZERO);
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

/// Sweeps until every one of so many actors has been looked at.
fn sweeps_of(actors: usize, most: usize) -> u32 {
    u32::try_from(actors.div_ceil(most)).unwrap_or(u32::MAX).max(1)
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
    fn a_node_with_many_sleeping_rooms_says_how_long_a_whole_round_takes() {
        for (actors, minutes) in [(0, 1), (1, 1), (600, 1), (601, 2), (60_000, 100)] {
            assert_eq!(sweeps_of(actors, OWNER_SWEEP_READS_MAX), minutes, "{actors}");
        }
    }

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
