//! Writes whose reply was lost. Owns finding out what they came to, by reading back the writer's own nonce.

use bytes::Bytes;

use crate::outcome::{Outcome, Precondition, ReadError, UnknownCause, Version};
use crate::{Bucket, Key, Nonce};

/// Largest record that is read back, in bytes. Records that carry a nonce are small; data files are not settled.
const RECORD_BYTES_MAX: u64 = 8 << 20;

/// What reading an object back says about a write that carried a nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The write landed and still stands, in this version.
    Ours(Version),
    /// Another record stands there, in this version. Ours may have stood before it, or may still arrive if its
    /// condition holds for this version.
    Other(Version),
    /// No object. Ours may still arrive if it was to be a create.
    Absent,
}

/// Reads `key` back and looks for `nonce` in it.
pub async fn settle<B: Bucket>(bucket: &B, key: &Key, nonce: &Nonce) -> Result<Settled, ReadError> {
    let object = match bucket.get(key, None).await {
        Ok(object) => object,
        Err(ReadError::NotFound) => return Ok(Settled::Absent),
        Err(error) => return Err(error),
    };
    let version = object.meta.version.clone();
    match object.bytes(RECORD_BYTES_MAX).await {
        Ok(body) if nonce.is_in(&body) => Ok(Settled::Ours(version)),
        // What is larger than any record is nobody's record, and certainly not ours.
        Ok(_) | Err(ReadError::TooLarge { .. }) => Ok(Settled::Other(version)),
        Err(error) => Err(error),
    }
}

/// Puts a record that carries `nonce` and settles lost replies, in at most `tries` sends.
///
/// - [`Outcome::Written`]: the record stands, or stood when it was read back.
/// - [`Outcome::ConditionFailed`]: another writer got in first. A reply "condition failed" is never believed
///   before the object was read back: a proxy or a client library may have sent our request twice, and then it
///   is our own first copy that made the second one fail.
/// - [`Outcome::Unknown`]: still unknown after `tries` sends, or the read back failed.
/// - [`Outcome::Failed`]: no send of it can have been applied.
///
/// A create (`Absent`) whose first copy is lost under way can still be applied after the object that refused the
/// second copy was deleted: do not delete what others create under a condition.
///
/// It does not wait between sends: the caller's lease or retry budget decides how many there are.
pub async fn put_settled<B: Bucket>(
    bucket: &B,
    key: &Key,
    body: Bytes,
    condition: &Precondition,
    nonce: &Nonce,
    tries: usize,
) -> Outcome {
    debug_assert!(nonce.is_in(&body), "a record without its nonce cannot be recognised");
    let mut lost = None;
    for _ in 0..tries.max(1) {
        let outcome = bucket.put(key, body.clone(), condition).await;
        let refused = outcome == Outcome::ConditionFailed;
        match (outcome, lost.take()) {
            (Outcome::Written(version), _) => return Outcome::Written(version),
            // A copy sent before may still arrive, so this failure is not the whole story.
            (Outcome::Failed(_), Some(cause)) => return Outcome::Unknown(cause),
            (Outcome::Failed(failure), None) => return Outcome::Failed(failure),
            (Outcome::Unknown(cause), _) => lost = Some(cause),
            (Outcome::ConditionFailed, _) => {}
        }
        let found = match settle(bucket, key, nonce).await {
            Ok(found) => found,
            Err(error) => return Outcome::Unknown(UnknownCause::NoReply(error.to_string())),
        };
        match found {
            Settled::Ours(version) => return Outcome::Written(version),
            _ if refused || !may_still_apply(condition, &found) => return Outcome::ConditionFailed,
            // Not there yet. The same record under the same condition can be sent again: whichever copy
            // lands is ours, and the other one fails its condition.
            Settled::Other(_) | Settled::Absent => {}
        }
    }
    Outcome::Unknown(lost.unwrap_or_else(|| UnknownCause::NoReply("no reply to the last send".to_owned())))
}

/// Whether a copy of the write that is still under way could be applied to what was found.
fn may_still_apply(condition: &Precondition, found: &Settled) -> bool {
    match (condition, found) {
        (Precondition::None, _) => true,
        (Precondition::Absent, Settled::Absent) => true,
        (Precondition::Version(wanted), Settled::Other(version)) => wanted == version,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
