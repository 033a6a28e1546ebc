//! The fixed header and trailer of a file: their fields, their rules and their bytes.

use crate::{Checksum, DecodeError, HEADER_LEN, InvalidPageSize, MissingFlag, PageSize, TRAILER_LEN};

const MAGIC: [u8; 4] = *b"LTX1";

/// The only header flag of version 3: database checksums are not tracked.
const NO_CHECKSUM: u32 = 1 << 1;

/// What a file is about: everything in it but the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The page size of the database.
    pub page_size: PageSize,
    /// The size of the database in pages after the file is applied; 0: the database is deleted.
    pub commit: u32,
    /// The first transaction in the file, at least 1; exactly 1 makes the file a snapshot.
    pub min_txid: u64,
    /// The last transaction in the file, at least `min_txid`.
    pub max_txid: u64,
    /// When the last transaction was committed, in Unix milliseconds.
    pub timestamp_ms: i64,
    /// Which database the file may be applied to.
    pub chain: Chain,
    /// Where in a write-ahead log the pages were read; all zero when they were not.
    pub wal: WalSource,
    /// The node that wrote the file; 0 when not set.
    pub node_id: u64,
}

/// Whether database checksums are tracked, and the one the database must have before the file is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// Checksums are not tracked: the only form Litestream restores.
    Untracked,
    /// A snapshot with checksums: it replaces whatever was there.
    Snapshot,
    /// An incremental file with checksums: it follows the database that has this checksum, and no other.
    After(Checksum),
}

/// The place of the first page in the write-ahead log it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalSource {
    /// Bytes from the start of the log to the first frame; 0 when there is no log. Below 2^63.
    pub offset: u64,
    /// Bytes of log covered. Below 2^63.
    pub size: u64,
    /// The first salt of the log.
    pub salt1: u32,
    /// The second salt of the log.
    pub salt2: u32,
}

/// Why a header is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The file does not start with `LTX1`.
    #[error("not an LTX file: it starts with {0:02x?}")]
    Magic([u8; 4]),
    /// A flag other than "no checksum" is set; versions 1 and 2 are among these.
    #[error("unknown header flags {0:#x}")]
    Flags(u32),
    /// The page size is none of SQLite's.
    #[error(transparent)]
    PageSize(#[from] InvalidPageSize),
    /// Transactions start at 1 and do not run backwards.
    #[error("transactions {min_txid} to {max_txid} are not a range that starts at 1 or later")]
    TxidRange {
        /// The first transaction stated.
        min_txid: u64,
        /// The last transaction stated.
        max_txid: u64,
    },
    /// A snapshot, or a file without checksums, states a pre-apply checksum.
    #[error("a pre-apply checksum {0:016x} where none may be")]
    UnexpectedPreApply(u64),
    /// An incremental file with checksums states no pre-apply checksum.
    #[error("no pre-apply checksum")]
    MissingPreApply,
    /// The pre-apply checksum lacks its top bit.
    #[error("pre-apply: {0}")]
    PreApply(MissingFlag),
    /// A deletion states an exact checksum, so it cannot be written without checksums.
    #[error("a deletion needs checksums")]
    UntrackedDeletion,
    /// The place in the log is negative, or a size or salt is given without an offset.
    #[error("the place in the write-ahead log is inconsistent: {0:?}")]
    Wal(WalSource),
    /// The reserved bytes are not zero.
    #[error("reserved header bytes are not zero")]
    Reserved,
}

impl Header {
    /// Whether the file holds the whole database.
    pub fn is_snapshot(&self) -> bool {
        self.min_txid == 1
    }

    /// Whether database checksums are tracked.
    pub fn is_tracked(&self) -> bool {
        self.chain != Chain::Untracked
    }

    /// The rules that reach over more than one field.
    pub(crate) fn validate(&self) -> Result<(), HeaderError> {
        let (min_txid, max_txid) = (self.min_txid, self.max_txid);
        if min_txid == 0 || max_txid < min_txid {
            return Err(HeaderError::TxidRange { min_txid, max_txid });
        }
        match self.chain {
            Chain::Untracked if self.commit == 0 => return Err(HeaderError::UntrackedDeletion),
            Chain::Snapshot if min_txid != 1 => return Err(HeaderError::MissingPreApply),
            Chain::After(sum) if min_txid == 1 => return Err(HeaderError::UnexpectedPreApply(sum.get())),
            _ => {}
        }
        self.wal.validate()
    }

