//! One look at the heartbeats: a listing, and reads of those it does not say enough about.

use super::{Watch, WatchEffect};
use crate::{
    NodeId,
    clock::{Moment, Now},
    limits::HEARTBEAT_READS_MAX,
    records::{NodeRecord, RecordError},
    store::{Found, Version},
};

/// One heartbeat as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Whose it is.
    pub node: NodeId,
    /// Its version, where the store lists it.
    pub version: Option<Version>,
    /// Its length in bytes.
    pub size: u64,
}

/// What a look found out about one heartbeat.
#[derive(Debug)]
pub(super) enum Sight {
    /// It is the one the watch knows.
    Same,
    /// It renews that one.
    Renewed { version: Version, dated_ms: u64 },
    /// It was read.
    Read(Version, Result<NodeRecord, RecordError>),
}

/// A look under way.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) began: Moment,
    pub(super) sights: Vec<(Listed, Sight)>,
    /// Not asked for yet.
    unread: Vec<Listed>,
    /// Asked for, not answered.
    reading: Vec<Listed>,
    listed: bool,
    failed: bool,
}

impl Look {
    pub(super) fn new(began: Moment) -> Self {
        Self {
            began,
            sights: Vec::new(),
            unread: Vec::new(),
            reading: Vec::new(),
            listed: false,
            failed: false,
        }
    }
}

impl Watch {
    pub(super) fn listed(&mut self, now: Now, listed: Option<Vec<Listed>>, effects: &mut Vec<WatchEffect>) {
        let Some(mut look) = self.look.take_if(|look| !look.listed) else { return };
        look.listed = true;
        look.failed = listed.is_none();
        for entry in listed.into_iter().flatten() {
            match self.sight(now, &entry) {
                Some(sight) => look.sights.push((entry, sight)),
                None => look.unread.push(entry),
            }
        }
        self.go_on(now, look, effects);
    }

    pub(super) fn read(
        &mut self,
        now: Now,
        node: &NodeId,
        found: Found<NodeRecord>,
        effects: &mut Vec<WatchEffect>,
    ) {
        let Some(mut look) = self.look.take() else { return };
        if let Some(at) = look.reading.iter().position(|entry| entry.node == *node) {
            let entry = look.reading.swap_remove(at);
            match found {
                Found::Object(version, record) => look.sights.push((entry, Sight::Read(version, record))),
                // Deleted between the listing and the read: as if it had not been listed.
                Found::Absent => {}
                Found::Failed => look.failed = true,
            }
        }
        self.go_on(now, look, effects);
    }

    /// Reads on, or ends the look: once every read was answered, so that no answer comes in a later look.
    fn go_on(&mut self, now: Now, mut look: Look, effects: &mut Vec<WatchEffect>) {
        while !look.failed
            && look.reading.len() < HEARTBEAT_READS_MAX
            && let Some(entry) = look.unread.pop()
        {
            effects.push(WatchEffect::Read(entry.node.clone()));
            look.reading.push(entry);
        }
        if !look.listed || !look.reading.is_empty() {
            self.look = Some(look);
            return;
        }
        self.list_due = look.began + self.timing.period;
        if !look.failed {
            self.seen(now, look, effects);
        }
    }

    /// What the listing alone says about a heartbeat; `None`: it has to be read.
    fn sight(&self, now: Now, entry: &Listed) -> Option<Sight> {
        let (known, version) = (self.peers.get(&entry.node)?, entry.version.as_ref()?);
        if known.listed.as_ref() == Some(version) || known.peer.version == *version {
            // Nobody who renews stands for so long. Should it be fenced, its record has to be known to the letter.
            let stood = now.moment.since(known.since) >= self.timing.period * 2;
            return (known.read || !stood).then_some(Sight::Same);
        }
        let record = known.peer.record.as_ref().ok().filter(|record| record.is_live())?;
        let (before, _) = self.listed?;
        if now.moment.since(before) > self.timing.listing_gap_max() {
            return None;
        }
        let dated_ms = record.shape.renewal(known.dated_ms, entry.size)?;
        Some(Sight::Renewed { version: version.clone(), dated_ms })
    }
}
