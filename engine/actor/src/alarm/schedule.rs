//! Which alarm is looked at when. Pure: the time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use wasmkeep_protocol::{
    ActorId,
    alarm::{Wake, pause_after},
    limits::{ALARM_INTERVAL_MIN, ALARM_RETRY_MAX, ALARMS_IN_A_ROW},
};

const INTERVAL_MS: u64 = ALARM_INTERVAL_MIN.as_millis() as u64;

/// How far alarms in a row may run ahead of one each interval.
const AHEAD_MS: u64 = (ALARMS_IN_A_ROW as u64 - 1) * INTERVAL_MS;

/// What is known of one actor's alarm.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// When it wants attention; at times earlier than its database says, never later.
    wake: Wake,
    /// What the index was last told of it, which may be earlier still.
    indexed: Wake,
    /// Its place in the queue; none while its event is on the way.
    place_ms: Option<u64>,
    /// Times in a row that its event was not taken.
    refusals: u32,
    /// When the alarms taken so far would be over, had each waited an interval for the one before.
    paced_ms: u64,
}

impl Entry {
    fn new(wake: Wake) -> Self {
        Self { wake, indexed: wake, place_ms: Some(wake.at_ms), refusals: 0, paced_ms: 0 }
    }

    /// When it may be looked at: not before it wants attention, and not sooner after others than their pace allows.
    fn due_ms(&self) -> u64 {
        self.wake.at_ms.max(self.paced_ms.saturating_sub(AHEAD_MS))
    }
}

/// The alarms of a shard in the order in which they are due.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<ActorId, Entry>,
    queue: BTreeSet<(u64, ActorId)>,
}

impl Schedule {
    /// Takes over what the index holds.
    pub(super) fn load(&mut self, id: ActorId, wake: Wake) {
        self.place(&id, Entry::new(wake));
    }

    /// Whether the index must be told before the database is: it names no time, or a later one.
    pub(super) fn is_news(&self, id: &ActorId, wake: Wake) -> bool {
        self.entries.get(id).is_none_or(|entry| wake.at_ms < entry.indexed.at_ms)
    }

    /// What the index has been told of `id`.
    pub(super) fn indexed(&self, id: &ActorId) -> Option<Wake> {
        self.entries.get(id).map(|entry| entry.indexed)
    }

    /// When the alarm of `id` wants attention.
    pub(super) fn wake(&self, id: &ActorId) -> Option<Wake> {
        self.entries.get(id).map(|entry| entry.wake)
    }

    /// The alarm of `id` wants attention at `wake`; `indexed`: the index says so too.
    pub(super) fn put(&mut self, id: &ActorId, wake: Wake, indexed: bool) {
        let entry = match self.entries.get(id) {
            None => Entry::new(wake),
            Some(before) => {
                let after = Entry { wake, indexed: if indexed { wake } else { before.indexed }, ..*before };
                Entry { place_ms: before.place_ms.map(|_| after.due_ms()), ..after }
            }
        };
        self.place(id, entry);
    }

    /// `id` has no alarm any more.
    pub(super) fn remove(&mut self, id: &ActorId) {
        if let Some((id, Entry { place_ms: Some(place_ms), .. })) = self.entries.remove_entry(id) {
            self.queue.remove(&(place_ms, id));
        }
    }

    /// Takes the first that is due out of the queue: its event goes on its way.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<ActorId> {
        let (place_ms, _) = self.queue.first()?;
        if *place_ms > now_ms {
            return None;
        }
        let (_, id) = self.queue.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place_ms = None;
            entry.paced_ms = entry.paced_ms.max(now_ms).saturating_add(INTERVAL_MS);
        }
        Some(id)
    }

    /// Its event was taken and has ended.
    pub(super) fn ended(&mut self, id: &ActorId) {
        self.put_back(id, |entry| Entry { place_ms: Some(entry.due_ms()), refusals: 0, ..entry });
    }

    /// Its event was not taken: it waits for a while, longer each time.
    pub(super) fn refused(&mut self, id: &ActorId, now_ms: u64) {
        self.put_back(id, |entry| {
            let refusals = entry.refusals.saturating_add(1);
            let pause = pause_after(refusals).as_millis() as u64;
            Entry { place_ms: Some(now_ms.saturating_add(pause)), refusals, ..entry }
        });
    }

    /// It cannot run for as long as this node's code stays what it is.
    pub(super) fn put_off(&mut self, id: &ActorId, now_ms: u64) {
        let place_ms = now_ms.saturating_add(ALARM_RETRY_MAX.as_millis() as u64);
        self.put_back(id, |entry| Entry { place_ms: Some(place_ms), ..entry });
    }

    fn put_back(&mut self, id: &ActorId, change: impl FnOnce(Entry) -> Entry) {
        if let Some(entry) = self.entries.get(id).filter(|entry| entry.place_ms.is_none()) {
            let entry = change(*entry);
            self.place(id, entry);
        }
    }

    /// The clock was set back: a short wait measured by the old one would be a long one by the new one.
    pub(super) fn clock_was_set_back(&mut self, now_ms: u64) {
        let longest = now_ms.saturating_add(ALARM_RETRY_MAX.as_millis() as u64);
        let paced_max_ms = now_ms.saturating_add(AHEAD_MS);
        let paced = self.entries.iter().filter(|(_, entry)| entry.paced_ms > paced_max_ms);
        for (id, before) in paced.map(|(id, entry)| (id.clone(), *entry)).collect::<Vec<_>>() {
            let after = Entry { paced_ms: paced_max_ms, ..before };
            let waits_for_pace = before.place_ms == Some(before.due_ms());
            let place_ms = if waits_for_pace { Some(after.due_ms()) } else { before.place_ms };
            self.place(&id, Entry { place_ms, ..after });
        }
        let far = self.queue.iter().rev().take_while(|(place_ms, _)| *place_ms > longest);
        for id in far.map(|(_, id)| id.clone()).collect::<Vec<_>>() {
            let Some(entry) = self.entries.get(&id).copied() else { continue };
            if entry.wake.is_retry || entry.refusals > 0 {
                self.place(&id, Entry { place_ms: Some(now_ms), ..entry });
            }
        }
    }

    /// When the first is due.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.queue.first().map(|(place_ms, _)| *place_ms)
    }

    /// Alarms pending or under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All in a fixed order, those behind `id` when it is given; with when each wants attention.
    pub fn behind(&self, id: Option<&ActorId>) -> impl Iterator<Item = (&ActorId, Wake)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range((from, Bound::Unbounded)).map(|(id, entry)| (id, entry.wake))
    }

    fn place(&mut self, id: &ActorId, entry: Entry) {
        if let Some(Entry { place_ms: Some(before), .. }) = self.entries.insert(id.clone(), entry) {
            self.queue.remove(&(before, id.clone()));
        }
        if let Some(place_ms) = entry.place_ms {
            self.queue.insert((place_ms, id.clone()));
        }
    }
}
