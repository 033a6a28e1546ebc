//! `wasmkeep:actor/actors`: judges a call and hands it to whoever carries calls.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use send_wrapper::SendWrapper;
use wasmkeep_protocol::{
    ActorId,
    call_chain::ChainError,
    limits::{CALL_BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX},
};

use crate::{
    bindings::actors::{Error, Host, Request, Response},
    calls::{Call, CallError},
    headers,
    state::ActorState,
};

impl Host for ActorState {
    async fn call(
        &mut self,
        class: String,
        name: String,
        request: Request,
    ) -> wasmtime::Result<Result<Response, Error>> {
        self.note_asked();
        let Some(calls) = &self.calls else { return Ok(Err(Error::Unsupported)) };
        let calls = Rc::clone(calls);
        let call = match self.prepare(&class, &name, request) {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        let outcome = SendWrapper::new(async move { calls.call(call).await }).await;
        Ok(outcome.map(response_out).map_err(error_out))
    }
}

impl ActorState {
    fn prepare(&self, class: &str, name: &str, request: Request) -> Result<Call, Error> {
        let identity = &self.identity;
        let caller = actor_id(&identity.class, &identity.name)?;
        let callee = actor_id(class, name)?;
        let Some(caller_ends_at) = self.ends_at else {
            return Err(refused("on-init makes no calls: the event that waits for it may be the callee's"));
        };
        let chain = self.chain.extend(caller, &callee).map_err(|error| match error {
            ChainError::Reentrant => Error::Reentrant,
            ChainError::TooDeep => refused(&error.to_string()),
        })?;
        Ok(Call { callee, chain, caller_ends_at, request: request_in(request)? })
    }
}

fn refused(sentence: &str) -> Error {
    Error::Refused(sentence.to_owned())
}

fn actor_id(class: &str, name: &str) -> Result<ActorId, Error> {
    let class = class.parse().map_err(|error| refused(&format!("the class cannot be used: {error}")))?;
    let name = name.parse().map_err(|error| refused(&format!("the actor name cannot be used: {error}")))?;
    Ok(ActorId { class, name })
}

/// The request as the callee is to see it; headers of a connection and of the platform go when it is delivered.
fn request_in(request: Request) -> Result<http::Request<Bytes>, Error> {
    let Request { method, path_with_query, headers, body } = request;
    if body.len() > CALL_BODY_BYTES_MAX {
        return Err(refused(&format!("the body is longer than {CALL_BODY_BYTES_MAX} bytes")));
    }
    if headers.len() > HEADERS_MAX {
        return Err(refused(&format!("there are more than {HEADERS_MAX} headers")));
    }
    let head_bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    if path_with_query.len() + head_bytes > HEAD_BYTES_MAX {
        return Err(refused(&format!("path and headers are longer than {HEAD_BYTES_MAX} bytes")));
    }
    let mut made = http::Request::new(Bytes::from(body));
    *made.method_mut() =
        Method::from_bytes(method.as_bytes()).map_err(|_| refused("that is no HTTP method"))?;
    *made.uri_mut() = target(&path_with_query)?;
    *made.headers_mut() = header_map(headers)?;
    let length = made.body().len();
    made.headers_mut().remove(header::CONTENT_LENGTH);
    if length > 0 {
        made.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    headers::strip(made.headers_mut());
    Ok(made)
}

fn target(path_with_query: &str) -> Result<Uri, Error> {
    if !path_with_query.starts_with('/') || path_with_query.contains('#') {
        return Err(refused("the path must begin with '/' and have no '#'"));
    }
    path_with_query.parse().map_err(|error| refused(&format!("the path cannot be used: {error}")))
}

fn header_map(headers: Vec<(String, Vec<u8>)>) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name: HeaderName =
            name.parse().map_err(|_| refused(&format!("{name:?} is not the name of a header")))?;
        let value = HeaderValue::from_bytes(&value)
            .map_err(|_| refused(&format!("the value of the header {name} is not allowed")))?;
        map.append(name, value);
    }
    Ok(map)
}

fn response_out(response: http::Response<Bytes>) -> Response {
    let (parts, body) = response.into_parts();
    let pair = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
    Response {
        status: parts.status.as_u16(),
        headers: parts.headers.iter().map(pair).collect(),
        body: body.into(),
    }
}

fn error_out(error: CallError) -> Error {
    match error {
        CallError::NoSuchClass => Error::NoSuchClass,
        CallError::Overloaded => Error::Overloaded,
        CallError::TimedOut => Error::TimedOut,
        CallError::Unknown(reason) => Error::Unknown(reason),
        CallError::Failed(reason) => Error::Failed(reason),
    }
}
