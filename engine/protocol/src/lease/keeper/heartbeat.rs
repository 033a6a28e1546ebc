//! What a process writes as its heartbeat.

use std::sync::Arc;

use super::{Keeper, Phase, Sent};
use crate::{
    clock::Now,
    records::{NodeRecord, NodeState, Nonce, Shape},
};

impl Keeper {
    /// The release keeps the sequence and the date of the last live write, as a fence does.
    pub(super) fn released(&self, now: Now, nonce: Nonce) -> NodeRecord {
        let unheard = Sent { sequence: self.sequence, began: now.moment, written_at_ms: now.wall_ms };
        self.record(now, self.landed.unwrap_or(unheard), NodeState::Released, nonce)
    }

    /// Whether what stands there says that this process stops, if it does.
    pub(super) fn has_said_that_it_stops(&self) -> bool {
        let said = self.stands.as_ref().is_some_and(|stands| stands.presence.stopping);
        said || !matches!(self.phase, Phase::Stopping(_))
    }

    pub(super) fn record(&self, now: Now, sent: Sent, state: NodeState, nonce: Nonce) -> NodeRecord {
        let record = NodeRecord {
            process: self.identity.process,
            sequence: sent.sequence,
            nonce,
            state,
            written_at_ms: sent.written_at_ms,
            ttl: self.timing.ttl,
            shape: Shape::NONE,
            presence: Arc::clone(&self.presence),
        };
        NodeRecord { shape: self.shape(now, &record), ..record }
    }

    /// The shape of what is written now: that of what it replaces, if it renews it in time and its date is as much
    /// later as it is.
    fn shape(&self, now: Now, record: &NodeRecord) -> Shape {
        let Some(stands) = &self.stands else { return Shape::NONE };
        let renews = self.valid
            && stands.shape != Shape::NONE
            && stands.is_renewed_by(record)
            && self
                .landed
                .is_some_and(|landed| landed.sequence == stands.sequence && self.is_steady(now, landed));
        if renews { stands.shape } else { stands.shape.next() }
    }

    /// Whether our wall clock was not set since that write: others know its date, and tell this one's by it.
    fn is_steady(&self, now: Now, landed: Sent) -> bool {
        let since = now.moment.since(landed.began).as_millis();
        let expected = landed.written_at_ms.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
        u128::from(now.wall_ms.abs_diff(expected)) <= self.timing.skew.as_millis()
    }
}
