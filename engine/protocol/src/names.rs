//! Names people type: tenants, classes, actors, nodes. A value of these types has been checked.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use sha2::{Digest, Sha256};

/// Longest actor name, in bytes of UTF-8. Percent-encoded it still fits a bucket key of 1,024 bytes.
pub const ACTOR_NAME_BYTES_MAX: usize = 256;

/// Longest file name made from an actor name before its hash takes over; leaves room for `.db.replaced`
/// below the 255 bytes of Linux file systems.
const FILE_STEM_BYTES_MAX: usize = 200;

/// Why a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// Over the limit of its kind.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// A character its kind does not allow.
    #[error("it contains a character that is not allowed ({0:?})")]
    Character(char),
    /// `.` and `..` mean folders to too many programs.
    #[error("'.' and '..' are not names")]
    Dots,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("a '%' in it is not followed by two hexadecimal digits")]
    PercentEncoding,
    /// The percent-decoded bytes are not text.
    #[error("it is not UTF-8 once percent-decoded")]
    NotUtf8,
}

/// `[a-z][a-z0-9-]{0,63}`: the rule for classes, tenants and apps (R-DEP-2).
fn check_label(text: &str) -> Result<(), NameError> {
    const BYTES_MAX: usize = 64;
    let mut chars = text.chars();
    match chars.next() {
        None => return Err(NameError::Empty),
        Some('a'..='z') => {}
        Some(other) => return Err(NameError::Character(other)),
    }
    if let Some(other) = chars.find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        return Err(NameError::Character(other));
    }
    if text.len() > BYTES_MAX { Err(NameError::TooLong(BYTES_MAX)) } else { Ok(()) }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The checked text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                $check(text)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// Who an app belongs to: `[a-z][a-z0-9-]{0,63}`. Nodes run without `--app` use `default`.
    Tenant,
    check_label
);
name_type!(
    /// A kind of actor, served by one component: `[a-z][a-z0-9-]{0,63}`.
    ActorClass,
    check_label
);
name_type!(
    /// A node of a cluster: `[a-z0-9-]`, 1 to 64 characters (R-FLAG-3).
    NodeId,
    check_node_id
);
name_type!(
    /// One actor of its class: 1 to 256 bytes of UTF-8 without control characters, not `.` or `..`.
    /// Names are compared byte for byte: no case folding, no Unicode normalisation.
    ActorName,
    check_actor_name
);

fn check_node_id(text: &str) -> Result<(), NameError> {
    const BYTES_MAX: usize = 64;
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some(other) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        return Err(NameError::Character(other));
    }
    if text.len() > BYTES_MAX { Err(NameError::TooLong(BYTES_MAX)) } else { Ok(()) }
}

fn check_actor_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > ACTOR_NAME_BYTES_MAX {
        return Err(NameError::TooLong(ACTOR_NAME_BYTES_MAX));
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(NameError::Character(control));
    }
    if matches!(text, "." | "..") { Err(NameError::Dots) } else { Ok(()) }
}

impl ActorName {
    /// The name in one segment of a URL path, percent-decoded exactly once: `a%2Fb` is the actor `a/b`,
    /// `%252f` the actor `%2f`, and `+` is a plus.
    ///
    /// # Errors
    /// [`NameError`], also for a `%` that is no escape and for bytes that are not UTF-8.
    pub fn from_path_segment(segment: &str) -> Result<Self, NameError> {
        decode_segment(segment)?.parse()
    }

    /// The actor whose [`ActorName::file_stem`] this is; none when the stem does not tell, as that of a long name.
    #[must_use]
    pub fn from_file_stem(stem: &str) -> Option<Self> {
        let name = Self::from_path_segment(stem).ok()?;
        (name.file_stem() == stem).then_some(name)
    }

    /// The one file name (without extension) of this actor: lower-case letters, digits, `-` and `_` stand
    /// for themselves, every other byte is `%XX`. A name too long for that keeps its readable start and ends
    /// in `~` and the SHA-256 of the whole name, so no two names share a file.
    #[must_use]
    pub fn file_stem(&self) -> String {
        let encoded = encode(self.as_str());
        if encoded.len() <= FILE_STEM_BYTES_MAX {
            return encoded;
        }
        let digest = Sha256::digest(self.as_str().as_bytes());
        let mut stem: String = encoded.chars().take(FILE_STEM_BYTES_MAX - 65).collect();
        stem.push('~');
        for byte in digest {
            stem.push_str(&format!("{byte:02x}"));
        }
        stem
    }
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(byte.into()),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

fn decode_segment(segment: &str) -> Result<Cow<'_, str>, NameError> {
    let bytes = segment.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(at + 1..at + 3).ok_or(NameError::PercentEncoding)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NameError::PercentEncoding);
        }
    }
    percent_encoding::percent_decode_str(segment).decode_utf8().map_err(|_| NameError::NotUtf8)
}

/// One actor of an app: its class and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId {
    /// Which component runs it.
    pub class: ActorClass,
    /// Which instance of the class it is.
    pub name: ActorName,
}

impl ActorId {
    /// See [`crate::placement::actor_hash`].
    #[must_use]
    pub fn hash(&self) -> u64 {
        crate::placement::actor_hash(self.class.as_str(), self.name.as_str())
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.class, self.name)
    }
}

#[cfg(test)]
mod tests;
