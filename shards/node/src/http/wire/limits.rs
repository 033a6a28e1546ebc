//! How long a connection waits for its client, and whether it is still there. What happens when a limit passes is the
//! connection's to say.

use super::{AHEAD_BYTES, Phase, Wire};
use crate::http::guard::BodyFraming;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

/// Time for the head of a request on a connection that has an operator's place, from the connection's begin and from
/// its first byte: such places are few, and whoever is no operator is turned away with its head.
const OPERATORS_HEAD_WITHIN: Duration = Duration::from_secs(1);

/// How soon a client that left is noticed when bytes it sent hide that it did, or when it had sent its last before.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A time limit in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Limit {
    /// Not a limit: idle long enough to give back what serving needs.
    Rest,
    /// Nothing came between two requests.
    Idle,
    /// A head began and is not whole.
    Head,
    /// The body is waited for and nothing comes, or not all of it in time.
    Body,
    /// The client does not read.
    Write,
    /// Not a limit: time to see whether the client is still there.
    Probe,
}

impl Wire {
    /// The client closed its side and what it sent is no whole request. One that only stopped sending still gets its
    /// answer; one that left resets the connection when it comes. A WebSocket needs both sides.
    pub(in crate::http) fn is_abandoned(&self) -> bool {
        self.eof
            && match &self.phase {
                Phase::Head(_) => false,
                Phase::Body(framing) => {
                    self.is_upgrade || !framing.would_complete(&self.inbox[self.passed..])
                }
                Phase::Answer => self.is_upgrade,
            }
    }

    /// The body is waited for from this moment on, as far as its limit goes.
    pub(in crate::http) fn await_body_since(&mut self, since: Instant) {
        self.body_wanted = true;
        self.since = since;
    }

    /// The body is read before its event, which waits for it.
    pub(in crate::http) fn begin_buffering(&mut self) {
        let within = self.rules.config.buffer_timeout;
        self.buffered_by.get_or_insert_with(|| Instant::now() + within);
    }

    pub(in crate::http) fn end_buffering(&mut self) {
        self.buffered_by = None;
    }

    pub(in crate::http) fn is_buffering(&self) -> bool {
        self.buffered_by.is_some()
    }

    pub(super) fn probe_later(&mut self) {
        self.probe_at.get_or_insert_with(|| Instant::now() + PROBE_EVERY);
    }

    /// The limit that passes first, if any is in force. `rested`: nothing is left to give back.
    pub(in crate::http) fn due(&self, rested: bool) -> Option<(Instant, Limit)> {
        let config = &self.rules.config;
        let reading = match self.phase {
            Phase::Head(_) if self.for_operators => Some((self.since + OPERATORS_HEAD_WITHIN, Limit::Head)),
            Phase::Head(_) if self.inbox.is_empty() && !rested && config.rest_after < config.idle_timeout => {
                Some((self.since + config.rest_after, Limit::Rest))
            }
            Phase::Head(_) if self.inbox.is_empty() => Some((self.since + config.idle_timeout, Limit::Idle)),
            Phase::Head(_) => Some((self.since + config.head_timeout, Limit::Head)),
            Phase::Body(_) if self.buffered_by.is_some() => self.buffered_by.map(|at| (at, Limit::Body)),
            Phase::Body(_) if self.body_wanted => Some((self.since + config.body_timeout, Limit::Body)),
            Phase::Body(_) | Phase::Answer => self.probe_at.map(|at| (at, Limit::Probe)),
        };
        let writing = self.write_blocked.map(|since| (since + config.write_timeout, Limit::Write));
        reading.into_iter().chain(writing).min_by_key(|(at, _)| *at)
    }

    /// The body's limit passed; it is not in force any more.
    pub(in crate::http) fn give_up_body(&mut self) {
        self.body_wanted = false;
        self.buffered_by = None;
    }

    /// Whether the client left, seen past the bytes that wait and past its last one; asks again later if not.
    pub(in crate::http) fn probe_gone(&mut self) -> bool {
        let looks_again = self.eof || self.inbox.len() >= AHEAD_BYTES;
        self.probe_at = looks_again.then(|| Instant::now() + PROBE_EVERY);
        let mut fds = [PollFd::from_borrowed_fd(self.stream.descriptor(), PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..)) {
            return false;
        }
        let seen = fds[0].revents();
        seen.intersects(PollFlags::HUP | PollFlags::ERR)
            || (seen.contains(PollFlags::RDHUP) && !self.may_be_whole())
    }

    /// Whether the request may be whole once all is read that has come, after which nothing more comes.
    fn may_be_whole(&self) -> bool {
        match &self.phase {
            _ if self.is_upgrade => false,
            Phase::Body(BodyFraming::Sized(left)) => {
                // With TLS it counts what is around the bytes too.
                let unread = rustix::io::ioctl_fionread(self.stream.descriptor()).unwrap_or(u64::MAX);
                unread.saturating_add((self.inbox.len() - self.passed) as u64) >= *left
            }
            Phase::Head(_) | Phase::Body(BodyFraming::Chunked(_)) | Phase::Answer => true,
        }
    }
}
