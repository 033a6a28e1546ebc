//! Requests sent on to the node that holds their actor.
//!
//! - Sends each once, and on to another node only when the first surely did nothing with it (R-FWD-1 to R-FWD-3).
//! - Tells the hints and the suspects what came of it.
//! - Where a request goes is decided in [`super::elsewhere`], whether it goes on by `protocol`.

use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, request::Parts};
use http_body::Body;
use http_body_util::Full;
use wasmkeep_host::strip_headers;
use wasmkeep_protocol::{
    ActorId, NodeId,
    forwarding::{Ask, Heard, NotExecuted, Refusal, Remedy},
    headers,
};

use super::{
    Shard, answer, body,
    elsewhere::{Abroad, Place, ask},
};
use crate::{http as front, peers::PeerBody};

/// Other nodes that something without a body, or with one that is there as a whole, is sent on to.
pub(super) const SENT_ON_MAX: usize = 2;

/// Pauses, in milliseconds, in which the record of an actor is read again whose node says that it does not serve it.
const GIVEN_UP_AFTER_MS: [u64; 5] = [50, 50, 100, 200, 400];

/// What came of sending a request to another node.
struct Sent {
    answer: Response<front::ResponseBody>,
    not_executed: Option<NotExecuted>,
}

/// Where something goes that a node did nothing with.
pub(super) enum Next {
    /// There, or here, or nowhere now.
    To(Place),
    /// Nothing better is known: what the node answered is the answer.
    Nothing,
}

impl Abroad {
    /// An answer came from a node for this actor; what it says of the actor.
    pub(super) fn heard<B>(&self, id: &ActorId, node: &NodeId, answer: &Response<B>) -> Option<NotExecuted> {
        let not_executed = answer::not_executed(answer);
        self.hear(id, node, Heard::of_answer(answer.status().as_u16(), not_executed.is_some()));
        not_executed
    }

    /// None came; whether the node surely did nothing.
    pub(super) fn failed(&self, id: &ActorId, node: &NodeId, remedy: &Remedy) -> Option<NotExecuted> {
        self.hear(id, node, Heard::NotServed);
        remedy.suspect.then(|| {
            self.keeping.suspect(node);
            NotExecuted::NotOpened
        })
    }
}

impl Shard {
    /// Sends a request to the node that holds its actor, and gives its answer. `Err`: this node has the actor by now.
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
            request_body.read_elsewhere();
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

    /// As [`Shard::forward`], for what has no body and can be sent on.
    pub(super) async fn forward_bodiless(
        &self,
        abroad: &Abroad,
        id: &ActorId,
        node: &NodeId,
        parts: Parts,
    ) -> Result<Response<front::ResponseBody>, Parts> {
        let ask = ask(abroad.cluster.policy(), &parts, true);
        let mut node = node.clone();
        for sent_on in 0.. {
            let mut theirs = parts.clone();
            self.for_peer(&mut theirs);
            let request = Request::from_parts(theirs, PeerBody::Whole(Full::default()));
            let Sent { answer, not_executed } = self.send_there(abroad, id, &node, request).await;
            let Some(why) = not_executed.filter(|_| sent_on < SENT_ON_MAX) else { return Ok(answer) };
            match self.next_after(abroad, id, ask, &node, why).await {
                Next::To(Place::There(other)) => node = other,
                Next::To(Place::Here) => return Err(parts),
                Next::To(Place::Refused(refusal)) => return Ok(plain(refusal)),
                Next::Nothing => return Ok(answer),
            }
        }
        // The loop ends by an answer.
        Ok(plain(Refusal::NotReachable))
    }

    /// Where something goes that `node` did nothing with, for the reason `why`.
    pub(super) async fn next_after(
        &self,
        abroad: &Abroad,
        id: &ActorId,
        ask: Ask,
        node: &NodeId,
        why: NotExecuted,
    ) -> Next {
        if !why.goes_on(ask, self.keeps(abroad)) {
            return Next::Nothing;
        }
        if why != NotExecuted::NotOpened {
            // A node says so a moment before its records do.
            for pause in GIVEN_UP_AFTER_MS.map(Duration::from_millis) {
                match self.place_anew(abroad, id, ask, true).await {
                    Place::There(same) if same == *node => self.context.sleeper.sleep(pause).await,
                    place => return Next::To(place),
                }
            }
        }
        if why == NotExecuted::Stopping {
            abroad.keeping.stops(node);
        }
        // Nothing to wait for: it is up, and has the actor without serving it, or is trusted for now whatever fails.
        if !self.waits_for(abroad, node, ask) {
            return Next::Nothing;
        }
        Next::To(self.place_anew(abroad, id, ask, true).await)
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
        let refuse = |refusal: Refusal, not_executed| {
            self.node.metrics.cluster.forwarded("refused");
            Sent { answer: plain(refusal), not_executed }
        };
        let target = match abroad.target(node) {
            Ok(target) => target,
            Err(refusal) => {
                abroad.hear(id, node, Heard::NotServed);
                return refuse(refusal, None);
            }
        };
        match abroad.peers.send(&target, request).await {
            Ok(answer) => {
                self.node.metrics.cluster.forwarded("answered");
                let not_executed = abroad.heard(id, node, &answer);
                let (mut head, incoming) = answer.into_parts();
                let by = head.headers.get(headers::NODE).cloned();
                strip_headers(&mut head.headers);
                head.headers.insert(headers::NODE, by.unwrap_or_else(|| named(node)));
                if let Some(why) = not_executed {
                    head.headers.insert(headers::ELSEWHERE, answer::elsewhere_value(why));
                }
                Sent { answer: Response::from_parts(head, incoming.into()), not_executed }
            }
            Err(remedy) => refuse(remedy.refusal, abroad.failed(id, node, &remedy)),
        }
    }
}

/// The answer that says why a request was not served.
pub(super) fn refused(refusal: Refusal) -> Response<wasmkeep_host::ResponseBody> {
    let text = refusal.to_string();
    match StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE) {
        StatusCode::SERVICE_UNAVAILABLE => match refusal {
            Refusal::Elsewhere => answer::elsewhere(&text, NotExecuted::Elsewhere),
            Refusal::NotTaking => answer::elsewhere(&text, NotExecuted::Stopping),
            _ => answer::retry_later(StatusCode::SERVICE_UNAVAILABLE, &text),
        },
        status => answer::sentence(status, &text),
    }
}

/// As [`refused`], as it goes out.
pub(super) fn plain(refusal: Refusal) -> Response<front::ResponseBody> {
    refused(refusal).map(|text| body::response(text, None))
}

pub(super) fn named(node: &NodeId) -> HeaderValue {
    // A checked node id is made of letters a header may hold.
    HeaderValue::from_str(node.as_str()).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}
