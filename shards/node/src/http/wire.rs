//! A connection's socket as hyper sees it: bytes the guard has passed, one request at a time.
//!
//! Owns reading ahead, the phases of a request on the wire, and the deadlines that follow from them. Does not own
//! what happens when a deadline passes or a request is refused: it leaves an [`Outcome`] for the connection.

mod limits;

pub(super) use self::limits::Limit;
use super::{
    Config, Stats, Violation,
    body::Waits,
    guard::{BodyFraming, HeadScan, parse_head},
    moves::{Budget, Next, Streak},
    upgrade::Upgrade,
};
use crate::{
    lull::{Away, Lulls},
    stream::Stream,
    tcp::Reading,
};
use bytes::{Buf, BytesMut};
use futures::io::AsyncRead;
use http::Response;
use hyper::rt::ReadBufCursor;
use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Instant,
};

/// Bytes read from a socket in one call. One buffer per shard.
const SCRATCH_BYTES: usize = 64 << 10;

/// Bytes read ahead of what hyper asks for while a request is served, to see the client leave. Beyond it the
/// kernel's buffer and the client's window push back, and the socket is probed every second. A client
/// whose own kernel still holds bytes that this limit keeps back is not seen to leave before they are read, or
/// the event's time limit ends the wait.
const AHEAD_BYTES: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// What the connection's parts share.
pub(super) struct Shared {
    pub(super) wire: RefCell<Wire>,
    /// The answer's body is over and its bytes are with hyper.
    pub(super) answered: Cell<bool>,
    /// Why the body of the request in flight was cut.
    pub(super) violation: Cell<Option<Violation>>,
    /// Since when the handler waits for more of the request's body.
    pub(super) body_awaited: Cell<Option<Instant>>,
    /// Who waits for it in the handler's place.
    pub(super) body_reader: RefCell<Option<Waits>>,
    /// It is another node that waits for it.
    pub(super) body_read_elsewhere: Cell<bool>,
    /// Nothing is read or written any more: a body that is not whole by now never will be.
    pub(super) ended: Cell<bool>,
    /// The answer that takes the connection over.
    pub(super) upgrade: Cell<Option<(Response<()>, Upgrade)>>,
    /// A request may be under way although no byte of it has come: the other side is a node, or this would be the
    /// connection's first.
    pub(super) lingers: Cell<bool>,
    /// The next answer is the last, and says so.
    pub(super) closing: Cell<bool>,
}

/// Why the connection must leave the ordinary course.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Answer this and close.
    Refuse(Violation),
    /// The node is full, and this connection is not an operator's.
    Full,
    /// It belongs to this shard.
    Move(usize),
}

#[derive(Debug)]
enum Phase {
    /// Waiting for a request's head, or in it.
    Head(HeadScan),
    /// The head was passed on; its body is under way.
    Body(BodyFraming),
    /// The whole request was passed on; its answer is under way.
    Answer,
}

/// Which shard a request path belongs to.
pub(super) type Route = Box<dyn Fn(&str) -> Option<usize>>;

/// What [`Wire`] asks about a passed head.
pub(super) struct Rules {
    pub(super) config: Config,
    pub(super) route: Route,
    pub(super) budget: Budget,
    pub(super) stats: std::sync::Arc<Stats>,
    /// Connections stay where they are once the shard is stopping.
    pub(super) stay: Box<dyn Fn() -> bool>,
}

/// How a connection comes to a shard.
#[derive(Debug)]
pub(super) struct Came {
    /// Read and not acted on.
    pub(super) bytes: Vec<u8>,
    /// No request of it has been seen on any shard.
    pub(super) fresh: bool,
    pub(super) lulls: Away,
}

