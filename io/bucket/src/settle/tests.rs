//! Lost replies, over a bucket that loses them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;

use crate::block_on;

use super::*;
use crate::{Failure, ListQuery, MemoryBucket, Meta, Object, Page};

/// What happens to one write on its way.
#[derive(Clone, Copy)]
enum Fate {
    /// Applied, and the reply lost.
    ReplyLost,
    /// Lost before it arrived; the sender cannot tell.
    RequestLost,
    /// Delivered twice, as a proxy may do; the second reply comes back.
    SentTwice,
    /// Refused without being applied.
    Throttled,
    /// Delivered once, the reply comes back.
    Delivered,
}

struct Lossy {
    inner: MemoryBucket,
    fates: RefCell<VecDeque<Fate>>,
    sends: Cell<usize>,
}

impl Lossy {
    fn new(fates: &[Fate]) -> Self {
        let fates = fates.iter().copied().collect();
        Self { inner: MemoryBucket::new(), fates: RefCell::new(fates), sends: Cell::new(0) }
    }
}

impl Bucket for Lossy {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.inner.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.sends.set(self.sends.get() + 1);
        let lost = || Outcome::Unknown(UnknownCause::NoReply("cut".to_owned()));
        let fate = self.fates.borrow_mut().pop_front().unwrap_or(Fate::Delivered);
        match fate {
            Fate::RequestLost => lost(),
            Fate::Throttled => Outcome::Failed(Failure::Throttled("slow down".to_owned())),
            Fate::ReplyLost => {
                let _ = self.inner.put(key, body, condition).await;
                lost()
            }
            Fate::SentTwice => {
                let _ = self.inner.put(key, body.clone(), condition).await;
                self.inner.put(key, body, condition).await
            }
            Fate::Delivered => self.inner.put(key, body, condition).await,
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.inner.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.inner.list(query).await
    }
}

fn key() -> Key {
    "nodes/a".parse().unwrap()
}

fn record(nonce: &Nonce) -> Bytes {
    Bytes::from(format!("{{\"nonce\":\"{nonce}\",\"seq\":1}}"))
}

/// Puts a record over `first` (if any) with these fates; also says how often it was sent.
fn put(fates: &[Fate], first: Option<&str>, tries: usize) -> (Outcome, usize, Lossy) {
    block_on(async {
        let bucket = Lossy::new(fates);
        let condition = match first {
            None => Precondition::Absent,
            Some(body) => {
                let body = Bytes::from(body.to_owned());
                match bucket.inner.put(&key(), body, &Precondition::Absent).await {
                    Outcome::Written(version) => Precondition::Version(version),
                    other => panic!("{other:?}"),
                }
            }
        };
        let nonce = Nonce::random();
        let outcome = put_settled(&bucket, &key(), record(&nonce), &condition, &nonce, tries).await;
        let sends = bucket.sends.get();
        (outcome, sends, bucket)
    })
}

// case L3
#[test]
fn a_write_whose_reply_was_lost_is_recognised_and_not_sent_again() {
    for first in [None, Some("before")] {
        let (outcome, sends, bucket) = put(&[Fate::ReplyLost], first, 3);
        let version = block_on(bucket.head(&key())).unwrap().version;
        assert_eq!((outcome, sends), (Outcome::Written(version), 1));
    }
}

// case L4
#[test]
fn a_condition_failed_by_our_own_first_copy_is_a_success() {
    for first in [None, Some("before")] {
        let (outcome, sends, bucket) = put(&[Fate::SentTwice], first, 1);
        let version = block_on(bucket.head(&key())).unwrap().version;
        assert_eq!((outcome, sends), (Outcome::Written(version), 1));
    }
}

#[test]
fn a_write_that_never_arrived_is_sent_again_up_to_the_limit() {
    let (outcome, sends, _) = put(&[Fate::RequestLost, Fate::RequestLost], Some("before"), 3);
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    assert_eq!(sends, 3);
    let (outcome, sends, _) = put(&[Fate::RequestLost, Fate::RequestLost], None, 2);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert_eq!(sends, 2);
}

#[test]
fn a_failure_after_a_lost_copy_stays_unknown() {
    let (outcome, _, _) = put(&[Fate::RequestLost, Fate::Throttled], None, 3);
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    let (outcome, _, _) = put(&[Fate::Throttled], None, 3);
    assert!(matches!(outcome, Outcome::Failed(Failure::Throttled(_))), "{outcome:?}");
}

// case L4: the same with another writer's token
#[test]
fn another_writers_record_means_the_condition_failed() {
    for fates in [&[Fate::Delivered][..], &[Fate::ReplyLost], &[Fate::RequestLost]] {
        block_on(async {
            let bucket = Lossy::new(fates);
            let stale = Version::new("\"memory-0\"").unwrap();
            let _ = bucket.inner.put(&key(), record(&Nonce::random()), &Precondition::None).await;
            for condition in [Precondition::Absent, Precondition::Version(stale)] {
                let nonce = Nonce::random();
                let outcome = put_settled(&bucket, &key(), record(&nonce), &condition, &nonce, 3).await;
                assert_eq!(outcome, Outcome::ConditionFailed);
            }
        });
    }
}

#[test]
fn settling_tells_ours_from_anothers_and_from_nothing() {
    block_on(async {
        let bucket = MemoryBucket::new();
        let (ours, theirs) = (Nonce::random(), Nonce::random());
        assert_eq!(settle(&bucket, &key(), &ours).await, Ok(Settled::Absent));
        let Outcome::Written(version) = bucket.put(&key(), record(&theirs), &Precondition::None).await else {
            panic!("not written");
        };
        assert_eq!(settle(&bucket, &key(), &ours).await, Ok(Settled::Other(version.clone())));
        assert_eq!(settle(&bucket, &key(), &theirs).await, Ok(Settled::Ours(version)));
    });
}
