//! Bodies between a guest and a connection, each at the pace of whoever is slower.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{sync::mpsc, time::timeout};
use wasmkeep_host::outbound::{OutboundBody, OutboundError};

use super::failure::body_error;

/// A request's body as the client wants it.
pub(super) fn sent(body: OutboundBody) -> reqwest::Body {
    reqwest::Body::wrap(Shared(Mutex::new(body)))
}

/// Makes a body that is only ever polled by its owner fit for a client that asks for `Sync`.
struct Shared(Mutex<OutboundBody>);

impl Body for Shared {
    type Data = Bytes;
    type Error = OutboundError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutboundError>>> {
        let body = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        Pin::new(body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }
}

/// How a response's body went.
#[derive(Debug)]
pub(super) enum Moved {
    /// The guest has all of it.
    Whole,
    /// The guest let go of it before its end.
    GivenUp,
    /// It broke off, and the guest was told so.
    Broken,
}

enum Part {
    Frame(Frame<Bytes>),
    End,
}

/// Moves a response's body to its [`Received`], which holds one frame at a time.
pub(super) struct Mover {
    body: reqwest::Body,
    parts: mpsc::Sender<Result<Part, OutboundError>>,
    between_bytes: Option<Duration>,
}

/// A response's body, split into what moves it and what the guest reads. `between_bytes` limits the wait for
/// each frame.
pub(super) fn received(body: reqwest::Body, between_bytes: Option<Duration>) -> (Mover, OutboundBody) {
    let (parts, receiver) = mpsc::channel(1);
    (Mover { body, parts, between_bytes }, Received { parts: receiver, ended: false }.boxed_unsync())
}

impl Mover {
    /// Works until the body's end, or until nobody reads it any more.
    pub(super) async fn run(mut self) -> Moved {
        loop {
            let part = tokio::select! {
                part = next(&mut self.body, self.between_bytes) => part,
                () = self.parts.closed() => return Moved::GivenUp,
            };
            let (ended, broken) = (matches!(part, Ok(Part::End)), part.is_err());
            if self.parts.send(part).await.is_err() {
                return Moved::GivenUp;
            }
            if ended {
                return Moved::Whole;
            }
            if broken {
                return Moved::Broken;
            }
        }
    }
}

async fn next(body: &mut reqwest::Body, limit: Option<Duration>) -> Result<Part, OutboundError> {
    let frame = match limit {
        None => body.frame().await,
        Some(limit) => {
            timeout(limit, body.frame()).await.map_err(|_| OutboundError::ConnectionReadTimeout)?
        }
    };
    match frame {
        None => Ok(Part::End),
        Some(Ok(frame)) => Ok(Part::Frame(frame)),
        Some(Err(error)) => Err(body_error(&error)),
    }
}

/// What the guest reads.
struct Received {
    parts: mpsc::Receiver<Result<Part, OutboundError>>,
    ended: bool,
}

impl Body for Received {
    type Data = Bytes;
    type Error = OutboundError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutboundError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = ready!(self.parts.poll_recv(cx));
        self.ended = !matches!(part, Some(Ok(Part::Frame(_))));
        Poll::Ready(match part {
            Some(Ok(Part::Frame(frame))) => Some(Ok(frame)),
            Some(Ok(Part::End)) => None,
            Some(Err(error)) => Some(Err(error)),
            // Whoever moved it was stopped: a short body must not look like a whole one.
            None => Some(Err(OutboundError::HttpResponseIncomplete)),
        })
    }
}
