//! Rebuilding an actor's database from its history (R-RST-1 to R-RST-5).
//!
//! Files are applied in order, small ones together, while up to eight others are being read. The time a restore has
//! counts only what it waits for the bucket to bring the next file: not listing, not the local disk, not waiting for a
//! turn among the node's restores, and not what their bytes added to the limits of a file's tries. So no restore is
//! ended because of what others read, and one that is alone on the node gets nothing beyond its own time.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    path::Path,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use wasmkeep_bucket::{Bucket, Key};
use wasmkeep_protocol::{
    history::{HistoryFile, Plan, Point},
    limits::{RESTORE_AHEAD_BYTES, RESTORE_READS_PER_ACTOR, RESTORES_APPLIED_AT_ONCE},
    object_keys,
    replication::restore_limit,
};
use wasmkeep_runtime::{Runtime, within_moving};

use crate::{
    budget::ReadBudget,
    building::{Building, LocalError, set_aside},
    history::{History, HistoryError, look},
    read::{Excuse, ReadFailure, Wanted, read},
    turns::Turns,
};

/// Listings one restore goes through when planned files vanish under it: the actor's last owner is collecting.
const PLANS_MAX: u32 = 4;

/// Damaged files one restore goes around. Each costs reading what was read before once more.
const DAMAGED_MAX: usize = 16;

/// Least time between two looks at what a restore has waited.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why a database could not be restored. Nothing local has changed, unless the very last step failed: then the
/// file that was there is set aside and none is in its place.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The history could not be listed, or is broken.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A file of it could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The bucket took too long altogether.
    #[error("the bucket kept the restore waiting for more than {0:?}")]
    TooSlow(Duration),
    /// A file is not what it should be, or the local disk failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The threads that do heavy work gave it up.
    #[error("the work on the local files was given up")]
    GivenUp,
}

impl RestoreError {
    /// Whether the history cannot be restored without losing data, whoever tries (500); otherwise another try may
    /// succeed (503).
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        match self {
            Self::History(error) => !error.passes(),
            Self::Local(error) => error.is_lossy(),
            Self::Read(failure) => matches!(failure, ReadFailure::Damaged { .. }),
            Self::TooSlow(_) | Self::GivenUp => false,
        }
    }
}

impl RestoreError {
    /// The file of the history below `folder` that no restore can use.
    fn damaged(&self, folder: &str) -> Option<HistoryFile> {
        match self {
            Self::Local(error) => error.file(),
            Self::Read(ReadFailure::Damaged { key, .. }) => {
                object_keys::parse_history_file(folder, key.as_str())
            }
            _ => None,
        }
    }
}

/// What a restore came to.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The history that was restored.
    pub history: History,
    /// The state of the database that is now in place; [`Point::START`] when there is no history, and then
    /// nothing was touched.
    pub point: Point,
}

/// Restores the actors of one node, within one budget.
#[derive(Debug)]
pub struct Restorer<B, S> {
    reads: B,
    lists: B,
    runtime: S,
    budget: ReadBudget,
    /// Of applying files.
    turns: Turns,
    pages_max: u32,
}

impl<B: Bucket, S: Runtime> Restorer<B, S> {
    /// `reads` and `lists` are ways to the same bucket; databases of more than `pages_max` pages are refused.
    pub fn new(reads: B, lists: B, runtime: S, budget: ReadBudget, pages_max: u32) -> Self {
        let turns = Turns::new(RESTORES_APPLIED_AT_ONCE);
        Self { reads, lists, runtime, budget, turns, pages_max }
    }

