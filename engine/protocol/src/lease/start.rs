//! The check of a node id before its process writes anything (R-LEASE-8): does another process still run with it?

use std::time::Duration;

use super::Timing;
use crate::{
    clock::{Moment, Now},
    records::{NodeRecord, Process},
    store::{Condition, Found, Version},
};

/// Another process runs with this node id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another process is running with this node id{}", at(.address))]
pub struct Refused {
    /// Where it says it is reached; empty when it does not say.
    pub address: String,
}

/// ` at ADDRESS`, or nothing.
pub(super) fn at(address: &str) -> String {
    if address.is_empty() { String::new() } else { format!(" at {address}") }
}

/// What the check has seen so far.
#[derive(Debug, Clone)]
pub(super) struct StartCheck {
    seen: Option<Standing>,
}

/// What stood under the key at the last read.
#[derive(Debug, Clone)]
struct Standing {
    what: What,
    /// When a read of it was first answered: whatever is there was written before.
    since: Moment,
    /// Reads that found it.
    reads: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// Nothing. A process whose heartbeat was deleted while it ran has the same time to show itself.
    Absent,
    /// A live write, however it was fenced or released since.
    Write(Process, u64),
    /// Something that is no record.
    Unreadable(Version),
}

/// What a read means for the check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Read again in a while.
    Wait,
    /// Nobody runs with this id: write, on this condition.
    Pass(Condition),
    /// Somebody does.
    Refuse(Refused),
}

impl StartCheck {
    pub(super) fn new() -> Self {
        Self { seen: None }
    }

    /// Judges what a read that has just been answered found.
    pub(super) fn read(&mut self, timing: &Timing, now: Now, found: &Found<NodeRecord>) -> Verdict {
        let Some(condition) = found.condition() else { return Verdict::Wait };
        let (what, record) = match found {
            Found::Object(version, Err(_)) => (What::Unreadable(version.clone()), None),
            Found::Object(_, Ok(record)) => (What::Write(record.process, record.sequence), Some(record)),
            Found::Absent | Found::Failed => (What::Absent, None),
        };
        let standing = match self.seen.take() {
            Some(before) if before.what == what => Standing { reads: before.reads + 1, ..before },
            // It was written while we looked: only a running process writes a live heartbeat.
            Some(_) if record.is_some_and(NodeRecord::is_live) => {
                let address = record.map(|record| record.presence.advertise.clone()).unwrap_or_default();
                return Verdict::Refuse(Refused { address });
            }
            Some(_) | None => Standing { what, since: now.moment, reads: 1 },
        };
        let lapse = timing.lapse(record.map_or(Duration::ZERO, |record| record.ttl));
        let watched = now.moment.since(standing.since) >= lapse;
        // It is proven that nothing runs; the time is the one in which nobody else takes the actors either.
        let known_gone = record.is_some_and(|record| {
            record.is_gone(timing.grace) && now.age_of(record.written_at_ms) >= lapse && standing.reads > 1
        });
        self.seen = Some(standing);
        if watched || known_gone { Verdict::Pass(condition) } else { Verdict::Wait }
    }
}
