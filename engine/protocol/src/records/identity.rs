//! The random identities in records. Owns their text; where the bits come from is the caller's.

use std::{fmt, str::FromStr};

use super::RecordError;

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// From 128 random bits.
            #[must_use]
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }
        }

        impl FromStr for $name {
            type Err = RecordError;

            fn from_str(text: &str) -> Result<Self, RecordError> {
                let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                if text.len() != 32 || !digits {
                    return Err(RecordError::Field($field));
                }
                u128::from_str_radix(text, 16).map(Self).map_err(|_| RecordError::Field($field))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

identity!(
    /// One run of the program under a node id. Drawn at start and never again, so a record that names it was
    /// written by, or about, exactly this run.
    Process,
    "process"
);
identity!(
    /// One write of one record. No two writes share one and no record quotes another's, so finding it in an
    /// object proves that the object is that write.
    Nonce,
    "nonce"
);
