//! What a client asked of this node's actors in the moment in which it stops: another node answers it, once it may take
//! the actor. Who that is, `protocol` says; how the request gets there is the business of any that goes elsewhere.

use std::{rc::Rc, time::Duration};

use http::{Response, request::Parts};
use http_body::Body as _;
use wasmkeep_host::ResponseBody;
use wasmkeep_protocol::{
    ActorId,
    forwarding::{Ask, Refusal},
    headers,
};

use super::{
    Shard,
    body::Pump,
    elsewhere::{Abroad, Place, ask},
    sending_on::plain,
};
use crate::http as front;

/// Pause between two looks whether the actor was given up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Looks: a little longer than an event in flight has (R-LEASE-6).
const LOOKS_MAX: u32 = 220;

/// A request that can be made again.
struct Spare<'a> {
    abroad: &'a Abroad,
    ask: Ask,
    parts: Parts,
}

impl Shard {
    /// Has the actor answer, or (`Err`) another node, if this one stops and the actor took the request no more.
    pub(super) async fn actor_or_heir(
        self: &Rc<Self>,
        id: &ActorId,
        rest: &str,
        parts: Parts,
        request_body: front::RequestBody,
        pump: &mut Option<Pump>,
    ) -> Result<Response<ResponseBody>, Response<front::ResponseBody>> {
        let spare = self.spare(&parts, request_body.is_end_stream());
        let answered = self.actor(id, rest, parts, request_body, pump).await;
        match spare {
            Some(spare) if answered.headers().contains_key(headers::ELSEWHERE) => {
                Err(self.hand_on(spare, id).await)
            }
            _ => Ok(answered),
        }
    }

    /// The same request once more, while this node stops; `None` for one that may be made only once.
    fn spare(&self, parts: &Parts, is_empty: bool) -> Option<Spare<'_>> {
        let abroad = self.abroad.as_ref().filter(|_| self.node.is_stopping())?;
        let ask = ask(abroad.cluster.policy(), parts, is_empty);
        ask.may_wait().then(|| Spare { abroad, ask, parts: parts.clone() })
    }

    /// Has another node answer what this node's actor did not take.
    async fn hand_on(&self, spare: Spare<'_>, id: &ActorId) -> Response<front::ResponseBody> {
        let Spare { abroad, ask, mut parts } = spare;
        for _ in 0..LOOKS_MAX {
            match self.place_anew(abroad, id, ask, true).await {
                Place::There(node) => match self.forward_bodiless(abroad, id, &node, parts).await {
                    Ok(answer) => return answer,
                    Err(back) => parts = back,
                },
                // Still this node's, until its release has landed.
                Place::Here => {}
                Place::Refused(refusal) => return plain(refusal),
            }
            self.context.sleeper.sleep(LOOK_EVERY).await;
        }
        plain(Refusal::NotTaking)
    }
}
