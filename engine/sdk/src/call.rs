//! Calls to other actors of the app, wherever they run.
//!
//! The callee handles a call as it handles any request, and `context::caller` tells it who called. The caller's
//! event waits meanwhile. Limits, and what an error says about whether the callee ran, are in the contract:
//! [`bindings::platform::wasmkeep::actor::actors`](crate::bindings::platform::wasmkeep::actor::actors).

use std::fmt;

#[cfg(feature = "json")]
use crate::Error;
use crate::Result;
use crate::bindings::platform::wasmkeep::actor::actors as host;

/// Sends `request` to the actor `name` of `class` and waits for its response.
///
/// # Errors
/// A status that the callee chose is a response, also when it is 4xx or 5xx; [`CallError`] says why there is none.
pub fn call(class: &str, name: &str, request: CallRequest) -> Result<CallResponse, CallError> {
    Ok(CallResponse(host::call(class, name, &request.0)?))
}

/// What is sent to another actor.
#[derive(Debug, Clone)]
pub struct CallRequest(host::Request);

impl CallRequest {
    /// A request without body. `target` is what the callee sees as its path, with a query if it has one: begins
    /// with `/`.
    #[must_use]
    pub fn new(method: impl Into<String>, target: impl Into<String>) -> CallRequest {
        CallRequest(host::Request {
            method: method.into(),
            path_with_query: target.into(),
            headers: Vec::new(),
            body: Vec::new(),
        })
    }

    /// A `GET`.
    #[must_use]
    pub fn get(target: impl Into<String>) -> CallRequest {
        CallRequest::new("GET", target)
    }

    /// A `POST`.
    #[must_use]
    pub fn post(target: impl Into<String>) -> CallRequest {
        CallRequest::new("POST", target)
    }

    /// Adds a header behind those already there.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> CallRequest {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body, at most 16 MiB.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> CallRequest {
        self.0.body = body.into();
        self
    }

    /// Sets the body to JSON.
    ///
    /// # Errors
    /// When `value` has no JSON form, for instance a map whose keys are not text.
    #[cfg(feature = "json")]
    pub fn json(self, value: &impl serde::Serialize) -> Result<CallRequest> {
        Ok(self.header("content-type", "application/json").body(serde_json::to_vec(value)?))
    }
}

/// What another actor answered.
#[derive(Debug, Clone)]
pub struct CallResponse(host::Response);

impl CallResponse {
    /// The status that the callee chose.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// Whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.0.status)
    }

    /// The first header called `name` (in any case), bytes that are not UTF-8 replaced by U+FFFD.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let mut headers = self.0.headers.iter();
        let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// The body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.body
    }

    /// The body as text, bytes that are not UTF-8 replaced by U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// Status 502, saying where, when it is not the JSON that `T` wants.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.0.body).map_err(|error| {
            Error::new(502, format!("the callee's answer is not the JSON expected: {error}"))
        })
    }
}

/// Why a call has no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The app has no class of this name.
    NoSuchClass,
    /// The class is closed to calls that would make a new actor.
    NoSuchActor,
    /// The call itself is not acceptable: a bad name, a request over its limits, a call in `on-init`.
    Refused(String),
    /// The callee waits for this actor, directly or through others.
    Reentrant,
    /// The callee has too many events waiting. It did not run; it may be called again.
    Overloaded,
    /// No answer in time. It may have run.
    TimedOut,
    /// Nobody will answer. It may have run.
    Unknown(String),
    /// The callee could not be started, or ran and failed.
    Failed(String),
    /// This node does not carry calls. Nothing was sent.
    Unsupported,
}

impl CallError {
    /// Whether the callee may have run, at least in part. When it has not, the call may be made again as it is;
    /// when it may have, only if the callee takes the same request twice.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(self, CallError::TimedOut | CallError::Unknown(_) | CallError::Failed(_))
    }
}

impl From<host::Error> for CallError {
    fn from(error: host::Error) -> CallError {
        match error {
            host::Error::NoSuchClass => CallError::NoSuchClass,
            host::Error::NoSuchActor => CallError::NoSuchActor,
            host::Error::Refused(reason) => CallError::Refused(reason),
            host::Error::Reentrant => CallError::Reentrant,
            host::Error::Overloaded => CallError::Overloaded,
            host::Error::TimedOut => CallError::TimedOut,
            host::Error::Unknown(reason) => CallError::Unknown(reason),
            host::Error::Failed(reason) => CallError::Failed(reason),
            host::Error::Unsupported => CallError::Unsupported,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NoSuchClass => f.write_str("the app has no such class"),
            CallError::NoSuchActor => f.write_str("there is no such actor"),
            CallError::Refused(reason) => write!(f, "the call was refused: {reason}"),
            CallError::Reentrant => f.write_str("the callee waits for this actor"),
            CallError::Overloaded => f.write_str("the callee has too many events waiting; retry"),
            CallError::TimedOut => f.write_str("the callee did not answer in time"),
            CallError::Unknown(reason) => write!(f, "whether the callee ran is not known: {reason}"),
            CallError::Failed(reason) => write!(f, "the callee failed: {reason}"),
            CallError::Unsupported => f.write_str("this node does not carry calls"),
        }
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_callee_may_have_run() {
        for (error, may_have_run) in [
            (host::Error::NoSuchClass, false),
            (host::Error::Refused("r".to_owned()), false),
            (host::Error::Reentrant, false),
            (host::Error::Overloaded, false),
            (host::Error::Unsupported, false),
            (host::Error::TimedOut, true),
            (host::Error::Unknown("u".to_owned()), true),
            (host::Error::Failed("f".to_owned()), true),
        ] {
            let error = CallError::from(error);
            assert_eq!(error.may_have_run(), may_have_run, "{error}");
        }
    }

    #[test]
    fn a_response_finds_its_headers_in_any_case() {
        let headers = vec![("x-one".to_owned(), b"1".to_vec()), ("x-one".to_owned(), b"2".to_vec())];
        let response = CallResponse(host::Response { status: 409, headers, body: b"no".to_vec() });
        assert_eq!(response.header("X-One").as_deref(), Some("1"));
        assert_eq!(
            (response.status(), response.is_success(), response.text()),
            (409, false, "no".to_owned())
        );
    }
}
