//! Which of the states that can be had a person means.

use wasmkeep_bucket::{Bucket, ReadError};
use wasmkeep_ltx::{HEADER_LEN, Header};
use wasmkeep_protocol::history::State;

use super::{history::History, inspect::broken};
use crate::{
    args::{ActorPath, At},
    bucket,
    exit::{Failure, Status},
    say,
};

/// The number of the state `at` in the timeline; without `at`, of the latest.
///
/// # Errors
/// There is no such state, the latest one is lost, or the bucket does not answer.
pub async fn choose<B: Bucket>(
    bucket: &B,
    actor: &ActorPath,
    history: &History,
    at: Option<At>,
) -> Result<usize, Failure> {
    let states = history.timeline.states();
    if let (Err(reason), true) = (&history.plan, at.is_none() || states.is_empty()) {
        return Err(broken(actor, history, reason));
    }
    match at {
        None => Ok(states.len().saturating_sub(1)),
        Some(At::Transaction(txid)) => by_transaction(actor, states, txid),
        Some(At::Time(time)) => by_time(bucket, actor, history, time.timestamp_millis()).await,
    }
}

fn by_transaction(actor: &ActorPath, states: &[State], txid: u64) -> Result<usize, Failure> {
    let after = match states.binary_search_by_key(&txid, |state| state.point.txid) {
        Ok(at) => return Ok(at),
        Err(after) => after,
    };
    let txid_at = |at: usize| states.get(at).map(|state| state.point.txid.to_string());
    let near = match (after.checked_sub(1).and_then(txid_at), txid_at(after)) {
        (Some(before), Some(next)) => format!("the nearest are {before} and {next}"),
        (Some(newest), None) => format!("the newest is {newest}"),
        (None, Some(oldest)) => format!("what is kept goes back to {oldest}"),
        (None, None) => "there is none".to_owned(),
    };
    let sentence = format!(
        "the bucket has no state of {actor} after transaction {txid}: {near} (wasmkeep actor inspect --files lists them)"
    );
    Err(Failure::new(Status::NotFound, sentence))
}

/// The last state committed at or before a time, by the times the files carry.
async fn by_time<B: Bucket>(
    bucket: &B,
    actor: &ActorPath,
    history: &History,
    wanted_ms: i64,
) -> Result<usize, Failure> {
    let states = history.timeline.states();
    // States before `low` were committed by then, those from `high` on were not.
    let (mut low, mut high) = (0, states.len());
    let mut oldest = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let committed = committed_ms(bucket, history, &states[..=middle]).await?;
        if committed <= wanted_ms {
            low = middle + 1;
        } else {
            (high, oldest) = (middle, Some(committed));
        }
    }
    low.checked_sub(1).ok_or_else(|| {
        let oldest = oldest.map(say::time).unwrap_or_default();
        let wanted = say::time(wanted_ms);
        let sentence = format!(
            "what the bucket keeps of {actor} begins at {oldest}, after {wanted}: give --at a later time"
        );
        Failure::new(Status::NotFound, sentence)
    })
}

/// When the last of some states was committed, by the clock of the node that wrote it. Of one whose files cannot be
/// read it is known only that it came after the one before.
async fn committed_ms<B: Bucket>(bucket: &B, history: &History, states: &[State]) -> Result<i64, Failure> {
    let mut last = Failure::new(Status::Internal, "a state without a file");
    for file in states.iter().rev().flat_map(State::files) {
        let key = history.key(&file)?;
        let damaged =
            |error: &dyn std::fmt::Display| Failure::new(Status::Damaged, format!("{file}: {error}"));
        last = match bucket::read_start(bucket, &key, HEADER_LEN as u64).await {
            Ok(start) => match Header::peek(&start) {
                Ok(header) => return Ok(header.timestamp_ms),
                Err(error) => damaged(&error),
            },
            Err(error @ ReadError::Damaged(_)) => damaged(&error),
            Err(ReadError::NotFound) => {
                let sentence = "the history changed while it was read: run the command again";
                return Err(Failure::new(Status::NotFound, sentence));
            }
            Err(error) => return Err(bucket::failed(format_args!("reading {key}"), error)),
        };
    }
    Err(last)
}
