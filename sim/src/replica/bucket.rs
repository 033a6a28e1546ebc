//! The bucket as it is on a bad day: slow, forgetful of answers, late with writes, cutting bodies short.
//!
//! A write that was sent is carried out by a task of its own: whoever sent it may be gone by then, and other
//! writes may have overtaken it. What is stored is what a correct store would hold; the broken variants are marked.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    hash::{BuildHasher, RandomState},
    ops::Range,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use futures::{channel::oneshot, stream};
use wasmkeep_bucket::{
    Body, Bucket, Failure, Key, ListQuery, Meta, Object, Outcome, Page, Precondition, ReadError, UnknownCause,
};

use super::{flaw::ReplicaFlaw, record::Record, world::World};

/// What the bucket keeps beside its objects.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Reads under way, and their bytes.
    reads: Cell<usize>,
    bytes: Cell<u64>,
    /// When each object was first written: a late copy of it makes it no younger.
    born_ms: RefCell<BTreeMap<Key, u64>>,
    /// Pages given before, for the broken variant that shows the past.
    past: RefCell<BTreeMap<String, VecDeque<Page>>>,
}

/// A way to the run's bucket.
#[derive(Clone)]
pub(crate) struct SimBucket {
    world: Rc<World>,
    /// Set for the collector's way: how old what it deletes has to be.
    retention_ms: Option<u64>,
}

/// How a request ends when a fault strikes.
fn error() -> Failure {
    Failure::Unavailable("as simulated".to_owned())
}

impl SimBucket {
    pub(crate) fn new(world: &Rc<World>) -> Self {
        Self { world: world.clone(), retention_ms: None }
    }

    /// The way a collection with this retention goes.
    pub(crate) fn collecting(world: &Rc<World>, retention_ms: u64) -> Self {
        Self { world: world.clone(), retention_ms: Some(retention_ms) }
    }

    /// The time a request takes; with the chance of the seed it never ends.
    async fn latency(&self) {
        if self.world.strikes(|parameters| parameters.hangs) {
            std::future::pending::<()>().await;
        }
        let entropy =
            self.world.flawed(ReplicaFlaw::UsesEntropy) && RandomState::new().hash_one(0).is_multiple_of(2);
        if entropy {
            self.world.executor.sleep(Duration::from_micros(1)).await;
        }
        let micros = self.world.below(self.world.parameters.latency_ms_max * 1_000) + 100;
        self.world.executor.sleep(Duration::from_micros(micros)).await;
    }

    async fn failing(&self) -> Result<(), Failure> {
        self.latency().await;
        match self.world.strikes(|parameters| parameters.errors) {
            true if self.world.chance(500) => Err(Failure::Throttled("SlowDown".to_owned())),
            true => Err(error()),
            false => Ok(()),
        }
    }

    /// Carries a write out after `delay`, whatever becomes of its sender; resolves once it is done.
    fn later(
        &self,
        delay: Duration,
        work: impl AsyncFnOnce(Rc<World>) -> Outcome + 'static,
    ) -> oneshot::Receiver<Outcome> {
        let (done, carried_out) = oneshot::channel();
        let world = self.world.clone();
        self.world.executor.spawn(async move {
            world.executor.sleep(delay).await;
            let outcome = work(world).await;
            // The sender may have given it up.
            let _ = done.send(outcome);
        });
        carried_out
    }

    /// Long enough to come after the next owner.
    fn much_later(&self) -> Duration {
        Duration::from_millis(self.world.below(120_000))
    }
}

async fn store(world: Rc<World>, key: Key, body: Bytes, condition: Precondition) -> Outcome {
    let body = match world.flaw {
        Some(ReplicaFlaw::FlipsBits) if world.chance(50) => {
            let mut bytes = body.to_vec();
            let at = world.below(bytes.len() as u64) as usize;
            bytes[at] ^= 16;
            bytes.into()
        }
        Some(ReplicaFlaw::LosesWrites) if world.chance(100) => {
            return Outcome::Unknown(UnknownCause::NoVersion);
        }
        _ => body,
    };
    world.books.born_ms.borrow_mut().entry(key.clone()).or_insert_with(|| world.unix_ms());
    world.memory.put(&key, body, &condition).await
}

/// Counts one read while its body is alive.
struct Counted {
    world: Rc<World>,
    bytes: u64,
}

