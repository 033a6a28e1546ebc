//! One object on its way into the bucket, within the times an upload has (R-REPL-2, R-REPL-3).
//!
//! An upload is up to three *attempts*. Within one, the request is sent again after an answer that says "not now";
//! a connection that broke, or silence, ends the attempt, because the write may be under way. History files are
//! put without a condition: their names say what is in them, so a second copy changes nothing.

use std::time::Duration;

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Failure, Key, Outcome, Precondition, UnknownCause};
use wasmkeep_protocol::replication::Upload;

use wasmkeep_runtime::{Runtime, within};

/// Pause before a request is sent again, and between attempts; it doubles.
const RESEND_PAUSE: Duration = Duration::from_millis(250);

/// Longest such pause.
const RESEND_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Refusals of one attempt that are not believed: a store that is about to pick up other keys, or whose front is tired,
/// answers 403 once and takes the next.
const REFUSALS_DOUBTED: u32 = 2;

/// Why an object is not known to be in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// The bucket will not take it, however often it is asked.
    #[error("the bucket does not take {key}: {reason}")]
    Refused {
        /// The object.
        key: String,
        /// What the bucket said.
        reason: String,
    },
    /// No attempt was acknowledged. It may be there, or arrive later.
    #[error("{key} was not acknowledged by the bucket in {attempts} attempts: {reason}")]
    Unacknowledged {
        /// The object.
        key: String,
        /// Attempts made.
        attempts: u32,
        /// What the last one came to.
        reason: String,
    },
    /// The file could not be made, or its name is none: a bug.
    #[error("{0}")]
    Impossible(String),
}

/// What one attempt came to.
enum Ended {
    Refused(String),
    Broken(String),
}

/// Puts `body` under `key`.
pub(crate) async fn upload<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    key: &Key,
    body: &Bytes,
    kind: Upload,
) -> Result<(), UploadError> {
    let began = runtime.now();
    let limit_of =
        |attempt| kind.attempt_limit(body.len() as u64, attempt, runtime.now().saturating_sub(began));
    let (mut attempts, mut last) = (0, String::new());
    let mut pause = RESEND_PAUSE;
    while let Some(mut limit) = limit_of(attempts + 1) {
        if attempts > 0 {
            runtime.sleep(pause.min(limit)).await;
            pause = (pause * 2).min(RESEND_PAUSE_MAX);
            limit = limit_of(attempts + 1).unwrap_or_default();
        }
        attempts += 1;
        match within(runtime, limit, attempt(bucket, runtime, key, body)).await {
            Some(Ok(())) => return Ok(()),
            Some(Err(Ended::Refused(reason))) => {
                return Err(UploadError::Refused { key: key.to_string(), reason });
            }
            Some(Err(Ended::Broken(reason))) => last = reason,
            None => last = format!("no answer within {limit:?}"),
        }
    }
    Err(UploadError::Unacknowledged { key: key.to_string(), attempts, reason: last })
}

async fn attempt<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    key: &Key,
    body: &Bytes,
) -> Result<(), Ended> {
    let (mut pause, mut refusals) = (RESEND_PAUSE, 0);
    loop {
        match bucket.put(key, body.clone(), &Precondition::None).await {
            Outcome::Written(_) | Outcome::Unknown(UnknownCause::NoVersion) => return Ok(()),
            Outcome::Failed(Failure::Refused(reason)) if refusals == REFUSALS_DOUBTED => {
                return Err(Ended::Refused(reason));
            }
            Outcome::Failed(Failure::Refused(_)) => refusals += 1,
            Outcome::ConditionFailed => {
                return Err(Ended::Refused("a condition failed that was not asked for".to_owned()));
            }
            Outcome::Unknown(UnknownCause::NoReply(reason)) => return Err(Ended::Broken(reason)),
            Outcome::Failed(Failure::Throttled(_) | Failure::NotAccepted(_) | Failure::Unavailable(_))
            | Outcome::Unknown(UnknownCause::Ambiguous { .. }) => {}
        }
        runtime.sleep(pause).await;
        pause = (pause * 2).min(RESEND_PAUSE_MAX);
    }
}
