//! What one actor's owner puts into the bucket: a file for everything that was committed since the last one, and
//! snapshots (R-REPL-1 to R-REPL-4, R-DUR-1).
//!
//! One upload is under way at a time. What is committed meanwhile becomes one next file, so a slow bucket makes
//! files larger and not a queue longer. Whoever waits is answered in the order of transactions, and only while
//! the node holds the actor. Once an upload failed for good, nothing more is taken: the actor is given up.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    task::{Poll, Waker},
};

use bytes::Bytes;
use futures::{
    channel::oneshot,
    future::{Either, select},
};
use wasmkeep_bucket::{Bucket, Key};
use wasmkeep_protocol::{
    alarm::{Post, Posts},
    history::{HistoryFile, Point},
    object_keys,
    replication::{SnapshotSchedule, Upload},
};
use wasmkeep_runtime::Runtime;

use crate::{
    alarms::{Index, Subject},
    commit::{Commit, Content, Ready, make},
    hold::Hold,
    send::{UploadError, upload},
};

/// Two ways to one bucket, of which one goes first (R-BKT-2).
#[derive(Debug, Clone)]
pub struct Ways<B> {
    /// For what a durable write waits for.
    pub urgent: B,
    /// For the rest.
    pub ordinary: B,
    /// For what nobody waits for: clearing up behind the actor's alarms.
    pub spare: B,
}

/// What a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A durable write: its upload goes first.
    Durable,
    /// The end of an event.
    Replicated,
}

/// Why an actor's uploads have ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GivenUp {
    /// An upload failed for good.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// The node lost the actor before the write landed: it may be in nobody's history.
    #[error("the node lost the actor before its write was known to be in the bucket")]
    NotHeld,
    /// The owner ended it.
    #[error("uploads of this actor have ended")]
    Closed,
    /// The transaction that is waited for was never handed over: a bug.
    #[error("transaction {txid} was not handed over, only what leads to {taken}")]
    NotTaken {
        /// The transaction.
        txid: u64,
        /// The last one that was.
        taken: u64,
    },
    /// The commit does not follow the last one: a bug.
    #[error("transaction {to} does not follow transaction {from}")]
    NotNext {
        /// The last transaction taken.
        from: u64,
        /// The transaction refused.
        to: u64,
    },
}

#[derive(Debug)]
struct Waiter {
    txid: u64,
    need: Need,
    answer: oneshot::Sender<Result<(), GivenUp>>,
}

#[derive(Debug)]
struct State {
    /// In the bucket.
    landed: Point,
    /// Taken, in the bucket or not.
    taken: Point,
    queue: VecDeque<Commit>,
    waiters: VecDeque<Waiter>,
    ended: Option<GivenUp>,
    schedule: SnapshotSchedule,
    driver: Option<Waker>,
}

/// The uploads of one hold of one actor.
#[derive(Debug)]
pub struct Uploader<B, S, H> {
    ways: Ways<B>,
    runtime: S,
    hold: H,
    folder: String,
    generation: u64,
    index: Index,
    state: RefCell<State>,
    /// Files uploaded, snapshots included.
    uploads: Cell<u64>,
}

impl<B: Bucket, S: Runtime, H: Hold> Uploader<B, S, H> {
    /// For the hold of `posts` of an actor whose history stands at `landed` ([`Point::START`] when there is none).
    pub fn new(
        ways: Ways<B>,
        runtime: S,
        hold: H,
        subject: Subject,
        posts: Posts,
        landed: Point,
        schedule: SnapshotSchedule,
    ) -> Self {
        let state = State {
            landed,
            taken: landed,
            queue: VecDeque::new(),
            waiters: VecDeque::new(),
            ended: None,
            schedule,
            driver: None,
        };
        let (state, uploads) = (RefCell::new(state), Cell::new(0));
        let folder = object_keys::history_folder(&subject.tenant, &subject.actor);
        let generation = posts.generation();
        let index = Index::new(subject, posts);
        Self { ways, runtime, hold, folder, generation, index, state, uploads }
    }

    /// The state that the next commit leads on from.
    pub fn taken(&self) -> Point {
        self.state.borrow().taken
    }

    /// Whether the next commit has to carry the whole database: there is nothing it could lead on from.
    pub fn needs_whole(&self) -> bool {
        self.state.borrow().taken.is_empty()
    }

