//! One connection from its first byte on this shard to its end here: closed, or moved away.
//!
//! Owns the order of things: a head first, then hyper, then limits. Everything of a connection is polled by one
//! task, so dropping that task's future drops the handler's work with it.

use super::{
    Config, Front, Handover, Violation,
    answer::{Answering, elsewhere, plain},
    body::{RequestBody, ResponseBody},
    connections::{Member, Parting, Stage, Ticket},
    io::Io,
    linger::answer_and_close,
    upgrade::{self, Upgrade, Upgraded},
    wire::{Limit, Outcome, Shared, Wire},
};
use crate::runtime::Sleep;
use http::{Request, Response};
use hyper::server::conn::http1;
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};

/// How a connection ended here.
enum End {
    /// Nothing more to say.
    Closed,
    /// The node stops: a request that may be on its way is told that nothing became of it.
    Left,
    /// An answer was given and the client may still be sending.
    Answered,
    /// This is the answer.
    Refused(Violation),
    /// The node has as many connections as it may.
    Full,
    /// It belongs to this shard.
    Moved(usize),
    /// It leaves HTTP with this answer.
    Upgraded(Response<()>, Upgrade),
}

/// What a client is told beyond the connections there may be.
const FULL: Violation = Violation::new(503, "the node has as many connections as it may; retry");

impl Shared {
    /// Whether the handler has waited for the body as long as it does; if not, from when its time counts, less than a
    /// body's time ago. hyper reads ahead of a handler that is busy otherwise, and nobody has to wait for a client then.
    fn has_waited(&self, config: &Config) -> Result<(), Instant> {
        let now = Instant::now();
        let elsewhere = self.body_read_elsewhere.get();
        let long = if elsewhere { config.buffer_timeout } else { config.body_timeout };
        let awaited = match &*self.body_reader.borrow() {
            Some(reader) => reader.since(),
            None => self.body_awaited.get(),
        };
        match awaited {
            Some(since) if now.saturating_duration_since(since) >= long => Ok(()),
            Some(since) if !elsewhere => Err(since),
            Some(_) | None => Err(now),
        }
    }

    /// The end of a connection that has nothing under way, when it has come.
    fn parts(&self, stage: Stage) -> Option<End> {
        let parting = stage.parts(self.lingers.get()).filter(|_| self.wire.borrow().is_idle())?;
        Some(match parting {
            Parting::Silent => End::Closed,
            Parting::Spoken => End::Left,
        })
    }
}

type Hyper<S> = Pin<Box<http1::Connection<Io, Answering<S>>>>;

