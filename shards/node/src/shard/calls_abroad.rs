//! Calls to actors of other nodes, and from them: the same HTTP between nodes as for clients, with a signature that says
//! who calls (R-CALL-1, R-CALL-2). What is signed and what is believed is `protocol`'s.

use std::{
    rc::Rc,
    sync::PoisonError,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full};
use wasmkeep_actor::Refusal as NotRun;
use wasmkeep_core::BucketThreadRuntime;
use wasmkeep_host::{
    CallError, CallOutcome, HttpEvent, RequestBody, ResponseBody, Unanswered, strip_headers,
};
use wasmkeep_protocol::{
    ActorId, ActorName, NodeId,
    call_chain::CallChain,
    call_signature::{Call as Signed, Nonce, Secret, Signature},
    forwarding::{Again, Ask, Heard, NotExecuted, Origin, Refusal},
    headers,
    limits::CALL_BODY_BYTES_MAX,
};
use wasmkeep_runtime::Runtime;

use super::{
    Shard, answer, calls,
    elsewhere::{Abroad, Place},
    leased,
    requests::door,
    route::guest_target,
    sending_on::{Next, SENT_ON_MAX},
};
use crate::{
    http as front,
    peers::{AnswerBody, PeerBody},
};

/// A call that no other node has taken: nothing ran.
fn not_taken(refusal: Refusal) -> CallError {
    match refusal {
        Refusal::Unreadable | Refusal::CertificateRefused | Refusal::CertificateNew | Refusal::NodeUnused => {
            CallError::Failed(refusal.to_string())
        }
        Refusal::NotAnswered => CallError::Unknown(refusal.to_string()),
        Refusal::TimedOut => CallError::TimedOut,
        _ => CallError::Overloaded,
    }
}

const SECRET_MALFORMED: &str = "the cluster's secret is malformed: calls between nodes are stopped";

/// What came of a call whose callee may be another node's.
pub(super) enum CalledAbroad {
    /// The callee is this node's, and has yet to be called.
    Here(Request<Bytes>),
    /// The call is over.
    Ended(CallOutcome),
}

/// What came of sending a call to a node.
enum Sent {
    Ended(CallOutcome),
    NotExecuted(NotExecuted),
}

/// How a call from another node ended here.
enum Ran {
    Ended(CallOutcome),
    /// The callee is not this node's.
    NotExecuted(NotExecuted),
}

impl Shard {
    /// Has a call answered by the node that holds the callee, if another one does. What a node disowned has not run, and
    /// goes on to the next as a request without a body does.
    pub(super) async fn call_abroad(
        &self,
        callee: &ActorId,
        chain: &CallChain,
        patience: Duration,
        request: Request<Bytes>,
    ) -> CalledAbroad {
        let Some(abroad) = &self.abroad else { return CalledAbroad::Here(request) };
        let began = Instant::now();
        let ask = Ask { origin: Origin::Call, bodiless: false };
        let mut place = self.place(abroad, callee, ask).await;
        for sent_on in 0.. {
            let node = match place {
                Place::Here => return CalledAbroad::Here(request),
                Place::Refused(refusal) => return CalledAbroad::Ended(Err(not_taken(refusal))),
                Place::There(node) => node,
            };
            let left = patience.saturating_sub(began.elapsed());
            let why = match self.call_there(&node, callee, chain, left, &request).await {
                Sent::Ended(outcome) => return CalledAbroad::Ended(outcome),
                Sent::NotExecuted(why) => why,
            };
            place = match self.next_after(abroad, callee, ask, &node, why).await {
                Next::To(place) if sent_on < SENT_ON_MAX => place,
                _ => break,
            };
        }
        CalledAbroad::Ended(Err(CallError::Overloaded))
    }

    /// Whether a request claims to be a call, and came by a port where that may be so (R-TLS-3).
    pub(super) fn is_call(&self, parts: &Parts) -> bool {
        let believes = |abroad: &Abroad| abroad.cluster.policy().believes(door(parts));
        is_call(&parts.headers) && self.abroad.as_ref().is_some_and(believes)
    }

