//! A response as an actor makes it, and how it is handed to the host.

use std::io::{self, Write};

use crate::bindings::{
    http::wasi::{
        http::types::{Fields, OutgoingBody, OutgoingResponse, ResponseOutparam},
        io::streams::{OutputStream, StreamError},
    },
    platform::wasmkeep::actor::replies,
};

/// An HTTP response: 200 with an empty body until it is told otherwise.
#[derive(Default)]
pub struct Response {
    status: Option<u16>,
    headers: Vec<(String, Vec<u8>)>,
    body: Body,
}

type Writing = Box<dyn FnOnce(&mut BodyWriter) -> io::Result<()>>;

enum Body {
    Bytes(Vec<u8>),
    Stream(Writing),
}

impl Default for Body {
    fn default() -> Body {
        Body::Bytes(Vec::new())
    }
}

impl Response {
    /// A response with `body` and nothing said about its type.
    #[must_use]
    pub fn new(body: impl Into<Vec<u8>>) -> Response {
        Response { body: Body::Bytes(body.into()), ..Response::default() }
    }

    /// A response of plain text.
    #[must_use]
    pub fn text(body: impl Into<String>) -> Response {
        Response::new(body.into()).header("content-type", "text/plain; charset=utf-8")
    }

    /// A response of JSON.
    ///
    /// # Errors
    /// When `value` has no JSON form, for instance a map whose keys are not text.
    #[cfg(feature = "json")]
    pub fn json(value: &impl serde::Serialize) -> crate::Result<Response> {
        Ok(Response::new(serde_json::to_vec(value)?).header("content-type", "application/json"))
    }

    /// A response whose body `write` produces once the head is on its way. Writing waits while the client
    /// does not read. When it returns an error, the error is logged and the connection is cut, so that the
    /// client cannot take what it got for the whole.
    #[must_use]
    pub fn stream(write: impl FnOnce(&mut BodyWriter) -> io::Result<()> + 'static) -> Response {
        Response { body: Body::Stream(Box::new(write)), ..Response::default() }
    }

    /// Sets the status, 200 to 599.
    #[must_use]
    pub fn status(mut self, status: u16) -> Response {
        self.status = Some(status);
        self
    }

    /// Adds a header behind those already there. A name or value that HTTP does not allow, or that only the
    /// platform may write, makes the response a 500.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The status it will have.
    #[must_use]
    pub fn status_code(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    /// The body, unless it is streamed.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Bytes(bytes) => Some(bytes),
            Body::Stream(_) => None,
        }
    }

    /// Hands it to the host and writes its body to the end.
    pub fn send(self, out: ResponseOutparam) {
        let status = self.status_code();
        match self.body {
            Body::Bytes(bytes) => {
                if let Err(replies::Error::Refused(reason)) =
                    replies::send(out, status, &self.headers, &bytes)
                {
                    eprintln!("error: the response cannot be sent: {reason}");
                }
            }
            Body::Stream(write) => stream(out, status, &self.headers, write),
        }
    }
}

/// Sends the head and lets `write` produce the body.
fn stream(out: ResponseOutparam, status: u16, headers: &[(String, Vec<u8>)], write: Writing) {
    let response = match head(status, headers) {
        Ok(response) => response,
        Err(reason) => {
            eprintln!("error: the response cannot be sent: {reason}");
            return send_failure(out);
        }
    };
    let outgoing = response.body().expect("the body of a response just made was not taken");
    ResponseOutparam::set(out, Ok(response));
    if let Err(error) = write_body(outgoing, write) {
        eprintln!("error: the response's body ended early: {error}");
    }
}

fn head(status: u16, headers: &[(String, Vec<u8>)]) -> Result<OutgoingResponse, String> {
    let fields = Fields::from_list(headers).map_err(|error| format!("a header: {error:?}"))?;
    let response = OutgoingResponse::new(fields);
    response.set_status_code(status).map_err(|()| format!("{status} is not a status"))?;
    Ok(response)
}

/// Answers 500 with an empty body.
fn send_failure(out: ResponseOutparam) {
    let response = OutgoingResponse::new(Fields::new());
    response.set_status_code(500).expect("500 is a status");
    ResponseOutparam::set(out, Ok(response));
}

fn write_body(outgoing: OutgoingBody, write: Writing) -> io::Result<()> {
    let mut writer = BodyWriter::of(&outgoing);
    write(&mut writer)?;
    // The stream must be gone before the body it belongs to is finished. A body that is dropped unfinished,
    // as it is when writing failed, makes the host cut the connection.
    drop(writer);
    OutgoingBody::finish(outgoing, None).map_err(|code| io::Error::other(code.to_string()))
}

/// The body of a response, or of an outbound request, that is being sent.
pub struct BodyWriter {
    stream: OutputStream,
}

impl BodyWriter {
    /// Of a body just made.
    pub(crate) fn of(body: &OutgoingBody) -> BodyWriter {
        BodyWriter { stream: body.write().expect("the stream of a body just made was not taken") }
    }
}

impl Write for BodyWriter {
    /// Waits until the host takes some of `bytes`. It fails once the other side has left.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let room = usize::try_from(self.stream.check_write().map_err(lost)?).unwrap_or(usize::MAX);
            if room > 0 {
                let taken = room.min(bytes.len());
                self.stream.write(&bytes[..taken]).map_err(lost)?;
                return Ok(taken);
            }
            self.stream.subscribe().block();
        }
    }

    /// Waits until the host has passed on what was written.
    fn flush(&mut self) -> io::Result<()> {
        self.stream.blocking_flush().map_err(lost)
    }
}

fn lost(error: StreamError) -> io::Error {
    match error {
        StreamError::Closed => io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads it any more"),
        StreamError::LastOperationFailed(error) => io::Error::other(error.to_debug_string()),
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn json_says_its_type() {
        let response = Response::json(&[1, 2]).expect("numbers have a JSON form");
        assert_eq!(response.bytes(), Some(&b"[1,2]"[..]));
        assert_eq!(response.headers, [("content-type".to_owned(), b"application/json".to_vec())]);
    }
}
