//! A request as an actor reads it. What is not asked for is not fetched from the host.

use std::{
    cell::OnceCell,
    io::{self, Read},
};

use crate::{
    Error, Result,
    bindings::http::wasi::{
        http::types::{IncomingBody, IncomingRequest, Method},
        io::streams::{InputStream, StreamError},
    },
    form,
};

/// An HTTP request.
pub struct Request {
    inner: IncomingRequest,
    method: OnceCell<Method>,
    target: OnceCell<String>,
}

impl Request {
    pub(crate) fn new(inner: IncomingRequest) -> Request {
        Request { inner, method: OnceCell::new(), target: OnceCell::new() }
    }

    /// The method in capitals, for instance `"GET"`.
    #[must_use]
    pub fn method(&self) -> &str {
        method_name(self.method.get_or_init(|| self.inner.method()))
    }

    /// The path after the actor's name, without the query: begins with `/`, encoded as the client sent it.
    #[must_use]
    pub fn path(&self) -> &str {
        split_target(self.target()).0
    }

    /// The query as the client sent it, without `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        split_target(self.target()).1
    }

    /// The decoded value of `name` in the query: the first one; empty when the name has no `=`.
    #[must_use]
    pub fn query_value(&self, name: &str) -> Option<String> {
        form::value(self.query()?, name)
    }

    /// The first header called `name` (in any case), bytes that are not UTF-8 replaced by U+FFFD.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.inner.headers().get(name);
        values.into_iter().next().map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    /// All headers in order.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, Vec<u8>)> {
        self.inner.headers().entries()
    }

    /// The host the client named, with its port if it named one.
    #[must_use]
    pub fn authority(&self) -> Option<String> {
        self.inner.authority()
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// Status 413 when it has more than `bytes_max` bytes, 400 when the client does not send it whole.
    pub fn body(&mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let mut reader = self.reader()?;
        let mut body = Vec::new();
        while let Some(chunk) = reader.chunk(BodyReader::CHUNK_BYTES).map_err(unreadable)? {
            if body.len() + chunk.len() > bytes_max {
                return Err(Error::new(413, format!("the body may have at most {bytes_max} bytes")));
            }
            if body.is_empty() { body = chunk } else { body.extend_from_slice(&chunk) }
        }
        Ok(body)
    }

    /// Reads the body to its end as text.
    ///
    /// # Errors
    /// As [`Request::body`], and status 400 when it is not UTF-8.
    pub fn text(&mut self, bytes_max: usize) -> Result<String> {
        String::from_utf8(self.body(bytes_max)?).map_err(|_| Error::new(400, "the body is not UTF-8"))
    }

    /// Reads the body to its end as JSON.
    ///
    /// # Errors
    /// As [`Request::body`], and status 400, saying where, when it is not the JSON that `T` wants.
    #[cfg(feature = "json")]
    pub fn json<T: serde::de::DeserializeOwned>(&mut self, bytes_max: usize) -> Result<T> {
        serde_json::from_slice(&self.body(bytes_max)?)
            .map_err(|error| Error::new(400, format!("the body is not the JSON expected: {error}")))
    }

    /// Reads the body as it arrives.
    ///
    /// # Errors
    /// Status 500 when the body was asked for before.
    pub fn reader(&mut self) -> Result<BodyReader> {
        let body = self.inner.consume().map_err(|()| Error::new(500, "the body was read twice"))?;
        Ok(BodyReader::of(body))
    }

    fn target(&self) -> &str {
        self.target.get_or_init(|| self.inner.path_with_query().unwrap_or_else(|| "/".to_owned()))
    }
}

/// The body of a request, or of another server's answer, as it arrives.
pub struct BodyReader {
    // Dropped before the body it belongs to, which the host insists on.
    stream: InputStream,
    _body: IncomingBody,
}

impl BodyReader {
    /// What is read from the host at once.
    pub(crate) const CHUNK_BYTES: usize = 64 << 10;

    pub(crate) fn of(body: IncomingBody) -> BodyReader {
        let stream = body.stream().expect("the stream of a body just taken was not");
        BodyReader { stream, _body: body }
    }

    /// The next bytes, at least one and at most `bytes_max`, waiting for them; `None` at the end.
    ///
    /// # Errors
    /// When the other side stopped sending before the end.
    pub fn chunk(&mut self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.stream.blocking_read(bytes_max as u64) {
                Ok(chunk) if chunk.is_empty() => {}
                Ok(chunk) => return Ok(Some(chunk)),
                Err(StreamError::Closed) => return Ok(None),
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, error.to_debug_string()));
                }
            }
        }
    }
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let chunk = self.chunk(buffer.len())?.unwrap_or_default();
        buffer[..chunk.len()].copy_from_slice(&chunk);
        Ok(chunk.len())
    }
}

fn unreadable(error: io::Error) -> Error {
    Error::new(400, format!("the body did not arrive whole: {error}"))
}

fn method_name(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(name) => name,
    }
}

fn split_target(target: &str) -> (&str, Option<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_splits_at_its_first_question_mark() {
        assert_eq!(split_target("/a%3Fb?c=d?e"), ("/a%3Fb", Some("c=d?e")));
        assert_eq!(split_target("/a"), ("/a", None));
        assert_eq!(split_target("/?"), ("/", Some("")));
    }

    #[test]
    fn a_method_unknown_to_the_contract_keeps_its_name() {
        assert_eq!(method_name(&Method::Other("PURGE".to_owned())), "PURGE");
        assert_eq!(method_name(&Method::Patch), "PATCH");
    }
}
