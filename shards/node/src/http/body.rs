//! Bodies on both sides of the handler. Owns their types; framing is the guard's and hyper's.

use super::{Upgraded, Violation, upgrade::Upgrade, wire::Shared};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    error::Error,
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Instant,
};

/// Why a request's body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client broke a rule or was too slow; whatever the handler answers is replaced by this refusal, if no
    /// answer has begun.
    #[error(transparent)]
    Refused(Violation),
    /// The client left, or the connection broke.
    #[error("the client left before its body was complete")]
    Gone,
}

/// Since when a reader of a body on another shard waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Option<Instant>>>);

impl Waits {
    /// It waits, from now on if it did not before, or has got something.
    pub(crate) fn set(&self, waits: bool) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if waits { since.or_else(|| Some(Instant::now())) } else { None };
    }

    pub(super) fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's body as it arrives. Reading it is what lets the client send more; dropping it unread closes the
/// connection after the answer unless the rest has already arrived.
pub struct RequestBody {
    incoming: Incoming,
    shared: Rc<Shared>,
    /// Read and not given out.
    buffered: Bytes,
    /// All of it was read.
    has_ended: bool,
}

impl Drop for RequestBody {
    /// Nobody waits for the rest.
    fn drop(&mut self) {
        self.shared.body_awaited.set(None);
    }
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, shared: Rc<Shared>) -> RequestBody {
        shared.body_awaited.set(None);
        shared.body_read_elsewhere.set(false);
        shared.body_reader.take();
        RequestBody { incoming, shared, buffered: Bytes::new(), has_ended: false }
    }

    /// Reads a body of up to `most` bytes whole, and of one that does not say its length so many and a piece; one that
    /// says that it is longer is not read. What was read is still given out as before. While it waits, the body has
    /// [`Config::buffer_timeout`](super::Config::buffer_timeout) to arrive.
    ///
    /// # Errors
    /// When the body ends early.
    pub async fn buffer(&mut self, most: usize) -> Result<(), BodyError> {
        if self.is_end_stream() || self.size_hint().lower() > most as u64 {
            return Ok(());
        }
        let read = self.read_ahead(most).await;
        self.shared.wire.borrow_mut().end_buffering();
        self.buffered = read?;
        Ok(())
    }

    async fn read_ahead(&mut self, most: usize) -> Result<Bytes, BodyError> {
        let Some(first) = self.read_piece().await? else { return Ok(Bytes::new()) };
        // What came with its head is mostly all there is, and stays as it came.
        if self.has_ended || first.len() > most {
            return Ok(first);
        }
        // Pieces are copied: each keeps alive all that was read with it.
        let mut bytes = BytesMut::from(&*first);
        drop(first);
        while bytes.len() <= most
            && !self.has_ended
            && let Some(piece) = self.read_piece().await?
        {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// The next piece of the body, `None` at its end. Its time runs from the first wait on.
    async fn read_piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        let piece = poll_fn(|cx| {
            loop {
                let Poll::Ready(frame) = Pin::new(&mut *self).poll_frame(cx) else {
                    self.shared.wire.borrow_mut().begin_buffering();
                    return Poll::Pending;
                };
                match frame.transpose()?.map(Frame::into_data) {
                    None => return Poll::Ready(Ok(None)),
                    Some(Ok(data)) => return Poll::Ready(Ok(Some(data))),
                    // Trailers.
                    Some(Err(_)) => {}
                }
            }
        })
        .await;
        self.has_ended = matches!(piece, Ok(None)) || self.incoming.is_end_stream();
        piece
    }

    /// The body, if [`RequestBody::buffer`] has read all of it.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        self.has_ended.then(|| mem::take(&mut self.buffered))
    }

    /// The answer takes its time: its client is watched at once, rather than a turn of the shard later.
    pub(crate) fn watch_client(&self) {
        self.shared.wire.borrow_mut().watch_client();
    }

    /// Pieces of the body are handed to `reader`, and only while it waits does anybody wait for the client.
    pub(crate) fn read_by(&self, reader: Waits) {
        self.shared.body_reader.replace(Some(reader));
    }

    /// Another node reads the body, as its actor does: it judges how long the client may be silent, and this one keeps
    /// only the time that a buffered body has.
    pub(crate) fn read_elsewhere(&self) {
        self.shared.body_read_elsewhere.set(true);
    }

    /// The next piece of the body, `None` at its end. Trailers are skipped.
    ///
    /// # Errors
    /// When the body ends early; nothing more comes after an error.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            match std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.buffered.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(&mut self.buffered)))));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        let awaited = &self.shared.body_awaited;
        if polled.is_pending() {
            awaited.set(awaited.get().or_else(|| Some(Instant::now())));
        } else {
            awaited.set(None);
        }
        let error = || self.shared.violation.get().map_or(BodyError::Gone, BodyError::Refused);
        Poll::Ready(match ready!(polled) {
            // hyper was dropped with its connection: what it had not read looks like the end to who reads on.
            None if self.shared.ended.get() && !self.incoming.is_end_stream() => Some(Err(error())),
            frame => frame.map(|result| result.map_err(|_| error())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.buffered.is_empty() && (self.has_ended || self.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.buffered.len() as u64;
        if self.has_ended {
            return SizeHint::with_exact(ahead);
        }
        match self.incoming.size_hint().exact() {
            Some(left) => SizeHint::with_exact(ahead + left),
            None => SizeHint::default(),
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// An answer's body.
pub struct ResponseBody(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    Stream(Pin<Box<dyn Body<Data = Bytes, Error = BoxError>>>),
    Upgrade(Upgrade),
}

impl ResponseBody {
    /// No body.
    pub fn empty() -> ResponseBody {
        ResponseBody(Kind::Empty)
    }

    /// A body known whole; sent with a `content-length`, head and body in one write.
    pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
        ResponseBody(Kind::Full(bytes.into()))
    }

    /// A body that comes in pieces. An error in it cuts the connection, so a client never takes a part for the
    /// whole. It is polled only as fast as the client reads.
    pub fn stream<B>(body: B) -> ResponseBody
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        ResponseBody(Kind::Stream(Box::pin(Boxed(body))))
    }

    /// In place of a body: what takes the connection over. The answer's head is handed to it unsent.
    pub fn upgrade(upgrade: impl FnOnce(Upgraded) + 'static) -> ResponseBody {
        ResponseBody(Kind::Upgrade(Box::new(upgrade)))
    }

    pub(super) fn take_upgrade(&mut self) -> Option<Upgrade> {
        match std::mem::replace(&mut self.0, Kind::Empty) {
            Kind::Upgrade(upgrade) => Some(upgrade),
            other => {
                self.0 = other;
                None
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match std::mem::replace(&mut self.0, Kind::Empty) {
            Kind::Empty | Kind::Upgrade(_) => Poll::Ready(None),
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Kind::Stream(mut body) => {
                let frame = body.as_mut().poll_frame(cx);
                self.0 = Kind::Stream(body);
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Upgrade(_) => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Upgrade(_) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Empty => "empty",
            Kind::Full(_) => "full",
            Kind::Stream(_) => "stream",
            Kind::Upgrade(_) => "upgrade",
        };
        f.debug_tuple("ResponseBody").field(&kind).finish()
    }
}

/// A body whose errors are boxed.
struct Boxed<B>(B);

impl<B> Body for Boxed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // SAFETY: the only field is pinned with `self` and never moved out.
        let body = unsafe { self.map_unchecked_mut(|boxed| &mut boxed.0) };
        body.poll_frame(cx).map(|frame| frame.map(|result| result.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// An answer's body on its way out: tells the wire when it is over, and refuses to pass more than was declared.
pub(super) struct Outgoing {
    body: ResponseBody,
    shared: Rc<Shared>,
    /// What `content-length` still allows, where there is one.
    declared_left: Option<u64>,
}

impl Outgoing {
    pub(super) fn new(body: ResponseBody, declared: Option<u64>, shared: Rc<Shared>) -> Outgoing {
        Outgoing { body, shared, declared_left: declared }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.answered.set(true);
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(left), Some(Ok(frame))) = (&mut self.declared_left, &frame) {
            let len = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(len) {
                Some(rest) => *left = rest,
                // hyper would cut it to the declared length and the client would take it for whole.
                None => return Poll::Ready(Some(Err("the body is longer than its content-length".into()))),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // Nothing to send although bytes were declared: hyper must look, so that it cuts the connection.
        self.body.is_end_stream() && self.declared_left.unwrap_or(0) == 0
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        // Where the two disagree the declared length is what the client was told, and counted against.
        if self.declared_left.is_some() && hint.exact() != self.declared_left {
            SizeHint::new()
        } else {
            hint
        }
    }
}