/// A connection's socket and what is known about the bytes on it.
pub(super) struct Wire {
    pub(super) stream: Stream,
    rules: Rc<Rules>,
    /// Bytes read and not given to hyper.
    inbox: BytesMut,
    /// How many of them, from the start, hyper may have.
    passed: usize,
    phase: Phase,
    streak: Streak,
    pub(super) outcome: Option<Outcome>,
    /// Only requests of operators are served: the node has as many connections of clients as it may.
    for_operators: bool,
    /// The request under way asks for a WebSocket.
    is_upgrade: bool,
    eof: bool,
    /// The socket was found empty and will wake the task.
    socket_armed: bool,
    /// hyper must be polled again: it was refused bytes that it may have now.
    again: bool,
    /// An answer has gone out and nobody has looked since what follows it.
    just_answered: bool,
    lulls: Lulls,
    /// The handler has had no turn since it was called.
    handler_is_new: bool,
    /// Since when the current wait lasts: idle, head or body, by phase.
    since: Instant,
    /// hyper waits for the body, since `since`.
    body_wanted: bool,
    /// By when a body must be whole that is read before its event.
    buffered_by: Option<Instant>,
    write_blocked: Option<Instant>,
    probe_at: Option<Instant>,
}

impl Wire {
    /// `for_operators`: the connection has an operator's place.
    pub(super) fn new(stream: Stream, came: Came, rules: Rc<Rules>, for_operators: bool) -> Wire {
        let Came { bytes, fresh, lulls } = came;
        Wire {
            stream,
            rules,
            inbox: BytesMut::from(&*bytes),
            passed: 0,
            phase: Phase::Head(HeadScan::default()),
            streak: Streak::new(fresh),
            outcome: None,
            for_operators,
            is_upgrade: false,
            eof: false,
            socket_armed: false,
            again: false,
            just_answered: false,
            lulls: lulls.into(),
            handler_is_new: false,
            since: Instant::now(),
            body_wanted: false,
            buffered_by: None,
            write_blocked: None,
            probe_at: None,
        }
    }

    /// Begins a round of polling.
    pub(super) fn begin_round(&mut self) {
        self.socket_armed = false;
    }

    pub(super) fn take_again(&mut self) -> bool {
        std::mem::take(&mut self.again)
    }

    /// The client sent its last byte.
    pub(super) fn is_eof(&self) -> bool {
        self.eof
    }

    pub(super) fn count_refused(&self) {
        self.rules.stats.count_refused(1);
    }

    /// Bytes wait that hyper may have.
    pub(super) fn has_passed(&self) -> bool {
        self.passed > 0
    }

    /// Whether only operators are served here.
    pub(super) fn is_for_operators(&self) -> bool {
        self.for_operators
    }

