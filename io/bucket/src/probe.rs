//! The start probe (R-BKT-1): does this store refuse what a cluster needs refused?
//!
//! Owns the questions asked on a throwaway object under `probe/`. Trying again when the store does not answer
//! is the caller's.

use bytes::Bytes;
use futures::future::join_all;

use crate::outcome::{Failure, Outcome, Precondition, ReadError, Version};
use crate::{Bucket, Key, Nonce};

/// Races, each on an object of its own. A store that looks and then writes without a lock passes everything
/// sequential. How often it lets two writers win depends on how long it takes between the two: measured from
/// nine of ten races to one of four hundred. So this catches the worst ones at once and the others by luck.
const RACE_ROUNDS: usize = 4;

/// Writers in one race: enough to overlap, few enough to cost a start nothing.
const RACE_WRITERS: usize = 8;

/// Largest body the probe writes, in bytes.
const PROBE_BYTES_MAX: u64 = 256;

/// A condition that a store can fail to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `If-None-Match: *` on an object that exists.
    CreateOverExisting,
    /// `If-Match` with a version that was replaced.
    ReplaceStale,
    /// `If-Match` on an object that was deleted.
    ReplaceMissing,
    /// `If-Match` with the current version, which has to be let through.
    ReplaceCurrent,
    /// `If-None-Match: *` from several writers at once.
    CreateRace,
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CreateOverExisting => "it accepted a create (If-None-Match: *) over an existing object",
            Self::ReplaceStale => "it accepted a replace (If-Match) that named an older version",
            Self::ReplaceMissing => "it accepted a replace (If-Match) of a missing object",
            Self::ReplaceCurrent => "it refused a replace (If-Match) that named the current version",
            Self::CreateRace => "it let two of several simultaneous creates (If-None-Match: *) succeed",
        })
    }
}

/// Proof that a probe of this store succeeded: only [`probe`] makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct ConditionsHold(());

/// Why a probe did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The store is not fit for a cluster. Final.
    #[error("the bucket does not apply the conditions a cluster stands on: {0}")]
    Ignored(Condition),
    /// The store refused. Final as long as nobody changes its settings.
    #[error("the bucket could not be probed: {0}")]
    Refused(String),
    /// No clear answer: probe again, on another object.
    #[error("the bucket could not be probed yet: {0}")]
    NoAnswer(String),
}

/// Probes the store on an object of its own under `probe/`, which it deletes again.
pub async fn probe<B: Bucket>(bucket: &B) -> Result<ConditionsHold, ProbeError> {
    let run = Nonce::random();
    let key = probe_key(&run, "one")?;
    let sequence = sequence(bucket, &key).await;
    discard(bucket, &key).await;
    sequence?;
    for round in 0..RACE_ROUNDS {
        let key = probe_key(&run, &format!("race{round}"))?;
        let race = race(bucket, &key).await;
        discard(bucket, &key).await;
        race?;
    }
    Ok(ConditionsHold(()))
}

async fn sequence<B: Bucket>(bucket: &B, key: &Key) -> Result<(), ProbeError> {
    let (first, body) = wanted(bucket, key, &Precondition::Absent).await?.ok_or_else(unclear_create)?;
    unwanted(bucket, key, &Precondition::Absent, Condition::CreateOverExisting, Some(&body)).await?;
    let (second, body) = wanted(bucket, key, &Precondition::Version(first.clone()))
        .await?
        .ok_or(ProbeError::Ignored(Condition::ReplaceCurrent))?;
    unwanted(bucket, key, &Precondition::Version(first), Condition::ReplaceStale, Some(&body)).await?;
    bucket.delete(key).await.map_err(failed)?;
    unwanted(bucket, key, &Precondition::Version(second), Condition::ReplaceMissing, None).await
}

/// A write that has to be applied; `None` when its condition was called false.
async fn wanted<B: Bucket>(
    bucket: &B,
    key: &Key,
    condition: &Precondition,
) -> Result<Option<(Version, Bytes)>, ProbeError> {
    let body = probe_body();
    match bucket.put(key, body.clone(), condition).await {
        Outcome::Written(version) => Ok(Some((version, body))),
        Outcome::ConditionFailed => Ok(None),
        Outcome::Unknown(cause) => Err(ProbeError::NoAnswer(cause.to_string())),
        Outcome::Failed(failure) => Err(failed(failure)),
    }
}

/// A write that must not be applied, whatever the store answers: `stands` has to be there after it.
async fn unwanted<B: Bucket>(
    bucket: &B,
    key: &Key,
    condition: &Precondition,
    tried: Condition,
    stands: Option<&Bytes>,
) -> Result<(), ProbeError> {
    if wanted(bucket, key, condition).await?.is_some() {
        return Err(ProbeError::Ignored(tried));
    }
    let found = match bucket.get(key, None).await {
        Ok(object) => object.bytes(PROBE_BYTES_MAX).await.map(Some),
        Err(ReadError::NotFound) => Ok(None),
        Err(error) => Err(error),
    };
    match found {
        Ok(found) if found.as_ref() == stands => Ok(()),
        // It answered "refused" and wrote all the same.
        Ok(_) => Err(ProbeError::Ignored(tried)),
        Err(error) => Err(unread(error)),
    }
}

async fn race<B: Bucket>(bucket: &B, key: &Key) -> Result<(), ProbeError> {
    let writers = (0..RACE_WRITERS).map(|_| bucket.put(key, probe_body(), &Precondition::Absent));
    let outcomes = join_all(writers).await;
    let winners = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Written(_))).count();
    match winners {
        1 => Ok(()),
        // A loser's unclear answer is no harm, a race without a clear winner proves nothing.
        0 => Err(ProbeError::NoAnswer(format!("a race of creates ended without a winner: {outcomes:?}"))),
        _ => Err(ProbeError::Ignored(Condition::CreateRace)),
    }
}

async fn discard<B: Bucket>(bucket: &B, key: &Key) {
    if let Err(failure) = bucket.delete(key).await {
        tracing::debug!(%key, %failure, "a probe object was left behind");
    }
}

fn probe_key(run: &Nonce, part: &str) -> Result<Key, ProbeError> {
    format!("probe/{run}-{part}")
        .parse()
        .map_err(|error: crate::KeyError| ProbeError::Refused(error.to_string()))
}

fn probe_body() -> Bytes {
    Bytes::from(format!("wasmkeep probe {}\n", Nonce::random()))
}

fn unclear_create() -> ProbeError {
    // The key is fresh, so this is most likely our own request delivered twice.
    ProbeError::NoAnswer("a create of a new object was refused".to_owned())
}

fn failed(failure: Failure) -> ProbeError {
    if failure.passes() {
        ProbeError::NoAnswer(failure.to_string())
    } else {
        ProbeError::Refused(failure.to_string())
    }
}

fn unread(error: ReadError) -> ProbeError {
    if error.passes() {
        ProbeError::NoAnswer(error.to_string())
    } else {
        ProbeError::Refused(error.to_string())
    }
}

#[cfg(test)]
mod tests;