    /// What the bucket has of the actor. Its end tells whether a local database with that checksum is current.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub async fn look(&self, folder: &str) -> Result<History, HistoryError> {
        look(&self.lists, &self.runtime, folder).await
    }

    /// Puts the latest state at `path`, which nobody has open. A database there, current or not, is set aside.
    /// `looked` is what [`Restorer::look`] found under the same hold; it saves a listing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub async fn rebuild(
        &self,
        folder: &str,
        path: &Path,
        looked: Option<History>,
    ) -> Result<Restored, RestoreError> {
        let (mut plans, mut looked) = (0, looked);
        let mut damaged = BTreeSet::new();
        loop {
            let history = match looked.take() {
                Some(history) => history,
                None => self.look(folder).await?,
            };
            let around = history.plan_around(&damaged).or_else(|| history.plan().cloned());
            let Some(plan) = around else { return Ok(Restored { history, point: Point::START }) };
            plans += 1;
            match self.carry_out(folder, path, &history, &plan).await {
                // case R3
                Err(RestoreError::Read(ReadFailure::Gone(_) | ReadFailure::Changed(_)))
                    if plans < PLANS_MAX => {}
                Err(error) => {
                    let file = error.damaged(folder).filter(|_| damaged.len() < DAMAGED_MAX);
                    let is_news = file.is_some_and(|file| damaged.insert(file));
                    if !is_news || history.plan_around(&damaged).is_none() {
                        return Err(error);
                    }
                    tracing::warn!(folder, "restoring by older files, which lead to the same state: {error}");
                    (plans, looked) = (plans - 1, Some(history));
                }
                Ok(()) => {
                    let point = plan.end();
                    return Ok(Restored { history: history.restored_by(plan), point });
                }
            }
        }
    }

    async fn carry_out(
        &self,
        folder: &str,
        path: &Path,
        history: &History,
        plan: &Plan,
    ) -> Result<(), RestoreError> {
        let target = path.to_owned();
        if plan.end().is_empty() {
            return Ok(self.work(move || set_aside(&target)).await??);
        }
        let pages_max = self.pages_max;
        let mut building = self.work(move || Building::begin(target, pages_max)).await??;
        let wanted: Vec<(HistoryFile, Wanted)> = plan
            .files()
            .map(|file| (file, Wanted { key: key_of(folder, &file), bytes: history.size_of(&file) }))
            .collect();
        let bytes = wanted.iter().map(|(_, wanted)| wanted.bytes).sum();
        let mut reads = Ahead::new(self, wanted.iter().map(|(_, wanted)| wanted));
        let mut time = WaitingTime::new(restore_limit(bytes, wanted.len() as u64));
        let mut applied = 0;
        while applied < wanted.len() {
            let mut bodies = vec![time.wait(&self.runtime, &mut reads).await??];
            reads.add_what_is_there(&mut bodies);
            let files: Vec<_> = wanted[applied..].iter().map(|(file, _)| *file).zip(bodies).collect();
            applied += files.len();
            let applying = async {
                let _turn = self.turns.take().await;
                let apply = move || {
                    let done = files.iter().try_for_each(|(file, body)| building.apply(*file, body));
                    (building, done)
                };
                self.runtime.work(apply).await
            };
            let done;
            (building, done) = reads.meanwhile(applying).await.ok_or(RestoreError::GivenUp)?;
            done?;
        }
        Ok(self.work(move || building.finish()).await??)
    }

    async fn work<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RestoreError> {
        self.runtime.work(job).await.ok_or(RestoreError::GivenUp)
    }
}

fn key_of(folder: &str, file: &HistoryFile) -> Key {
    let text = object_keys::history_file(folder, file);
    text.parse().expect("it was parsed from a key below this folder")
}

type ReadResult = Result<Bytes, ReadFailure>;

/// The reads of one restore, a few of them at a time, whose results are taken in order.
struct Ahead<'a> {
    /// Of all files, in order.
    excuses: Vec<Rc<Excuse>>,
    /// Not begun, the next one last.
    left: Vec<Reading<'a>>,
    under_way: FuturesUnordered<Reading<'a>>,
    /// Ended and not taken, by the file's place in the order.
    ended: BTreeMap<usize, ReadResult>,
    /// Bytes of those.
    ended_bytes: u64,
    /// The place of the file that is taken next.
    next: usize,
}

/// Gives the file's place in the order, too.
type Reading<'a> = LocalBoxFuture<'a, (usize, ReadResult)>;

fn length(result: &ReadResult) -> u64 {
    result.as_ref().map_or(0, |body| body.len() as u64)
}

