//! `wasmkeep cluster forget`: removes what stands in a heartbeat's place and is none (R-OPS-2).
//!
//! A node's lease is never removed: an absent heartbeat frees nothing (R-LEASE-7), so removing one would leave actors
//! held by nobody until somebody fences the id.

use wasmkeep_bucket::{Bucket, ReadError};
use wasmkeep_protocol::{NodeId, lease::Timing, records::RecordError};

use super::heartbeats::{self, Heartbeat, Standing};
use crate::{
    args::Forget,
    bucket,
    exit::{Failure, Status},
    say,
};

/// Removes the object and says so.
///
/// # Errors
/// Refused, or the bucket does not answer.
pub fn forget(flags: &Forget) -> Result<(), Failure> {
    let node = &flags.node;
    bucket::on(&flags.bucket, async |bucket| forgotten(bucket, node).await)?;
    say::answer(&format!("nodes/{node} is removed\n"))
}

async fn forgotten<B: Bucket>(bucket: &B, node: &NodeId) -> Result<(), Failure> {
    let timing = Timing::default();
    let found = heartbeats::read(bucket, node.clone()).await?;
    let Some(found) = found else {
        let sentence = format!("there is no nodes/{node}: check the id with wasmkeep cluster status");
        return Err(Failure::new(Status::Refused, sentence));
    };
    if let Some(reason) = reason_to_keep(&found, &timing) {
        return Err(Failure::new(Status::Refused, format!("nodes/{node} stays: {reason}")));
    }
    // A bucket removes without a condition. A process that starts with this id has watched the object for as long as
    // we require it to be old; one that wrote its first heartbeat in this very moment stops at its second.
    bucket
        .delete(&heartbeats::key(node)?)
        .await
        .map_err(|error| bucket::failed(format_args!("removing nodes/{node}"), ReadError::from(error)))
}

/// Why an object is not removed.
fn reason_to_keep(found: &Heartbeat, timing: &Timing) -> Option<String> {
    let node = &found.node;
    let old = timing.in_view() + timing.lapse(timing.ttl);
    let age = found.read_at.age_of(found.modified_ms);
    match (found.standing(timing), &found.record) {
        (Standing::Live, _) => {
            Some(format!("{node} is live; to stop its process: wasmkeep cluster fence {node}"))
        }
        (_, Ok(_)) => Some(format!(
            "it is the lease of a node, and without it nobody would know whether the actors of {node} are free"
        )),
        (_, Err(RecordError::Format(format))) => {
            Some(format!("it has format {format}, which another version of WasmKeep reads: use that version"))
        }
        (_, Err(_)) if age < old => {
            let (age, old) = (say::age(age), say::age(old));
            Some(format!(
                "it was written {age} ago, and something may still write it: try again once it is {old} old"
            ))
        }
        (_, Err(_)) => None,
    }
}
