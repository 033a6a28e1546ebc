//! Bodies of requests and responses. A request body can be taken back from the guest when its event ends; a
//! response body ends well only if the guest said so.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use wasmtime_wasi_http::Error as WasiError;

/// Bytes of a response body that wait for the client before the guest has to wait. Two writes of the largest
/// size a guest's blocking write takes (4 KiB) would do; this much keeps a fast client's socket full.
const PIPE_BYTES: usize = 64 << 10;

/// Why a request body ends early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestBodyError {
    /// The client left, or sent something that is no HTTP.
    #[error("the connection was lost while the request body was read: {0}")]
    Lost(String),
    /// It is over the limit, in bytes.
    #[error("the request body is longer than {0} bytes")]
    TooLong(u64),
    /// The client sent nothing for too long.
    #[error("the client took too long to send the request body")]
    TimedOut,
    /// The event it belonged to has ended.
    #[error("the event this request body belonged to has ended")]
    EventEnded,
}

impl From<RequestBodyError> for WasiError {
    fn from(error: RequestBodyError) -> Self {
        match error {
            RequestBodyError::Lost(_) | RequestBodyError::EventEnded => Self::ConnectionTerminated,
            RequestBodyError::TooLong(bytes) => Self::HttpRequestBodySize(Some(bytes)),
            RequestBodyError::TimedOut => Self::ConnectionReadTimeout,
        }
    }
}

type Streamed = UnsyncBoxBody<Bytes, RequestBodyError>;

/// The body of a request for an actor.
#[derive(Debug)]
pub struct RequestBody(RequestKind);

#[derive(Debug)]
enum RequestKind {
    Whole(Bytes),
    Streamed(Streamed),
}

impl RequestBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self(RequestKind::Whole(Bytes::new()))
    }

    /// All of it is here.
    #[must_use]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(RequestKind::Whole(bytes.into()))
    }

    /// Read from the client as the guest reads it.
    #[must_use]
    pub fn streamed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error = RequestBodyError> + Send + 'static,
    {
        Self(RequestKind::Streamed(body.boxed_unsync()))
    }

    /// Splits it into what the guest reads and the means to take it back.
    pub(crate) fn lend(self) -> (GuestBody, Revocation) {
        match self.0 {
            RequestKind::Whole(bytes) => (GuestBody::Whole(bytes), Revocation(None)),
            RequestKind::Streamed(body) => {
                let shared = Arc::new(Mutex::new(Some(body)));
                (GuestBody::Lent(Arc::clone(&shared)), Revocation(Some(shared)))
            }
        }
    }
}

type Shared = Arc<Mutex<Option<Streamed>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of a body while it was polled is caught at the event boundary; the lock is still good.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request body in the hands of the guest.
pub(crate) enum GuestBody {
    Whole(Bytes),
    Lent(Shared),
}

impl Body for GuestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Lent(shared) => match &mut *lock(shared) {
                Some(body) => Pin::new(body).poll_frame(cx),
                None => Poll::Ready(Some(Err(RequestBodyError::EventEnded))),
            },
        }
    }
}

/// Takes a request body back when dropped: a guest that keeps its handle past the event must not hold the
/// client's connection.
pub(crate) struct Revocation(Option<Shared>);

impl Drop for Revocation {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let body = lock(shared).take();
            drop(body);
        }
    }
}

/// Why a response body ends early. The connection it goes out on must be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// The actor trapped, or its event was ended.
    #[error("the actor failed while it answered")]
    Failed,
    /// It was left unfinished.
    #[error("the actor did not finish its response body")]
    Unfinished,
    /// It does not have the length that was promised.
    #[error("the actor's response body does not match its content-length")]
    Length,
}

/// The body of an actor's response.
pub struct ResponseBody(ResponseKind);

enum ResponseKind {
    Whole(Bytes),
    Streamed { pipe: Arc<Pipe>, remaining: Option<u64>, gate: Option<Box<Gate>> },
}

type Passing = Pin<Box<dyn Future<Output = bool> + Send>>;
type Chunk = Option<Result<Bytes, Cut>>;

/// What every part of a streamed body has to pass, its end included.
struct Gate {
    ask: Box<dyn FnMut() -> Passing + Send>,
    /// What was read and has not passed.
    held: Option<(Chunk, Passing)>,
}

impl Gate {
    fn poll(&mut self, pipe: &Pipe, cx: &mut Context<'_>) -> Poll<Chunk> {
        if self.held.is_none() {
            let Poll::Ready(chunk) = pipe.poll_read(cx) else { return Poll::Pending };
            self.held = Some((chunk, (self.ask)()));
        }
        let Some((_, passing)) = &mut self.held else { return Poll::Pending };
        let Poll::Ready(passes) = passing.as_mut().poll(cx) else { return Poll::Pending };
        match self.held.take() {
            Some((chunk, _)) if passes => Poll::Ready(chunk),
            _ => Poll::Ready(Some(Err(Cut::Failed))),
        }
    }
}

