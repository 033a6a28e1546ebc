//! Requests for one record in the bucket, in the words of the deciding code. Owns no request and no key: what
//! carries them out translates these to its own.

use std::sync::Arc;

use crate::records::RecordError;

/// One state of one object, in the store's own text; compared for equality only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// Takes the store's text as it is.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The store's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What must be true of the object for a write to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Absent,
    /// It is there in this version.
    Unchanged(Version),
}

/// What a conditional write came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrote {
    /// Applied; the object is now in this version.
    Written(Version),
    /// Not applied, says the store: the condition did not hold. Our own earlier copy may be why (case L4).
    ConditionFailed,
    /// Nobody knows, and it may still be applied later (case L3). A time limit that ran out is this, too.
    Unknown,
    /// Not applied, and the condition has nothing to do with it.
    Failed,
}

/// What a read of one record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<R> {
    /// An object, in this version.
    Object(Version, Result<R, RecordError>),
    /// No object.
    Absent,
    /// The bucket did not answer.
    Failed,
}

impl<R> Found<R> {
    /// The condition under which a write replaces exactly what was found; `None` when nothing is known.
    #[must_use]
    pub fn condition(&self) -> Option<Condition> {
        match self {
            Self::Object(version, _) => Some(Condition::Unchanged(version.clone())),
            Self::Absent => Some(Condition::Absent),
            Self::Failed => None,
        }
    }
}
