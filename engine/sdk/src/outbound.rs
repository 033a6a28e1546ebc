//! Requests to other servers.
//!
//! ```no_run
//! use wasmkeep_sdk::{Result, outbound};
//!
//! fn weather(city: &str) -> Result<String> {
//!     let url = format!("https://weather.example/{city}");
//!     let mut reply = outbound::get(url).header("accept", "text/plain").send()?;
//!     Ok(reply.text(64 << 10)?)
//! }
//! ```
//!
//! Waiting for an answer takes of the event's time, and the actor takes no other event meanwhile. No redirect is
//! followed. A request that is still open when the event ends is given up.

mod error;
mod url;

use std::{io, time::Duration};

pub use self::error::Error;
use self::url::Target;
use crate::{
    BodyReader, BodyWriter,
    bindings::{
        http::wasi::http::types::{
            Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
        },
        outgoing::wasi::http::outgoing_handler,
    },
};

/// A request that is being put together.
pub struct Call {
    method: String,
    url: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Body>,
    connect_timeout: Option<Duration>,
    first_byte_timeout: Option<Duration>,
    between_bytes_timeout: Option<Duration>,
}

type Writing = Box<dyn FnOnce(&mut BodyWriter) -> io::Result<()>>;

enum Body {
    Bytes(Vec<u8>),
    Stream(Writing),
}

/// A GET request to `url`, `http://` or `https://`.
#[must_use]
pub fn get(url: impl Into<String>) -> Call {
    call("GET", url)
}

/// A POST request to `url` with `body`.
#[must_use]
pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Call {
    call("POST", url).body(body)
}

/// A request to `url` with any method but CONNECT.
#[must_use]
pub fn call(method: impl Into<String>, url: impl Into<String>) -> Call {
    Call {
        method: method.into(),
        url: url.into(),
        headers: Vec::new(),
        body: None,
        connect_timeout: None,
        first_byte_timeout: None,
        between_bytes_timeout: None,
    }
}

impl Call {
    /// Adds a header. Those of the connection (`connection`, `transfer-encoding`, …) and the platform's own do
    /// not pass; `host` is the URL's.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Call {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends `body`.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Call {
        self.body = Some(Body::Bytes(body.into()));
        self
    }

    /// Sends `value` as JSON.
    ///
    /// # Errors
    /// When `value` has no JSON form, for instance a map whose keys are not text.
    #[cfg(feature = "json")]
    pub fn json(self, value: &impl serde::Serialize) -> Result<Call, serde_json::Error> {
        Ok(self.body(serde_json::to_vec(value)?).header("content-type", "application/json"))
    }

    /// Sends what `write` writes, as it is written. Writing waits while the server does not read, and fails once
    /// it has stopped reading.
    pub fn stream(mut self, write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + 'static) -> Call {
        self.body = Some(Body::Stream(Box::new(write)));
        self
    }

    /// Waits at most so long for a connection (10 s unless given, and at most).
    pub fn connect_timeout(mut self, limit: Duration) -> Call {
        self.connect_timeout = Some(limit);
        self
    }

    /// Waits at most so long for the head of the answer once it is connected.
    pub fn first_byte_timeout(mut self, limit: Duration) -> Call {
        self.first_byte_timeout = Some(limit);
        self
    }

    /// Waits at most so long for each piece of the answer's body.
    pub fn between_bytes_timeout(mut self, limit: Duration) -> Call {
        self.between_bytes_timeout = Some(limit);
        self
    }

    /// Sends the request and waits for the head of the answer, whatever its status.
    ///
    /// # Errors
    /// [`Error`]: it could not be sent, or nobody answered.
    pub fn send(mut self) -> Result<Reply, Error> {
        let options = self.options()?;
        let body = self.body.take();
        let request = self.outgoing(body.as_ref())?;
        let fresh = |_| request.body().expect("the body of a request just made was not taken");
        let outgoing = body.as_ref().map(fresh);
        let answer = outgoing_handler::handle(request, Some(options))?;
        let written = match (outgoing, body) {
            (Some(outgoing), Some(body)) => write_body(outgoing, body),
            _ => Ok(()),
        };
        // A server may answer without having read all: what it says counts more.
        answer.subscribe().block();
        match answer.get().expect("it is ready").expect("it was not taken") {
            Ok(response) => Ok(Reply { response }),
            Err(code) => Err(written.err().map_or_else(|| code.into(), Error::from)),
        }
    }

    fn options(&self) -> Result<RequestOptions, Error> {
        let options = RequestOptions::new();
        let nanoseconds = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let set = [
            options.set_connect_timeout(self.connect_timeout.map(nanoseconds)),
            options.set_first_byte_timeout(self.first_byte_timeout.map(nanoseconds)),
            options.set_between_bytes_timeout(self.between_bytes_timeout.map(nanoseconds)),
        ];
        if set.contains(&Err(())) {
            return Err(Error::unusable("this host takes no timeouts"));
        }
        Ok(options)
    }

    fn outgoing(mut self, body: Option<&Body>) -> Result<OutgoingRequest, Error> {
        let target = Target::of(&self.url).ok_or_else(|| Error::unusable("it is no http or https URL"))?;
        let announced = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if let (Some(Body::Bytes(bytes)), false) = (body, announced) {
            self.headers.push(("content-length".to_owned(), bytes.len().to_string().into_bytes()));
        }
        let fields = Fields::from_list(&self.headers)
            .map_err(|error| Error::unusable(format!("a header: {error:?}")))?;
        let request = OutgoingRequest::new(fields);
        let scheme = if target.tls { Scheme::Https } else { Scheme::Http };
        request
            .set_method(&method(&self.method))
            .and_then(|()| request.set_scheme(Some(&scheme)))
            .and_then(|()| request.set_authority(Some(target.authority)))
            .and_then(|()| request.set_path_with_query(Some(&target.path_with_query)))
            .map_err(|()| Error::unusable("its method, host or path is not one"))?;
        Ok(request)
    }
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        _ => Method::Other(name.to_owned()),
    }
}

