//! A call from one actor to another as plain data. Whoever owns the shards carries it, here or to another node.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use wasmkeep_protocol::{ActorId, call_chain::CallChain};

/// A call on its way to the callee.
#[derive(Debug)]
pub struct Call {
    /// Whom it is for.
    pub callee: ActorId,
    /// Who waits for it; the last one calls.
    pub chain: CallChain,
    /// The moment by which the caller's event ends, on the clock of the actors' world.
    pub caller_ends_at: Duration,
    /// Within the limits of a call.
    pub request: http::Request<Bytes>,
}

/// Why a call has no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The app has no such class.
    #[error("no such class")]
    NoSuchClass,
    /// It did not run, and may in a moment.
    #[error("overloaded")]
    Overloaded,
    /// No answer in time. It may have run.
    #[error("timed out")]
    TimedOut,
    /// Nobody will answer. It may have run.
    #[error("{0}")]
    Unknown(String),
    /// It could not be started, or failed.
    #[error("{0}")]
    Failed(String),
}

/// What becomes of a call.
pub type CallOutcome = Result<http::Response<Bytes>, CallError>;

/// Carries calls.
pub trait Calls {
    /// Brings a call to its callee and the response back, whole. Dropping the future gives the call up: a callee
    /// that has not begun never will.
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>>;
}