    /// The bytes of the header. The caller has validated it.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let (flags, pre_apply) = match self.chain {
            Chain::Untracked => (NO_CHECKSUM, 0),
            Chain::Snapshot => (0, 0),
            Chain::After(sum) => (0, sum.get()),
        };
        let mut bytes = [0; HEADER_LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&flags.to_be_bytes());
        put(&u32::from(self.page_size).to_be_bytes());
        put(&self.commit.to_be_bytes());
        put(&self.min_txid.to_be_bytes());
        put(&self.max_txid.to_be_bytes());
        put(&self.timestamp_ms.to_be_bytes());
        put(&pre_apply.to_be_bytes());
        put(&self.wal.offset.to_be_bytes());
        put(&self.wal.size.to_be_bytes());
        put(&self.wal.salt1.to_be_bytes());
        put(&self.wal.salt2.to_be_bytes());
        put(&self.node_id.to_be_bytes());
        bytes
    }

    /// Reads the header at the start of a file that may be cut off behind it. Only the header's own rules are
    /// checked: what it says is believed once the whole file was verified.
    pub fn peek(start: &[u8]) -> Result<Self, DecodeError> {
        let bytes = start.first_chunk().ok_or(DecodeError::Short(start.len()))?;
        Ok(Self::from_bytes(bytes)?)
    }

    /// Reads and validates a header.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        let magic = take(bytes, 0);
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        let flags = u32::from_be_bytes(take(bytes, 4));
        if flags & !NO_CHECKSUM != 0 {
            return Err(HeaderError::Flags(flags));
        }
        if bytes[80..].iter().any(|&b| b != 0) {
            return Err(HeaderError::Reserved);
        }
        let min_txid = u64::from_be_bytes(take(bytes, 16));
        let pre_apply = u64::from_be_bytes(take(bytes, 40));
        let header = Header {
            page_size: PageSize::new(u32::from_be_bytes(take(bytes, 8)))?,
            commit: u32::from_be_bytes(take(bytes, 12)),
            min_txid,
            max_txid: u64::from_be_bytes(take(bytes, 24)),
            timestamp_ms: i64::from_be_bytes(take(bytes, 32)),
            chain: Chain::from_fields(flags & NO_CHECKSUM == 0, min_txid, pre_apply)?,
            wal: WalSource {
                offset: u64::from_be_bytes(take(bytes, 48)),
                size: u64::from_be_bytes(take(bytes, 56)),
                salt1: u32::from_be_bytes(take(bytes, 64)),
                salt2: u32::from_be_bytes(take(bytes, 68)),
            },
            node_id: u64::from_be_bytes(take(bytes, 72)),
        };
        header.validate()?;
        Ok(header)
    }
}

impl Chain {
    fn from_fields(tracked: bool, min_txid: u64, pre_apply: u64) -> Result<Self, HeaderError> {
        match (tracked, pre_apply) {
            (false, 0) => Ok(Self::Untracked),
            (true, 0) if min_txid <= 1 => Ok(Self::Snapshot),
            (true, 0) => Err(HeaderError::MissingPreApply),
            (true, sum) if min_txid > 1 => Checksum::new(sum).map(Self::After).map_err(HeaderError::PreApply),
            (_, sum) => Err(HeaderError::UnexpectedPreApply(sum)),
        }
    }
}

impl WalSource {
    fn validate(&self) -> Result<(), HeaderError> {
        let negative = self.offset > i64::MAX as u64 || self.size > i64::MAX as u64;
        let placed = self.offset != 0 || (self.size == 0 && self.salt1 == 0 && self.salt2 == 0);
        if negative || !placed { Err(HeaderError::Wal(*self)) } else { Ok(()) }
    }
}

/// The two checksums at the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The checksum of the database once the file is applied; `None` where checksums are not tracked.
    pub post_apply: Option<Checksum>,
    /// The checksum of the file, over uncompressed pages.
    pub file: Checksum,
}

/// Why a trailer is not valid under its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrailerError {
    /// A file without checksums states one.
    #[error("a post-apply checksum {0:016x} in a file without checksums")]
    UnexpectedPostApply(u64),
    /// The post-apply checksum lacks its top bit (zero means it is missing).
    #[error("post-apply: {0}")]
    PostApply(MissingFlag),
    /// A deletion leaves the empty database and says otherwise.
    #[error("a deletion that leaves checksum {0} instead of the empty database's")]
    Deletion(Checksum),
    /// The file checksum lacks its top bit.
    #[error("file: {0}")]
    File(MissingFlag),
}

impl Trailer {
    /// The stored form of a post-apply checksum: zero where there is none.
    pub(crate) fn post_apply_bytes(post_apply: Option<Checksum>) -> [u8; 8] {
        post_apply.map_or(0, Checksum::get).to_be_bytes()
    }

    /// Reads a trailer and checks it against the header.
    pub(crate) fn from_bytes(bytes: &[u8; TRAILER_LEN], header: &Header) -> Result<Self, TrailerError> {
        let stored = u64::from_be_bytes(take(bytes, 0));
        let post_apply = if header.is_tracked() {
            Some(Checksum::new(stored).map_err(TrailerError::PostApply)?)
        } else if stored == 0 {
            None
        } else {
            return Err(TrailerError::UnexpectedPostApply(stored));
        };
        if let Some(sum) = post_apply
            && header.commit == 0
            && sum != Checksum::EMPTY
        {
            return Err(TrailerError::Deletion(sum));
        }
        let file = Checksum::new(u64::from_be_bytes(take(bytes, 8))).map_err(TrailerError::File)?;
        Ok(Self { post_apply, file })
    }
}

/// `N` bytes at `at`. The offsets are constants inside arrays of known length.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

#[cfg(test)]
mod tests;
