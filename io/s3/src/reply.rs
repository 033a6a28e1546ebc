//! What a reply means. Pure: from how far a request came to an outcome.

use serde::Deserialize;
use wasmkeep_bucket::{Failure, Outcome, Precondition, ReadError, UnknownCause, Version};

use crate::transport::{Progress, Reply};

/// Codes by which a server says that it did not take a request on.
const SLOW_DOWN: [&str; 6] = [
    "SlowDown",
    "ServiceUnavailable",
    "RequestLimitExceeded",
    "TooManyRequests",
    "Throttling",
    "ThrottlingException",
];

/// What one send of a write came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Final(Outcome),
    /// 409: not applied, because another conditional write of the object was under way. The condition itself
    /// was not judged, so it is asked again.
    Conflict,
}

/// The error document of S3.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ErrorDocument {
    code: String,
    message: String,
}

fn explained(reply: &Reply) -> ErrorDocument {
    quick_xml::de::from_reader(&*reply.body).unwrap_or_default()
}

/// The verdict on a write. `said` is what the client library made of it, for the text only.
pub(crate) fn of_put(progress: Progress, said: &str, condition: &Precondition) -> Verdict {
    let reply = match progress {
        Progress::NotSent => return Verdict::Final(Outcome::Failed(Failure::Unavailable(said.to_owned()))),
        Progress::Sent => return Verdict::Final(Outcome::Unknown(UnknownCause::NoReply(said.to_owned()))),
        Progress::Answered(reply) => reply,
    };
    let document = explained(&reply);
    let conditional = *condition != Precondition::None;
    Verdict::Final(match reply.status {
        200..=299 => match reply.etag.map(Version::new) {
            Some(Ok(version)) => Outcome::Written(version),
            _ => Outcome::Unknown(UnknownCause::NoVersion),
        },
        409 => return Verdict::Conflict,
        412 if conditional => Outcome::ConditionFailed,
        // The answer of some stores to a create over an existing object, though it belongs to reads.
        304 if *condition == Precondition::Absent => Outcome::ConditionFailed,
        // The object a replace named is gone; the bucket itself being gone is another matter.
        404 if matches!(condition, Precondition::Version(_)) && document.code != "NoSuchBucket" => {
            Outcome::ConditionFailed
        }
        // Not taken on, so not applied. A bare 503 may come from a gateway that lost its backend half way.
        429 => Outcome::Failed(Failure::Throttled(text(&reply, &document))),
        503 if SLOW_DOWN.contains(&&*document.code) => {
            Outcome::Failed(Failure::Throttled(text(&reply, &document)))
        }
        // The body did not arrive in time or whole.
        400 | 408 if is_incomplete(&document) || reply.status == 408 => {
            Outcome::Failed(Failure::Unavailable(text(&reply, &document)))
        }
        500..=599 => Outcome::Unknown(UnknownCause::Ambiguous { status: reply.status, code: document.code }),
        _ => Outcome::Failed(Failure::Refused(text(&reply, &document))),
    })
}

/// Why a read or a listing gave nothing.
pub(crate) fn of_read(progress: Progress, said: &str) -> ReadError {
    let reply = match progress {
        Progress::NotSent | Progress::Sent => return Failure::Unavailable(said.to_owned()).into(),
        Progress::Answered(reply) => reply,
    };
    match reply.status {
        200..=299 => ReadError::Malformed(said.to_owned()),
        404 if explained(&reply).code != "NoSuchBucket" => ReadError::NotFound,
        _ => refusal(&reply).into(),
    }
}

/// The result of a removal: an object that is not there is removed.
pub(crate) fn of_delete(progress: Progress, said: &str) -> Result<(), Failure> {
    let reply = match progress {
        Progress::NotSent | Progress::Sent => return Err(Failure::Unavailable(said.to_owned())),
        Progress::Answered(reply) => reply,
    };
    match reply.status {
        200..=299 => Ok(()),
        404 if explained(&reply).code != "NoSuchBucket" => Ok(()),
        _ => Err(refusal(&reply)),
    }
}

/// An answer to a request that may be sent any number of times.
fn refusal(reply: &Reply) -> Failure {
    let document = explained(reply);
    let text = text(reply, &document);
    match reply.status {
        429 | 503 => Failure::Throttled(text),
        // 409 answers a removal that met another write: it passes.
        408 | 409 | 500..=599 => Failure::Unavailable(text),
        400 if is_incomplete(&document) => Failure::Unavailable(text),
        _ => Failure::Refused(text),
    }
}

fn is_incomplete(document: &ErrorDocument) -> bool {
    matches!(&*document.code, "RequestTimeout" | "IncompleteBody")
}

