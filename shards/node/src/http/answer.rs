//! Between hyper and the handler: each request gets its body's wrapper, each answer its watch. Owns the answers
//! that the front gives by itself.

use super::{
    Violation,
    body::{Outgoing, RequestBody, ResponseBody},
    connections::{Connections, Unanswered},
    wire::Shared,
};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{body::Incoming, service::Service};
use std::{
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::SystemTime,
};
use wasmkeep_protocol::{headers, trust::Door};

/// The handler as hyper's service, for one connection.
pub(super) struct Answering<S> {
    pub(super) handler: Rc<S>,
    pub(super) connections: Connections,
    pub(super) shared: Rc<Shared>,
}

impl<S, F> Service<Request<Incoming>> for Answering<S>
where
    S: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Response<ResponseBody>>,
{
    type Response = Response<Outgoing>;
    type Error = Infallible;
    type Future = Answer<F>;

    fn call(&self, request: Request<Incoming>) -> Answer<F> {
        let mut request = request.map(|incoming| RequestBody::new(incoming, self.shared.clone()));
        let named = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        if let Some(Ok(host)) = named {
            // The host in the target counts, whatever the Host says (RFC 9112 section 3.2.2).
            request.headers_mut().insert(header::HOST, host);
        }
        let is_tls = self.shared.wire.borrow().stream.is_tls();
        if is_tls {
            request.extensions_mut().insert(Door::Nodes);
        }
        self.shared.lingers.set(is_tls || request.headers().contains_key(headers::FORWARDED));
        let unanswered = self.connections.ask();
        Answer { future: (self.handler)(request), shared: self.shared.clone(), _unanswered: unanswered }
    }
}

/// The handler at work on one request. Dropped when the client leaves.
pub(super) struct Answer<F> {
    future: F,
    shared: Rc<Shared>,
    _unanswered: Unanswered,
}

impl<F: Future<Output = Response<ResponseBody>>> Future for Answer<F> {
    type Output = Result<Response<Outgoing>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with `self` and never moved out; nothing else is pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        let mut response = ready!(future.poll(cx));
        if let Some(violation) = this.shared.violation.get() {
            this.shared.wire.borrow().count_refused();
            response = refusal(violation);
        }
        if let Some(upgrade) = response.body_mut().take_upgrade() {
            // hyper waits for this answer until the connection, polling it, finds the upgrade and drops it.
            this.shared.upgrade.set(Some((response.map(drop), upgrade)));
            return Poll::Pending;
        }
        if this.shared.closing.get() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let declared = response.headers().get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse().ok());
        Poll::Ready(Ok(response.map(|body| Outgoing::new(body, declared, this.shared.clone()))))
    }
}

fn refusal(violation: Violation) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(format!("{}\n", violation.reason)));
    *response.status_mut() = StatusCode::from_u16(violation.status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The answer to whatever may be on its way on a connection that a node which stops has read nothing of.
pub(super) fn elsewhere() -> Vec<u8> {
    let gone = Violation::new(503, "the node is stopping; retry");
    written(gone, &format!("{}: {}\r\n", headers::ELSEWHERE, headers::ELSEWHERE_STOPPING))
}

/// An answer written without hyper, when no request reached it.
pub(super) fn plain(violation: Violation) -> Vec<u8> {
    written(violation, "")
}

fn written(violation: Violation, more: &str) -> Vec<u8> {
    let status = StatusCode::from_u16(violation.status).unwrap_or(StatusCode::BAD_REQUEST);
    let retry = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n{retry}{more}date: {}\r\n\r\n{}\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        violation.reason.len() + 1,
        httpdate::fmt_http_date(SystemTime::now()),
        violation.reason,
    )
    .into_bytes()
}
