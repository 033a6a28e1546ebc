//! What one run of a cluster looks like, drawn from its seed. Chances are per mille.

use std::fmt;

use super::time::{MILLI, SECOND, Time};
use crate::dice::Dice;

/// Node ids at most.
pub const NODES_MAX: usize = 7;

/// The parameters of one run.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// What everything is drawn from.
    pub seed: u64,
    /// Node ids.
    pub nodes: usize,
    /// Actors.
    pub actors: usize,
    /// How long faults and requests go on.
    pub faults_for: Time,
    /// Mean time between two requests of clients.
    pub request_every: Time,
    /// Chance that a request has a body.
    pub bodies: u64,
    /// Chance that a request is for the actor that deletes itself.
    pub deletes: u64,
    /// Chance that a client leaves before its answer.
    pub leaves: u64,
    /// Longest event.
    pub event_max: Time,
    /// Idle time after which an actor is given up.
    pub idle: Time,
    /// Files before a snapshot is made whatever the schedule says; 0 leaves it to the schedule.
    pub eager_snapshots: u64,
    /// History younger than this stays, in milliseconds.
    pub retention_ms: u64,
    /// Longest usual way of a message, one direction.
    pub way_max: Time,
    /// Chance that a request to the bucket, or its reply, is lost.
    pub loss: u64,
    /// Chance that it takes far longer than usual.
    pub late: u64,
    /// How long such a one takes at most.
    pub late_max: Time,
    /// Chance that a request reaches the bucket twice.
    pub twice: u64,
    /// Chance that the bucket refuses a request.
    pub refused: u64,
    /// How late a timer fires at most.
    pub timer_lag_max: Time,
    /// How far off the wall clocks are, in milliseconds.
    pub skew_ms_max: u64,
    /// Chance that a machine's wall clock is off by an hour or more.
    pub wild_clocks: u64,
    /// Chance that a machine's clock runs up to half as fast again, or half as fast.
    pub wild_drifts: u64,
    /// How fast or slow clocks run, in parts of a million.
    pub drift_ppm_max: u64,
    /// Mean time between two faults.
    pub fault_every: Time,
    /// How likely each kind of fault is, in the order of [`super::faults::Fault::ALL`].
    pub faults: [u64; super::faults::FAULTS],
    /// `--failover-wait-secs`, in seconds.
    pub wait_secs: u64,
    /// Connections a node takes; a quarter of them may be kept requests.
    pub connections_max: usize,
}

impl Parameters {
    /// The parameters of a seed.
    pub fn draw(seed: u64, dice: &mut Dice) -> Self {
        // About half of the runs leave any one kind of trouble out.
        let sometimes = |dice: &mut Dice, max: u64| if dice.chance(500) { 0 } else { dice.within(1..=max) };
        let mut faults = [0; super::faults::FAULTS];
        for weight in &mut faults {
            *weight = sometimes(dice, 10);
        }
        Self {
            seed,
            nodes: dice.within(3..=NODES_MAX as u64) as usize,
            actors: dice.within(2..=8) as usize,
            faults_for: dice.within(60..=180) * SECOND,
            request_every: dice.within(100..=1_000) * MILLI,
            bodies: dice.within(100..=900),
            deletes: sometimes(dice, 300),
            leaves: sometimes(dice, 300),
            event_max: dice.within(10..=4_000) * MILLI,
            idle: dice.within(1..=20) * SECOND,
            eager_snapshots: *dice.pick(&[0, 0, 3, 10]),
            retention_ms: *dice.pick(&[0, 0, 20_000, 3_600_000]),
            way_max: dice.within(2..=80) * MILLI,
            loss: sometimes(dice, 150),
            late: sometimes(dice, 60),
            late_max: dice.within(3..=90) * SECOND,
            twice: sometimes(dice, 100),
            refused: sometimes(dice, 200),
            timer_lag_max: dice.within(0..=300) * MILLI,
            skew_ms_max: dice.within(0..=1_000),
            wild_clocks: sometimes(dice, 300),
            wild_drifts: if dice.chance(100) { 500 } else { 0 },
            drift_ppm_max: dice.within(0..=2_000),
            fault_every: dice.within(2..=20) * SECOND,
            faults,
            wait_secs: if dice.chance(100) { 0 } else { 25 },
            connections_max: if dice.chance(300) { dice.within(0..=24) as usize } else { 10_000 },
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}