impl<'a> Ahead<'a> {
    fn new<B: Bucket, S: Runtime>(
        restorer: &'a Restorer<B, S>,
        wanted: impl ExactSizeIterator<Item = &'a Wanted>,
    ) -> Self {
        let number = restorer.budget.restore();
        let excuses: Vec<_> = (0..wanted.len()).map(|_| Rc::new(Excuse::default())).collect();
        let begin = |(place, (wanted, excuse)): (usize, (&'a Wanted, &Rc<Excuse>))| {
            let excuse = Rc::clone(excuse);
            let Restorer { reads, runtime, budget, .. } = restorer;
            let reading = async move { (place, read(reads, runtime, budget, number, wanted, &excuse).await) };
            Box::pin(reading) as Reading<'a>
        };
        let mut left: Vec<_> = wanted.zip(&excuses).enumerate().map(begin).collect();
        left.reverse();
        Self {
            left,
            excuses,
            under_way: FuturesUnordered::new(),
            ended: BTreeMap::new(),
            ended_bytes: 0,
            next: 0,
        }
    }

    /// Begins reads while there is room, and keeps what ended. Small files that wait to be taken are in no read's way;
    /// large ones are, for the memory they take.
    fn go_on(&mut self, context: &mut std::task::Context<'_>) {
        loop {
            while self.has_room()
                && let Some(reading) = self.left.pop()
            {
                self.under_way.push(reading);
            }
            match self.under_way.poll_next_unpin(context) {
                Poll::Ready(Some((place, result))) => {
                    self.ended_bytes += length(&result);
                    self.ended.insert(place, result);
                }
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    fn has_room(&self) -> bool {
        let waiting = if self.ended_bytes > RESTORE_AHEAD_BYTES { self.ended.len() } else { 0 };
        self.under_way.len() + waiting < RESTORE_READS_PER_ACTOR
    }

    fn take(&mut self) -> Option<ReadResult> {
        let result = self.ended.remove(&self.next)?;
        self.next += 1;
        self.ended_bytes -= length(&result);
        Some(result)
    }

    /// The next file in order.
    async fn next(&mut self) -> ReadResult {
        poll_fn(|context| {
            self.go_on(context);
            self.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Takes the next files in order that are there, as long as they are small.
    fn add_what_is_there(&mut self, bodies: &mut Vec<Bytes>) {
        let mut bytes: u64 = bodies.iter().map(|body| body.len() as u64).sum();
        while let Some(Ok(body)) = self.ended.get(&self.next) {
            bytes += body.len() as u64;
            if bytes > RESTORE_AHEAD_BYTES {
                return;
            }
            bodies.extend(self.take().and_then(Result::ok));
        }
    }

    /// What keeps the next file in order from being read.
    fn excuse(&self) -> Rc<Excuse> {
        self.excuses.get(self.next).map(Rc::clone).unwrap_or_default()
    }

    /// Reads on while other work is waited for.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.go_on(context);
            work.as_mut().poll(context)
        })
        .await
    }
}

/// The time a restore may wait for the bucket, and what it has waited.
struct WaitingTime {
    limit: Duration,
    waited: Duration,
}

impl WaitingTime {
    fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO }
    }

    /// Waits for the next file of `reads`, counting what is the bucket's own doing.
    async fn wait<S: Runtime>(
        &mut self,
        runtime: &S,
        reads: &mut Ahead<'_>,
    ) -> Result<ReadResult, RestoreError> {
        // Begins the first reads, which may have to stand in line.
        poll_fn(|context| {
            reads.go_on(context);
            Poll::Ready(())
        })
        .await;
        let began = runtime.now();
        let excuse = reads.excuse();
        let queued_before = excuse.queued(began);
        let counted = || {
            let now = runtime.now();
            let queued = excuse.queued(now).saturating_sub(queued_before);
            now.saturating_sub(began).saturating_sub(queued).saturating_sub(excuse.shared())
        };
        // While nothing counts, what is left does not shrink: look again, but not all the time.
        let left = || match self.limit.saturating_sub(self.waited + counted()) {
            Duration::ZERO => Duration::ZERO,
            left => left.max(LOOK_AGAIN),
        };
        let result = within_moving(runtime, left, reads.next()).await;
        self.waited += counted();
        result.ok_or(RestoreError::TooSlow(self.limit))
    }
}