    /// No request is under way and no byte of the next one has come.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head(_)) && self.inbox.is_empty()
    }

    /// Bytes may be under way that nobody will read.
    pub(super) fn has_unread(&self) -> bool {
        !self.eof && (!self.inbox.is_empty() || matches!(self.phase, Phase::Body(_)))
    }

    /// The bytes of the request that was not passed on.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox).to_vec()
    }

    /// As [`Wire::take_unread`], for another shard: the connection leaves this one.
    pub(super) fn leave(&mut self) -> Came {
        Came { bytes: self.take_unread(), fresh: false, lulls: self.lulls.leave() }
    }

    /// Waits until a head is passed, an outcome is set, or the client has left.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.passed > 0 || self.outcome.is_some() {
                return Poll::Ready(Ok(()));
            }
            let Phase::Head(scan) = &mut self.phase else { return Poll::Ready(Ok(())) };
            let skipped = scan.skip_empty_line(&self.inbox);
            if skipped > 0 {
                self.inbox.advance(skipped);
                if self.inbox.is_empty() {
                    // It may have been all: nothing of a request has come.
                    self.inbox = BytesMut::new();
                }
                continue;
            }
            match scan.advance(&self.inbox, &self.rules.config.limits) {
                Err(violation) => self.outcome = Some(Outcome::Refuse(violation)),
                Ok(Some(len)) => self.take_head(len),
                Ok(None) if self.eof => return Poll::Ready(Ok(())),
                Ok(None) => {
                    let first = self.inbox.is_empty();
                    ready!(self.poll_more(cx))?;
                    if first {
                        self.since = Instant::now();
                    }
                }
            }
        }
    }

    /// Reads on in a head. For one that follows an answer it looks for a moment before it waits.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let begins = std::mem::take(&mut self.just_answered);
        if !begins && !self.lulls.is_looking() {
            return self.poll_fill(cx, Reading::LookThenWait);
        }
        let Self { stream, inbox, lulls, .. } = self;
        stream.set_reading(Reading::Look);
        let found = lulls.poll_look(cx, |cx| fill(stream, inbox, cx));
        // Whoever has the stream next counts on being woken.
        stream.set_reading(Reading::LookThenWait);
        match ready!(found) {
            Some(found) => self.filled(found?),
            None => return self.poll_fill(cx, Reading::Wait),
        }
        Poll::Ready(Ok(()))
    }

    fn take_head(&mut self, len: usize) {
        let rules = self.rules.clone();
        let head = match parse_head(&self.inbox[..len], &rules.config.limits) {
            Ok(head) => head,
            Err(violation) => {
                self.outcome = Some(Outcome::Refuse(violation));
                return;
            }
        };
        // The guard only passes visible ASCII in a target.
        let path = std::str::from_utf8(&self.inbox[head.path]).unwrap_or_default();
        if self.for_operators && !(rules.config.operators)(path) {
            self.outcome = Some(Outcome::Full);
            return;
        }
        let owner = (rules.route)(path);
        let whose = Next { owner, for_good: head.wants_websocket, is_alone: self.lulls.is_alone() };
        let shard = self.streak.next(whose, rules.config.shard, &rules.budget);
        if let Some(shard) = shard
            && !(rules.stay)()
        {
            self.outcome = Some(Outcome::Move(shard));
            return;
        }
        rules.stats.count_request(1);
        if let Some(at) = head.newer_minor_at {
            self.inbox[at] = b'1';
        }
        self.passed = len;
        self.is_upgrade = head.wants_websocket;
        if self.eof {
            self.probe_later();
        }
        self.handler_is_new = true;
        self.since = Instant::now();
        self.phase = if head.framing.is_complete() { Phase::Answer } else { Phase::Body(head.framing) };
    }

    /// hyper's read.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
        cut: &Cell<Option<Violation>>,
    ) -> Poll<io::Result<()>> {
        self.again = false;
        loop {
            if self.passed > 0 {
                let len = self.passed.min(cursor.remaining());
                cursor.put_slice(&self.inbox[..len]);
                self.inbox.advance(len);
                self.passed -= len;
                return Poll::Ready(Ok(()));
            }
            match &mut self.phase {
                Phase::Head(_) => {
                    ready!(self.poll_head(cx))?;
                    if self.outcome.is_some() {
                        return Poll::Pending;
                    }
                    if self.passed == 0 && self.eof {
                        return Poll::Ready(Ok(()));
                    }
                }
                Phase::Body(_) => {
                    if cut.get().is_some() {
                        return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                    }
                    if ready!(self.poll_body(cx, &mut cursor, cut))? {
                        return Poll::Ready(Ok(()));
                    }
                }
                // What comes meanwhile is read ahead, if the answer takes its time. That nothing more comes is told with
                // the answer behind it.
                Phase::Answer => return Poll::Pending,
            }
        }
    }

    /// Gives hyper body bytes; true when the cursor has some, or the client has left.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        cursor: &mut ReadBufCursor<'_>,
        cut: &Cell<Option<Violation>>,
    ) -> Poll<io::Result<bool>> {
        let Phase::Body(framing) = &mut self.phase else { return Poll::Ready(Ok(false)) };
        let refuse = |violation| {
            cut.set(Some(violation));
            io::Error::from(io::ErrorKind::InvalidData)
        };
        if !self.inbox.is_empty() {
            let len = self.inbox.len().min(cursor.remaining());
            self.passed = framing.consume(&self.inbox[..len]).map_err(refuse)?;
            self.end_body_if_complete();
            return Poll::Ready(Ok(false));
        }
        if self.eof {
            return Poll::Ready(Ok(true));
        }
        self.stream.set_reading(Reading::LookThenWait);
        let Self { stream, inbox, .. } = self;
        let room = cursor.remaining().min(SCRATCH_BYTES);
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let read = Pin::new(stream).poll_read(cx, &mut scratch[..room])?;
            Poll::Ready(match ready!(read) {
                0 => Ok(0),
                len => framing.consume(&scratch[..len]).map(|taken| {
                    cursor.put_slice(&scratch[..taken]);
                    inbox.extend_from_slice(&scratch[taken..len]);
                    len
                }),
            })
            .map_err(refuse)
        });
        self.socket_armed |= read.is_pending();
        if read.is_pending() && !self.body_wanted {
            self.await_body_since(Instant::now());
        }
        self.filled(ready!(read)?);
        self.body_wanted = false;
        self.end_body_if_complete();
        Poll::Ready(Ok(true))
    }

    fn end_body_if_complete(&mut self) {
        if matches!(&self.phase, Phase::Body(framing) if framing.is_complete()) {
            self.phase = Phase::Answer;
        }
    }

    /// Reads ahead while nobody asks for bytes, so that the client is seen to leave.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.eof {
            if self.inbox.len() >= AHEAD_BYTES {
                self.probe_later();
                return Poll::Pending;
            }
            ready!(self.poll_fill(cx, Reading::Wait))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether nobody has asked the socket in this round and a request is under way.
    pub(super) fn wants_ahead(&self) -> bool {
        !self.socket_armed && !self.eof && !matches!(self.phase, Phase::Head(_))
    }

    /// The handler waits for what does not come in its shard's next turns.
    pub(super) fn watch_client(&mut self) {
        self.handler_is_new = false;
    }

    /// Whether the handler had its first turn in this round: what it waits for may come in its shard's next turns.
    pub(super) fn take_handler_is_new(&mut self) -> bool {
        std::mem::take(&mut self.handler_is_new)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, reading: Reading) -> Poll<io::Result<()>> {
        self.stream.set_reading(reading);
        let read = fill(&mut self.stream, &mut self.inbox, cx);
        self.socket_armed |= read.is_pending();
        self.filled(ready!(read)?);
        Poll::Ready(Ok(()))
    }

    /// So much was read; nothing at the end.
    fn filled(&mut self, len: usize) {
        self.rules.stats.count_read(len as u64);
        if len == 0 {
            self.eof = true;
            if !matches!(self.phase, Phase::Head(_)) {
                self.probe_later();
            }
        }
    }

    /// hyper's flush: its buffer is empty. If that was the end of an answer the next request may come.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>, answered: &Cell<bool>) -> Poll<io::Result<()>> {
        let flushed = self.stream.poll_flush(cx);
        match &flushed {
            Poll::Pending => drop(self.write_blocked.get_or_insert_with(Instant::now)),
            Poll::Ready(Ok(())) => self.flushed(answered),
            Poll::Ready(Err(_)) => {}
        }
        flushed
    }

    fn flushed(&mut self, answered: &Cell<bool>) {
        self.write_blocked = None;
        if answered.get() && self.passed == 0 && matches!(self.phase, Phase::Answer) {
            answered.set(false);
            self.phase = Phase::Head(HeadScan::default());
            self.since = Instant::now();
            self.probe_at = None;
            // The next request may be there already.
            self.again = true;
            self.just_answered = true;
            self.lulls.answered();
            if self.inbox.is_empty() {
                // Whatever a burst of pipelined requests made it grow to.
                self.inbox = BytesMut::new();
            }
        }
    }

    /// hyper's write.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = self.stream.poll_send(cx, slices);
        match &sent {
            Poll::Pending => drop(self.write_blocked.get_or_insert_with(Instant::now)),
            Poll::Ready(result) => {
                self.write_blocked = None;
                self.rules.stats.count_written(*result.as_ref().unwrap_or(&0) as u64);
            }
        }
        sent
    }
}

/// Reads what has come.
fn fill(stream: &mut Stream, inbox: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let len = ready!(Pin::new(stream).poll_read(cx, scratch))?;
        inbox.extend_from_slice(&scratch[..len]);
        Poll::Ready(Ok(len))
    })
}
