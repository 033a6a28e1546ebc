//! Starting the executors, once each, and waiting for them. Owns the threads; what they run is the caller's.

use super::{
    Beat, CpuSet, Hooks, Placement, Pulse, Sleeper,
    ticker::{Ticker, TickerState},
    watchdog::{self, Answers, Watchdog},
};
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, PoolPlacement, net};
use std::{
    fmt, io,
    os::{
        fd::{FromRawFd, IntoRawFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The executor's own preemption timer, set so that it never fires: when it expires before the first task of a
/// pass has run, the executor parks with runnable tasks. The ticker takes its place.
const PREEMPT_TIMER: Duration = Duration::from_secs(3600);

/// The self-test: this many sleeps of a millisecond on each executor...
const SELF_TEST_SLEEPS: u32 = 10;

/// ...within this time, in one of [`SELF_TEST_ROUNDS`] rounds. Some kernels and virtual machines lose timers.
const SELF_TEST_LIMIT: Duration = Duration::from_secs(1);

/// A machine that is merely loaded passes a later round.
const SELF_TEST_ROUNDS: u32 = 3;

/// How long the executors may take to report before their timers count as lost.
const SELF_TEST_WAIT: Duration = Duration::from_secs(10);

/// What a shard's body is given.
#[derive(Debug, Clone)]
pub struct ShardContext {
    /// This shard, from 0.
    pub index: usize,
    /// Shards of the node.
    pub count: usize,
    /// Marks for work that may hold the core.
    pub pulse: Rc<Pulse>,
    /// Coarse timers.
    pub sleeper: Sleeper,
}

/// Why the executors did not start. Nothing of the body ran.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An executor could not be made.
    #[error(
        "the executor of shard {shard} could not be started: {reason}; lower the number of shards or the ring depth"
    )]
    Executor {
        /// Which.
        shard: usize,
        /// In the executor's words.
        reason: String,
    },
    /// Timers do not work on this machine.
    #[error(
        "{SELF_TEST_SLEEPS} sleeps of 1 ms took longer than {SELF_TEST_LIMIT:?} on shard {shard}, so timers cannot be relied on; use another kernel or another kind of virtual machine"
    )]
    SelfTest {
        /// First shard that failed.
        shard: usize,
    },
    /// Threads or sockets could not be made.
    #[error("the shards' ticker could not be started: {0}; free descriptors or threads and start again")]
    Ticker(#[from] io::Error),
}

/// A shard ended in a way that its body did not choose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} failed: {reason}")]
pub struct ShardFailed {
    /// Which.
    pub shard: usize,
    /// What its thread left.
    pub reason: String,
}

/// Running shards.
pub struct Shards<T: Send + 'static> {
    handles: Vec<ExecutorJoinHandle<Option<T>>>,
    beats: Vec<Arc<Beat>>,
    _ticker: Ticker,
    _watchdog: Option<Watchdog>,
}

impl<T: Send + 'static> Shards<T> {
    /// The shards' marks, in order, for metrics.
    pub fn beats(&self) -> &[Arc<Beat>] {
        &self.beats
    }

    /// Waits for all bodies to end and returns what they returned, in order.
    pub fn join(self) -> Vec<Result<T, ShardFailed>> {
        let failed = |shard, reason: String| ShardFailed { shard, reason };
        self.handles
            .into_iter()
            .enumerate()
            .map(|(shard, handle)| match handle.join() {
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err(failed(shard, "it was never let go".into())),
                Err(error) => Err(failed(shard, error.to_string())),
            })
            .collect()
    }
}

impl<T: Send + 'static> fmt::Debug for Shards<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("count", &self.handles.len()).finish_non_exhaustive()
    }
}

/// Starts one executor per shard, proves their timers, and runs `body` on each.
///
/// # Errors
/// When an executor cannot be made or a timer does not fire; executors that did start have ended.
pub fn start<B, F, T>(placement: &Placement, mut hooks: Hooks, body: B) -> Result<Shards<T>, StartError>
where
    B: Fn(ShardContext) -> F + Clone + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let state = Arc::new(TickerState::default());
    let (report, reports) = flume::unbounded::<(usize, bool)>();
    let (go, gate) = flume::bounded::<()>(placement.shards);
    let (mut handles, mut beats, mut wires) = (Vec::new(), Vec::new(), Vec::new());
    let mut watched = Vec::new();
    for index in 0..placement.shards {
        let (pair, other) = (UnixStream::pair()?, UnixStream::pair()?);
        let beat = Arc::new(Beat::new());
        let (asks, answers) = watchdog::pair(&beat);
        watched.push(asks);
        let seat = Seat {
            index,
            count: placement.shards,
            beat: beat.clone(),
            state: state.clone(),
            stall_after: hooks.stall_after,
            wires: [pair.1, other.1],
            answers,
            report: report.clone(),
            gate: gate.clone(),
        };
        beats.push(beat);
        wires.push([pair.0, other.0]);
        let body = body.clone();
        let handle = builder(placement, index)
            .spawn(move || seat.run(body))
            .map_err(|error| StartError::Executor { shard: index, reason: error.to_string() })?;
        handles.push(handle);
    }
    drop((report, gate));
    let watch = hooks.watch.take();
    let ticker = Ticker::start(state, beats.clone(), wires, hooks)?;
    if let Err(failure) = await_reports(placement.shards, &reports) {
        drop(go);
        return Err(match failure {
            Failure::Timer(shard) => StartError::SelfTest { shard },
            // Not joined above: a shard whose timers are lost would never end.
            Failure::Executor => first_failure(handles),
        });
    }
    for _ in 0..placement.shards {
        let _ = go.send(());
    }
    let watchdog = watch.map(|watch| Watchdog::start(watch, watched)).transpose()?;
    Ok(Shards { handles, beats, _ticker: ticker, _watchdog: watchdog })
}

