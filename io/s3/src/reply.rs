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

/// Codes by which a server says that temporary credentials are over.
const EXPIRED: [&str; 4] = ["ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"];

/// Codes by which a server says that it does not know who asks.
const UNKNOWN_CREDENTIALS: [&str; 3] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed"];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Get,
    List,
    Delete,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Get => "GET",
            Self::List => "LIST",
            Self::Delete => "DELETE",
        }
    }

    /// What the credentials have to be allowed. Without the right to list, S3 answers 403 to a read of what is not
    /// there.
    fn permission(self) -> &'static str {
        match self {
            Self::Put => "s3:PutObject",
            Self::Get => "s3:GetObject, and s3:ListBucket for objects that may be missing",
            Self::List => "s3:ListBucket",
            Self::Delete => "s3:DeleteObject",
        }
    }
}

/// A request, as a refusal names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) verb: Verb,
    /// The object, or the prefix of a listing.
    pub(crate) name: &'a str,
    /// Whether its credentials are renewed when they expire.
    pub(crate) renews: bool,
}

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
pub(crate) fn of_put(
    progress: Progress,
    said: &str,
    condition: &Precondition,
    request: &Request<'_>,
) -> Verdict {
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
        429 => Outcome::Failed(Failure::Throttled(text(&reply, &document, request))),
        503 if SLOW_DOWN.contains(&&*document.code) => {
            Outcome::Failed(Failure::Throttled(text(&reply, &document, request)))
        }
        // The body did not arrive in time or whole.
        400 | 408 if is_incomplete(&document) || reply.status == 408 => {
            Outcome::Failed(Failure::Unavailable(text(&reply, &document, request)))
        }
        500..=599 => Outcome::Unknown(UnknownCause::Ambiguous { status: reply.status, code: document.code }),
        _ => Outcome::Failed(refused(&reply, &document, request)),
    })
}

/// Why a read or a listing gave nothing.
pub(crate) fn of_read(progress: Progress, said: &str, request: &Request<'_>) -> ReadError {
    let reply = match progress {
        Progress::NotSent | Progress::Sent => return Failure::Unavailable(said.to_owned()).into(),
        Progress::Answered(reply) => reply,
    };
    match reply.status {
        200..=299 => ReadError::Malformed(said.to_owned()),
        404 if explained(&reply).code != "NoSuchBucket" => ReadError::NotFound,
        _ => refusal(&reply, request).into(),
    }
}

/// The result of a removal: an object that is not there is removed.
pub(crate) fn of_delete(progress: Progress, said: &str, request: &Request<'_>) -> Result<(), Failure> {
    let reply = match progress {
        Progress::NotSent | Progress::Sent => return Err(Failure::Unavailable(said.to_owned())),
        Progress::Answered(reply) => reply,
    };
    match reply.status {
        200..=299 => Ok(()),
        404 if explained(&reply).code != "NoSuchBucket" => Ok(()),
        _ => Err(refusal(&reply, request)),
    }
}

/// An answer to a request that may be sent any number of times.
fn refusal(reply: &Reply, request: &Request<'_>) -> Failure {
    let document = explained(reply);
    let text = text(reply, &document, request);
    match reply.status {
        429 | 503 => Failure::Throttled(text),
        // 409 answers a removal that met another write: it passes.
        408 | 409 | 500..=599 => Failure::Unavailable(text),
        400 if is_incomplete(&document) => Failure::Unavailable(text),
        _ => refused(reply, &document, request),
    }
}

/// A refusal that nothing in the answer's status takes back. The clock may be set and credentials renewed while the
/// caller tries again.
fn refused(reply: &Reply, document: &ErrorDocument, request: &Request<'_>) -> Failure {
    let text = text(reply, document, request);
    match &*document.code {
        "RequestTimeTooSkewed" => Failure::NotAccepted(text),
        code if request.renews && EXPIRED.contains(&code) => Failure::NotAccepted(text),
        _ => Failure::Refused(text),
    }
}

/// Whether the answer says that the credentials of its request are over.
pub(crate) fn is_expired(reply: &Reply) -> bool {
    matches!(reply.status, 400 | 401 | 403) && EXPIRED.contains(&&*explained(reply).code)
}

fn is_incomplete(document: &ErrorDocument) -> bool {
    matches!(&*document.code, "RequestTimeout" | "IncompleteBody")
}

