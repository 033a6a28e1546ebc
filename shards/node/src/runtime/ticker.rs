//! The ticker: the one thread that keeps busy shards fair, and watches them.
//!
//! Owns when a shard is told to look up from its tasks, the `on_tick` hook (the epoch of running guests) and the
//! watchdog. Does not own the marks it reads ([`Pulse`](super::pulse)).
//!
//! While a shard polls guest work the ticker writes a byte to a Unix socket that a task on that shard reads. That
//! read completes in the executor's latency ring, which is what makes the executor leave its run queue and look at
//! its timers, its sockets and foreign wakes. The next tick is sent once that task has run, so each pass of the run
//! queue is interrupted once, however many tasks are in it. A shard that is not inside a poll when sampled gets no byte, and
//! with nobody busy for a while the ticker parks until the next [`Pulse::enter`](super::pulse::Pulse::enter): an
//! idle node costs nothing.

use super::{pulse::Beat, watchdog::Watch};
use std::{
    fmt, io,
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering, fence},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

/// Default time between ticks of a busy shard. A guest that spins gives its core back every tick, so this bounds
/// what one offender adds to its neighbours' latency; each tick costs a busy shard about 5 µs, 1 %.
pub const TICK: Duration = Duration::from_micros(500);

/// Default time after which one poll counts as a stall.
pub const STALL_AFTER: Duration = Duration::from_millis(20);

/// A busy shard that neither ended a poll nor read its tick for this long is named by the watchdog.
pub const SILENT_AFTER: Duration = Duration::from_secs(2);

/// Longest time between two looks while nobody was inside a poll lately: short polls cost few wakes of this
/// thread, and a poll that turns out long is first noticed this late.
const LOOK_MAX: Duration = Duration::from_millis(4);

/// Without any poll for this long the ticker parks. Long enough that steady light load does not pay a futex wake
/// per event.
const PARK_AFTER: Duration = Duration::from_millis(100);

/// What the ticker calls and how often.
pub struct Hooks {
    /// Called once per tick while any shard is inside a poll. Must be quick and must not panic.
    pub on_tick: Box<dyn Fn() + Send>,
    /// Time between ticks.
    pub tick: Duration,
    /// One poll longer than this is a stall.
    pub stall_after: Duration,
    /// A busy shard silent for this long is named in the log.
    pub silent_after: Duration,
    /// Who is told when a shard makes no progress at all.
    pub watch: Option<Watch>,
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks {
            on_tick: Box::new(|| ()),
            tick: TICK,
            stall_after: STALL_AFTER,
            silent_after: SILENT_AFTER,
            watch: None,
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("tick", &self.tick).finish_non_exhaustive()
    }
}

/// What shards and ticker share.
#[derive(Debug, Default)]
pub struct TickerState {
    parked: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

impl TickerState {
    /// Called by a shard after it published its sequence.
    pub(super) fn wake_if_parked(&self) {
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::AcqRel) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A running ticker; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread. `wires` are the ticker's ends of the shards' sockets, in the order of `beats`; see
    /// `TickReaders` for why there are two.
    pub(super) fn start(
        state: Arc<TickerState>,
        beats: Vec<Arc<Beat>>,
        wires: Vec<[UnixStream; 2]>,
        hooks: Hooks,
    ) -> io::Result<Ticker> {
        for wire in wires.iter().flatten() {
            wire.set_nonblocking(true)?;
        }
        let shards = beats.into_iter().zip(wires).map(|(beat, wires)| Watched::new(beat, wires)).collect();
        let mut run = Run { state: state.clone(), shards, hooks };
        let thread = thread::Builder::new().name("ticker".into()).spawn(move || {
            // Before the first look, so that whoever finds it parked can wake it.
            let _ = run.state.thread.set(thread::current());
            run.run();
        })?;
        Ok(Ticker { state, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// One shard as the ticker sees it.
struct Watched {
    beat: Arc<Beat>,
    wires: [UnixStream; 2],
    sequence: u64,
    /// Since when the shard has neither ended its poll nor read its tick.
    still_since: Option<Instant>,
    named: bool,
}

/// What one look at a shard found.
struct Look {
    inside: bool,
    moved: bool,
    waits: bool,
}

impl Watched {
    fn new(beat: Arc<Beat>, wires: [UnixStream; 2]) -> Watched {
        Watched { beat, wires, sequence: 0, still_since: None, named: false }
    }

    fn look(&mut self) -> Look {
        let sequence = self.beat.sequence();
        let moved = sequence != self.sequence;
        self.sequence = sequence;
        let inside = !sequence.is_multiple_of(2);
        // Before this look's own tick: it is the earlier ones that the shard must have read by now.
        let waits = self.beat.unread_tick.load(Ordering::Acquire);
        if inside && !waits {
            self.beat.unread_tick.store(true, Ordering::Release);
            self.beat.count_tick();
            // It cannot be full, one byte is under way at most; a shard that ended needs no tick.
            // The two sockets take turns: the reader of the last tick may still be on its way back to the kernel.
            self.wires.swap(0, 1);
            if self.wires[0].write(&[0]).is_err() {
                self.beat.unread_tick.store(false, Ordering::Release);
            }
        }
        Look { inside, moved, waits }
    }

    fn watch(&mut self, shard: usize, look: &Look, now: Instant, silent_after: Duration) {
        // Progress is a poll that ended and a tick that was read: a shard that yields for ever without looking
        // at its sockets is as silent as one that never yields.
        let still = look.waits || (look.inside && !look.moved);
        if !still {
            self.still_since = None;
            self.named = false;
            return;
        }
        let since = *self.still_since.get_or_insert(now);
        if !self.named && now.duration_since(since) >= silent_after {
            self.named = true;
            self.beat.count_silence();
            let held_by = self.beat.held_by().unwrap_or_else(|| "nobody inside a poll".into());
            tracing::error!(shard, held_by, silent_ms = silent_after.as_millis() as u64, "a shard is silent");
        }
    }
}

struct Run {
    state: Arc<TickerState>,
    shards: Vec<Watched>,
    hooks: Hooks,
}

impl Run {
    fn run(&mut self) {
        let mut period = self.hooks.tick;
        let mut quiet_since: Option<Instant> = None;
        while !self.state.stop.load(Ordering::Acquire) {
            let now = Instant::now();
            let (mut inside, mut active) = (false, false);
            for (index, shard) in self.shards.iter_mut().enumerate() {
                let look = shard.look();
                shard.watch(index, &look, now, self.hooks.silent_after);
                inside |= look.inside;
                active |= look.inside || look.moved || look.waits;
            }
            if inside {
                (self.hooks.on_tick)();
            }
            period = if inside { self.hooks.tick } else { (period * 2).min(LOOK_MAX.max(self.hooks.tick)) };
            if active {
                quiet_since = None;
            } else if now.duration_since(*quiet_since.get_or_insert(now)) >= PARK_AFTER {
                self.park();
                quiet_since = None;
                period = self.hooks.tick;
            }
            thread::park_timeout(period);
        }
    }

    /// Parks until a shard enters a poll. No wake is lost: the flag is set first and the sequences are read again
    /// after it, while a shard publishes its sequence first and reads the flag after it.
    fn park(&mut self) {
        self.state.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let moved = |shard: &Watched| shard.beat.sequence() != shard.sequence;
        while !self.shards.iter().any(moved)
            && self.state.parked.load(Ordering::Acquire)
            && !self.state.stop.load(Ordering::Acquire)
        {
            thread::park();
        }
        self.state.parked.store(false, Ordering::Relaxed);
    }
}
