//! Calls between actors of this node: on the same shard, or over the mesh. No HTTP in between.

use std::{
    future::Future,
    pin::Pin,
    rc::{Rc, Weak},
};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use wasmkeep_actor::{Failure, Refusal};
use wasmkeep_host::{Call, CallError, CallOutcome, Calls, HttpEvent, RequestBody, ResponseBody, Unanswered};
use wasmkeep_protocol::{call_chain::time_for_callee, limits::CALL_BODY_BYTES_MAX};

use super::{Shard, calls_abroad::CalledAbroad};

/// Carries the calls of a shard's actors. The shard owns the actors, so this end does not own the shard.
pub(super) struct ShardCalls(Weak<Shard>);

impl ShardCalls {
    pub(super) fn new(shard: &Rc<Shard>) -> Rc<Self> {
        Rc::new(Self(Rc::downgrade(shard)))
    }
}

impl Calls for ShardCalls {
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>> {
        let shard = self.0.upgrade();
        Box::pin(async move {
            match shard {
                Some(shard) => shard.call(call).await,
                None => Err(CallError::Overloaded),
            }
        })
    }
}

impl Shard {
    async fn call(self: Rc<Self>, call: Call) -> CallOutcome {
        let Call { callee, chain, caller_ends_at, request } = call;
        if !self.node.classes.contains_key(&callee.class) {
            return Err(CallError::NoSuchClass);
        }
        let now = self.node.now();
        let patience = time_for_callee(caller_ends_at.saturating_sub(now));
        let exchange = async {
            let request = match self.call_abroad(&callee, &chain, patience, request).await {
                CalledAbroad::Here(request) => request,
                CalledAbroad::Ended(outcome) => return outcome,
            };
            let (event, answer) = HttpEvent::new(request.map(RequestBody::full));
            let event = event.called(chain, now + patience);
            // Nothing ran: the inbox of the other shard stayed full, or the node is stopping.
            self.deliver(&callee, event.into()).await.map_err(|_| CallError::Overloaded)?;
            whole(answer.await.map_err(call_error)?).await
        };
        let outcome = self.context.sleeper.timeout(patience, exchange).await;
        let outcome = outcome.unwrap_or(Err(CallError::TimedOut));
        self.metrics.calls.count(&callee.class, label(&outcome));
        outcome
    }
}

/// How a call ended, for the metrics.
fn label(outcome: &CallOutcome) -> &'static str {
    match outcome {
        Ok(_) => "answered",
        Err(CallError::NoSuchClass) => "no_such_class",
        Err(CallError::Overloaded) => "overloaded",
        Err(CallError::TimedOut) => "timed_out",
        Err(CallError::Unknown(_)) => "unknown",
        Err(CallError::Failed(_)) => "failed",
    }
}

/// Reads a response to its end.
pub(super) async fn whole(response: http::Response<ResponseBody>) -> CallOutcome {
    let too_long = || {
        let sentence = format!("the callee's response is longer than {CALL_BODY_BYTES_MAX} bytes");
        Err(CallError::Failed(sentence))
    };
    let (parts, mut body) = response.into_parts();
    if let Some(bytes) = body.as_whole() {
        let bytes = bytes.clone();
        return if bytes.len() > CALL_BODY_BYTES_MAX {
            too_long()
        } else {
            Ok(http::Response::from_parts(parts, bytes))
        };
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cut| CallError::Failed(cut.to_string()))?;
        let chunk: Bytes = frame.into_data().unwrap_or_default();
        if bytes.len() + chunk.len() > CALL_BODY_BYTES_MAX {
            return too_long();
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(http::Response::from_parts(parts, bytes.freeze()))
}

/// What the caller learns of an event that was not answered. Reasons that come from the callee's code or a file
/// name stay in the node's log.
pub(super) fn call_error(why: Unanswered) -> CallError {
    let failed = |sentence: &str| CallError::Failed(sentence.to_owned());
    match why {
        Unanswered::Refused(Refusal::MailboxFull(_) | Refusal::Stopping | Refusal::NoRoom) => {
            CallError::Overloaded
        }
        Unanswered::Refused(refusal @ (Refusal::NotHeld(_) | Refusal::Unavailable(_))) => {
            CallError::Failed(refusal.to_string())
        }
        Unanswered::Refused(Refusal::Storage(_)) => {
            failed("the callee's storage cannot be opened; see the node's log")
        }
        Unanswered::Refused(Refusal::Damaged(_)) => {
            failed("the callee's database is damaged; see the node's log")
        }
        Unanswered::Refused(Refusal::Start(_)) => {
            failed("the callee could not be started; see the node's log")
        }
        Unanswered::Refused(Refusal::Init(_)) => failed("the callee's on-init failed; see the node's log"),
        Unanswered::Failed(Failure::TimeLimit(_)) => CallError::TimedOut,
        Unanswered::Failed(Failure::Trap(_)) => failed("the callee trapped; see the node's log"),
        Unanswered::Failed(Failure::Lost) => failed("the node lost the callee while it ran"),
        Unanswered::Failed(Failure::Bug(_)) => failed("the node failed while the callee ran; see its log"),
        Unanswered::Mistake(mistake) => CallError::Failed(mistake.to_string()),
        Unanswered::Dropped => CallError::Unknown("the callee was stopped before it answered".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmkeep_host::Mistake;

    use super::*;

    #[test]
    fn what_a_caller_learns_says_whether_it_may_have_run() {
        // R-CALL-2
        let refused = |refusal| Unanswered::Refused(refusal);
        for (why, error) in [
            (refused(Refusal::MailboxFull(256)), "overloaded"),
            (refused(Refusal::Stopping), "overloaded"),
            (refused(Refusal::NoRoom), "overloaded"),
            (refused(Refusal::Init("secret".into())), "the callee's on-init failed; see the node's log"),
            (Unanswered::Failed(Failure::Trap("secret".into())), "the callee trapped; see the node's log"),
            (Unanswered::Failed(Failure::TimeLimit(Duration::from_secs(1))), "timed out"),
            (Unanswered::Mistake(Mistake::NoResponse), "the actor returned without a response"),
            (Unanswered::Dropped, "the callee was stopped before it answered"),
        ] {
            assert_eq!(call_error(why.clone()).to_string(), error, "{why:?}");
        }
    }
}