fn text(reply: &Reply, document: &ErrorDocument, request: &Request<'_>) -> String {
    let hint = match (reply.status, &*document.code) {
        (_, "NoSuchBucket") => "; create the bucket or correct its name".to_owned(),
        (301 | 307 | 308, _) => "; the bucket is elsewhere: set AWS_REGION or AWS_ENDPOINT_URL_S3".to_owned(),
        (_, "RequestTimeTooSkewed") => {
            "; this machine's clock and the bucket's differ by too much: set the clock".to_owned()
        }
        (_, code) if EXPIRED.contains(&code) && request.renews => {
            "; newer credentials are asked for".to_owned()
        }
        (_, code) if EXPIRED.contains(&code) => {
            "; the AWS_SESSION_TOKEN is over: start again with a new one, or name a source that renews it"
                .to_owned()
        }
        (401 | 403, code) if UNKNOWN_CREDENTIALS.contains(&code) => {
            "; check the AWS_* credentials".to_owned()
        }
        (401 | 403, _) => {
            let Request { verb, name, .. } = request;
            format!(
                "; the request was {} {name}, which needs {}: check what the AWS_* credentials may do",
                verb.name(),
                verb.permission()
            )
        }
        _ => String::new(),
    };
    let separator = if document.message.is_empty() { "" } else { ": " };
    let said = format!("{} {}{separator}{}", reply.status, document.code, document.message);
    format!("{}{hint}", said.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: Request<'static> = Request { verb: Verb::Put, name: "nodes/a", renews: false };

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
            let put = |status, etag, code| of_put(answered(status, etag, code), "", &condition, &PUT);
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
            let verdict = of_put(answered(404, None, code), "", &replace, &PUT);
            assert_eq!(verdict, Verdict::Final(Outcome::ConditionFailed));
        }
        for condition in [Precondition::Absent, Precondition::None] {
            let verdict = of_put(answered(404, None, ""), "", &condition, &PUT);
            assert!(matches!(verdict, Verdict::Final(Outcome::Failed(Failure::Refused(_)))), "{verdict:?}");
        }
        let create = of_put(answered(304, None, ""), "", &Precondition::Absent, &PUT);
        assert_eq!(create, Verdict::Final(Outcome::ConditionFailed));
        let verdict = of_put(answered(304, None, ""), "", &replace, &PUT);
        assert!(matches!(verdict, Verdict::Final(Outcome::Failed(Failure::Refused(_)))), "{verdict:?}");
    }

    #[test]
    fn only_a_request_that_left_can_have_an_unknown_outcome() {
        let sent = of_put(Progress::Sent, "cut", &Precondition::None, &PUT);
        assert_eq!(sent, Verdict::Final(Outcome::Unknown(UnknownCause::NoReply("cut".into()))));
        let unsent = of_put(Progress::NotSent, "no route", &Precondition::None, &PUT);
        assert_eq!(unsent, Verdict::Final(Outcome::Failed(Failure::Unavailable("no route".into()))));
    }

    #[test]
    fn a_missing_object_is_told_from_a_missing_bucket() {
        assert_eq!(of_read(answered(404, None, "NoSuchKey"), "", &PUT), ReadError::NotFound);
        assert_eq!(of_read(answered(404, None, ""), "", &PUT), ReadError::NotFound);
        let gone = of_read(answered(404, None, "NoSuchBucket"), "", &PUT);
        assert!(
            matches!(&gone, ReadError::Failed(Failure::Refused(text)) if text.contains("create the bucket"))
        );
        assert_eq!(of_delete(answered(404, None, "NoSuchKey"), "", &PUT), Ok(()));
        assert!(of_delete(answered(404, None, "NoSuchBucket"), "", &PUT).is_err());
        assert!(of_delete(Progress::Sent, "cut", &PUT).unwrap_err().passes());
    }

    #[test]
    fn a_refusal_names_the_request_and_the_permission_it_needs() {
        for (verb, wanted) in [
            (Verb::Put, "PUT nodes/a, which needs s3:PutObject"),
            (Verb::Get, "GET nodes/a, which needs s3:GetObject"),
            (Verb::List, "LIST nodes/a, which needs s3:ListBucket"),
            (Verb::Delete, "DELETE nodes/a, which needs s3:DeleteObject"),
        ] {
            let request = Request { verb, ..PUT };
            for code in ["AccessDenied", ""] {
                let failure = of_delete(answered(403, None, code), "", &request).unwrap_err();
                assert!(!failure.passes() && failure.to_string().contains(wanted), "{failure}");
            }
        }
        let unknown = of_delete(answered(403, None, "InvalidAccessKeyId"), "", &PUT).unwrap_err().to_string();
        assert!(unknown.contains("check the AWS_* credentials") && !unknown.contains("s3:"), "{unknown}");
    }

    // R-FLAG-4
    #[test]
    fn a_wrong_clock_and_credentials_that_are_renewed_pass_with_time() {
        let renewing = Request { renews: true, ..PUT };
        for (status, code, request, passes, hint) in [
            (403, "RequestTimeTooSkewed", &PUT, true, "set the clock"),
            (400, "ExpiredToken", &renewing, true, "newer credentials"),
            (403, "InvalidToken", &renewing, true, "newer credentials"),
            (400, "ExpiredToken", &PUT, false, "AWS_SESSION_TOKEN"),
            (403, "AccessDenied", &renewing, false, "s3:PutObject"),
        ] {
            let Verdict::Final(Outcome::Failed(put)) =
                of_put(answered(status, None, code), "", &Precondition::Absent, request)
            else {
                panic!("{code}");
            };
            let ReadError::Failed(read) = of_read(answered(status, None, code), "", request) else {
                panic!("{code}")
            };
            for failure in [put, read] {
                assert_eq!(failure.passes(), passes, "{failure}");
                assert!(failure.to_string().contains(hint), "{failure}");
            }
        }
    }
}