impl Counted {
    fn new(world: &Rc<World>, bytes: u64) -> Self {
        let books = &world.books;
        books.reads.set(books.reads.get() + 1);
        books.bytes.set(books.bytes.get() + bytes);
        world.record(&Record::Reads { reads: books.reads.get(), bytes: books.bytes.get() });
        Self { world: world.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let books = &self.world.books;
        books.reads.set(books.reads.get() - 1);
        books.bytes.set(books.bytes.get() - self.bytes);
    }
}

/// A body in pieces, with pauses, that may end before its end.
fn arriving(world: &Rc<World>, whole: Bytes, counted: Counted) -> Body {
    let length = whole.len();
    let is_bad = world.strikes(|parameters| parameters.bad_bodies);
    let pieces = if is_bad { world.below(5) as usize + 1 } else { 1 };
    let pause = Duration::from_millis(if is_bad { world.below(4_000) } else { 0 });
    let ends = if is_bad && world.chance(300) { pieces - 1 } else { pieces };
    let cuts: Vec<Range<usize>> =
        (0..ends).map(|piece| (piece * length / pieces)..((piece + 1) * length / pieces)).collect();
    let state = (cuts.into_iter(), world.clone(), whole, counted);
    let chunks = stream::unfold(state, move |(mut cuts, world, whole, counted)| async move {
        let range = cuts.next()?;
        if !pause.is_zero() {
            world.executor.sleep(pause).await;
        }
        Some((Ok(whole.slice(range)), (cuts, world, whole, counted)))
    });
    Body::counted(length as u64, chunks)
}

impl Bucket for SimBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let size = self.world.memory.head(key).await.map_or(0, |meta| meta.size);
        let counted = Counted::new(&self.world, size);
        self.failing().await?;
        let Object { meta, range, body } = self.world.memory.get(key, range).await?;
        let whole = Object { meta: meta.clone(), range: range.clone(), body }.bytes(u64::MAX).await?;
        let body = arriving(&self.world, whole, counted);
        Ok(Object { meta, range, body })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.failing().await?;
        self.world.memory.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        if let Err(failure) = self.failing().await {
            return Outcome::Failed(failure);
        }
        let (key, condition) = (key.clone(), condition.clone());
        let work = async move |world| store(world, key, body, condition).await;
        let no_reply = |why: &str| Outcome::Unknown(UnknownCause::NoReply(why.to_owned()));
        if self.world.strikes(|parameters| parameters.late_writes) {
            let carried_out = self.later(self.much_later(), work);
            if self.world.chance(500) {
                return no_reply("the connection broke");
            }
            return carried_out.await.unwrap_or_else(|_| no_reply("gone"));
        }
        let delay = Duration::from_micros(self.world.below(2_000));
        let outcome = self.later(delay, work).await.unwrap_or_else(|_| no_reply("gone"));
        if self.world.strikes(|parameters| parameters.lost_replies) {
            return match self.world.chance(500) {
                true => no_reply("the reply was lost"),
                false => Outcome::Unknown(UnknownCause::Ambiguous { status: 500, code: String::new() }),
            };
        }
        outcome
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.failing().await?;
        let (key, retention_ms) = (key.clone(), self.retention_ms);
        let is_late = self.world.strikes(|parameters| parameters.late_writes);
        let delay = if is_late { self.much_later() } else { Duration::from_millis(1) };
        let work = async move |world: Rc<World>| {
            let born_ms = world.books.born_ms.borrow().get(&key).copied();
            if let (Some(retention_ms), Some(born_ms)) = (retention_ms, born_ms) {
                let age_ms = world.unix_ms() - born_ms;
                world.record(&Record::Removed { key: key.to_string(), age_ms, retention_ms });
            }
            match world.memory.delete(&key).await {
                Ok(()) => Outcome::ConditionFailed,
                Err(failure) => Outcome::Failed(failure),
            }
        };
        let carried_out = self.later(delay, work);
        if is_late && self.world.chance(500) {
            return Err(error());
        }
        match carried_out.await {
            Ok(Outcome::Failed(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.failing().await?;
        let page_max = query.page_max.min(self.world.parameters.page_keys as usize);
        let whole =
            self.world.flawed(ReplicaFlaw::ShortListings) || self.world.flawed(ReplicaFlaw::StaleListings);
        let page_max = if whole { query.page_max } else { page_max };
        let mut page = self.world.memory.list(&ListQuery { page_max, ..query.clone() }).await?;
        if self.world.flawed(ReplicaFlaw::ShortListings) && page.objects.len() > 1 && self.world.chance(300) {
            page.objects.pop();
        }
        if self.world.flawed(ReplicaFlaw::StaleListings) {
            return Ok(self.past(query, page));
        }
        Ok(page)
    }
}

impl SimBucket {
    /// The broken variant whose listings are those of some requests ago.
    fn past(&self, query: &ListQuery, page: Page) -> Page {
        let mut past = self.world.books.past.borrow_mut();
        let pages = past.entry(query.prefix.clone()).or_default();
        pages.push_back(page.clone());
        if pages.len() > 2 { pages.pop_front().unwrap_or(page) } else { page }
    }
}
