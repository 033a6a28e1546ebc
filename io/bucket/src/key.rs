//! The name of an object. Owns which names are allowed, not which ones exist.

use std::fmt;
use std::str::FromStr;

/// Longest key, in bytes. S3 allows 1,024 for prefix and key together; a bucket URL's prefix gets the rest.
pub const KEY_BYTES_MAX: usize = 768;

/// The name of an object below the bucket's prefix: segments of `[A-Za-z0-9._~%=+@,-]`, joined by `/`.
///
/// No segment is empty, `.` or `..`, so that a key means the same in an S3 server, which compares bytes, and in
/// a directory, which resolves paths. Keys order by bytes, as listings do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// Why a text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// More than [`KEY_BYTES_MAX`] bytes.
    #[error("an object key has at most {KEY_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// An empty segment, or one that a file system would resolve.
    #[error("an object key has no empty, `.` or `..` segment: {0:?}")]
    Segment(String),
    /// A character outside the allowed set.
    #[error("an object key holds only letters, digits and `._~%=+@,-/`: {0:?}")]
    Character(String),
}

impl Key {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._~%=+@,-".contains(&byte)
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong(text.len()));
        }
        for segment in text.split('/') {
            if matches!(segment, "" | "." | "..") {
                return Err(KeyError::Segment(text.to_owned()));
            }
            if !segment.bytes().all(is_key_byte) {
                return Err(KeyError::Character(text.to_owned()));
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_means_the_same_in_a_server_and_in_a_directory() {
        for good in ["a", "nodes/a", "owners/t/c/%2Fetc", "a/b..c/.d", "actors/t/c/n/wal/00-01.ltx", "~=+@,"]
        {
            assert_eq!(good.parse::<Key>().unwrap().as_str(), good);
        }
        for bad in ["", "/a", "a/", "a//b", ".", "a/../b", "..", "a/."] {
            assert!(matches!(bad.parse::<Key>(), Err(KeyError::Segment(_))), "{bad:?}");
        }
        for bad in ["a b", "a\0", "a\n", "ä", "a\\b", "a#", "a^", "a?x", "a<b"] {
            assert!(matches!(bad.parse::<Key>(), Err(KeyError::Character(_))), "{bad:?}");
        }
    }

    #[test]
    fn the_longest_key_has_exactly_the_bytes_stated() {
        assert!("k".repeat(KEY_BYTES_MAX).parse::<Key>().is_ok());
        assert_eq!("k".repeat(KEY_BYTES_MAX + 1).parse::<Key>(), Err(KeyError::TooLong(KEY_BYTES_MAX + 1)));
    }
}