    /// Sends a call to the node that holds the callee, once, and once more when that node refused this node's
    /// certificate; not before that can be known there (R-TLS-5).
    async fn call_there(
        &self,
        node: &NodeId,
        callee: &ActorId,
        chain: &CallChain,
        patience: Duration,
        request: &Request<Bytes>,
    ) -> Sent {
        let failed = |error| Sent::Ended(Err(error));
        let Some(abroad) = &self.abroad else { return failed(CallError::Overloaded) };
        let Some(secret) = &abroad.cluster.secret else {
            return failed(CallError::Failed(SECRET_MALFORMED.into()));
        };
        let began = Instant::now();
        let mut again = true;
        loop {
            let left = patience.saturating_sub(began.elapsed());
            let Some(request) = signed(secret, node, callee, chain, left, request.clone()) else {
                return failed(CallError::Failed("the call cannot be sent to another node".into()));
            };
            let request = request.map(|body| PeerBody::Whole(Full::new(body)));
            let target = match abroad.target(node) {
                Ok(target) => target,
                Err(refusal) => {
                    abroad.hear(callee, node, Heard::NotServed);
                    return failed(not_taken(refusal));
                }
            };
            match abroad.peers.send(&target, request).await {
                Ok(answer) => {
                    return match abroad.heard(callee, node, &answer) {
                        Some(why) => Sent::NotExecuted(why),
                        None => Sent::Ended(taken(answer).await),
                    };
                }
                Err(remedy) => {
                    // No connection could be opened: nothing was sent.
                    let not_executed = abroad.failed(callee, node, &remedy);
                    let later = remedy.again == Again::Later && std::mem::take(&mut again);
                    if !later || !self.may_send_again(abroad, remedy.refusal).await {
                        return match not_executed {
                            Some(why) => Sent::NotExecuted(why),
                            None => failed(not_taken(remedy.refusal)),
                        };
                    }
                }
            }
        }
    }

    /// Takes a call from another node: believes it, runs it here, and says how it ended.
    pub(super) async fn called(
        self: &Rc<Self>,
        abroad: &Abroad,
        callee: &ActorId,
        rest: &str,
        parts: Parts,
        mut request_body: front::RequestBody,
    ) -> Response<ResponseBody> {
        let mut body = BytesMut::new();
        while let Some(chunk) = request_body.chunk().await {
            match chunk {
                Ok(chunk) if body.len() + chunk.len() <= CALL_BODY_BYTES_MAX => {
                    body.extend_from_slice(&chunk)
                }
                Ok(_) => return answer::sentence(StatusCode::PAYLOAD_TOO_LARGE, "the call is too long"),
                Err(error) => return answer::sentence(StatusCode::BAD_REQUEST, &error.to_string()),
            }
        }
        let body = body.freeze();
        let chain = match self.believed(abroad, &parts, &body) {
            Ok(chain) => chain,
            Err(why) => {
                abroad.cluster.warn_of_unbelieved(&why);
                return answer::sentence(StatusCode::FORBIDDEN, &why);
            }
        };
        match self.run_called(abroad, callee, rest, parts, body, chain).await {
            Ran::Ended(ended) => outcome(ended),
            Ran::NotExecuted(why) => {
                let mut response = outcome(Err(CallError::Overloaded));
                response.headers_mut().insert(headers::ELSEWHERE, answer::elsewhere_value(why));
                response
            }
        }
    }

    async fn run_called(
        self: &Rc<Self>,
        abroad: &Abroad,
        callee: &ActorId,
        rest: &str,
        mut parts: Parts,
        body: Bytes,
        chain: CallChain,
    ) -> Ran {
        if !self.node.classes.contains_key(&callee.class) {
            return Ran::Ended(Err(CallError::NoSuchClass));
        }
        let ask = Ask { origin: Origin::Peer, bodiless: false };
        match self.place(abroad, callee, ask).await {
            Place::Here => {}
            Place::There(_) | Place::Refused(Refusal::Elsewhere) => {
                return Ran::NotExecuted(NotExecuted::Elsewhere);
            }
            Place::Refused(Refusal::NotTaking) => return Ran::NotExecuted(NotExecuted::Stopping),
            Place::Refused(refusal) => return Ran::Ended(Err(not_taken(refusal))),
        }
        let patience = time(&parts.headers).min(self.node.limits.event_wall_clock);
        strip_headers(&mut parts.headers);
        parts.uri = guest_target(rest).parse().unwrap_or_else(|_| http::Uri::from_static("/"));
        let (event, answer) = HttpEvent::new(Request::from_parts(parts, RequestBody::full(body)));
        let event = event.called(chain, self.node.now() + patience);
        let lease = self.lease();
        let exchange = async {
            if self.deliver(callee, event.into()).await.is_err() {
                return Ran::Ended(Err(CallError::Overloaded));
            }
            match leased::answered(answer.await, lease) {
                Ok(answer) => Ran::Ended(calls::whole(answer).await),
                Err(Unanswered::Refused(NotRun::NotHeld(_))) => Ran::NotExecuted(NotExecuted::Elsewhere),
                Err(Unanswered::Refused(NotRun::Stopping)) => Ran::NotExecuted(NotExecuted::Stopping),
                Err(why) => Ran::Ended(Err(calls::call_error(why))),
            }
        };
        let ended = self.context.sleeper.timeout(patience, exchange).await;
        ended.unwrap_or(Ran::Ended(Err(CallError::TimedOut)))
    }