struct Connection<S, F>
where
    S: Fn(Request<RequestBody>) -> F + 'static,
    F: Future<Output = Response<ResponseBody>> + 'static,
{
    front: Rc<Front<S>>,
    shared: Rc<Shared>,
    member: Member,
    /// Made when a head has passed and there is none; given back when the connection rests.
    hyper: Option<Hyper<S>>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Serves a connection; returns it when it belongs to another shard.
pub(super) async fn serve<S, F>(
    front: &Rc<Front<S>>,
    wire: Wire,
    ticket: Ticket,
    member: Member,
) -> Option<Handover>
where
    S: Fn(Request<RequestBody>) -> F + 'static,
    F: Future<Output = Response<ResponseBody>> + 'static,
{
    let shared = Rc::new(Shared {
        wire: RefCell::new(wire),
        answered: Cell::new(false),
        violation: Cell::new(None),
        body_awaited: Cell::new(None),
        body_reader: RefCell::new(None),
        body_read_elsewhere: Cell::new(false),
        ended: Cell::new(false),
        upgrade: Cell::new(None),
        lingers: Cell::new(true),
        closing: Cell::new(false),
    });
    let mut connection =
        Connection { front: front.clone(), shared: shared.clone(), member, hyper: None, timer: None };
    let end = poll_fn(|cx| connection.poll(cx)).await;
    shared.ended.set(true);
    // The handler's work and hyper's buffers go before anything else is waited for.
    let Connection { member, hyper, timer, shared: ours, .. } = connection;
    drop((hyper, timer, ours));
    let wire = Rc::into_inner(shared)?.wire.into_inner();
    finish(front, wire, end, member, ticket).await
}

async fn finish<S>(
    front: &Rc<Front<S>>,
    mut wire: Wire,
    end: End,
    member: Member,
    ticket: Ticket,
) -> Option<Handover> {
    match end {
        End::Closed => None,
        End::Left => {
            answer_and_close(wire.stream, &elsewhere(), &front.sleeper).await;
            None
        }
        End::Answered => {
            answer_and_close(wire.stream, &[], &front.sleeper).await;
            None
        }
        End::Refused(violation) => {
            front.stats.count_refused(1);
            answer_and_close(wire.stream, &plain(violation), &front.sleeper).await;
            None
        }
        End::Full => {
            front.stats.count_over_limit(1);
            answer_and_close(wire.stream, &plain(FULL), &front.sleeper).await;
            None
        }
        End::Moved(shard) => {
            let came = wire.leave();
            let (fd, session) = wire.stream.into_parts().ok()?;
            front.stats.count_moved_away(1);
            drop(member);
            Some(Handover { fd, session, came, ticket, shard })
        }
        End::Upgraded(response, upgrade) => {
            let (unread, answer) = (wire.take_unread().into(), upgrade::head(response));
            upgrade(Upgraded { stream: wire.stream, answer, unread, ticket, stats: front.stats.clone() });
            None
        }
    }
}

impl<S, F> Connection<S, F>
where
    S: Fn(Request<RequestBody>) -> F + 'static,
    F: Future<Output = Response<ResponseBody>> + 'static,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let stage = self.member.stage(cx);
        loop {
            self.shared.wire.borrow_mut().begin_round();
            if let Some(end) = self.advance(cx, stage) {
                return Poll::Ready(end);
            }
            let mut wire = self.shared.wire.borrow_mut();
            match wire.outcome.take() {
                Some(Outcome::Full) => return Poll::Ready(End::Full),
                Some(Outcome::Refuse(violation)) => return Poll::Ready(End::Refused(violation)),
                Some(Outcome::Move(shard)) => return Poll::Ready(End::Moved(shard)),
                None => (),
            }
            if wire.take_again() {
                continue;
            }
            if wire.wants_ahead() {
                // Mostly answered by then, and there is no client to watch.
                if wire.take_handler_is_new() {
                    cx.waker().wake_by_ref();
                } else if matches!(wire.poll_ahead(cx), Poll::Ready(Err(_))) {
                    return Poll::Ready(End::Closed);
                }
            }
            if wire.is_abandoned() {
                return Poll::Ready(End::Closed);
            }
            drop(wire);
            match self.poll_limits(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                Poll::Ready(None) => (),
            }
        }
    }

    /// One round of reading, handling and writing.
    fn advance(&mut self, cx: &mut Context<'_>, stage: Stage) -> Option<End> {
        let Some(hyper) = &mut self.hyper else {
            let mut wire = self.shared.wire.borrow_mut();
            return match wire.poll_head(cx) {
                // What has come by now is served.
                Poll::Pending => {
                    drop(wire);
                    self.shared.parts(stage)
                }
                Poll::Ready(Err(_)) => Some(End::Closed),
                Poll::Ready(Ok(())) if wire.outcome.is_some() => None,
                Poll::Ready(Ok(())) if wire.is_eof() && !wire.has_passed() => Some(End::Closed),
                Poll::Ready(Ok(())) => {
                    drop(wire);
                    self.hyper = Some(self.make_hyper());
                    self.advance(cx, stage)
                }
            };
        };
        // hyper's own way to end forgets a request of which it has seen nothing yet.
        // An operator's place is for one request.
        let is_last = stage >= Stage::Stopping || self.shared.wire.borrow().is_for_operators();
        self.shared.closing.set(is_last);
        match hyper.as_mut().poll(cx) {
            Poll::Pending => match self.shared.upgrade.take() {
                Some((response, upgrade)) => Some(End::Upgraded(response, upgrade)),
                None => self.shared.parts(stage),
            },
            Poll::Ready(Ok(())) if self.shared.wire.borrow().has_unread() => Some(End::Answered),
            Poll::Ready(_) => Some(End::Closed),
        }
    }

    fn make_hyper(&self) -> Hyper<S> {
        let limits = &self.front.config().limits;
        let service = Answering {
            handler: self.front.handler.clone(),
            connections: self.front.connections.clone(),
            shared: self.shared.clone(),
        };
        Box::pin(
            http1::Builder::new()
                .header_read_timeout(None)
                // Whether a client that sends no more is still there is the wire's to say.
                .half_close(true)
                .max_headers(limits.headers_max)
                // hyper's own limit must not be met before the guard's.
                .max_buf_size(limits.head_bytes_max.max(8192) + 8192)
                .serve_connection(Io(self.shared.clone()), service),
        )
    }

    /// Ready with an end when a limit ended the connection, with `None` when something changed.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            let due = self.shared.wire.borrow().due(self.hyper.is_none());
            let Some((at, limit)) = due else { return Poll::Pending };
            // A timer that is due earlier is left alone: limits mostly move later with every request.
            if self.timer.as_ref().is_none_or(|timer| timer.deadline() > at) {
                self.timer = Some(Box::pin(self.front.sleeper.sleep_until(at)));
            }
            let timer = self.timer.as_mut().map(|timer| timer.as_mut().poll(cx));
            if timer.is_some_and(|poll| poll.is_pending()) {
                return Poll::Pending;
            }
            self.timer = None;
            if Instant::now() >= at {
                return self.pass(limit);
            }
        }
    }

    fn pass(&mut self, limit: Limit) -> Poll<Option<End>> {
        let mut wire = self.shared.wire.borrow_mut();
        if limit == Limit::Probe {
            return Poll::Ready(wire.probe_gone().then_some(End::Closed));
        }
        if limit == Limit::Rest {
            // Between two requests hyper holds buffers and no state; it is made again with the next head.
            drop(wire);
            self.hyper = None;
            return Poll::Ready(None);
        }
        if limit == Limit::Body
            && !wire.is_buffering()
            && let Err(since) = self.shared.has_waited(self.front.config())
        {
            wire.await_body_since(since);
            return Poll::Ready(None);
        }
        if wire.is_for_operators() && limit == Limit::Head {
            return Poll::Ready(Some(End::Full));
        }
        if limit != Limit::Idle {
            self.front.stats.count_timeout(1);
        }
        Poll::Ready(match limit {
            Limit::Head => Some(End::Refused(Violation::new(408, "the request's head came too slowly"))),
            Limit::Body => {
                // The handler is told through its body; hyper is polled again for that.
                let violation = Violation::new(408, "the request's body came too slowly");
                self.shared.violation.set(Some(violation));
                wire.give_up_body();
                None
            }
            Limit::Idle | Limit::Write | Limit::Probe | Limit::Rest => Some(End::Closed),
        })
    }
}
