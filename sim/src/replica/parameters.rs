//! What one run looks like, drawn from its seed and printed before it starts.

use std::fmt;

use crate::dice::Dice;

/// The parameters of one run. Chances are per mille.
#[derive(Debug, Clone)]
pub struct ReplicaParameters {
    /// What everything else is drawn from.
    pub seed: u64,
    /// Actors, each on its own way through the nodes.
    pub actors: u64,
    /// The last holds are a new node's, which takes all actors at once.
    pub new_node: bool,
    /// Holds of each actor before the last one, in which nothing fails.
    pub holds: u64,
    /// Events of a hold at most.
    pub events_max: u64,
    /// Time between two events of an actor at most, in virtual milliseconds.
    pub event_pause_ms_max: u64,
    /// Bytes a row carries beside its number.
    pub row_bytes: u64,
    /// Files before a snapshot is made whatever the schedule says; 0 leaves it to the schedule.
    pub eager_snapshots: u64,
    /// History younger than this stays, in virtual milliseconds.
    pub retention_ms: u64,
    /// Longest ordinary time of a request, in virtual milliseconds.
    pub latency_ms_max: u64,
    /// Keys in a page of a listing.
    pub page_keys: u64,
    /// An event waits for the bucket with a durable write.
    pub durable: u64,
    /// An event deletes the actor.
    pub deletes: u64,
    /// An event changes the shape of the database.
    pub reshapes: u64,
    /// A hold ends in a crash.
    pub crashes: u64,
    /// A crash takes the local disk with it.
    pub disk_losses: u64,
    /// A hold loses its lease and goes on without knowing.
    pub stalls: u64,
    /// A request is answered with an error.
    pub errors: u64,
    /// A write is carried out and its answer lost.
    pub lost_replies: u64,
    /// A write is answered late or never, and carried out much later.
    pub late_writes: u64,
    /// A request hangs.
    pub hangs: u64,
    /// A body comes slowly, or ends early.
    pub bad_bodies: u64,
    /// Work on another thread is dropped.
    pub work_drops: u64,
}

impl ReplicaParameters {
    /// Draws the parameters of `seed`.
    #[must_use]
    pub fn draw(seed: u64, dice: &mut Dice) -> Self {
        // A fault is absent from about half of the seeds.
        let fault = |dice: &mut Dice, max: u64| if dice.chance(500) { 0 } else { dice.within(1..=max) };
        // Many actors with many files, which one node restores at once.
        let is_crowd = dice.chance(150);
        Self {
            seed,
            actors: if is_crowd { dice.within(8..=16) } else { dice.within(1..=3) },
            new_node: is_crowd || dice.chance(400),
            holds: dice.within(1..=if is_crowd { 2 } else { 8 }),
            events_max: if is_crowd { dice.within(10..=30) } else { dice.within(1..=40) },
            event_pause_ms_max: *dice.pick(&[0, 20, 2_000, 40_000]),
            row_bytes: *dice.pick(&[0, 10, 900, 9_000]),
            eager_snapshots: if is_crowd { 0 } else { *dice.pick(&[0, 0, 1, 3, 10]) },
            retention_ms: *dice.pick(&[0, 0, 5_000, 3_600_000]),
            latency_ms_max: if is_crowd { 800 } else { *dice.pick(&[1, 30, 800]) },
            page_keys: if is_crowd { 1_000 } else { *dice.pick(&[1, 3, 1_000]) },
            durable: if is_crowd { 1_000 } else { *dice.pick(&[0, 300, 700, 1_000]) },
            deletes: fault(dice, 60),
            reshapes: fault(dice, 300),
            crashes: *dice.pick(&[0, 300, 800]),
            disk_losses: *dice.pick(&[0, 500, 1_000]),
            stalls: *dice.pick(&[0, 0, 300, 700]),
            errors: fault(dice, 200),
            lost_replies: fault(dice, 150),
            late_writes: fault(dice, 300),
            hangs: fault(dice, 60),
            bad_bodies: fault(dice, 200),
            work_drops: fault(dice, 20),
        }
    }
}

impl fmt::Display for ReplicaParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}
