//! How soon an actor is taken again that could not be opened here. Without it, clients that ask for one that no node can
//! open would have the nodes take it and give it up as fast as the bucket answers.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use wasmkeep_protocol::ActorId;

/// Wait after one failure; it doubles with each further one.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Time after its last failure after which an actor's failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Actors whose failures are remembered; with more of them, the one that failed longest ago is forgotten.
const REMEMBERED_MAX: usize = 4096;

/// The actors that could not be opened lately.
#[derive(Debug, Default)]
pub(crate) struct BackOff {
    failures: RefCell<HashMap<ActorId, Failure>>,
}

#[derive(Debug)]
struct Failure {
    last: Duration,
    wait: Duration,
}

impl BackOff {
    /// The actor could not be opened. `now` is any clock that only goes forward.
    pub(crate) fn failed(&self, actor: &ActorId, now: Duration) {
        let mut failures = self.failures.borrow_mut();
        failures.retain(|_, failure| now.saturating_sub(failure.last) < FORGOTTEN_AFTER);
        let wait = failures.get(actor).map_or(WAIT_MIN, |before| (before.wait * 2).min(WAIT_MAX));
        if failures.len() >= REMEMBERED_MAX && !failures.contains_key(actor) {
            let oldest =
                failures.iter().min_by_key(|(_, failure)| failure.last).map(|(actor, _)| actor.clone());
            oldest.and_then(|oldest| failures.remove(&oldest));
        }
        failures.insert(actor.clone(), Failure { last: now, wait });
    }

    /// It is open.
    pub(crate) fn succeeded(&self, actor: &ActorId) {
        self.failures.borrow_mut().remove(actor);
    }

    /// How long to wait before it is taken.
    pub(crate) fn wait(&self, actor: &ActorId, now: Duration) -> Duration {
        let failures = self.failures.borrow();
        failures
            .get(actor)
            .map_or(Duration::ZERO, |failure| (failure.last + failure.wait).saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(number: usize) -> ActorId {
        ActorId { class: "room".parse().unwrap(), name: format!("r{number}").parse().unwrap() }
    }

    // R-OWN-1
    #[test]
    fn waits_double_up_to_a_second_and_end_with_success_or_a_minute() {
        let back_off = BackOff::default();
        let (mut now, lobby) = (Duration::from_secs(1000), actor(0));
        assert_eq!(back_off.wait(&lobby, now), Duration::ZERO);
        for wait_ms in [50, 100, 200, 400, 800, 1000, 1000] {
            back_off.failed(&lobby, now);
            assert_eq!(back_off.wait(&lobby, now), Duration::from_millis(wait_ms));
            now += Duration::from_millis(wait_ms);
            assert_eq!(back_off.wait(&lobby, now), Duration::ZERO);
        }
        now += Duration::from_secs(61);
        back_off.failed(&lobby, now);
        assert_eq!(back_off.wait(&lobby, now), WAIT_MIN);
        back_off.succeeded(&lobby);
        assert_eq!(back_off.wait(&lobby, now), Duration::ZERO);
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let back_off = BackOff::default();
        for number in 0..REMEMBERED_MAX + 10 {
            back_off.failed(&actor(number), Duration::from_millis(number as u64));
        }
        assert_eq!(back_off.failures.borrow().len(), REMEMBERED_MAX);
        assert!(!back_off.failures.borrow().contains_key(&actor(0)));
    }
}
