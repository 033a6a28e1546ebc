//! One connection to another node, from its opening to its end. Owns who drives it: whoever waits for an answer on it,
//! in its own task, so that an answer that comes at once costs neither a wake nor a wait on the ring. While nobody uses
//! it nothing drives it, and what became of it meanwhile shows when it is used next.

use std::{
    cell::Cell,
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use http::{Request, Response};
use hyper::{
    Error,
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{self, SendRequest, handshake},
    },
};

use super::{
    PeerBody,
    io::{PeerIo, Use},
};
use crate::{
    lull::{self, Lulls},
    stream::Stream,
    tcp::Reading,
    tls::Refused,
};

/// What reads and writes it.
pub(super) type Driver = http1::Connection<PeerIo, PeerBody>;

/// A connection to another node.
pub(super) struct Connection {
    requests: SendRequest<PeerBody>,
    line: Line,
    lulls: Lulls,
    pub(super) refused: Refused,
}

/// A connection's reading and writing.
struct Line {
    /// `None` once it has ended: with it goes what still waited in it, so that whoever waits for that learns of the end.
    /// Apart, as it is large and connections change hands.
    driver: Option<Box<Driver>>,
    used: Rc<Use>,
}

impl Connection {
    /// Speaks HTTP on a stream from here on.
    pub(super) async fn new(stream: Stream, refused: Refused) -> Result<Self, Error> {
        let used = Rc::new(Use { reading: Cell::new(Reading::LookThenWait), is_asked: Cell::new(false) });
        let (requests, driver) = handshake(PeerIo::new(stream, Rc::clone(&used))).await?;
        let line = Line { driver: Some(Box::new(driver)), used };
        Ok(Self { requests, line, lulls: Lulls::default(), refused })
    }

    /// Apart, to be driven by a task of its own; `None` when it has ended.
    pub(super) fn into_parts(self) -> Option<(SendRequest<PeerBody>, Driver, Refused)> {
        Some((self.requests, *self.line.driver?, self.refused))
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<PeerBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<PeerBody>>> {
        let Self { requests, line, lulls, .. } = self;
        line.used.is_asked.set(true);
        let mut answer = pin!(requests.try_send_request(request));
        let mut is_new = true;
        poll_fn(|cx| {
            let mut poll = |cx: &mut Context<'_>, reading| {
                line.drive(cx, reading);
                answer.as_mut().poll(cx)
            };
            let begins = mem::take(&mut is_new);
            if !begins || lull::is_alone() {
                // Sends it, or sees what has come.
                let answered = poll(cx, Reading::Look);
                if answered.is_ready() {
                    return answered;
                }
            }
            if begins || lulls.is_looking() {
                // Another process on this core may have answered by the time the kernel returned.
                if let Some(answered) = ready!(lulls.poll_look(cx, |cx| poll(cx, Reading::Look))) {
                    return Poll::Ready(answered);
                }
            }
            poll(cx, Reading::Wait)
        })
        .await
    }

    /// Moves on what can be moved on now, and wakes the task when there is more.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        self.line.drive(cx, Reading::LookThenWait);
    }

    /// The answer to what was asked on it has been read to its end.
    pub(super) fn rest(&self) {
        self.line.used.is_asked.set(false);
    }

    /// Whether it is done with what was asked on it.
    pub(super) fn is_ready(&self) -> bool {
        self.line.driver.is_some() && self.requests.is_ready()
    }

    /// Whether the other node has left it open so far.
    pub(super) fn is_open(&mut self) -> bool {
        self.line.drive(&mut Context::from_waker(Waker::noop()), Reading::Look);
        self.is_ready()
    }
}

impl Line {
    fn drive(&mut self, cx: &mut Context<'_>, reading: Reading) {
        self.used.reading.set(reading);
        if let Some(driver) = &mut self.driver
            && Pin::new(&mut **driver).poll(cx).is_ready()
        {
            self.driver = None;
        }
    }
}
