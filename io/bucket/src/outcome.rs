//! What a request to the bucket can come to. Owns the words; which reply means which is each backend's.

use std::fmt;

/// One state of one object, as the store names it: an ETag or the like.
///
/// Opaque. It is kept and sent back byte for byte, quotes, `W/` and `-N` included, and compared for equality only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(String);

/// The text cannot be sent back in a header: empty, or not visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version: it has to be visible ASCII")]
pub struct VersionError(String);

impl Version {
    /// Takes the store's own text for a version, unchanged.
    pub fn new(text: impl Into<String>) -> Result<Self, VersionError> {
        let text = text.into();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text))
        } else {
            Err(VersionError(text))
        }
    }

    /// The store's own text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What must be true of the object for a write to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: the write replaces whatever is there.
    None,
    /// There is no such object.
    Absent,
    /// The object is there and in this version.
    Version(Version),
}

/// What a write came to. Not a `Result`: each of the four needs its own answer from the caller, and `?` would
/// mix a write that did not happen with one that may have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Applied and durable; the object is now in this version.
    Written(Version),
    /// Not applied: the condition did not hold. Also what a writer sees whose own earlier copy of this write
    /// arrived first, so read back before believing that somebody else won ([`crate::put_settled`] does).
    ConditionFailed,
    /// Sent, and nobody here knows whether it was applied; it may even be applied later. Settled by reading
    /// back ([`crate::settle`]).
    Unknown(UnknownCause),
    /// Not applied, for a reason that has nothing to do with the condition.
    Failed(Failure),
}

/// Why the outcome of a write is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCause {
    /// The connection ended, or the time was up, after the request went out.
    #[error("no reply to the write: {0}")]
    NoReply(String),
    /// A reply that says neither yes nor no: an internal error, or a gateway's.
    #[error("the store answered {status} {code}, which does not say whether the write happened")]
    Ambiguous {
        /// HTTP status.
        status: u16,
        /// The store's error code, empty when it gave none.
        code: String,
    },
    /// Success without a version: the write happened, and its version has to be read back.
    #[error("the store answered success without a version")]
    NoVersion,
}

/// A request that did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The store asks for fewer requests. Passes with time.
    #[error("the bucket asks to slow down: {0}")]
    Throttled(String),
    /// The store will not do it, however often it is asked: credentials, permissions, no such bucket.
    #[error("the bucket refused: {0}")]
    Refused(String),
    /// The store refused for a reason that ends without anybody changing its settings: this machine's clock,
    /// credentials that are about to be renewed. Passes with time.
    #[error("the bucket did not accept the request: {0}")]
    NotAccepted(String),
    /// The store could not be reached, or did not answer a request that changes nothing. Passes with time.
    #[error("the bucket does not answer: {0}")]
    Unavailable(String),
}

impl Failure {
    /// Whether the same request may succeed later.
    pub fn passes(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Why a read gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store answered that there is no such object.
    #[error("there is no such object in the bucket")]
    NotFound,
    /// The object has more bytes than the caller was ready to take.
    #[error("the object has {size} bytes, more than the {limit} expected at most")]
    TooLarge {
        /// Bytes the object would have given.
        size: u64,
        /// Bytes the caller takes.
        limit: u64,
    },
    /// The store answered something that cannot be right: a body of another length, a listing that is none.
    #[error("the bucket's answer makes no sense: {0}")]
    Malformed(String),
    /// The store has the object and knows it to be damaged: no read will ever give it.
    #[error("the object is damaged in the bucket: {0}")]
    Damaged(String),
    /// No answer, or a refusal.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl ReadError {
    /// Whether the same read may succeed when it is sent again.
    pub fn passes(&self) -> bool {
        match self {
            Self::NotFound | Self::TooLarge { .. } | Self::Damaged(_) => false,
            // A body cut short or a garbled page is most often a broken connection.
            Self::Malformed(_) => true,
            Self::Failed(failure) => failure.passes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // case S11
    #[test]
    fn a_version_is_kept_byte_for_byte() {
        for text in ["\"abc\"", "abc", "W/\"abc\"", "\"abc-17\"", "*", "\"a,b\""] {
            assert_eq!(Version::new(text).unwrap().as_str(), text);
        }
        for text in ["", "a b", "a\r\nx-evil:1", "\u{e4}"] {
            assert!(Version::new(text).is_err(), "{text:?}");
        }
        assert_ne!(Version::new("\"abc\"").unwrap(), Version::new("abc").unwrap());
    }
}
