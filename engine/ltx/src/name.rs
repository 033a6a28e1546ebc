//! File names and the text of a position. It owns no directories or object keys.

use std::fmt;
use std::str::FromStr;

use crate::{Checksum, Header, MissingFlag};

/// The name of a file: `<min txid>-<max txid>.ltx`, each 16 lower-case hex digits, so that names sort by
/// transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    min_txid: u64,
    max_txid: u64,
}

/// Why a text or a pair of numbers is not a file name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not 16 lower-case hex digits, a dash, 16 more and `.ltx`.
    #[error("{0:?} is not an LTX file name")]
    Form(String),
    /// Transactions start at 1 and do not run backwards.
    #[error("transactions {min_txid} to {max_txid} are not a range that starts at 1 or later")]
    Range {
        /// The first transaction of the refused range.
        min_txid: u64,
        /// The last transaction of the refused range.
        max_txid: u64,
    },
}

impl FileName {
    /// The name of a file that holds transactions `min_txid` to `max_txid`, both included.
    pub fn new(min_txid: u64, max_txid: u64) -> Result<Self, NameError> {
        if min_txid == 0 || max_txid < min_txid {
            return Err(NameError::Range { min_txid, max_txid });
        }
        Ok(Self { min_txid, max_txid })
    }

    /// The first transaction in the file.
    pub fn min_txid(self) -> u64 {
        self.min_txid
    }

    /// The last transaction in the file.
    pub fn max_txid(self) -> u64 {
        self.max_txid
    }

    /// Whether the file holds the whole database.
    pub fn is_snapshot(self) -> bool {
        self.min_txid == 1
    }

    /// Whether a header says what the name says. A file under another file's name (two swapped objects) is
    /// sound in itself and is told only by this.
    pub fn names(self, header: &Header) -> bool {
        self.min_txid == header.min_txid && self.max_txid == header.max_txid
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.ltx", self.min_txid, self.max_txid)
    }
}

impl FromStr for FileName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let numbers = text.strip_suffix(".ltx").and_then(|stem| stem.split_once('-'));
        let parsed = numbers.and_then(|(min, max)| Some((hex16(min)?, hex16(max)?)));
        let (min_txid, max_txid) = parsed.ok_or_else(|| NameError::Form(text.to_owned()))?;
        Self::new(min_txid, max_txid)
    }
}

/// A state of a database: its last transaction and, where checksums are tracked, the checksum of its pages.
///
/// As text `txid/checksum`, each 16 lower-case hex digits; zeros stand for "not tracked".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The last transaction applied; 0 before the first.
    pub txid: u64,
    /// The database checksum after it, `None` where checksums are not tracked.
    pub checksum: Option<Checksum>,
}

/// Why a text is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PositionError {
    /// Not 16 lower-case hex digits, a slash and 16 more.
    #[error("{0:?} is not a position")]
    Form(String),
    /// The checksum is neither zero nor a stored checksum.
    #[error(transparent)]
    Checksum(#[from] MissingFlag),
}

impl Position {
    /// Before the first transaction, of a database whose checksums are tracked.
    pub const START: Position = Position { txid: 0, checksum: Some(Checksum::EMPTY) };

    /// Before the first transaction, of a database whose checksums are not tracked.
    pub const START_UNTRACKED: Position = Position { txid: 0, checksum: None };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{:016x}", self.txid, self.checksum.map_or(0, Checksum::get))
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let parsed = text.split_once('/').and_then(|(txid, sum)| Some((hex16(txid)?, hex16(sum)?)));
        let (txid, sum) = parsed.ok_or_else(|| PositionError::Form(text.to_owned()))?;
        let checksum = if sum == 0 { None } else { Some(Checksum::new(sum)?) };
        Ok(Self { txid, checksum })
    }
}

/// Exactly 16 lower-case hex digits; `u64::from_str_radix` alone would also take a sign and capitals.
fn hex16(text: &str) -> Option<u64> {
    let lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 16 || !text.bytes().all(lower_hex) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_in_another_form_is_not_a_name() {
        let refused = [
            "",
            ".ltx",
            "-.ltx",
            "0000000000000001-0000000000000002",
            "0000000000000001-0000000000000002.LTX",
            "000000000000000A-000000000000000B.ltx",
            "+000000000000001-0000000000000002.ltx",
            "000000000000001-00000000000000002.ltx",
            "0000000000000001-0000000000000002.ltx\n",
            "0000000000000001_0000000000000002.ltx",
            "000000000000000é-000000000000002.ltx",
        ];
        for text in refused {
            assert_eq!(text.parse::<FileName>(), Err(NameError::Form(text.to_owned())));
        }
    }

    #[test]
    fn a_name_whose_range_is_empty_or_starts_at_zero_is_refused() {
        for (min_txid, max_txid) in [(0, 0), (0, 1), (2, 1)] {
            let text = format!("{min_txid:016x}-{max_txid:016x}.ltx");
            assert_eq!(text.parse::<FileName>(), Err(NameError::Range { min_txid, max_txid }));
        }
    }

    #[test]
    fn a_position_is_two_numbers_of_sixteen_digits() {
        let text = "000000000000000a/8000000000000005";
        let position: Position = text.parse().expect("a position");
        assert_eq!(position.txid, 10);
        assert_eq!(position.checksum.map(Checksum::get), Some(0x8000_0000_0000_0005));
        assert_eq!(position.to_string(), text);
        assert_eq!("0000000000000000/0000000000000000".parse(), Ok(Position::START_UNTRACKED));
        assert_eq!("0000000000000000/8000000000000000".parse(), Ok(Position::START));
        assert_eq!("000000000000000a/0000000000000005".parse::<Position>(), Err(MissingFlag(5).into()));
        assert!("a/8000000000000005".parse::<Position>().is_err());
    }

    proptest! {
        #[test]
        fn a_name_survives_the_way_through_text(a in 1u64.., b in 1u64..) {
            let name = FileName::new(a.min(b), a.max(b)).expect("a range");
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        #[test]
        fn names_sort_by_transaction(a in 1u64.., b in 1u64..) {
            let (one, two) = (FileName::new(a, u64::MAX).expect("a range"), FileName::new(b, u64::MAX).expect("a range"));
            prop_assert_eq!(one.cmp(&two), one.to_string().cmp(&two.to_string()));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".*") {
            let _ = text.parse::<FileName>();
            let _ = text.parse::<Position>();
        }
    }
}
