//! The proof, before anything else is written, that the store keeps the conditions a cluster stands on.

use std::time::Duration;

use wasmkeep_bucket::{Bucket, Condition, ConditionsHold, ProbeError, probe};

/// Between two probes of a bucket that does not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Why a bucket cannot be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProveError {
    /// The store is not fit for a cluster.
    #[error("the bucket does not apply the conditions a cluster stands on: {0}; use another store")]
    Ignored(Condition),
    /// The store refused.
    #[error("the bucket could not be probed: {0}")]
    Refused(String),
}

/// Probes until the store gives a clear answer (R-BKT-1); one that does not answer is asked again every two
/// seconds, for as long as the caller waits. `unanswered` is told each time.
///
/// # Errors
/// When the store must not be used.
pub async fn prove<B: Bucket>(
    bucket: &B,
    mut unanswered: impl FnMut(&str),
) -> Result<ConditionsHold, ProveError> {
    loop {
        match probe(bucket).await {
            Ok(holds) => return Ok(holds),
            Err(ProbeError::Ignored(condition)) => return Err(ProveError::Ignored(condition)),
            Err(ProbeError::Refused(why)) => return Err(ProveError::Refused(why)),
            Err(ProbeError::NoAnswer(why)) => unanswered(&why),
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests;
