//! The index of a node's alarms as bytes: a log of what became of each actor's alarm, in order. The last word on an
//! actor counts. Every record carries a checksum.
//!
//! The truth is in the actors' databases. The index may name a time that is too early, which costs a look, and never
//! one that is too late: whoever writes it puts an earlier time in before the database's own write, and a later one
//! after it.
//!
//! A record is its length after the checksum (16 bits), the first 32 bits of the XXH3 hash of all that follows the
//! checksum, the time (64 bits), flags (8 bits), the length of the class (8 bits), the class and the name. Numbers
//! are little-endian.

use xxhash_rust::xxh3::xxh3_64;

use super::Wake;
use crate::ActorId;

const LENGTH_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 4;
const TIME_BYTES: usize = 8;

/// Flags: there is an alarm; it is a retry.
const PRESENT: u8 = 1;
const RETRY: u8 = 2;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose alarm.
    pub id: ActorId,
    /// When it wants attention; never again when absent.
    pub wake: Option<Wake>,
}

/// What follows is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index of alarms is damaged at byte {at}")]
pub struct Damaged {
    /// Bytes before it.
    pub at: usize,
}

impl Entry {
    /// Adds the record to `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let (class, name) = (self.id.class.as_str().as_bytes(), self.id.name.as_str().as_bytes());
        let flags = self.wake.map_or(0, |wake| PRESENT | if wake.is_retry { RETRY } else { 0 });
        let mut body = Vec::with_capacity(TIME_BYTES + 2 + class.len() + name.len());
        body.extend_from_slice(&self.wake.map_or(0, |wake| wake.at_ms).to_le_bytes());
        // A class has at most 64 bytes, a name 256.
        body.extend_from_slice(&[flags, class.len() as u8]);
        body.extend_from_slice(class);
        body.extend_from_slice(name);
        bytes.extend_from_slice(&(body.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&checksum(&body));
        bytes.extend_from_slice(&body);
    }
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = xxh3_64(body).to_le_bytes();
    [a, b, c, d]
}

/// The records of an index, in order; ends after the first that is damaged.
pub fn read_index(bytes: &[u8]) -> impl Iterator<Item = Result<Entry, Damaged>> + '_ {
    let mut at = Some(0);
    std::iter::from_fn(move || {
        let begin = at.filter(|begin| *begin < bytes.len())?;
        match read_one(&bytes[begin..]) {
            Some((entry, length)) => {
                at = Some(begin + length);
                Some(Ok(entry))
            }
            None => {
                at = None;
                Some(Err(Damaged { at: begin }))
            }
        }
    })
}

/// The first record and its length.
fn read_one(bytes: &[u8]) -> Option<(Entry, usize)> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (sum, rest) = rest.split_first_chunk::<CHECKSUM_BYTES>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let body = rest.get(..length).filter(|body| checksum(body) == *sum)?;
    let (time, fields) = body.split_first_chunk::<TIME_BYTES>()?;
    let ([flags, class_bytes], names) = fields.split_first_chunk::<2>()?;
    let (class, name) = names.split_at_checked(usize::from(*class_bytes))?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let id = ActorId { class: text(class)?.parse().ok()?, name: text(name)?.parse().ok()? };
    let wake = Wake { at_ms: u64::from_le_bytes(*time), is_retry: flags & RETRY != 0 };
    let entry = Entry { id, wake: (flags & PRESENT != 0).then_some(wake) };
    Some((entry, LENGTH_BYTES + CHECKSUM_BYTES + length))
}
