//! The time of a simulated cluster, and what each machine makes of it.

use std::time::Duration;

use wasmkeep_protocol::clock::{Moment, Now};

/// True time: microseconds since the run began. No machine sees it.
pub type Time = u64;

/// One second of true time.
pub const SECOND: Time = 1_000_000;
/// One millisecond of true time.
pub const MILLI: Time = 1_000;

/// The wall clock of a machine that is right, in milliseconds since 1970, when the run begins.
const WALL_AT_START_MS: i64 = 1_700_000_000_000;

/// The wall clock of a machine that is right.
pub fn wall_ms(time: Time) -> u64 {
    WALL_AT_START_MS as u64 + time / MILLI
}

/// A machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// What `CLOCK_BOOTTIME` showed when the run began, in microseconds.
    pub boot_us: u64,
    /// How much faster than true time it runs, in parts of a million.
    pub drift_ppm: i64,
    /// How far ahead its wall clock is, in milliseconds.
    pub skew_ms: i64,
    /// Time it slept, which a clock that stands still in sleep does not count. Not counted by ours.
    pub missed_us: u64,
}

impl Clocks {
    /// What both clocks show at `time`.
    pub fn now(&self, time: Time) -> Now {
        let drift = i128::from(time) * i128::from(self.drift_ppm) / 1_000_000;
        let boot_us = i128::from(self.boot_us) + i128::from(time) + drift - i128::from(self.missed_us);
        let wall_ms = WALL_AT_START_MS + (time / MILLI) as i64 + self.skew_ms;
        Now {
            moment: Moment::after_boot(Duration::from_micros(boot_us.max(0) as u64)),
            wall_ms: wall_ms.max(0) as u64,
        }
    }

    /// The earliest true time, not before `from`, at which `moment` has come.
    pub fn when(&self, moment: Moment, from: Time) -> Time {
        let wait = moment.since(self.now(from).moment).as_micros();
        // Rounded up, and a little later still: a timer is never early.
        let scaled = wait * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm)) as u128;
        from + scaled as Time + u64::from(wait > 0) * 2
    }
}