impl ResponseBody {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self(ResponseKind::Whole(Bytes::new()))
    }

    /// All of it is here.
    #[must_use]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(ResponseKind::Whole(bytes.into()))
    }

    /// Lets each part that is still to come wait for an answer of `ask`; the body is cut at the first `false`. A whole
    /// body stays as it is. A part that passes several gates passes the first one first.
    #[must_use]
    pub fn gated(mut self, mut ask: impl FnMut() -> Passing + Send + 'static) -> Self {
        if let ResponseKind::Streamed { gate, .. } = &mut self.0 {
            let ask: Box<dyn FnMut() -> Passing + Send> = match gate.take() {
                None => Box::new(ask),
                Some(first) => {
                    let mut first = first.ask;
                    Box::new(move || {
                        let (first, then) = (first(), ask());
                        Box::pin(async move { first.await && then.await })
                    })
                }
            };
            *gate = Some(Box::new(Gate { ask, held: None }));
        }
        self
    }

    /// The whole body, if it was complete when the response was handed over.
    #[must_use]
    pub fn as_whole(&self) -> Option<&Bytes> {
        match &self.0 {
            ResponseKind::Whole(bytes) => Some(bytes),
            ResponseKind::Streamed { .. } => None,
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ResponseKind::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.len()).finish(),
            ResponseKind::Streamed { remaining, .. } => f.debug_tuple("Streamed").field(remaining).finish(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.get_mut().0 {
            ResponseKind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            ResponseKind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ResponseKind::Streamed { pipe, remaining, gate } => {
                let polled = match gate {
                    Some(gate) => gate.poll(pipe, cx),
                    None => pipe.poll_read(cx),
                };
                if let (Poll::Ready(Some(Ok(chunk))), Some(left)) = (&polled, remaining) {
                    *left = left.saturating_sub(chunk.len() as u64);
                }
                polled.map(|next| next.map(|chunk| chunk.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, ResponseKind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            ResponseKind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseKind::Streamed { remaining: Some(left), .. } => SizeHint::with_exact(*left),
            ResponseKind::Streamed { remaining: None, .. } => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let ResponseKind::Streamed { pipe, .. } = &self.0 {
            pipe.reader_left();
        }
    }
}

#[derive(Default)]
struct PipeState {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// How it ended, once the writer said so.
    end: Option<Result<(), Cut>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    reader_gone: bool,
}

#[derive(Default)]
struct Pipe(Mutex<PipeState>);

impl Pipe {
    fn poll_read(&self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let mut state = lock(&self.0);
        if let Some(chunk) = state.chunks.pop_front() {
            state.bytes -= chunk.len();
            let writer = state.writer.take();
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(chunk)));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(cut)) => Poll::Ready(Some(Err(cut))),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn reader_left(&self) {
        let mut state = lock(&self.0);
        state.reader_gone = true;
        state.chunks.clear();
        state.bytes = 0;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn update(&self, change: impl FnOnce(&mut PipeState)) {
        let mut state = lock(&self.0);
        if state.end.is_some() || state.reader_gone {
            return;
        }
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReaderGone;

/// The writing end of a streamed response body. Dropped before [`BodyWriter::finish`], it cuts.
pub(crate) struct BodyWriter(Arc<Pipe>);

impl BodyWriter {
    /// Waits until there is room. A chunk may exceed the room by its own length.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<Result<(), ReaderGone>> {
        let mut state = lock(&self.0.0);
        if state.reader_gone {
            Poll::Ready(Err(ReaderGone))
        } else if state.bytes < PIPE_BYTES {
            Poll::Ready(Ok(()))
        } else {
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        }
    }

    /// Adds a chunk whether there is room or not.
    pub(crate) fn push(&self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.0.update(|state| {
                state.bytes += chunk.len();
                state.chunks.push_back(chunk);
            });
        }
    }

    /// The body is complete.
    pub(crate) fn finish(&self) {
        self.0.update(|state| state.end = Some(Ok(())));
    }

    /// The body cannot be completed.
    pub(crate) fn cut(&self, cut: Cut) {
        self.0.update(|state| state.end = Some(Err(cut)));
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        self.cut(Cut::Failed);
    }
}

/// A streamed response body; `length` is what its header promises.
pub(crate) fn response_pipe(length: Option<u64>) -> (BodyWriter, ResponseBody) {
    let pipe = Arc::new(Pipe::default());
    (
        BodyWriter(Arc::clone(&pipe)),
        ResponseBody(ResponseKind::Streamed { pipe, remaining: length, gate: None }),
    )
}