fn builder(placement: &Placement, index: usize) -> LocalExecutorBuilder {
    let place = match (&placement.cpuset, placement.pin) {
        (None, false) => glommio::Placement::Unbound,
        (set, true) => {
            let cpu = set.clone().or_else(|| CpuSet::allowed().ok()).and_then(|set| set.get(index));
            cpu.map_or(glommio::Placement::Unbound, glommio::Placement::Fixed)
        }
        (Some(set), false) => match glommio::CpuSet::online() {
            Ok(online) => glommio::Placement::Fenced(online.filter(|at| set.contains(at.cpu))),
            Err(_) => glommio::Placement::Unbound,
        },
    };
    LocalExecutorBuilder::new(place)
        .name("shard")
        .spin_before_park(placement.spin_before_park)
        .ring_depth(placement.ring_depth)
        .io_memory(placement.io_memory)
        .preempt_timer(PREEMPT_TIMER)
        // Ours goes through `OffloadPool`; the executor insists on one thread of its own.
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
}

enum Failure {
    Timer(usize),
    Executor,
}

fn await_reports(shards: usize, reports: &flume::Receiver<(usize, bool)>) -> Result<(), Failure> {
    let deadline = Instant::now() + SELF_TEST_WAIT;
    let mut missing: Vec<usize> = (0..shards).collect();
    while let Some(first) = missing.first().copied() {
        match reports.recv_deadline(deadline) {
            Ok((shard, true)) => missing.retain(|other| *other != shard),
            Ok((shard, false)) => return Err(Failure::Timer(shard)),
            Err(flume::RecvTimeoutError::Timeout) => return Err(Failure::Timer(first)),
            Err(flume::RecvTimeoutError::Disconnected) => return Err(Failure::Executor),
        }
    }
    Ok(())
}

fn first_failure<T: Send + 'static>(handles: Vec<ExecutorJoinHandle<Option<T>>>) -> StartError {
    let mut found = None;
    for (shard, handle) in handles.into_iter().enumerate() {
        if let Err(error) = handle.join() {
            found.get_or_insert(StartError::Executor { shard, reason: error.to_string() });
        }
    }
    found.unwrap_or(StartError::Executor { shard: 0, reason: "its thread ended early".into() })
}

/// What travels to a shard's thread.
struct Seat {
    index: usize,
    count: usize,
    beat: Arc<Beat>,
    state: Arc<TickerState>,
    stall_after: Duration,
    wires: [UnixStream; 2],
    answers: Answers,
    report: flume::Sender<(usize, bool)>,
    gate: flume::Receiver<()>,
}

impl Seat {
    async fn run<B, F, T>(self, body: B) -> Option<T>
    where
        B: Fn(ShardContext) -> F,
        F: Future<Output = T>,
    {
        let passed = self_test().await;
        let _ = self.report.send((self.index, passed));
        drop(self.report);
        self.gate.recv_async().await.ok()?;
        let ticks = TickReaders::start(self.wires, &self.beat).await;
        let answering = glommio::spawn_local(self.answers.run());
        let pulse = Rc::new(Pulse::new(self.index, self.beat, self.state, self.stall_after));
        let context = ShardContext { index: self.index, count: self.count, pulse, sleeper: Sleeper::start() };
        let value = body(context).await;
        answering.cancel().await;
        ticks.end().await;
        Some(value)
    }
}

async fn self_test() -> bool {
    for _ in 0..SELF_TEST_ROUNDS {
        let began = Instant::now();
        for _ in 0..SELF_TEST_SLEEPS {
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
        if began.elapsed() <= SELF_TEST_LIMIT {
            return true;
        }
    }
    false
}

/// The tasks that read the ticks. Reading is all there is to do: that a read completed made the executor look up.
///
/// There are two, and the ticker writes to one only after the other has read. A read becomes known to the kernel
/// when the executor next looks at its rings, which on a busy shard is only at the next tick; so while one of them
/// asks anew, the other's read must be in the kernel already.
struct TickReaders {
    wires: [UnixStream; 2],
    tasks: Vec<glommio::task::JoinHandle<()>>,
}

impl TickReaders {
    async fn start(wires: [UnixStream; 2], beat: &Arc<Beat>) -> TickReaders {
        let mut tasks = Vec::new();
        for wire in &wires {
            if let Ok(own) = wire.try_clone() {
                tasks.push(glommio::spawn_local(read_ticks(own, beat.clone())).detach());
            }
        }
        // A sleep passes through the rings: both reads are in the kernel before anything can keep the core busy.
        glommio::timer::sleep(Duration::from_millis(1)).await;
        TickReaders { wires, tasks }
    }

    /// Ends the readers, so that their sockets are closed before the executor goes.
    async fn end(self) {
        for wire in &self.wires {
            let _ = wire.shutdown(std::net::Shutdown::Both);
        }
        for task in self.tasks {
            task.await;
        }
    }
}

async fn read_ticks(wire: UnixStream, beat: Arc<Beat>) {
    let Ok(own) = wire.try_clone() else { return };
    // SAFETY: the descriptor is owned by nothing else from here on.
    let stream = unsafe { net::UnixStream::from_raw_fd(own.into_raw_fd()) };
    let mut byte = [0; 1];
    // Of the executor's ways to read a stream only the peek goes through its latency ring, whose completions are
    // what makes it leave its run queue.
    while matches!(stream.peek(&mut byte).await, Ok(1..)) {
        let _ = rustix::net::recv(&wire, &mut byte, rustix::net::RecvFlags::DONTWAIT);
        beat.unread_tick.store(false, Ordering::Release);
    }
}