    /// Why uploads have ended, if they have.
    pub fn given_up(&self) -> Option<GivenUp> {
        self.state.borrow().ended.clone()
    }

    /// Files put into the bucket by this hold.
    pub fn uploads(&self) -> u64 {
        self.uploads.get()
    }

    /// Takes a commit; [`Uploader::run`] uploads it. One that needs the whole database and has only changes, or
    /// does not lead on from the last, is refused.
    ///
    /// # Errors
    /// [`GivenUp`]: nothing is taken any more.
    pub fn push(&self, commit: Commit) -> Result<(), GivenUp> {
        let mut state = self.state.borrow_mut();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let fits = commit.to.txid > state.taken.txid
            && match &commit.content {
                Content::Changes(changes) => {
                    !state.taken.is_empty()
                        && changes.before().get() == state.taken.checksum
                        && changes.after().get() == commit.to.checksum
                }
                Content::Whole(_) => !commit.to.is_empty(),
                Content::Deleted => commit.to.is_empty(),
            };
        if !fits {
            return Err(GivenUp::NotNext { from: state.taken.txid, to: commit.to.txid });
        }
        let to = commit.to;
        match (state.queue.back_mut(), commit) {
            (
                Some(Commit { to, content: Content::Changes(earlier), alarm }),
                Commit { to: later, content: Content::Changes(changes), alarm: now },
            ) => {
                earlier.append(changes).map_err(|_| GivenUp::NotNext { from: to.txid, to: later.txid })?;
                (*to, *alarm) = (later, now);
            }
            // What comes before a deletion or a whole database is covered by it.
            (Some(_), commit @ Commit { content: Content::Deleted | Content::Whole(_), .. }) => {
                state.queue.clear();
                state.queue.push_back(commit);
            }
            (_, commit) => state.queue.push_back(commit),
        }
        state.taken = to;
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
        Ok(())
    }

    /// Everything up to this transaction is in the bucket.
    pub fn landed_up_to(&self) -> u64 {
        self.state.borrow().landed.txid
    }

    /// Waits until everything up to transaction `txid`, which was pushed, is in the bucket.
    ///
    /// # Errors
    /// [`GivenUp`]: it may or may not be there.
    pub async fn landed(&self, txid: u64, need: Need) -> Result<(), GivenUp> {
        let answered = {
            let mut state = self.state.borrow_mut();
            if state.landed.txid >= txid {
                return Ok(());
            }
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            if txid > state.taken.txid {
                // Nobody would ever answer.
                return Err(GivenUp::NotTaken { txid, taken: state.taken.txid });
            }
            let (answer, answered) = oneshot::channel();
            let place = state.waiters.partition_point(|waiter| waiter.txid <= txid);
            state.waiters.insert(place, Waiter { txid, need, answer });
            answered
        };
        answered.await.unwrap_or(Err(GivenUp::Closed))
    }

    /// Ends the uploads: [`Uploader::run`] returns once what is under way has ended, and nothing more is taken.
    pub fn close(&self) {
        self.end(GivenUp::Closed);
    }

