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

/// As [`write_and_say`], for who does not want to know why.
pub(crate) async fn write<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
    key: &Key,
    body: Vec<u8>,
    condition: &Condition,
) -> Wrote {
    write_and_say(bucket, runtime, limit, key, body, condition).await.0
}

/// Sends a conditional write once. No answer within `limit` is an unknown outcome. Says why it did not land, unless its
/// condition failed.
pub(crate) async fn write_and_say<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
    key: &Key,
    body: Vec<u8>,
    condition: &Condition,
) -> (Wrote, Option<String>) {
    let condition = match precondition(condition) {
        Some(condition) => condition,
        None => return (Wrote::Failed, Some("a version that cannot be sent".to_owned())),
    };
    let put = bucket.put(key, Bytes::from(body), &condition);
    match within(runtime, limit, put).await {
        None => (Wrote::Unknown, Some(no_answer(limit))),
        Some(Outcome::Unknown(cause)) => (Wrote::Unknown, Some(cause.to_string())),
        Some(Outcome::Written(version)) => (Wrote::Written(Version::new(version.as_str())), None),
        Some(Outcome::ConditionFailed) => (Wrote::ConditionFailed, None),
        Some(Outcome::Failed(failure)) => (Wrote::Failed, Some(failure.to_string())),
    }
}

fn no_answer(limit: Duration) -> String {
    format!("the bucket did not answer within {:.1} s", limit.as_secs_f64())
}

/// As [`read_and_say`], for who does not want to know why.
pub(crate) async fn read<B: Bucket, S: Runtime, R>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
    key: &Key,
    decode: impl Fn(&[u8]) -> Result<R, RecordError>,
) -> Found<R> {
    read_and_say(bucket, runtime, limit, key, decode).await.0
}

/// Reads one record. Says why nothing is known of it.
pub(crate) async fn read_and_say<B: Bucket, S: Runtime, R>(
    bucket: &B,
    runtime: &S,
    limit: Duration,
    key: &Key,
    decode: impl Fn(&[u8]) -> Result<R, RecordError>,
) -> (Found<R>, Option<String>) {
    let read = async {
        let object = match bucket.get(key, None).await {
            Ok(object) => object,
            Err(ReadError::NotFound) => return (Found::Absent, None),
            Err(error) => return (Found::Failed, Some(error.to_string())),
        };
        let version = Version::new(object.meta.version.as_str());
        let size = object.meta.size;
        match object.bytes(RECORD_BYTES_MAX as u64).await {
            Ok(bytes) => (Found::Object(version, decode(&bytes)), None),
            Err(ReadError::TooLarge { .. }) => {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                (Found::Object(version, Err(RecordError::TooLarge(size))), None)
            }
            Err(error) => (Found::Failed, Some(error.to_string())),
        }
    };
    within(runtime, limit, read).await.unwrap_or_else(|| (Found::Failed, Some(no_answer(limit))))
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
