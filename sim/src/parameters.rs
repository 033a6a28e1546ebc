//! What one run looks like, drawn from its seed and printed before it starts.
//!
//! Every seed draws its own mix of load and faults: runs that do little of one thing reach states that an even
//! mix never does.

use std::fmt;

use crate::{dice::Dice, script::Kind};

/// The parameters of one run. Chances are per mille.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// What everything else is drawn from.
    pub seed: u64,
    /// Lives of the shard, one after another over the same data.
    pub lives: u64,
    /// Things the clients and the operator do in one life.
    pub actions: u64,
    /// Actors that exist; a third of them is of a class without `on-init`.
    pub actors: u64,
    /// Chance that an event goes to the first few actors.
    pub hot: u64,
    /// Resident actors the shard allows.
    pub resident_max: u64,
    /// Waiting events an actor's mailbox allows.
    pub mailbox_events_max: u64,
    /// Wall-clock limit of one event, in virtual microseconds.
    pub event_limit_us: u64,
    /// Idle time before a sweep lets an actor doze, in virtual microseconds.
    pub doze_after_us: u64,
    /// Idle time before a sweep puts an actor to rest, in virtual microseconds.
    pub hibernate_after_us: u64,
    /// Longest virtual time one poll takes, in microseconds.
    pub poll_cost_us_max: u64,
    /// Longest virtual delay of opening, starting and erasing, in microseconds.
    pub world_delay_us_max: u64,
    /// Longest virtual delay of blocking work, in microseconds.
    pub offload_delay_us_max: u64,
    /// Progress checks in one slice of a statement.
    pub checks_per_slice: u64,
    /// Bytes a row carries beside its keys.
    pub row_bytes: u64,
    /// Steps of an event's script beyond the answer.
    pub script_steps_max: u64,
    /// How likely each kind of step is.
    pub weights: [u64; Kind::ALL.len()],
    /// Opening a database fails.
    pub open_fails: u64,
    /// Making an instance fails, half the time by a panic.
    pub start_fails: u64,
    /// `on-init` does not succeed.
    pub init_fails: u64,
    /// An attempt at an alarm does not simply succeed.
    pub alarm_fails: u64,
    /// The wall clock is set.
    pub clock_sets: u64,
    /// Blocking work is dropped instead of done.
    pub offload_drops: u64,
    /// A client leaves before its answer.
    pub abandons: u64,
    /// A client sends a burst past the mailbox.
    pub bursts: u64,
    /// A class gets a new version.
    pub deploys: u64,
    /// A sweep looks for idle actors.
    pub sweeps: u64,
    /// Everything is left to finish before the next action.
    pub quiets: u64,
    /// A life ends in a crash.
    pub crashes: u64,
    /// A new actor gets a database made ahead.
    pub spares: u64,
    /// A crash comes amid the renames of one.
    pub spares_torn: u64,
}

impl Parameters {
    /// Draws the parameters of `seed`.
    #[must_use]
    pub fn draw(seed: u64, dice: &mut Dice) -> Self {
        // A fault is absent from about half of the seeds.
        let fault = |dice: &mut Dice, max: u64| if dice.chance(500) { 0 } else { dice.within(1..=max) };
        Self {
            seed,
            lives: dice.within(1..=4),
            actions: dice.within(20..=120),
            actors: dice.within(1..=16),
            hot: *dice.pick(&[0, 300, 800]),
            resident_max: dice.within(1..=8),
            mailbox_events_max: dice.within(1..=6),
            event_limit_us: dice.within(4_000..=30_000),
            doze_after_us: dice.within(100..=10_000),
            hibernate_after_us: dice.within(1_000..=20_000),
            // Not too little: an endless statement is polled until its limit.
            poll_cost_us_max: dice.within(40..=300),
            world_delay_us_max: *dice.pick(&[0, 200, 5_000]),
            offload_delay_us_max: *dice.pick(&[0, 200, 5_000]),
            checks_per_slice: *dice.pick(&[0, 0, 1, 4]),
            row_bytes: *dice.pick(&[0, 10, 300]),
            script_steps_max: dice.within(1..=8),
            weights: Kind::ALL.map(
                |kind| {
                    if dice.chance(250) { 0 } else { dice.within(1..=4) * kind.weight() }
                },
            ),
            open_fails: fault(dice, 200),
            start_fails: fault(dice, 200),
            init_fails: fault(dice, 600),
            alarm_fails: fault(dice, 700),
            clock_sets: fault(dice, 60),
            offload_drops: fault(dice, 150),
            abandons: fault(dice, 300),
            bursts: fault(dice, 150),
            deploys: fault(dice, 40),
            sweeps: fault(dice, 150),
            quiets: fault(dice, 120),
            crashes: *dice.pick(&[0, 500, 1_000]),
            spares: *dice.pick(&[0, 500, 1_000]),
            spares_torn: fault(dice, 300),
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}