    /// Who calls, if the signature holds (R-CALL-2).
    fn believed(&self, abroad: &Abroad, parts: &Parts, body: &Bytes) -> Result<CallChain, String> {
        let Some(secret) = &abroad.cluster.secret else {
            return Err(SECRET_MALFORMED.into());
        };
        let malformed = || "the call's headers are malformed".to_owned();
        let claim = Claim::read(&parts.headers).ok_or_else(malformed)?;
        let caller = claim.chain.last().ok_or_else(malformed)?;
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let call = Signed {
            node: &self.node.node_id,
            method: parts.method.as_str(),
            path,
            body,
            caller,
            chain: &claim.chain,
            timestamp_ms: claim.timestamp_ms,
            nonce: claim.nonce,
        };
        // Whoever panicked under it left a set of nonces, which is whole at every step.
        let mut seen = abroad.cluster.seen.lock().unwrap_or_else(PoisonError::into_inner);
        secret
            .accept(&self.node.node_id, &call, &claim.signature, BucketThreadRuntime.unix_ms(), &mut seen)
            .map_err(|refused| refused.to_string())?;
        Ok(CallChain::new(claim.chain))
    }
}

/// Whether a request claims to be a call.
fn is_call(headers: &HeaderMap) -> bool {
    headers.contains_key(headers::CALL_SIGNATURE)
}

/// The request that carries a call; `None` when its parts make none.
fn signed(
    secret: &Secret,
    node: &NodeId,
    callee: &ActorId,
    chain: &CallChain,
    patience: Duration,
    request: Request<Bytes>,
) -> Option<Request<Bytes>> {
    let (mut parts, body) = request.into_parts();
    let inner = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let path = format!("/actor/{}/{}{inner}", callee.class, callee.name.file_stem());
    let (timestamp_ms, nonce): (u64, Nonce) = (BucketThreadRuntime.unix_ms(), rand::random());
    let call = Signed {
        node,
        method: parts.method.as_str(),
        path: &path,
        body: &body,
        caller: chain.caller()?,
        chain: chain.waiting(),
        timestamp_ms,
        nonce,
    };
    let signature = secret.sign(&call);
    strip_headers(&mut parts.headers);
    for (name, value) in [
        (headers::CALL_CHAIN, chain_text(chain.waiting())),
        (headers::CALL_TIMESTAMP, timestamp_ms.to_string()),
        (headers::CALL_NONCE, data_encoding::HEXLOWER.encode(&nonce)),
        (headers::CALL_SIGNATURE, data_encoding::HEXLOWER.encode(&signature)),
        (headers::CALL_TIME, patience.as_millis().to_string()),
    ] {
        parts.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?);
    }
    parts.headers.entry(http::header::HOST).or_insert(HeaderValue::from_static("actor"));
    parts.uri = path.parse().ok()?;
    Some(Request::from_parts(parts, body))
}

fn chain_text(chain: &[ActorId]) -> String {
    let actors: Vec<_> =
        chain.iter().map(|actor| format!("{}/{}", actor.class, actor.name.file_stem())).collect();
    actors.join(",")
}

/// What a call says of itself, before it is believed.
struct Claim {
    chain: Vec<ActorId>,
    timestamp_ms: u64,
    nonce: Nonce,
    signature: Signature,
}

impl Claim {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let bytes = |name: &str| data_encoding::HEXLOWER.decode(text(name)?.as_bytes()).ok();
        let actor = |text: &str| {
            let (class, name) = text.split_once('/')?;
            Some(ActorId { class: class.parse().ok()?, name: ActorName::from_path_segment(name).ok()? })
        };
        Some(Self {
            chain: text(headers::CALL_CHAIN)?.split(',').map(actor).collect::<Option<_>>()?,
            timestamp_ms: text(headers::CALL_TIMESTAMP)?.parse().ok()?,
            nonce: bytes(headers::CALL_NONCE)?.try_into().ok()?,
            signature: bytes(headers::CALL_SIGNATURE)?.try_into().ok()?,
        })
    }
}