fn text(reply: &Reply, document: &ErrorDocument) -> String {
    let hint = match (reply.status, &*document.code) {
        (_, "NoSuchBucket") => "; create the bucket or correct its name",
        (301 | 307 | 308, _) => "; the bucket is elsewhere: set AWS_REGION or AWS_ENDPOINT",
        (401 | 403, "RequestTimeTooSkewed") => "; set this machine's clock",
        (401 | 403, _) => "; check the AWS_* credentials and what they may do",
        _ => "",
    };
    let separator = if document.message.is_empty() { "" } else { ": " };
    let said = format!("{} {}{separator}{}", reply.status, document.code, document.message);
    format!("{}{hint}", said.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, etag: Option<&str>, code: &str) -> Progress {
        let body = match code {
            "" => String::new(),
            code => format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>"),
        };
        Progress::Answered(Reply { status, etag: etag.map(str::to_owned), body: body.into() })
    }

    fn version() -> Version {
        Version::new("\"e\"").unwrap()
    }

    // case L5: of all answers to a conditional write, only success with a version is a success
    #[test]
    fn every_answer_to_a_conditional_write_has_its_own_meaning() {
        let conditions = [Precondition::Absent, Precondition::Version(version())];
        let failed = Outcome::ConditionFailed;
        for condition in conditions {
            let put = |status, etag, code| of_put(answered(status, etag, code), "", &condition);
            for status in [200, 201, 204] {
                assert_eq!(put(status, Some("\"e\""), ""), Verdict::Final(Outcome::Written(version())));
                assert_eq!(put(status, None, ""), Verdict::Final(Outcome::Unknown(UnknownCause::NoVersion)));
            }
            assert_eq!(put(412, None, "PreconditionFailed"), Verdict::Final(failed.clone()));
            assert_eq!(put(412, None, ""), Verdict::Final(failed.clone()));
            assert_eq!(put(409, None, "ConditionalRequestConflict"), Verdict::Conflict);
            for (status, code) in [
                (400, "InvalidArgument"),
                (401, ""),
                (403, "AccessDenied"),
                (404, "NoSuchBucket"),
                (301, "PermanentRedirect"),
                (501, "x"),
            ] {
                let refused = put(status, Some("\"e\""), code);
                let expected = status == 501;
                assert_eq!(matches!(refused, Verdict::Final(Outcome::Unknown(_))), expected, "{status}");
                assert_eq!(
                    matches!(refused, Verdict::Final(Outcome::Failed(Failure::Refused(_)))),
                    !expected,
                    "{status}"
                );
            }
            for (status, code) in [(429, ""), (503, "SlowDown"), (503, "ServiceUnavailable")] {
                let slow = put(status, None, code);
                assert!(matches!(slow, Verdict::Final(Outcome::Failed(Failure::Throttled(_)))), "{slow:?}");
            }
            for (status, code) in [(500, "InternalError"), (502, ""), (503, ""), (504, "")] {
                let unclear = put(status, None, code);
                assert!(matches!(unclear, Verdict::Final(Outcome::Unknown(_))), "{unclear:?}");
            }
            for (status, code) in [(400, "RequestTimeout"), (400, "IncompleteBody"), (408, "")] {
                let late = put(status, None, code);
                assert!(matches!(late, Verdict::Final(Outcome::Failed(Failure::Unavailable(_)))), "{late:?}");
            }
        }
    }

    // case S2: 404 and 412 both say that a replace met no object; 304 says that a create met one
    #[test]
    fn the_two_conditions_fail_in_their_own_ways() {
        let replace = Precondition::Version(version());
        for code in ["", "NoSuchKey"] {
            let verdict = of_put(answered(404, None, code), "", &replace);
            assert_eq!(verdict, Verdict::Final(Outcome::ConditionFailed));
        }
        for condition in [Precondition::Absent, Precondition::None] {
            let verdict = of_put(answered(404, None, ""), "", &condition);
            assert!(matches!(verdict, Verdict::Final(Outcome::Failed(Failure::Refused(_)))), "{verdict:?}");
        }
        let create = of_put(answered(304, None, ""), "", &Precondition::Absent);
        assert_eq!(create, Verdict::Final(Outcome::ConditionFailed));
        let verdict = of_put(answered(304, None, ""), "", &replace);
        assert!(matches!(verdict, Verdict::Final(Outcome::Failed(Failure::Refused(_)))), "{verdict:?}");
    }

    #[test]
    fn only_a_request_that_left_can_have_an_unknown_outcome() {
        let sent = of_put(Progress::Sent, "cut", &Precondition::None);
        assert_eq!(sent, Verdict::Final(Outcome::Unknown(UnknownCause::NoReply("cut".into()))));
        let unsent = of_put(Progress::NotSent, "no route", &Precondition::None);
        assert_eq!(unsent, Verdict::Final(Outcome::Failed(Failure::Unavailable("no route".into()))));
    }

    #[test]
    fn a_missing_object_is_told_from_a_missing_bucket() {
        assert_eq!(of_read(answered(404, None, "NoSuchKey"), ""), ReadError::NotFound);
        assert_eq!(of_read(answered(404, None, ""), ""), ReadError::NotFound);
        let gone = of_read(answered(404, None, "NoSuchBucket"), "");
        assert!(
            matches!(&gone, ReadError::Failed(Failure::Refused(text)) if text.contains("create the bucket"))
        );
        assert_eq!(of_delete(answered(404, None, "NoSuchKey"), ""), Ok(()));
        assert!(of_delete(answered(404, None, "NoSuchBucket"), "").is_err());
        assert!(of_delete(Progress::Sent, "cut").unwrap_err().passes());
    }
}
