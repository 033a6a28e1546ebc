//! `wasmkeep cluster fence`: takes a node's lease away, so that its process stops and others take its actors (R-OPS-2).

use std::time::Duration;

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Nonce as Token, Outcome, Precondition, ReadError, put_settled};
use wasmkeep_protocol::{
    NodeId,
    lease::Timing,
    records::{NodeRecord, Nonce, Process},
};

use super::heartbeats::{self, Heartbeat, Standing};
use crate::{
    args::Fence,
    bucket,
    exit::{Failure, Status},
    say,
};

/// Times a heartbeat that was renewed between the read and the write is read again. A node renews it every 3 s.
const RENEWALS_MAX: usize = 5;

/// Sends of one fence whose answers are lost.
const SENDS_MAX: usize = 3;

/// Fences a node and says what follows.
///
/// # Errors
/// Refused, or the bucket does not answer.
pub fn fence(flags: &Fence) -> Result<(), Failure> {
    let done = bucket::on(&flags.bucket, async |bucket| fenced(bucket, &flags.node, flags.force).await)?;
    say::answer(&(done + "\n"))
}

async fn fenced<B: Bucket>(bucket: &B, node: &NodeId, force: bool) -> Result<String, Failure> {
    let timing = Timing::default();
    for _ in 0..RENEWALS_MAX {
        let found = heartbeats::read(bucket, node.clone()).await?;
        // Without a heartbeat its actors are held until it is fenced (R-LEASE-7).
        if let Some(heartbeat) = &found {
            match heartbeat.standing(&timing) {
                Standing::Fenced => return Ok(format!("{node} is fenced already")),
                Standing::Released => {
                    return Ok(format!("{node} has released its lease and holds no actor: nothing to fence"));
                }
                Standing::Live => {}
                Standing::Silent | Standing::Unreadable if force => {}
                Standing::Silent | Standing::Unreadable => return Err(refused(heartbeat, &timing)),
            }
        }
        let said = fenced_text(node, found.as_ref(), &timing);
        if write(bucket, node, found, &timing).await? {
            return Ok(said);
        }
    }
    let sentence = format!(
        "the heartbeat of {node} was rewritten {RENEWALS_MAX} times while this command tried to replace it: run it again"
    );
    Err(Failure::new(Status::Bucket, sentence))
}

/// What follows from a fence that is written now, and when. A fence keeps the date of the last live write, and nodes
/// wait until that has passed by their clocks, too (R-LEASE-9).
fn fenced_text(node: &NodeId, found: Option<&Heartbeat>, timing: &Timing) -> String {
    let now_ms = heartbeats::now().wall_ms;
    let record = found.and_then(|heartbeat| heartbeat.record.as_ref().ok());
    let (dated_ms, ttl) = record.map_or((now_ms, timing.ttl), |record| (record.written_at_ms, record.ttl));
    let lapse = timing.lapse(ttl);
    let free = Duration::from_millis(dated_ms.max(now_ms)) + lapse;
    let free_ms = u64::try_from(free.as_millis()).unwrap_or(u64::MAX);
    let at = i64::try_from(free_ms).map_or_else(|_| free_ms.to_string(), say::time);
    let left = say::age(Duration::from_millis(free_ms.saturating_sub(now_ms)));
    let process = match found {
        Some(_) => "its process stops at its next heartbeat, and its actors are free",
        None => "there was no heartbeat of it; what it held is free",
    };
    let ahead = Duration::from_millis(dated_ms.saturating_sub(now_ms));
    let why = match ahead > timing.skew {
        true => format!(
            ", {} after the date of its last heartbeat, which is {} ahead of this machine's clock: one of the two is wrong",
            say::age(lapse),
            say::age(ahead)
        ),
        false => String::new(),
    };
    format!(
        "{node} is fenced: {process} at {at} at the latest, in {left}{why}; a service manager that restarts it brings it \
         back as a new process"
    )
}

/// Why a node that is not live is not fenced.
fn refused(found: &Heartbeat, timing: &Timing) -> Failure {
    let node = &found.node;
    let reason = match &found.record {
        Err(error) => {
            format!("nodes/{node} is no heartbeat this version reads ({error}): if it ever was")
        }
        Ok(record) => format!(
            "{node} has not renewed its lease for {}, and the live nodes of its cluster fence it {} after its last \
             write: if there is none",
            say::age(found.age(record)),
            say::age(timing.lapse(record.ttl))
        ),
    };
    Failure::new(Status::Refused, format!("{reason}, --force writes the fence all the same"))
}

/// Replaces exactly what was found; `false` when it is not there any more.
async fn write<B: Bucket>(
    bucket: &B,
    node: &NodeId,
    found: Option<Heartbeat>,
    timing: &Timing,
) -> Result<bool, Failure> {
    let nonce = Nonce::from_bits(rand::random());
    // Nobody has watched anything stand: that is for the nodes to do before they take an actor.
    let (condition, record) = match found {
        Some(Heartbeat { record: Ok(record), version, .. }) => {
            (Precondition::Version(version), record.fence(Duration::ZERO, None, nonce))
        }
        Some(Heartbeat { version, .. }) => (Precondition::Version(version), for_absent(timing, nonce)),
        None => (Precondition::Absent, for_absent(timing, nonce)),
    };
    let Some(token) = Token::from_text(&nonce.to_string()) else {
        return Err(Failure::new(Status::Internal, "a nonce that cannot be recognised"));
    };
    let body = Bytes::from(record.encode());
    match put_settled(bucket, &heartbeats::key(node)?, body, &condition, &token, SENDS_MAX).await {
        Outcome::Written(_) => Ok(true),
        Outcome::ConditionFailed => Ok(false),
        Outcome::Unknown(cause) => {
            let sentence = format!("whether {node} is fenced is not known: {cause}; run the command again");
            Err(Failure::new(Status::Bucket, sentence))
        }
        Outcome::Failed(failure) => {
            Err(bucket::failed(format_args!("fencing {node}"), ReadError::from(failure)))
        }
    }
}

fn for_absent(timing: &Timing, nonce: Nonce) -> NodeRecord {
    let process = Process::from_bits(rand::random());
    NodeRecord::fence_for_absent(process, timing.ttl, heartbeats::now().wall_ms, nonce)
}
