//! The probe against stores that ignore what a cluster needs.

use std::cell::Cell;
use std::ops::Range;

use crate::block_on;

use super::*;
use crate::{ListQuery, Listing, MemoryBucket, Meta, Object, Page, UnknownCause};

/// How a store is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    IgnoresCreate,
    IgnoresReplace,
    IgnoresReplaceOfMissing,
    RefusesCurrent,
    /// Says "condition failed" and writes all the same.
    RefusesAndWrites,
    /// Checks, lets others in, then writes.
    NotAtomic,
    LosesReplies,
    Forbids,
    SlowsDown,
}

struct Flawed {
    inner: MemoryBucket,
    flaw: Flaw,
    puts: Cell<usize>,
}

impl Bucket for Flawed {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.inner.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.puts.set(self.puts.get() + 1);
        let replace = matches!(condition, Precondition::Version(_));
        let missing = self.inner.head(key).await.is_err();
        let ignored = match self.flaw {
            Flaw::IgnoresCreate => *condition == Precondition::Absent,
            Flaw::IgnoresReplace => replace,
            Flaw::IgnoresReplaceOfMissing => replace && missing,
            Flaw::NotAtomic => {
                let holds = self.holds(key, condition).await;
                let mut yielded = false;
                futures::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    if std::mem::replace(&mut yielded, true) {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                holds
            }
            Flaw::RefusesCurrent if replace => return Outcome::ConditionFailed,
            Flaw::Forbids => return Outcome::Failed(Failure::Refused("403 AccessDenied".into())),
            Flaw::SlowsDown => return Outcome::Failed(Failure::Throttled("503 SlowDown".into())),
            Flaw::LosesReplies => return Outcome::Unknown(UnknownCause::NoVersion),
            _ => false,
        };
        let unconditional = if ignored { &Precondition::None } else { condition };
        match self.inner.put(key, body.clone(), unconditional).await {
            Outcome::ConditionFailed if self.flaw == Flaw::RefusesAndWrites => {
                let _ = self.inner.put(key, body, &Precondition::None).await;
                Outcome::ConditionFailed
            }
            outcome => outcome,
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.inner.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.inner.list(query).await
    }
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { inner: MemoryBucket::new(), flaw, puts: Cell::new(0) }
    }

    async fn holds(&self, key: &Key, condition: &Precondition) -> bool {
        let current = self.inner.head(key).await.ok().map(|meta| meta.version);
        crate::memory::holds(condition, current.as_ref())
    }
}

// R-BKT-1, cases S2 and S3
#[test]
fn the_probe_says_which_condition_a_store_ignores() {
    for (flaw, expected) in [
        (Flaw::IgnoresCreate, Condition::CreateOverExisting),
        (Flaw::IgnoresReplace, Condition::ReplaceStale),
        (Flaw::IgnoresReplaceOfMissing, Condition::ReplaceMissing),
        (Flaw::RefusesCurrent, Condition::ReplaceCurrent),
        (Flaw::RefusesAndWrites, Condition::CreateOverExisting),
        (Flaw::NotAtomic, Condition::CreateRace),
    ] {
        let probed = block_on(probe(&Flawed::new(flaw)));
        assert_eq!(probed, Err(ProbeError::Ignored(expected)), "{flaw:?}");
    }
}

// R-BKT-1
#[test]
fn a_store_that_applies_all_conditions_passes_and_keeps_nothing_of_the_probe() {
    let bucket = Flawed::new(Flaw::None);
    assert!(block_on(probe(&bucket)).is_ok());
    assert!(bucket.puts.get() > 6);
    assert!(block_on(Listing::new(&bucket, "").all(9)).unwrap().is_empty());
}

// R-BKT-1: a bucket that does not answer is tried again, one that refuses is not
#[test]
fn no_answer_is_told_from_a_refusal() {
    for flaw in [Flaw::LosesReplies, Flaw::SlowsDown] {
        assert!(matches!(block_on(probe(&Flawed::new(flaw))), Err(ProbeError::NoAnswer(_))), "{flaw:?}");
    }
    let refused = block_on(probe(&Flawed::new(Flaw::Forbids)));
    assert!(matches!(refused, Err(ProbeError::Refused(text)) if text.contains("AccessDenied")));
}

/// The suite has to see the same flaws: a suite that passes them checks nothing.
#[test]
fn the_conformance_suite_catches_each_store_that_ignores_a_condition() {
    use crate::conformance::{Scope, check, races};
    for flaw in [
        Flaw::IgnoresCreate,
        Flaw::IgnoresReplace,
        Flaw::IgnoresReplaceOfMissing,
        Flaw::RefusesCurrent,
        Flaw::RefusesAndWrites,
    ] {
        let breaches = block_on(check(&Flawed::new(flaw), Scope::Everything));
        assert!(!breaches.is_empty(), "{flaw:?}");
    }
    let shared = MemoryBucket::new();
    let writer = |flaw| Flawed { inner: shared.clone(), flaw, puts: Cell::new(0) };
    let broken: Vec<Flawed> = (0..4).map(|_| writer(Flaw::NotAtomic)).collect();
    assert_eq!(block_on(races(&broken, 5)).one_winner, 0);
    let sound: Vec<Flawed> = (0..4).map(|_| writer(Flaw::None)).collect();
    let report = block_on(races(&sound, 5));
    assert_eq!((report.races, report.one_winner, report.faults.len()), (10, 10, 0), "{report:?}");
}