fn write_body(outgoing: OutgoingBody, body: Body) -> io::Result<()> {
    let mut writer = BodyWriter::of(&outgoing);
    match body {
        Body::Bytes(bytes) => io::Write::write_all(&mut writer, &bytes)?,
        Body::Stream(write) => write(&mut writer)?,
    }
    // The stream must be gone before the body it belongs to is finished.
    drop(writer);
    OutgoingBody::finish(outgoing, None).map_err(|code| io::Error::other(code.to_string()))
}

/// What a server answered.
pub struct Reply {
    response: IncomingResponse,
}

impl Reply {
    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.response.status()
    }

    /// The first header called `name` (in any case), bytes that are not UTF-8 replaced by U+FFFD.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.response.headers().get(name);
        values.into_iter().next().map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    /// All headers in order.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, Vec<u8>)> {
        self.response.headers().entries()
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// When it has more than `bytes_max` bytes, or broke off.
    pub fn body(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut reader = self.reader()?;
        let mut body = Vec::new();
        while let Some(chunk) = reader.chunk(BodyReader::CHUNK_BYTES)? {
            if body.len() + chunk.len() > bytes_max {
                return Err(Error::unusable(format!("the answer has more than {bytes_max} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the body to its end as text.
    ///
    /// # Errors
    /// As [`Reply::body`], and when it is not UTF-8.
    pub fn text(&mut self, bytes_max: usize) -> Result<String, Error> {
        String::from_utf8(self.body(bytes_max)?).map_err(|_| Error::unusable("the answer is not UTF-8"))
    }

    /// Reads the body to its end as JSON.
    ///
    /// # Errors
    /// As [`Reply::body`], and when it is not the JSON that `T` wants.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&mut self, bytes_max: usize) -> Result<T, Error> {
        serde_json::from_slice(&self.body(bytes_max)?)
            .map_err(|error| Error::unusable(format!("the answer is not the JSON expected: {error}")))
    }

    /// Reads the body as it arrives.
    ///
    /// # Errors
    /// When the body was asked for before.
    pub fn reader(&mut self) -> Result<BodyReader, Error> {
        let body = self.response.consume().map_err(|()| Error::unusable("the answer was read twice"))?;
        Ok(BodyReader::of(body))
    }
}
