//! One file of a restore on its way from the bucket, tried up to three times (R-RST-2).

use std::{cell::RefCell, time::Duration};

use bytes::{Bytes, BytesMut};
use wasmkeep_bucket::{Bucket, Key, ReadError};
use wasmkeep_protocol::{
    limits::{ATTEMPT_BASE, RESTORE_PAUSES, RESTORE_TRIES_MAX},
    replication::{read_limit, seconds_for},
};
use wasmkeep_runtime::{Runtime, within_moving};

use crate::budget::{Place, ReadBudget};

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// It was listed and is gone: another listing will tell.
    #[error("{0} was listed and is not there any more")]
    Gone(Key),
    /// It is not the object that was listed: another listing will tell.
    #[error("{0} has another size than it was listed with")]
    Changed(Key),
    /// The bucket has it and cannot give it any more, however often it is asked.
    #[error("{key} is lost: {reason}")]
    Damaged {
        /// The object.
        key: Key,
        /// What the bucket said.
        reason: String,
    },
    /// The last of its tries failed.
    #[error("{key} could not be read in {tries} tries: {reason}")]
    Unread {
        /// The object.
        key: Key,
        /// Tries made.
        tries: u32,
        /// What the last one came to.
        reason: String,
    },
}

/// One file to read.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// Bytes, as listed.
    pub(crate) bytes: u64,
}

/// How long a file's read has been kept from the bucket by the node's other restores.
#[derive(Debug, Default)]
pub(crate) struct Excuse(RefCell<ExcuseState>);

#[derive(Debug, Default)]
struct ExcuseState {
    /// Waited for a turn, until now.
    queued: Duration,
    queued_since: Option<Duration>,
    /// What other restores' bytes added to the limits of its tries.
    shared: Duration,
}

impl Excuse {
    /// Time waited for a turn before `now`.
    pub(crate) fn queued(&self, now: Duration) -> Duration {
        let state = self.0.borrow();
        state.queued + state.queued_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Time that other restores' bytes added.
    pub(crate) fn shared(&self) -> Duration {
        self.0.borrow().shared
    }

    fn queue(&self, now: Duration) {
        self.0.borrow_mut().queued_since = Some(now);
    }

    fn leave_queue(&self, now: Duration) {
        let queued = self.queued(now);
        *self.0.borrow_mut() = ExcuseState { queued, queued_since: None, shared: self.shared() };
    }
}

/// Seconds that other restores' bytes added to the limit of a try.
fn shared(place: &Place) -> Duration {
    seconds_for(place.peak_bytes()).saturating_sub(seconds_for(place.peak_own_bytes()))
}

/// What one try came to.
enum Ended {
    /// The bucket was silent or slow: sent again at once.
    TooSlow(String),
    /// The bucket answered with an error that a resend can pass: sent again after a pause.
    Failed(String),
    /// The object has another size than listed.
    Changed,
    /// A resend cannot help.
    Final(ReadError),
}

/// Reads a file within the budget.
pub(crate) async fn read<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    budget: &ReadBudget,
    restore: u64,
    wanted: &Wanted,
    excuse: &Excuse,
) -> Result<Bytes, ReadFailure> {
    let mut tries = 0;
    loop {
        tries += 1;
        excuse.queue(runtime.now());
        let place = budget.enter(restore, wanted.bytes).await;
        excuse.leave_queue(runtime.now());
        let before = excuse.shared();
        let note = || excuse.0.borrow_mut().shared = before + shared(&place);
        let ended = one_try(bucket, runtime, wanted, &place, &note).await;
        note();
        drop(place);
        let (reason, pauses) = match ended {
            Ok(bytes) => return Ok(bytes),
            Err(Ended::Final(ReadError::NotFound)) => return Err(ReadFailure::Gone(wanted.key.clone())),
            Err(Ended::Final(ReadError::Damaged(reason))) => {
                return Err(ReadFailure::Damaged { key: wanted.key.clone(), reason });
            }
            Err(Ended::Changed) => return Err(ReadFailure::Changed(wanted.key.clone())),
            Err(Ended::Final(error)) => (error.to_string(), None),
            Err(Ended::Failed(reason)) => (reason, RESTORE_PAUSES.get(tries as usize - 1)),
            Err(Ended::TooSlow(reason)) => (reason, Some(&Duration::ZERO)),
        };
        match pauses {
            Some(pause) if tries < RESTORE_TRIES_MAX => runtime.sleep(*pause).await,
            _ => return Err(ReadFailure::Unread { key: wanted.key.clone(), tries, reason }),
        }
    }
}

/// `note` is called whenever the limit is looked at, so that the excuse is true while the read goes on.
async fn one_try<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    wanted: &Wanted,
    place: &Place,
    note: &impl Fn(),
) -> Result<Bytes, Ended> {
    let began = runtime.now();
    let mut heard = began;
    let left = |heard: Duration| {
        note();
        let now = runtime.now();
        let of_limit = (began + read_limit(place.peak_bytes())).saturating_sub(now);
        of_limit.min((heard + ATTEMPT_BASE).saturating_sub(now))
    };
    let slow = || Ended::TooSlow(format!("the bucket was silent or slow after {:?}", runtime.now() - began));
    let answer = within_moving(runtime, || left(heard), bucket.get(&wanted.key, None)).await;
    let mut object = answer.ok_or_else(slow)?.map_err(ended)?;
    if object.meta.size != wanted.bytes {
        return Err(Ended::Changed);
    }
    let mut whole = Whole::new(wanted.bytes);
    loop {
        heard = runtime.now();
        match within_moving(runtime, || left(heard), object.body.next()).await.ok_or_else(slow)? {
            Some(chunk) => whole.add(chunk.map_err(ended)?),
            None => return Ok(whole.finish()),
        }
    }
}

/// A body being put together. One that came in one piece is not copied, and none is moved as it grows: it may
/// have a gibibyte, and heartbeats wait while this thread copies.
struct Whole {
    bytes: u64,
    first: Bytes,
    rest: BytesMut,
}

impl Whole {
    fn new(bytes: u64) -> Self {
        Self { bytes, first: Bytes::new(), rest: BytesMut::new() }
    }

    fn add(&mut self, chunk: Bytes) {
        if self.first.is_empty() && self.rest.is_empty() {
            self.first = chunk;
            return;
        }
        if self.rest.is_empty() {
            self.rest.reserve(usize::try_from(self.bytes).unwrap_or(0));
            self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.rest.extend_from_slice(&chunk);
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

fn ended(error: ReadError) -> Ended {
    if error.passes() { Ended::Failed(error.to_string()) } else { Ended::Final(error) }
}
