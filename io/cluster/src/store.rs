//! Records as objects: the deciding code's words for a request, and the bucket's.

use std::time::Duration;

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Key, Outcome, Precondition, ReadError};
use wasmkeep_protocol::{
    clock::{Moment, Now},
    records::{Nonce, RECORD_BYTES_MAX, RecordError},
    store::{Condition, Found, Version, Wrote},
};
use wasmkeep_runtime::{Runtime, within};

/// Both clocks, read together.
pub(crate) fn now(runtime: &impl Runtime) -> Now {
    Now { moment: Moment::after_boot(runtime.now()), wall_ms: runtime.unix_ms() }
}

pub(crate) fn nonce(runtime: &impl Runtime) -> Nonce {
    Nonce::from_bits(runtime.random())
}

/// A key of `object_keys`: those are made of names that keys may hold.
pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("the protocol's names make keys")
}

/// Sends a conditional write once. No answer within `limit` is an unknown outcome.
pub(crate) async fn write<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
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
    match within(runtime, limit, put).await {
        None | Some(Outcome::Unknown(_)) => Wrote::Unknown,
        Some(Outcome::Written(version)) => Wrote::Written(Version::new(version.as_str())),
        Some(Outcome::ConditionFailed) => Wrote::ConditionFailed,
        Some(Outcome::Failed(_)) => Wrote::Failed,
    }
}

/// Reads one record.
pub(crate) async fn read<B: Bucket, S: Runtime, R>(
    bucket: &B,
    runtime: &S,
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
    within(runtime, limit, read).await.unwrap_or(Found::Failed)
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
