//! Bodies between the connection, which stays on its shard, and the actor, which may be on another.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, channel::mpsc};
use http_body::{Body, Frame, SizeHint};
use send_wrapper::SendWrapper;
use wasmkeep_host::{RequestBody, RequestBodyError, ResponseBody};

use crate::http::{self, BodyError, Waits};

/// Pieces of a request body on their way to another shard. Each is at most one read of the socket, so this is
/// what a slow actor makes a fast client's connection hold.
const PIECES_UNDER_WAY: usize = 2;

/// Status of what a client sent too slowly.
const TIMED_OUT: u16 = 408;

fn explain(error: BodyError) -> RequestBodyError {
    match error {
        BodyError::Refused(violation) if violation.status == TIMED_OUT => RequestBodyError::TimedOut,
        error => RequestBodyError::Lost(error.to_string()),
    }
}

/// A body for an actor of this shard: what is not here already is read from the connection as the guest reads.
pub(super) fn local(mut body: http::RequestBody) -> RequestBody {
    match body.take_whole() {
        Some(bytes) => RequestBody::full(bytes),
        None if body.is_end_stream() => RequestBody::empty(),
        None => RequestBody::streamed(Local(SendWrapper::new(body))),
    }
}

/// wasmtime asks for bodies that are `Send`; this one stays on the shard, and the wrapper holds it to that.
struct Local(SendWrapper<http::RequestBody>);

impl Body for Local {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let frame = ready!(Pin::new(&mut *self.0).poll_frame(cx));
        Poll::Ready(frame.map(|result| result.map_err(explain)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Reads a body here and hands its pieces over. Whoever waits for the answer polls it.
pub(super) type Pump = Pin<Box<dyn Future<Output = ()>>>;

/// A body for an actor of another shard, and what moves its pieces; no pump is needed when all of it is here.
pub(super) fn remote(mut body: http::RequestBody) -> (RequestBody, Option<Pump>) {
    if let Some(bytes) = body.take_whole() {
        return (RequestBody::full(bytes), None);
    }
    if body.is_end_stream() {
        return (RequestBody::empty(), None);
    }
    let hint = body.size_hint();
    let (mut pieces, receiver) = mpsc::channel(PIECES_UNDER_WAY);
    let waits = Waits::default();
    body.read_by(waits.clone());
    let pump = Box::pin(async move {
        while let Some(piece) = body.chunk().await {
            // The reader is gone: nobody wants the rest.
            if pieces.send(piece.map_err(explain)).await.is_err() {
                break;
            }
        }
    });
    (RequestBody::streamed(Remote { receiver, hint, waits }), Some(pump))
}

struct Remote {
    receiver: mpsc::Receiver<Result<Bytes, RequestBodyError>>,
    hint: SizeHint,
    /// The pump reads ahead: that it waits does not say that the actor does.
    waits: Waits,
}

impl Drop for Remote {
    /// Nobody waits for the rest.
    fn drop(&mut self) {
        self.waits.set(false);
    }
}

impl Body for Remote {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let polled = self.receiver.poll_next_unpin(cx);
        self.waits.set(polled.is_pending());
        let piece = ready!(polled);
        Poll::Ready(piece.map(|result| result.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// A response for the connection; `pump` goes on with the request's body while the response streams, and goes
/// away with it.
pub(super) fn response(body: ResponseBody, pump: Option<Pump>) -> http::ResponseBody {
    match (body.as_whole(), pump) {
        (Some(bytes), _) => http::ResponseBody::full(bytes.clone()),
        (None, pump) => http::ResponseBody::stream(Streaming { body, pump }),
    }
}

struct Streaming {
    body: ResponseBody,
    pump: Option<Pump>,
}

impl Body for Streaming {
    type Data = Bytes;
    type Error = <ResponseBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(pump) = &mut self.pump
            && pump.as_mut().poll(cx).is_ready()
        {
            self.pump = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