/// The time the calling node gives the callee.
fn time(headers: &HeaderMap) -> Duration {
    let ms = headers.get(headers::CALL_TIME).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_millis(ms.unwrap_or(0))
}

/// How a call ended, for the node it came from. The words are those of [`taken`].
fn outcome(ended: CallOutcome) -> Response<ResponseBody> {
    let (word, mut response) = match ended {
        Ok(response) => ("answered", response.map(ResponseBody::full)),
        Err(error) => {
            let word = match &error {
                CallError::NoSuchClass => "no-such-class",
                CallError::Overloaded => "overloaded",
                CallError::TimedOut => "timed-out",
                CallError::Unknown(_) => "unknown",
                CallError::Failed(_) => "failed",
            };
            (word, answer::sentence(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()))
        }
    };
    response.headers_mut().insert(headers::CALL_OUTCOME, HeaderValue::from_static(word));
    response
}

/// What another node's answer says of a call.
async fn taken(answer: Response<AnswerBody>) -> CallOutcome {
    let (mut parts, mut incoming) = answer.into_parts();
    let word =
        parts.headers.get(headers::CALL_OUTCOME).and_then(|word| word.to_str().ok()).unwrap_or_default();
    let word = word.to_owned();
    let mut body = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let lost = |_| CallError::Unknown("the callee's node was lost while it answered".into());
        let chunk = frame.map_err(lost)?.into_data().unwrap_or_default();
        if body.len() + chunk.len() > CALL_BODY_BYTES_MAX {
            return Err(CallError::Failed(format!(
                "the callee's response is longer than {CALL_BODY_BYTES_MAX} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    let text = || String::from_utf8_lossy(&body).trim().to_owned();
    match word.as_str() {
        "answered" => {
            strip_headers(&mut parts.headers);
            Ok(Response::from_parts(parts, body.freeze()))
        }
        "no-such-class" => Err(CallError::NoSuchClass),
        "overloaded" => Err(CallError::Overloaded),
        "timed-out" => Err(CallError::TimedOut),
        "unknown" => Err(CallError::Unknown(text())),
        _ => Err(CallError::Failed(text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(name: &str) -> ActorId {
        ActorId { class: "bank".parse().unwrap(), name: name.parse().unwrap() }
    }

    // R-CALL-1, case H4
    #[test]
    fn a_call_says_the_same_of_itself_where_it_arrives() {
        let secret = Secret::parse(&"0f".repeat(32)).unwrap();
        let node: NodeId = "b".parse().unwrap();
        let chain = CallChain::new(vec![actor("a/b, c"), actor("Ünï")]);
        let request =
            Request::post("/x?y=1").header("x-wasmkeep-caller", "forged").body(Bytes::from_static(b"body"));
        let sent = signed(&secret, &node, &actor("to/me"), &chain, Duration::from_secs(9), request.unwrap())
            .unwrap();
        assert_eq!(sent.uri().path(), "/actor/bank/to%2Fme/x");
        assert!(is_call(sent.headers()) && !sent.headers().contains_key("x-wasmkeep-caller"));
        assert_eq!(time(sent.headers()), Duration::from_secs(9));
        let claim = Claim::read(sent.headers()).unwrap();
        assert_eq!(claim.chain, chain.waiting());
        let call = Signed {
            node: &node,
            method: "POST",
            path: sent.uri().path_and_query().unwrap().as_str(),
            body: sent.body(),
            caller: claim.chain.last().unwrap(),
            chain: &claim.chain,
            timestamp_ms: claim.timestamp_ms,
            nonce: claim.nonce,
        };
        assert_eq!(secret.sign(&call), claim.signature);
    }

    // R-CALL-2
    #[test]
    fn headers_that_are_not_a_whole_claim_are_none() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (headers::CALL_CHAIN, "bank/a"),
            (headers::CALL_TIMESTAMP, "5"),
            (headers::CALL_NONCE, "00112233445566778899aabbccddeeff"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            assert!(Claim::read(&headers).is_none());
        }
        let signature = HeaderValue::from_str(&"ab".repeat(32)).unwrap();
        headers.insert(HeaderName::from_static(headers::CALL_SIGNATURE), signature);
        assert!(Claim::read(&headers).is_some());
        for bad in ["bank", "Bank/a", "bank/", "bank/a,", ""] {
            headers.insert(HeaderName::from_static(headers::CALL_CHAIN), HeaderValue::from_str(bad).unwrap());
            assert!(Claim::read(&headers).is_none(), "{bad:?}");
        }
    }
}
