//! What an actor says on a lease that is over stays here, whether or not anything has noticed yet (R-LEASE-2).
//!
//! A suspended machine's timers stand still and its `CLOCK_BOOTTIME` does not: an event that was under way goes on before
//! any timer says that the lease ran out. So each way out asks the clock when something is about to leave by it. Sockets
//! ask in [`crate::socket`].

use std::{future::Future, pin::Pin, rc::Rc, sync::Arc};

use http::{Request, Response};
use wasmkeep_actor::Failure;
use wasmkeep_host::{
    Call, CallError, CallOutcome, Calls, ResponseBody, Unanswered,
    outbound::{Outbound, OutboundBody, OutboundError, OutboundOptions, Sending},
};

use super::Shard;
use crate::cluster::LeaseToken;

const LOST: &str = "the node lost the actor while its event ran";

/// The answer of an actor, if it may leave; so may each part of its body, as it comes. `lease`: the node's when the event
/// was handed over, on a node with one.
pub(super) fn answered(
    answer: Result<Response<ResponseBody>, Unanswered>,
    lease: Option<LeaseToken>,
) -> Result<Response<ResponseBody>, Unanswered> {
    let answer = answer?;
    let Some(lease) = lease else { return Ok(answer) };
    if !lease.is_valid() {
        return Err(Unanswered::Failed(Failure::Lost));
    }
    Ok(answer.map(|body| {
        body.gated(move || {
            let lease = lease.clone();
            Box::pin(async move { lease.is_valid() })
        })
    }))
}

impl Shard {
    /// The lease on which an event is handed over now, on a node with a bucket.
    pub(super) fn lease(&self) -> Option<LeaseToken> {
        self.abroad.as_ref()?.cluster.lease.token()
    }
}

/// Calls of an actor.
pub(super) struct LeasedCalls {
    pub(super) calls: Rc<dyn Calls>,
    pub(super) lease: LeaseToken,
}

impl Calls for LeasedCalls {
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>> {
        if self.lease.is_valid() {
            return self.calls.call(call);
        }
        Box::pin(async { Err(CallError::Failed(LOST.to_owned())) })
    }
}

/// Outbound requests of an actor.
pub(super) struct LeasedOutbound {
    pub(super) outbound: Arc<dyn Outbound>,
    pub(super) lease: LeaseToken,
}

impl Outbound for LeasedOutbound {
    fn send(&self, request: Request<OutboundBody>, options: OutboundOptions) -> Sending {
        if self.lease.is_valid() {
            return self.outbound.send(request, options);
        }
        Box::pin(async { Err(OutboundError::InternalError(Some(LOST.to_owned()))) })
    }
}
