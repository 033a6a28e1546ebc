//! Room for kept requests (R-WAIT-3).

use std::collections::HashMap;

use super::NotKept;
use crate::{
    ActorId,
    limits::{FAILOVER_KEPT_DIVISOR, FAILOVER_KEPT_PER_ACTOR_MAX},
};

/// The places of one node's kept requests: a quarter of its connection limit, and no more than 64 for one actor,
/// whichever shards keep them.
#[derive(Debug)]
pub struct Places {
    free: usize,
    taken: HashMap<ActorId, usize>,
}

impl Places {
    /// Of a node that takes so many connections, none taken.
    #[must_use]
    pub fn new(connections_max: usize) -> Self {
        Self { free: connections_max / FAILOVER_KEPT_DIVISOR, taken: HashMap::new() }
    }

    /// Takes a place for a request to this actor; [`Places::leave`] gives it back.
    ///
    /// # Errors
    /// [`NotKept::OverCap`]: the node or the actor has as many as it may.
    pub fn take(&mut self, actor: &ActorId) -> Result<(), NotKept> {
        let of_actor = self.taken.get(actor).copied().unwrap_or(0);
        if self.free == 0 || of_actor >= FAILOVER_KEPT_PER_ACTOR_MAX {
            return Err(NotKept::OverCap);
        }
        self.free -= 1;
        self.taken.insert(actor.clone(), of_actor + 1);
        Ok(())
    }

    /// The wait of a request to this actor is over.
    pub fn leave(&mut self, actor: &ActorId) {
        let Some(of_actor) = self.taken.get_mut(actor) else { return };
        self.free += 1;
        *of_actor -= 1;
        if *of_actor == 0 {
            self.taken.remove(actor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(name: &str) -> ActorId {
        ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() }
    }

    // R-WAIT-3
    #[test]
    fn sixty_four_places_an_actor_and_a_quarter_of_the_connections_are_taken_and_given_back() {
        let mut places = Places::new(400);
        for _ in 0..64 {
            places.take(&actor("x")).unwrap();
        }
        assert_eq!(places.take(&actor("x")), Err(NotKept::OverCap));
        for _ in 64..100 {
            places.take(&actor("y")).unwrap();
        }
        assert_eq!(places.take(&actor("z")), Err(NotKept::OverCap));
        // Nobody's place: nothing is given back.
        places.leave(&actor("z"));
        assert_eq!(places.take(&actor("z")), Err(NotKept::OverCap));
        places.leave(&actor("x"));
        places.take(&actor("x")).unwrap();
        for _ in 0..64 {
            places.leave(&actor("x"));
        }
        assert_eq!(places.taken.len(), 1, "an actor without a kept request is forgotten");
        assert_eq!(places.free, 64);
    }
}
