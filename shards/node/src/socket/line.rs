//! What a WebSocket connection does next, as a pure step function: what happened in, what the actor must hear of
//! out.
//!
//! Owns the queue of frames to send and its bound, the close handshake and its time, and the pings that find a
//! client that vanished. Knows no descriptor and no actor; `now` is an argument.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use wasmkeep_protocol::close;

use super::{decoder::Breach, frame::Frame};

/// What the client of an unread queue is told, if it ever reads it.
const TOO_SLOW: &str = "the client does not read";

/// Limits and timings of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// One message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// What may wait for the client, in bytes.
    pub(crate) queue_bytes_max: usize,
    /// Silence after which the client is asked for a sign of life, and after as much again is lost. So is one that
    /// has something to read and takes nothing of it for twice as long.
    pub(crate) ping_after: Duration,
    /// Time the client has to answer a close frame, from the last byte it took.
    pub(crate) close_within: Duration,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Input {
    /// The actor sends.
    Send(Frame),
    /// The actor or the node closes, behind what is queued.
    Close { code: u16, reason: String },
    /// Bytes came from the client.
    Heard,
    /// A ping came.
    Ping(Bytes),
    /// A close frame came.
    Closed(Option<(u16, String)>),
    /// The client broke the protocol.
    Breach(Breach),
    /// The client's end, or the connection's.
    Lost,
    /// So many bytes of the queue are with the kernel.
    Wrote(usize),
    /// Nothing is read from now on: the actor has yet to take what came, and silence says nothing of the client.
    Paused,
    /// Reading begins again.
    Resumed,
    /// Time passed.
    Tick,
}

/// That the actor has lost the socket, with what its hook is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) code: u16,
    pub(super) reason: String,
}

