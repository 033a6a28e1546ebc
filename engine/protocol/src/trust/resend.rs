//! When a call or an upgrade that a peer refused unread is sent again (R-TLS-5).
//!
//! A peer refuses a live node for a moment: it saw its heartbeat expire, as a slow write can make it. The next
//! heartbeat that lands, and the time the peer takes to list it, mend that. A node whose first heartbeat has just
//! landed asks nobody for that time, since it would be refused.

use crate::{clock::Moment, lease::Timing};

/// One request that was refused, or not sent at all, on its way to being sent, once.
#[derive(Debug, Clone)]
pub struct Resend {
    timing: Timing,
    refused: Moment,
    /// When the first heartbeat since then landed.
    landed: Option<Moment>,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look again at this moment at the latest.
    Wait(Moment),
    /// Send it.
    Send,
    /// Say that it was refused: this node cannot reach the bucket either.
    GiveUp,
}

impl Resend {
    /// Of a request refused at `now`.
    #[must_use]
    pub fn new(timing: Timing, now: Moment) -> Self {
        Self { timing, refused: now, landed: None }
    }

    /// Of a request that was not sent because the certificate is new: the first heartbeat that names it landed at
    /// `first`.
    #[must_use]
    pub fn unknown(timing: Timing, first: Moment) -> Self {
        Self { timing, refused: first, landed: Some(first) }
    }

    /// `landed`: when this node's last heartbeat landed.
    pub fn step(&mut self, now: Moment, landed: Option<Moment>) -> Step {
        // The first one counts: those after it would put it off for ever.
        self.landed = self.landed.or(landed.filter(|landed| *landed > self.refused));
        let in_time = self.refused + self.timing.period * 2;
        match self.landed.filter(|landed| *landed <= in_time) {
            Some(landed) if now >= landed + self.timing.known() => Step::Send,
            Some(landed) => Step::Wait(landed + self.timing.known()),
            None if now > in_time => Step::GiveUp,
            None => Step::Wait(in_time),
        }
    }
}
