//! What an event's handler will do: steps drawn when the event is sent, so that they do not depend on when it
//! runs.

use std::time::Duration;

use crate::{dice::Dice, parameters::Parameters};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $weight:expr,)*) => {
        /// A kind of step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$($weight),*].len()] = [$(Self::$kind),*];

            /// How usual it is; rare ones end the event or take long.
            #[must_use]
            pub const fn weight(self) -> u64 {
                match self { $(Self::$kind => $weight,)* }
            }
        }
    };
}

kinds! {
    /// One row, committed by itself.
    Insert = 8,
    /// One row, durable before the call returns.
    InsertDurable = 3,
    /// Rows in a transaction that commits.
    Commit = 6,
    /// As `Commit`, durable.
    CommitDurable = 2,
    /// Rows in a transaction that is rolled back.
    Rollback = 2,
    /// Rows in a transaction that nobody ends.
    LeftOpen = 3,
    /// Rows behind a savepoint that is rolled back to and stays open.
    LeftOpenSavepoint = 2,
    /// A trigger rolls the transaction back; what follows commits by itself.
    RaiseRollback = 3,
    /// A trigger refuses one statement of a transaction that goes on.
    RaiseAbort = 2,
    /// A constraint refuses a row.
    Constraint = 2,
    /// Many rows by one statement that is suspended on the way.
    Bulk = 3,
    /// A recursive query that takes many slices.
    Count = 2,
    /// A recursive query without end.
    Endless = 1,
    /// A cursor read in part and left open.
    Cursor = 3,
    /// A value that does not fit the quota.
    Fill = 1,
    /// Looks at everything there is.
    Read = 6,
    /// Asks for the actor to be forgotten.
    DeleteSelf = 1,
    /// Sets the alarm, by itself.
    SetAlarm = 3,
    /// Sets it in a transaction that commits.
    SetAlarmCommit = 2,
    /// Sets it in a transaction that is rolled back.
    SetAlarmRollback = 2,
    /// Clears it.
    ClearAlarm = 1,
    /// Waits.
    Sleep = 3,
    /// Waits longer than the event may last.
    SleepPastLimit = 1,
    /// Traps.
    Trap = 1,
    /// Panics within the host.
    Panic = 1,
}

/// A step with its amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Answers the event; steps after it run all the same.
    Answer,
    /// See [`Kind`]; `amount` is rows, rounds or microseconds.
    Do(Kind, u64),
}

/// Rows a statement with many of them writes at most.
const BULK_ROWS_MAX: u64 = 60;
/// Rounds of a finite recursive query; 400 operations are one progress check and a round takes about ten.
const COUNT_ROUNDS_MAX: u64 = 4_000;

/// Draws the script of one event.
pub fn draw(parameters: &Parameters, dice: &mut Dice) -> Vec<Step> {
    let length = dice.below(parameters.script_steps_max + 1);
    let steps = (0..length).map(|_| {
        let kind = Kind::ALL[dice.weighted(&parameters.weights)];
        let amount = match kind {
            Kind::Bulk => dice.within(2..=BULK_ROWS_MAX),
            Kind::Count => dice.within(1..=COUNT_ROUNDS_MAX),
            // Mostly soon; now and then in the past, or further away than any retry.
            Kind::SetAlarm | Kind::SetAlarmCommit | Kind::SetAlarmRollback => {
                *dice.pick(&[0, 1, 5, 40, 40, 2_000, 2_000, 900_000])
            }
            Kind::Sleep => dice.below(parameters.event_limit_us / 2),
            // Far past it: a busy executor may come late to the limit itself.
            Kind::SleepPastLimit => parameters.event_limit_us * 100,
            _ => dice.within(1..=4),
        };
        Step::Do(kind, amount)
    });
    let mut script: Vec<Step> = steps.collect();
    // Most handlers answer at their end; some go on after it.
    let at = if dice.chance(250) { dice.index(script.len() + 1) } else { script.len() };
    script.insert(at, Step::Answer);
    script
}

/// A script without anything that may fail: for the end of a run, when everything must go well.
pub fn draw_benign(dice: &mut Dice) -> Vec<Step> {
    let write = *dice.pick(&[Kind::Insert, Kind::Commit, Kind::CommitDurable]);
    vec![Step::Do(Kind::Read, 1), Step::Do(write, 2), Step::Do(Kind::Read, 1), Step::Answer]
}

/// What an attempt at an alarm will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmPlan {
    /// Nothing, and succeeds.
    Succeed,
    /// Sets the next alarm and succeeds.
    SetNext,
    /// Sets the next alarm and fails.
    SetAndRefuse,
    /// Says that it failed.
    Refuse,
    /// Leaves a transaction open in which it set the next alarm, and succeeds.
    LeaveOpen,
    /// Asks for the actor to be forgotten, then fails.
    DeleteSelf,
    /// Traps.
    Trap,
    /// Panics within the host.
    Panic,
    /// Waits longer than an event may last.
    Sleep,
}

impl AlarmPlan {
    /// Draws a plan that fails in `fails` of 1,000 cases.
    pub fn draw(fails: u64, dice: &mut Dice) -> Self {
        if !dice.chance(fails) {
            return if dice.chance(200) { Self::SetNext } else { Self::Succeed };
        }
        *dice.pick(&[
            Self::SetAndRefuse,
            Self::SetAndRefuse,
            Self::Refuse,
            Self::Refuse,
            Self::LeaveOpen,
            Self::DeleteSelf,
            Self::Trap,
            Self::Panic,
            Self::Sleep,
        ])
    }
}

/// What an `on-init` will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitPlan {
    /// Writes and succeeds.
    Succeed,
    /// Writes, then says that it failed.
    Refuse,
    /// Writes, then traps.
    Trap,
    /// Writes, then panics within the host.
    Panic,
    /// Writes, then waits for too long.
    Sleep,
    /// Writes, has its transaction rolled back by a trigger, and claims success.
    LoseTransaction,
}

impl InitPlan {
    /// Draws a plan that fails in `fails` of 1,000 cases.
    pub fn draw(fails: u64, dice: &mut Dice) -> Self {
        if !dice.chance(fails) {
            return Self::Succeed;
        }
        *dice.pick(&[Self::Refuse, Self::Refuse, Self::Trap, Self::Panic, Self::Sleep, Self::LoseTransaction])
    }
}

/// An amount of microseconds as a duration.
#[must_use]
pub fn micros(amount: u64) -> Duration {
    Duration::from_micros(amount)
}
