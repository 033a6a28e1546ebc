//! Records as objects: the deciding code's words for a request, and the bucket's.

use std::{future::Future, pin::pin, time::Duration};

use bytes::Bytes;
use futures::future::{Either, select};
use wasmkeep_bucket::{Bucket, Key, Outcome, Precondition, ReadError};
use wasmkeep_protocol::{
    clock::{Moment, Now},
    records::{Nonce, RECORD_BYTES_MAX, RecordError},
    store::{Condition, Found, Version, Wrote},
};
use wasmkeep_replica::Surroundings;

/// Both clocks, read together.
pub(crate) fn now(surroundings: &impl Surroundings) -> Now {
    Now { moment: Moment::after_boot(surroundings.now()), wall_ms: surroundings.unix_ms() }
}

pub(crate) fn nonce() -> Nonce {
    Nonce::from_bits(rand::random())
}

/// A key of `object_keys`: those are made of names that keys may hold.
pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("the protocol's names make keys")
}

/// Sends a conditional write once. No answer within `limit` is an unknown outcome.
pub(crate) async fn write<B: Bucket, S: Surroundings>(
    bucket: &B,
    surroundings: &S,
    limit: Duration,
    key: &Key,
    body: Vec<u8>,
    condition: &Condition,
) -> Wrote {
    let condition = match precondition(condition) {
        Some(condition) => condition,
        None => return Wrote::Failed,
    };
    let put = bucket.put(key, Bytes::from(body), &condition);
    match within(surroundings, limit, put).await {
        None | Some(Outcome::Unknown(_)) => Wrote::Unknown,
        Some(Outcome::Written(version)) => Wrote::Written(Version::new(version.as_str())),
        Some(Outcome::ConditionFailed) => Wrote::ConditionFailed,
        Some(Outcome::Failed(_)) => Wrote::Failed,
    }
}

/// Reads one record.
pub(crate) async fn read<B: Bucket, S: Surroundings, R>(
    bucket: &B,
    surroundings: &S,
    limit: Duration,
    key: &Key,
    decode: impl Fn(&[u8]) -> Result<R, RecordError>,
) -> Found<R> {
    let read = async {
        let object = match bucket.get(key, None).await {
            Ok(object) => object,
            Err(ReadError::NotFound) => return Found::Absent,
            Err(_) => return Found::Failed,
        };
        let version = Version::new(object.meta.version.as_str());
        let size = object.meta.size;
        match object.bytes(RECORD_BYTES_MAX as u64).await {
            Ok(bytes) => Found::Object(version, decode(&bytes)),
            Err(ReadError::TooLarge { .. }) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                Found::Object(version, Err(RecordError::TooLarge(size)))
            }
            Err(_) => Found::Failed,
        }
    };
    within(surroundings, limit, read).await.unwrap_or(Found::Failed)
}

/// `None` for a version that no store gave.
fn precondition(condition: &Condition) -> Option<Precondition> {
    match condition {
        Condition::Absent => Some(Precondition::Absent),
        Condition::Unchanged(version) => {
            wasmkeep_bucket::Version::new(version.as_str()).ok().map(Precondition::Version)
        }
    }
}

/// What `work` gives within `limit`.
pub(crate) async fn within<T>(
    surroundings: &impl Surroundings,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(work), pin!(surroundings.sleep(limit))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}
