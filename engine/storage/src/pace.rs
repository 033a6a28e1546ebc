//! How long a running statement may keep its core.
//!
//! Owns the two ways to measure it. It does not suspend anything: `run` does.

use std::{
    cell::Cell,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// The slice of a statement in production. Long against the cost of giving the core to another task and
/// coming back (about 1 µs), short against the latency another actor of the core may notice: two such
/// slices and a task between them stay under a millisecond.
pub const SLICE: Duration = Duration::from_micros(250);

/// Says when a running statement must give its core back.
///
/// Called on the thread that runs the statement, and never while another statement of the same database runs.
pub trait Pace {
    /// The statement starts, or continues after it gave the core back.
    fn begin(&self);
    /// Asked at each progress check; `true` suspends the statement.
    fn spent(&self) -> bool;
}

/// Gives the core back after a slice of wall-clock time.
#[derive(Debug)]
pub struct WallClock {
    slice: Duration,
    began: Cell<Instant>,
}

impl WallClock {
    /// A pace of `slice`.
    pub fn new(slice: Duration) -> Self {
        Self { slice, began: Cell::new(Instant::now()) }
    }
}

impl Pace for WallClock {
    fn begin(&self) {
        self.began.set(Instant::now());
    }

    fn spent(&self) -> bool {
        self.began.get().elapsed() >= self.slice
    }
}

/// Gives the core back after a number of progress checks: the same at every run, for a simulator.
#[derive(Debug)]
pub struct Checks {
    max: u32,
    left: Cell<u32>,
}

impl Checks {
    /// A pace of `max` progress checks; 0 suspends at each.
    pub fn new(max: u32) -> Self {
        Self { max, left: Cell::new(max) }
    }
}

impl Pace for Checks {
    fn begin(&self) {
        self.left.set(self.max);
    }

    fn spent(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }
}

/// Makes the pace of each database that is opened.
#[derive(Clone)]
pub struct Pacer(Arc<dyn Fn() -> Box<dyn Pace + Send> + Send + Sync>);

impl Pacer {
    /// Wall-clock slices.
    pub fn wall_clock(slice: Duration) -> Self {
        Self::new(move || Box::new(WallClock::new(slice)))
    }

    /// Slices of `max` progress checks.
    pub fn checks(max: u32) -> Self {
        Self::new(move || Box::new(Checks::new(max)))
    }

    /// Any other pace.
    pub fn new(make: impl Fn() -> Box<dyn Pace + Send> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self) -> Box<dyn Pace + Send> {
        (self.0)()
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::wall_clock(SLICE)
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pacer")
    }
}
