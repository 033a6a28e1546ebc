//! What an actor's history in the bucket is made of: the name of each file, and what follows from names alone.
//!
//! A file's name says which hold wrote it (its *generation*), which transactions it carries and the checksum of
//! the database before and after them. So the files link to each other like a chain, and a late upload of an
//! owner that was replaced fits nowhere in the chain of its successor, whenever it arrives.
//!
//! Owns the names and what is planned from them ([`restore`], [`restore_around`], [`collect`], [`timeline`]).
//! Knows neither the bucket nor what is in a file.

mod collection;
mod restore_plan;
mod timeline;

use std::{fmt, str::FromStr};

pub use collection::{collect, erase};
pub use restore_plan::{Broken, Plan, lead_to, restore, restore_around};
pub use timeline::{State, Timeline, timeline};

/// The checksum of a database without pages: what a deletion leaves.
pub const EMPTY_CHECKSUM: u64 = 1 << 63;

/// A state of an actor's database: its last transaction and the checksum of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The last transaction; counted over the actor's whole life, through restores and deletions.
    pub txid: u64,
    /// The checksum of all pages, bit 63 set.
    pub checksum: u64,
}

impl Point {
    /// Before the first transaction of an actor that never was.
    pub const START: Point = Point { txid: 0, checksum: EMPTY_CHECKSUM };

    /// Whether the database has no pages: it never was, or it was deleted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.checksum == EMPTY_CHECKSUM
    }
}

/// One file of a history.
///
/// As text, below the actor's folder:
/// `<generation>/<first txid>-<last txid>-<checksum before>-<checksum after>.ltx`, each 16 lower-case hexadecimal
/// digits, so that keys order by generation, then by transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryFile {
    generation: u64,
    min_txid: u64,
    max_txid: u64,
    /// 0 where the file stands by itself.
    before: u64,
    after: u64,
}

/// The text is no name of a history file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a history file")]
pub struct HistoryFileError(String);

impl HistoryFile {
    /// The changes that lead from one state to a later one. Changes from [`Point::START`] are a snapshot.
    #[must_use]
    pub const fn changes(generation: u64, from: Point, to: Point) -> Self {
        let before = if from.txid == 0 { 0 } else { from.checksum };
        Self { generation, min_txid: from.txid + 1, max_txid: to.txid, before, after: to.checksum }
    }

    /// The whole database in one state.
    #[must_use]
    pub const fn snapshot(generation: u64, at: Point) -> Self {
        Self { generation, min_txid: 1, max_txid: at.txid, before: 0, after: at.checksum }
    }

    /// The record that the database was deleted as transaction `txid`: a snapshot of nothing.
    #[must_use]
    pub const fn deletion(generation: u64, txid: u64) -> Self {
        Self::snapshot(generation, Point { txid, checksum: EMPTY_CHECKSUM })
    }

    /// The hold that wrote it; every hold of an actor has a greater one than all before.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Its first transaction.
    #[must_use]
    pub const fn min_txid(&self) -> u64 {
        self.min_txid
    }

    /// The state it leads to.
    #[must_use]
    pub const fn end(&self) -> Point {
        Point { txid: self.max_txid, checksum: self.after }
    }

    /// The state it must be applied to; `None` for one that stands by itself.
    #[must_use]
    pub const fn start(&self) -> Option<Point> {
        if self.stands_alone() {
            return None;
        }
        Some(Point { txid: self.min_txid - 1, checksum: self.before })
    }

    /// Whether it holds a whole database, or says that there is none: a restore can begin with it.
    #[must_use]
    pub const fn stands_alone(&self) -> bool {
        self.min_txid == 1
    }

    /// Whether it says that the database was deleted.
    #[must_use]
    pub const fn is_deletion(&self) -> bool {
        self.after == EMPTY_CHECKSUM
    }
}

impl fmt::Display for HistoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, min_txid, max_txid, before, after } = self;
        write!(f, "{generation:016x}/{min_txid:016x}-{max_txid:016x}-{before:016x}-{after:016x}.ltx")
    }
}

impl FromStr for HistoryFile {
    type Err = HistoryFileError;

    fn from_str(text: &str) -> Result<Self, HistoryFileError> {
        parse(text).ok_or_else(|| HistoryFileError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<HistoryFile> {
    let (generation, name) = text.split_once('/')?;
    let mut numbers = name.strip_suffix(".ltx")?.split('-').map(hex16);
    let (min_txid, max_txid) = (numbers.next()??, numbers.next()??);
    let (before, after) = (numbers.next()??, numbers.next()??);
    let is_sum = |number: u64| number & EMPTY_CHECKSUM != 0;
    let is_sound = numbers.next().is_none()
        && min_txid >= 1
        && max_txid >= min_txid
        && is_sum(after)
        && if min_txid == 1 { before == 0 } else { is_sum(before) };
    is_sound.then_some(HistoryFile { generation: hex16(generation)?, min_txid, max_txid, before, after })
}

/// Exactly 16 lower-case hexadecimal digits; `from_str_radix` alone would take a sign and capitals too.
fn hex16(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 16 || !text.bytes().all(is_digit) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

/// A file as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub file: HistoryFile,
    /// Bytes of the object.
    pub size_bytes: u64,
    /// When it was written by the bucket's clock, in milliseconds since 1970.
    pub modified_ms: u64,
}

#[cfg(test)]
mod tests;
