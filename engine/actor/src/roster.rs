//! Which actors of a shard are resident, in order of use: who hibernates next, and whether there is room.
//!
//! Pure bookkeeping; it closes nothing by itself.

use std::{collections::HashMap, time::Duration};

use lru::LruCache;
use wasmkeep_protocol::ActorId;

/// How many of the least recently used actors are looked at for one that is idle. Busy ones were used a
/// moment ago, so they gather at the other end; a bound keeps a shard of only busy actors cheap.
const EVICTION_LOOK_MAX: usize = 64;

/// The actors one shard has seen. `T` is what it keeps of a resident one.
#[derive(Debug)]
pub struct Roster<T> {
    /// Resident, most recently used first, with the time of the last use.
    resident: LruCache<ActorId, (T, Duration)>,
    /// Known and asleep: only the name is kept.
    asleep: HashMap<ActorId, ()>,
    resident_max: usize,
}

/// What an actor that must wake finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Room<T> {
    /// A free place.
    Free,
    /// A place once this one, idle and the least recently used, has gone to rest.
    AfterEvicting(T),
    /// Every resident actor looked at is busy.
    None,
}

impl<T: Clone> Roster<T> {
    /// Room for `resident_max` actors, at least one.
    #[must_use]
    pub fn new(resident_max: usize) -> Self {
        Self { resident: LruCache::unbounded(), asleep: HashMap::new(), resident_max: resident_max.max(1) }
    }

    /// The resident actor of this name, noted as used at `now`.
    pub fn touch(&mut self, id: &ActorId, now: Duration) -> Option<&T> {
        let (actor, used) = self.resident.get_mut(id)?;
        *used = now;
        Some(actor)
    }

    /// The resident actor of this name.
    #[must_use]
    pub fn get(&self, id: &ActorId) -> Option<&T> {
        self.resident.peek(id).map(|(actor, _)| actor)
    }

    /// Whether there is room for one more; `is_idle` says who may be put to rest for it.
    pub fn room(&self, is_idle: impl Fn(&T) -> bool) -> Room<T> {
        if self.resident.len() < self.resident_max {
            return Room::Free;
        }
        let mut oldest = self.resident.iter().rev().take(EVICTION_LOOK_MAX).map(|(_, (actor, _))| actor);
        oldest.find(|actor| is_idle(actor)).map_or(Room::None, |actor| Room::AfterEvicting(actor.clone()))
    }

    /// An actor became resident.
    pub fn woke(&mut self, id: ActorId, actor: T, now: Duration) {
        self.asleep.remove(&id);
        self.resident.put(id, (actor, now));
    }

    /// An actor is no longer resident; its name stays known.
    pub fn slept(&mut self, id: &ActorId) {
        if let Some((id, _)) = self.resident.pop_entry(id) {
            self.asleep.insert(id, ());
        }
    }

    /// An actor is gone with its data.
    pub fn erased(&mut self, id: &ActorId) {
        self.resident.pop(id);
        self.asleep.remove(id);
    }

    /// Actors not used since `before`, longest unused first.
    pub fn unused_since(&self, before: Duration) -> impl Iterator<Item = &T> {
        let old = self.resident.iter().rev().take_while(move |(_, (_, used))| *used <= before);
        old.map(|(_, (actor, _))| actor)
    }

    /// Actors last used after `since` and not after `until`.
    pub fn used_between(&self, since: Option<Duration>, until: Duration) -> impl Iterator<Item = &T> {
        let recent = self.resident.iter().skip_while(move |(_, (_, used))| *used > until);
        let recent = recent.take_while(move |(_, (_, used))| since.is_none_or(|since| *used > since));
        recent.map(|(_, (actor, _))| actor)
    }

    /// Every resident actor.
    pub fn resident(&self) -> impl Iterator<Item = &T> {
        self.resident.iter().map(|(_, (actor, _))| actor)
    }

    /// How many are resident.
    #[must_use]
    pub fn resident_count(&self) -> usize {
        self.resident.len()
    }

    /// How many are known and asleep.
    #[must_use]
    pub fn asleep_count(&self) -> usize {
        self.asleep.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ActorId {
        ActorId { class: "c".parse().unwrap(), name: name.parse().unwrap() }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn full() -> Roster<&'static str> {
        let mut roster = Roster::new(3);
        for (second, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(roster.room(|_| true), Room::Free);
            roster.woke(id(name), name, at(second as u64));
        }
        roster
    }

    #[test]
    fn over_the_cap_the_least_recently_used_idle_actor_gives_its_place() {
        let mut roster = full();
        assert_eq!(roster.room(|_| true), Room::AfterEvicting("a"));
        roster.touch(&id("a"), at(10));
        assert_eq!(roster.room(|_| true), Room::AfterEvicting("b"));
        assert_eq!(roster.room(|&name| name != "b"), Room::AfterEvicting("c"));
        assert_eq!(roster.room(|_| false), Room::None);
        roster.slept(&id("b"));
        assert_eq!(roster.room(|_| true), Room::Free);
        assert_eq!((roster.resident_count(), roster.asleep_count()), (2, 1));
    }

    #[test]
    fn actors_unused_for_long_are_found_and_used_ones_are_not() {
        let mut roster = full();
        roster.touch(&id("a"), at(10));
        assert_eq!(roster.unused_since(at(2)).copied().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(roster.unused_since(at(1)).copied().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn actors_used_within_a_time_are_found_once() {
        let mut roster = full();
        let mut found = |since, until| {
            roster.touch(&id("b"), at(7));
            roster.used_between(since, until).copied().collect::<Vec<_>>()
        };
        assert_eq!(found(None, at(0)), ["a"]);
        assert_eq!(found(Some(at(0)), at(6)), ["c"]);
        assert_eq!(found(Some(at(6)), at(7)), ["b"]);
        assert_eq!(found(Some(at(7)), at(8)), [""; 0]);
    }

    #[test]
    fn an_erased_actor_is_unknown() {
        let mut roster = full();
        roster.slept(&id("a"));
        roster.erased(&id("a"));
        roster.erased(&id("b"));
        assert_eq!((roster.resident_count(), roster.asleep_count()), (1, 0));
    }
}