    /// Uploads what is pushed until the uploads end. One caller at a time.
    pub async fn run(&self) -> GivenUp {
        let keeping = pin!(self.index.keep(&self.ways.spare, &self.runtime, &self.hold));
        match select(pin!(self.upload()), keeping).await {
            Either::Left((ended, _)) => ended,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn upload(&self) -> GivenUp {
        loop {
            let commit = poll_fn(|context| {
                let mut state = self.state.borrow_mut();
                if let Some(ended) = &state.ended {
                    return Poll::Ready(Err(ended.clone()));
                }
                match state.queue.pop_front() {
                    Some(commit) => Poll::Ready(Ok(commit)),
                    None => {
                        state.driver = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            });
            let commit = match commit.await {
                Ok(commit) => commit,
                Err(ended) => return ended,
            };
            match self.carry(commit).await {
                Ok(to) => self.answer(to),
                Err(ended) => return self.end(ended),
            }
        }
    }

    async fn carry(&self, commit: Commit) -> Result<Point, GivenUp> {
        if !self.hold.is_held() {
            return Err(GivenUp::NotHeld);
        }
        let (to, outlook, is_whole) =
            (commit.to, commit.alarm, !matches!(commit.content, Content::Changes(_)));
        let from = self.state.borrow().landed;
        let ready = make(&self.runtime, self.generation, from, commit).await?;
        // A state must not be there without the entry that has its alarm looked at (case A1).
        self.index.before(self.way(), &self.runtime, to.txid, outlook).await?;
        self.send(self.way(), &ready, Upload::Write).await?;
        // Again: what landed after the lease ran out may be in nobody's history.
        if !self.hold.is_held() {
            return Err(GivenUp::NotHeld);
        }
        let mut state = self.state.borrow_mut();
        if is_whole {
            state.schedule.succeeded()
        } else {
            state.schedule.uploaded()
        }
        state.landed = to;
        drop(state);
        self.index.landed(to.txid, outlook);
        Ok(to)
    }

    /// The way for what is carried now.
    fn way(&self) -> &B {
        let is_urgent = self.state.borrow().waiters.iter().any(|waiter| waiter.need == Need::Durable);
        if is_urgent { &self.ways.urgent } else { &self.ways.ordinary }
    }

    async fn send(&self, way: &B, ready: &Ready, kind: Upload) -> Result<(), UploadError> {
        let text = object_keys::history_file(&self.folder, &ready.file);
        let key: Key = text.parse().map_err(|error| UploadError::Impossible(format!("{text}: {error}")))?;
        upload(way, &self.runtime, &key, &ready.body, kind).await?;
        self.uploads.set(self.uploads.get() + 1);
        Ok(())
    }

    /// Whether to make a periodic snapshot at the end of the event that runs. Also while uploads are under way: those
    /// of an actor that is never idle always are.
    pub fn snapshot_due(&self) -> bool {
        let state = self.state.borrow();
        let stands = state.ended.is_none() && !state.taken.is_empty();
        stands && state.schedule.is_due(self.runtime.now())
    }

    /// Uploads a periodic snapshot of the state everything so far has led to, all of which has
    /// [landed](Self::landed), in one attempt; whether it landed.
    /// A failure costs no write: it is tried again as the schedule says.
    pub async fn snapshot(&self, at: Point, body: Bytes) -> bool {
        let ready = Ready { file: HistoryFile::snapshot(self.generation, at), body };
        let sent = self.send(&self.ways.ordinary, &ready, Upload::PeriodicSnapshot).await;
        let mut state = self.state.borrow_mut();
        match sent {
            Ok(()) if self.hold.is_held() => state.schedule.succeeded(),
            Ok(()) => return false,
            Err(error) => {
                tracing::warn!(%error, "a snapshot was not acknowledged; the writes before it are safe");
                state.schedule.failed(self.runtime.now());
                return false;
            }
        }
        true
    }

    /// What to go on with when this node wakes the actor again (R-REPL-3).
    pub fn schedule(&self) -> SnapshotSchedule {
        self.state.borrow().schedule.clone()
    }

    /// What transaction `txid`, which was pushed, says of the alarm, when its commit could not say it exactly.
    pub fn settled(&self, txid: u64, alarm_ms: Option<u64>) {
        self.index.settled(txid, alarm_ms);
    }

    /// A sweep came across this entry.
    pub fn noticed(&self, post: Post) {
        self.index.noticed(post);
    }

    /// Clears up what is left to do behind the alarms, once [`Uploader::run`] has returned. Whether all of it was
    /// done; if not, a sweep comes across it.
    pub async fn clear_up(&self) -> bool {
        self.index.tidy(&self.ways.spare, &self.runtime).await.is_ok()
    }

    /// What the next hold on this node had better know of the alarms in the bucket.
    pub fn posts(&self) -> Posts {
        self.index.posts()
    }

    /// Answers those whose transactions have landed, in order.
    fn answer(&self, landed: Point) {
        let due: Vec<Waiter> = {
            let mut state = self.state.borrow_mut();
            let due = state.waiters.partition_point(|waiter| waiter.txid <= landed.txid);
            state.waiters.drain(..due).collect()
        };
        for waiter in due {
            // Whoever left needs no answer.
            let _ = waiter.answer.send(Ok(()));
        }
    }

    fn end(&self, with: GivenUp) -> GivenUp {
        let (ended, waiters) = {
            let mut state = self.state.borrow_mut();
            let ended = state.ended.get_or_insert(with).clone();
            state.queue.clear();
            if let Some(driver) = state.driver.take() {
                driver.wake();
            }
            (ended, std::mem::take(&mut state.waiters))
        };
        for waiter in waiters {
            let _ = waiter.answer.send(Err(ended.clone()));
        }
        ended
    }
}