impl Ending {
    pub(super) fn lost() -> Ending {
        Ending { code: close::LOST, reason: String::new() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Messages go both ways.
    Open,
    /// A close frame of ours is queued or sent, and the client's has not come.
    Closing { since: Instant },
    /// Nothing more is read: what is queued goes out, then the connection ends.
    Ending { since: Instant },
    /// The descriptor can be closed.
    Over { cut: bool },
}

/// One connection.
#[derive(Debug)]
pub(super) struct Line {
    rules: Rules,
    state: State,
    queue: VecDeque<Frame>,
    /// What the queue costs.
    queued: usize,
    /// Bytes of its first frame that are with the kernel.
    written: usize,
    /// When the client last gave a sign of life, or reading began again.
    heard: Instant,
    /// A ping asks for one.
    asked: bool,
    /// Nothing is read.
    paused: bool,
    /// When the client last took bytes, or had some to take again.
    took: Instant,
    /// Why a client was dropped that did not read.
    was_slow: bool,
}

impl Line {
    pub(super) fn new(rules: Rules, now: Instant) -> Line {
        Line {
            rules,
            state: State::Open,
            queue: VecDeque::new(),
            queued: 0,
            written: 0,
            heard: now,
            asked: false,
            paused: false,
            took: now,
            was_slow: false,
        }
    }

    /// Takes one input; says when the actor has lost the socket by it, which is once at most.
    pub(super) fn step(&mut self, now: Instant, input: Input) -> Option<Ending> {
        match input {
            Input::Send(frame) => return self.send(now, frame),
            Input::Close { code, reason } => self.close(now, code, &reason),
            Input::Heard => (self.heard, self.asked) = (now, false),
            Input::Paused => self.paused = true,
            Input::Resumed => (self.heard, self.asked, self.paused) = (now, false, false),
            Input::Ping(payload) if self.is_open() => return self.send(now, Frame::pong(payload)),
            Input::Closed(why) => return self.closed(now, why),
            Input::Breach(breach) => return self.fail(now, breach.code, breach.reason),
            Input::Lost => return self.lose(),
            Input::Wrote(len) => self.wrote(now, len),
            Input::Tick => return self.tick(now),
            Input::Ping(_) => {}
        }
        None
    }

    /// Messages go both ways.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// What comes from the client is still looked at.
    pub(super) fn reads(&self) -> bool {
        matches!(self.state, State::Open | State::Closing { .. })
    }

    /// The descriptor can be closed.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over { .. })
    }

    /// It ended without all being said: there is nobody to wait for.
    pub(super) fn is_cut(&self) -> bool {
        self.state == State::Over { cut: true }
    }

    /// It was closed because its client did not read.
    pub(super) fn was_slow(&self) -> bool {
        self.was_slow
    }

    /// Pieces to send, in order, as far as `pieces` has room; says how many there are.
    pub(super) fn unsent<'a>(&'a self, pieces: &mut [&'a [u8]]) -> usize {
        let mut count = 0;
        for (at, frame) in self.queue.iter().enumerate() {
            for piece in frame.rest(if at == 0 { self.written } else { 0 }) {
                if piece.is_empty() {
                    continue;
                }
                if count == pieces.len() {
                    return count;
                }
                pieces[count] = piece;
                count += 1;
            }
        }
        count
    }

    /// When [`Input::Tick`] has something to do at the earliest.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.state {
            State::Open => {
                let silent = self.heard + self.rules.ping_after * if self.asked { 2 } else { 1 };
                let stuck = (!self.queue.is_empty()).then(|| self.stuck_at());
                stuck.into_iter().chain((!self.paused).then_some(silent)).min()
            }
            State::Closing { since } | State::Ending { since } => Some(since + self.rules.close_within),
            State::Over { .. } => None,
        }
    }

    /// Puts the answer to the upgrade before everything the actor has sent meanwhile.
    pub(super) fn begin(&mut self, now: Instant, answer: Frame) {
        (self.heard, self.took) = (now, now);
        self.queued += answer.cost();
        self.queue.push_front(answer);
    }

    fn send(&mut self, now: Instant, frame: Frame) -> Option<Ending> {
        if !self.is_open() {
            return None;
        }
        if self.queued + frame.cost() > self.rules.queue_bytes_max && !self.queue.is_empty() {
            self.was_slow = true;
            self.end(now, Some((close::POLICY, TOO_SLOW)));
            self.state = State::Closing { since: now };
            return Some(Ending::lost());
        }
        if self.queue.is_empty() {
            self.took = now;
        }
        self.push(frame);
        None
    }

    /// When a client that takes nothing of what it has to read is lost, however much it says.
    fn stuck_at(&self) -> Instant {
        self.took + self.rules.ping_after * 2
    }

    fn push(&mut self, frame: Frame) {
        self.queued += frame.cost();
        self.queue.push_back(frame);
    }

    fn close(&mut self, now: Instant, code: u16, reason: &str) {
        if self.is_open() {
            self.push(Frame::close(Some((code, reason))));
            self.state = State::Closing { since: now };
        }
    }

    fn closed(&mut self, now: Instant, why: Option<(u16, String)>) -> Option<Ending> {
        match self.state {
            State::Open => {
                // Its own code back: that is how a client knows that its close arrived.
                self.end(now, why.as_ref().map(|(code, _)| (*code, "")));
                let (code, reason) = why.unwrap_or((close::NO_CODE, String::new()));
                Some(Ending { code, reason })
            }
            State::Closing { .. } => {
                self.state = State::Ending { since: now };
                self.settle();
                None
            }
            State::Ending { .. } | State::Over { .. } => None,
        }
    }

    fn fail(&mut self, now: Instant, code: u16, reason: &str) -> Option<Ending> {
        match self.state {
            State::Open => {
                self.end(now, Some((code, reason)));
                Some(Ending { code, reason: reason.to_owned() })
            }
            State::Closing { .. } => {
                self.state = State::Ending { since: now };
                self.settle();
                None
            }
            State::Ending { .. } | State::Over { .. } => None,
        }
    }

    fn lose(&mut self) -> Option<Ending> {
        let was_open = self.is_open();
        self.state = State::Over { cut: true };
        (self.queue, self.queued) = (VecDeque::new(), 0);
        was_open.then(Ending::lost)
    }

    /// Says `last` instead of all that is queued and not begun.
    fn end(&mut self, now: Instant, last: Option<(u16, &str)>) {
        self.queue.truncate(usize::from(self.written > 0));
        self.queued = self.queue.iter().map(Frame::cost).sum();
        self.push(Frame::close(last));
        self.state = State::Ending { since: now };
    }

    fn wrote(&mut self, now: Instant, len: usize) {
        self.took = now;
        self.written += len;
        while let Some(first) = self.queue.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.queued -= first.cost();
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            // Whatever a burst made it grow to.
            self.queue = VecDeque::new();
        }
        // A client that is slow and reads is given its time anew.
        if let State::Closing { since } | State::Ending { since } = &mut self.state {
            *since = now;
        }
        self.settle();
    }

    fn settle(&mut self) {
        if matches!(self.state, State::Ending { .. }) && self.queue.is_empty() {
            self.state = State::Over { cut: false };
        }
    }

    fn tick(&mut self, now: Instant) -> Option<Ending> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        let is_stuck = !self.queue.is_empty() && now >= self.stuck_at();
        if self.is_open() && !self.asked && !is_stuck {
            self.asked = true;
            return self.send(now, Frame::ping());
        }
        self.lose()
    }
}

#[cfg(test)]
mod tests;
