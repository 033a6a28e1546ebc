//! The answers the node itself gives, and how an event that was not answered is told to its client.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use wasmkeep_actor::{Failure, Refusal};
use wasmkeep_host::{ResponseBody, Unanswered};
use wasmkeep_protocol::{forwarding::NotExecuted, headers};

/// Seconds a client should wait before it tries again what was refused (R-WAIT-1).
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A plain answer of one sentence.
pub(crate) fn sentence(status: StatusCode, text: &str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, PLAIN);
    response
}

/// As [`sentence`], with `Retry-After`: nothing ran, and it may work in a moment.
pub(crate) fn retry_later(status: StatusCode, text: &str) -> Response<ResponseBody> {
    let mut response = sentence(status, text);
    response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    response
}

/// As [`retry_later`], to another node as well: this one does not have the actor.
pub(super) fn elsewhere(text: &str, why: NotExecuted) -> Response<ResponseBody> {
    let mut response = retry_later(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(headers::ELSEWHERE, elsewhere_value(why));
    response
}

/// The value of [`headers::ELSEWHERE`].
pub(super) fn elsewhere_value(why: NotExecuted) -> HeaderValue {
    HeaderValue::from_static(match why {
        NotExecuted::Stopping => headers::ELSEWHERE_STOPPING,
        NotExecuted::Elsewhere | NotExecuted::NotOpened => "1",
    })
}

/// What an answer of another node says of the actor, if it says that it is not that node's.
pub(super) fn not_executed<B>(answer: &Response<B>) -> Option<NotExecuted> {
    answer.headers().get(headers::ELSEWHERE).map(|value| NotExecuted::of_header(value.as_bytes()))
}

/// Whose guest an event was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    Actor,
    Stateless,
}

impl Guest {
    /// A sentence about an actor, said of this guest.
    fn says(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Actor => Cow::Borrowed(text),
            Self::Stateless => Cow::Owned(text.replacen("the actor", "the stateless component", 1)),
        }
    }
}

/// What the client of an unanswered event is told. Reasons that come from a guest's code or a file name stay in the
/// node's log.
pub(crate) fn unanswered(why: &Unanswered, guest: Guest) -> Response<ResponseBody> {
    let internal = |text: &str| sentence(StatusCode::INTERNAL_SERVER_ERROR, &guest.says(text));
    match why {
        Unanswered::Refused(refusal) => refused(refusal, guest),
        Unanswered::Failed(Failure::Trap(_)) => internal("the actor trapped; see the node's log"),
        Unanswered::Failed(Failure::TimeLimit(limit)) => {
            internal(&format!("the event ran longer than its limit of {} s", limit.as_secs_f64()))
        }
        Unanswered::Failed(Failure::Lost) => internal("the node lost the actor while the event ran"),
        Unanswered::Failed(Failure::Bug(_)) => internal("the node failed while the event ran; see its log"),
        Unanswered::Mistake(mistake) => internal(&mistake.to_string()),
        Unanswered::Dropped => internal("the node stopped before the event was answered"),
    }
}

fn refused(refusal: &Refusal, guest: Guest) -> Response<ResponseBody> {
    let internal = |text: &str| sentence(StatusCode::INTERNAL_SERVER_ERROR, &guest.says(text));
    match refusal {
        Refusal::MailboxFull(_) | Refusal::NoRoom => {
            retry_later(StatusCode::SERVICE_UNAVAILABLE, &guest.says(&refusal.to_string()))
        }
        // A node that forwarded it finds the actor elsewhere by now, or takes it.
        Refusal::Stopping => elsewhere(&refusal.to_string(), NotExecuted::Stopping),
        Refusal::NotHeld(_) => elsewhere(&refusal.to_string(), NotExecuted::Elsewhere),
        Refusal::Unavailable(_) => retry_later(StatusCode::SERVICE_UNAVAILABLE, &refusal.to_string()),
        Refusal::Storage(_) => retry_later(
            StatusCode::SERVICE_UNAVAILABLE,
            "the actor's storage cannot be opened; see the node's log",
        ),
        Refusal::Damaged(_) => internal("the actor's database is damaged; see the node's log"),
        Refusal::Start(_) => internal("the actor could not be started; see the node's log"),
        Refusal::Init(_) => internal("the actor's on-init failed; see the node's log"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmkeep_host::Mistake;

    use super::*;

    #[test]
    fn what_did_not_run_may_be_retried_and_what_ran_says_500() {
        for (why, status, retry) in [
            (Unanswered::Refused(Refusal::MailboxFull(256)), 503, true),
            (Unanswered::Refused(Refusal::Stopping), 503, true),
            (Unanswered::Refused(Refusal::NoRoom), 503, true),
            (Unanswered::Refused(Refusal::Storage("x".into())), 503, true),
            (Unanswered::Refused(Refusal::NotHeld("x".into())), 503, true),
            (Unanswered::Refused(Refusal::Unavailable("x".into())), 503, true),
            (Unanswered::Refused(Refusal::Damaged("x".into())), 500, false),
            (Unanswered::Refused(Refusal::Init("x".into())), 500, false),
            (Unanswered::Refused(Refusal::Start("x".into())), 500, false),
            (Unanswered::Failed(Failure::Trap("x".into())), 500, false),
            (Unanswered::Failed(Failure::TimeLimit(Duration::from_secs(30))), 500, false),
            (Unanswered::Failed(Failure::Bug("x".into())), 500, false),
            (Unanswered::Dropped, 500, false),
        ] {
            let response = unanswered(&why, Guest::Actor);
            assert_eq!(response.status().as_u16(), status, "{why:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), retry, "{why:?}");
        }
    }

    // R-FWD-1, R-RST-5
    #[test]
    fn only_a_node_that_does_not_have_the_actor_says_that_it_is_elsewhere() {
        for (refusal, says) in [
            (Refusal::NotHeld("x".into()), Some(NotExecuted::Elsewhere)),
            (Refusal::Stopping, Some(NotExecuted::Stopping)),
            // It has the actor, or tried to: its data is what failed.
            (Refusal::Unavailable("x".into()), None),
            (Refusal::Storage("x".into()), None),
            (Refusal::Damaged("x".into()), None),
            (Refusal::MailboxFull(256), None),
            (Refusal::NoRoom, None),
        ] {
            assert_eq!(not_executed(&refused(&refusal, Guest::Actor)), says, "{refusal}");
        }
    }

    #[test]
    fn the_stateless_component_is_not_called_an_actor() {
        for why in [
            Unanswered::Failed(Failure::Trap("x".into())),
            Unanswered::Failed(Failure::Lost),
            Unanswered::Mistake(Mistake::NoResponse),
            Unanswered::Mistake(Mistake::Status(100)),
            Unanswered::Mistake(Mistake::BodyUnfinished),
            Unanswered::Refused(Refusal::Start("x".into())),
        ] {
            for (guest, name) in [(Guest::Actor, "the actor"), (Guest::Stateless, "the stateless component")]
            {
                let body = unanswered(&why, guest).into_body();
                let text = String::from_utf8(body.as_whole().unwrap().to_vec()).unwrap();
                assert!(text.contains(name), "{text}");
                assert_eq!(text.contains("actor"), guest == Guest::Actor, "{text}");
            }
        }
    }
}
