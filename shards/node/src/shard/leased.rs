//! What an actor says on a lease that is over stays here, whether or not anything has noticed yet (R-LEASE-2).
//!
//! A suspended machine's timers stand still and its `CLOCK_BOOTTIME` does not: an event that was under way goes on before
//! any timer says that the lease ran out. So each way out asks the clock when something is about to leave by it. Sockets
//! ask in [`crate::socket`].

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
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
        Some(self.abroad.as_ref()?.cluster.lease.token_of_now())
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
        if !self.lease.is_valid() {
            return Box::pin(async { Err(lost()) });
        }
        let request = request.map(|body| match body.is_end_stream() {
            true => body,
            false => LeasedBody { body, lease: self.lease.clone() }.boxed_unsync(),
        });
        self.outbound.send(request, options)
    }
}

fn lost() -> OutboundError {
    OutboundError::InternalError(Some(LOST.to_owned()))
}

/// A request's body, of which each part asks: resolving and connecting lie before the first.
struct LeasedBody {
    body: OutboundBody,
    lease: LeaseToken,
}

impl Body for LeasedBody {
    type Data = Bytes;
    type Error = OutboundError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OutboundError>>> {
        let part = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(if self.lease.is_valid() { part } else { Some(Err(lost())) })
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use futures::{executor::block_on, stream};
    use http_body_util::StreamBody;
    use wasmkeep_core::BucketThreadRuntime;
    use wasmkeep_runtime::Runtime;

    use super::*;
    use crate::cluster::LeaseCell;

    // R-LEASE-2
    #[test]
    fn a_part_of_an_outbound_body_does_not_leave_on_a_lease_that_is_over() {
        let cell = Arc::new(LeaseCell::default());
        cell.renew(1, BucketThreadRuntime.now() + Duration::from_secs(60));
        let parts = ["first", "second"].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        let body = StreamBody::new(stream::iter(parts)).map_err(|never| match never {}).boxed_unsync();
        let mut body = LeasedBody { body, lease: cell.token().unwrap() };
        let first = block_on(body.frame()).unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first");
        cell.lapse();
        assert!(block_on(body.frame()).unwrap().is_err());
    }
}
