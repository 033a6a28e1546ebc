//! The watchdog: finds a shard that makes no progress at all.
//!
//! - Owns: the question each shard is asked, how long one may leave it unanswered, the thread that asks.
//! - Does not own: what follows; who started it is told.
//!
//! A shard answers from a task of its own, so an answer means that its executor takes in wakes and runs its tasks. The
//! thread is none of the shards', and touches nothing of theirs that could block it.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::Beat;

/// Default time without an answer after which a shard counts as frozen. A poll that holds its core is ended or
/// preempted within about a second, and a disk that hangs for half a minute while its storage fails over is survived;
/// what lasts longer does not pass by itself.
pub const FROZEN_AFTER: Duration = Duration::from_secs(60);

/// A shard is asked so many times in that time.
const ROUNDS: u32 = 12;

/// What is watched for, and who is told. Told once at most.
pub struct Watch {
    /// Time without an answer after which a shard counts as frozen.
    pub frozen_after: Duration,
    /// Called on the watchdog's thread.
    pub tell: Box<dyn FnOnce(Frozen) + Send>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("frozen_after", &self.frozen_after).finish_non_exhaustive()
    }
}

/// A shard that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    /// Which, from 0.
    pub shard: usize,
    /// How long it was seen to make none.
    pub lasted: Duration,
    /// Whose work it is in, if it is in the middle of an actor's.
    pub held_by: Option<String>,
}

impl fmt::Display for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} has made no progress for {:?}", self.shard, self.lasted)?;
        match &self.held_by {
            Some(actor) => write!(f, ", held by {actor}"),
            None => Ok(()),
        }
    }
}

/// Questions to one shard, for the watchdog.
#[derive(Debug)]
pub(super) struct Asks {
    questions: flume::Sender<()>,
    answers: Arc<AtomicU64>,
    beat: Arc<Beat>,
}

/// The shard's side.
#[derive(Debug)]
pub(super) struct Answers {
    questions: flume::Receiver<()>,
    answers: Arc<AtomicU64>,
}

/// Both sides for one shard.
pub(super) fn pair(beat: &Arc<Beat>) -> (Asks, Answers) {
    // One question at a time.
    let (ask, questions) = flume::bounded(1);
    let answers = Arc::<AtomicU64>::default();
    (
        Asks { questions: ask, answers: Arc::clone(&answers), beat: Arc::clone(beat) },
        Answers { questions, answers },
    )
}

impl Asks {
    /// Whether `asked` questions have their answers. A shard that has ended owes none.
    fn are_answered(&self, asked: u64) -> bool {
        self.answers.load(Ordering::Acquire) == asked || self.questions.is_disconnected()
    }
}

impl Answers {
    /// Answers until nobody asks any more. To be run as a task of the shard.
    pub(super) async fn run(self) {
        while self.questions.recv_async().await.is_ok() {
            self.answers.fetch_add(1, Ordering::Release);
        }
    }
}

/// A running watchdog. Its thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watchdog(#[expect(dead_code, reason = "its end is what is told")] flume::Sender<()>);

impl Watchdog {
    pub(super) fn start(watch: Watch, shards: Vec<Asks>) -> io::Result<Self> {
        let (alive, ended) = flume::bounded::<()>(0);
        thread::Builder::new().name("watchdog".into()).spawn(move || run(watch, &shards, &ended))?;
        Ok(Self(alive))
    }
}

fn run(watch: Watch, shards: &[Asks], ended: &flume::Receiver<()>) {
    let period = watch.frozen_after / ROUNDS;
    let mut silent: Vec<Silence> = shards.iter().map(|_| Silence::default()).collect();
    loop {
        let began = Instant::now();
        if ended.recv_timeout(period) != Err(flume::RecvTimeoutError::Timeout) {
            return;
        }
        let elapsed = began.elapsed();
        for (shard, (asks, silence)) in shards.iter().zip(&mut silent).enumerate() {
            let answered = asks.are_answered(silence.asked);
            silence.lasted = judge(silence.lasted, answered, elapsed, period);
            if silence.lasted >= watch.frozen_after {
                let held_by = asks.beat.held_by();
                return (watch.tell)(Frozen { shard, lasted: silence.lasted, held_by });
            }
            if answered && asks.questions.try_send(()).is_ok() {
                silence.asked += 1;
            }
        }
    }
}

/// One shard, as the watchdog knows it.
#[derive(Debug, Default)]
struct Silence {
    asked: u64,
    lasted: Duration,
}

/// How long a shard has been silent for, after a look that came `elapsed` after the one before it.
///
/// A look counts for one `period` however late it comes: in a machine that was suspended, or a process that was stopped,
/// the shards stood still for as long as the watchdog did, and have had no time to answer.
fn judge(lasted: Duration, answered: bool, elapsed: Duration, period: Duration) -> Duration {
    if answered { Duration::ZERO } else { lasted + elapsed.min(period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_looks_without_an_answer_count_and_each_for_its_period_at_most() {
        const PERIOD: u64 = 5;
        let (yes, no) = (true, false);
        for (what, looks, frozen_at) in [
            ("all is well", vec![(yes, 5); 100], None),
            ("it never answers", vec![(no, 5); 100], Some(12)),
            ("a slow watchdog counts what it saw", vec![(no, 6); 100], Some(12)),
            ("a late answer is an answer", [vec![(no, 5); 11], vec![(yes, 5)]].concat().repeat(5), None),
            ("it freezes later", [vec![(yes, 5); 40], vec![(no, 5); 12]].concat(), Some(52)),
            ("a machine suspended for a night", vec![(yes, 5), (no, 36_000), (yes, 5)], None),
            ("suspended again and again", [(no, 36_000), (yes, 5)].repeat(50), None),
            (
                "frozen, and suspended meanwhile",
                [vec![(no, 5); 6], vec![(no, 3600)], vec![(no, 5); 5]].concat(),
                Some(12),
            ),
        ] {
            let mut lasted = Duration::ZERO;
            let found = looks.iter().position(|(answered, elapsed)| {
                lasted = judge(lasted, *answered, Duration::from_secs(*elapsed), Duration::from_secs(PERIOD));
                lasted >= FROZEN_AFTER
            });
            assert_eq!(found.map(|at| at + 1), frozen_at, "{what}");
        }
    }
}
