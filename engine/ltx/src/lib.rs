//! The LTX file format, version 3: bytes in, bytes out.
//!
//! An LTX file holds the pages that one or more transactions changed in a SQLite database. A *snapshot* (its
//! first transaction is 1) holds the whole database; an *incremental* file holds only what changed and says,
//! through checksums, which database it may be applied to.
//!
//! This crate owns the encoding, the checks a reader must make, the checksums, the file names, the merging of
//! files and their application to pages held elsewhere. It does not own where the pages come from (storage),
//! where files are kept or which of them make a history (replica), or when anything happens: it performs no
//! I/O, reads no clock and starts no thread.
//!
//! The order of use: [`Encoder`] writes a file. [`File::parse`] checks the structure of one, [`File::verify`]
//! its contents, and only the resulting [`Verified`] can be given to [`apply`] or [`compact`]; so a damaged
//! file never reaches a database.

mod apply;
mod changes;
mod checksum;
mod compact;
mod decode;
mod encode;
mod frame;
mod header;
mod index;
mod name;
mod page_size;

pub use apply::{ApplyError, MemoryPages, MemoryPagesError, PageStore, apply, database_checksum};
pub use changes::{Changes, NotNext};
pub use checksum::{Checksum, MissingFlag, PageChecksums, page_checksum};
pub use compact::{CompactError, CompactOptions, Tracking, compact};
pub use decode::{DecodeError, File, Pages, Verified, Verifier};
pub use encode::{EncodeError, Encoded, Encoder, encode_deletion};
pub use frame::FrameError;
pub use header::{Chain, Header, HeaderError, Trailer, TrailerError, WalSource};
pub use index::{IndexEntry, IndexError};
pub use name::{FileName, NameError, Position, PositionError};
pub use page_size::{InvalidPageSize, PageSize};

/// Bytes of the fixed header at the start of every file.
pub const HEADER_LEN: usize = 100;

/// Bytes of the fixed trailer at the end of every file.
pub const TRAILER_LEN: usize = 16;
