//! One actor's alarm: what is kept of it in the actor's database, when it is due, and what becomes of it before and
//! after an attempt. Pure: the time is an argument.
//!
//! There are two parts. *Pending* is what the actor set. When it is due it becomes an *attempt*, which is written
//! down before the actor's code runs and removed when that has succeeded; between the two, and after a failure, the
//! attempt says when to try again. So whatever ends the process, what came due is tried until it succeeds, or until
//! the actor replaces or clears it.

mod index;
mod post;
mod posts;
mod sweep;

use std::{fmt, str::FromStr, time::Duration};

use crate::limits::{ALARM_RETRY_FIRST, ALARM_RETRY_MAX};

pub use index::{Damaged, Entry, read_index};
pub use post::{Post, Whose, post_body};
pub use posts::{Outlook, Posts, Tidy};
pub use sweep::{Due, Keeping, Listed, Outcome, Sweep};

/// Latest time an alarm may be set to, in milliseconds since the Unix epoch: what SQLite's integers hold.
pub const DUE_MS_MAX: u64 = i64::MAX as u64;

/// What an actor's database keeps of its alarm. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alarm {
    /// What the actor set and is not due yet.
    pub pending_ms: Option<u64>,
    /// What came due and has not succeeded. While there is one, what is pending waits behind it.
    pub attempt: Option<Attempt>,
}

/// An alarm that came due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The time it was set to.
    pub due_ms: u64,
    /// 1 the first time.
    pub number: u32,
    /// When it is tried again, should this attempt not succeed.
    pub retry_ms: u64,
}

/// When an actor's alarm wants attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// In milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// It is for another attempt, which is never far away.
    pub is_retry: bool,
}

impl Wake {
    /// Whether the time has come. A retry further away than the longest wait between attempts was written down
    /// by a clock that has been set back since: it has come too.
    #[must_use]
    pub fn is_due(self, now_ms: u64) -> bool {
        self.at_ms <= now_ms || (self.is_retry && self.at_ms - now_ms > millis(ALARM_RETRY_MAX))
    }
}

/// Whether the code that asks is `on-alarm` itself: the attempt it runs for is then no longer the actor's to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    /// `on-alarm` runs.
    Attempt,
    /// Any other event.
    Other,
}

impl Alarm {
    /// The actor sets its alarm. Outside `on-alarm` that replaces a failed attempt too.
    pub fn set(&mut self, due_ms: u64, during: During) {
        self.clear(during);
        self.pending_ms = Some(due_ms);
    }

    /// The actor clears its alarm. Outside `on-alarm` that gives up a failed attempt too.
    pub fn clear(&mut self, during: During) {
        self.pending_ms = None;
        if during == During::Other {
            self.attempt = None;
        }
    }

    /// The alarm that is pending for the actor: one that failed and is to be tried again is.
    #[must_use]
    pub fn get(&self, during: During) -> Option<u64> {
        match (during, self.attempt) {
            (During::Other, Some(attempt)) => Some(attempt.due_ms),
            _ => self.pending_ms,
        }
    }

    /// When it wants attention next.
    #[must_use]
    pub fn wake(&self) -> Option<Wake> {
        match (self.attempt, self.pending_ms) {
            (Some(attempt), _) => Some(Wake { at_ms: attempt.retry_ms, is_retry: true }),
            (None, Some(due_ms)) => Some(Wake { at_ms: due_ms, is_retry: false }),
            (None, None) => None,
        }
    }

    /// Begins the attempt that is due, if one is. Its retry is set as if it had failed already: an attempt whose
    /// process dies is one that failed.
    #[must_use = "the attempt is counted, so it must be made"]
    pub fn begin(&mut self, now_ms: u64) -> Option<Attempt> {
        if !self.wake()?.is_due(now_ms) {
            return None;
        }
        let (due_ms, number) = match self.attempt {
            Some(last) => (last.due_ms, last.number.saturating_add(1)),
            None => (self.pending_ms.take()?, 1),
        };
        let attempt =
            Attempt { due_ms, number, retry_ms: now_ms.saturating_add(millis(pause_after(number))) };
        self.attempt = Some(attempt);
        self.attempt
    }

    /// The attempt succeeded.
    pub fn succeeded(&mut self) {
        self.attempt = None;
    }

    /// The attempt failed. What it set and committed stays pending, behind the retry.
    pub fn failed(&mut self, now_ms: u64) {
        if let Some(attempt) = &mut self.attempt {
            attempt.retry_ms = now_ms.saturating_add(millis(pause_after(attempt.number)));
        }
    }
}

/// The wait after attempt `number` (1 is the first) failed: doubled each time, up to five minutes (R-ALM-1).
#[must_use]
pub fn pause_after(number: u32) -> Duration {
    let doublings = number.saturating_sub(1).min(16);
    (ALARM_RETRY_FIRST * (1 << doublings)).min(ALARM_RETRY_MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A row that does not hold an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the actor's alarm cannot be read")]
pub struct Unreadable;

/// As it is kept: `PENDING DUE NUMBER RETRY`, `-` for what is not there.
impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pending_ms {
            Some(pending_ms) => write!(f, "{pending_ms} ")?,
            None => f.write_str("- ")?,
        }
        match self.attempt {
            Some(Attempt { due_ms, number, retry_ms }) => write!(f, "{due_ms} {number} {retry_ms}"),
            None => f.write_str("- - -"),
        }
    }
}

impl FromStr for Alarm {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        fn field<T: FromStr>(text: &str) -> Result<Option<T>, Unreadable> {
            if text == "-" { Ok(None) } else { text.parse().map(Some).map_err(|_| Unreadable) }
        }
        let fields: Vec<_> = text.split(' ').collect();
        let [pending, due, number, retry] = fields[..] else { return Err(Unreadable) };
        let attempt = match (field(due)?, field(number)?, field(retry)?) {
            (Some(due_ms), Some(number), Some(retry_ms)) => Some(Attempt { due_ms, number, retry_ms }),
            (None, None, None) => None,
            _ => return Err(Unreadable),
        };
        Ok(Self { pending_ms: field(pending)?, attempt })
    }
}

#[cfg(test)]
mod tests;
