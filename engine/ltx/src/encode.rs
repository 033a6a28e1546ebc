//! Writing a file: header, pages in ascending order, index, trailer. It owns the rules of the order and the
//! checksums that follow from the pages, and knows nothing of where the pages come from.

use crate::checksum::Crc;
use crate::frame::{END_OF_PAGES, FrameWriter};
use crate::index::{IndexEntry, IndexWriter};
use crate::{Chain, Checksum, HEADER_LEN, Header, HeaderError, TRAILER_LEN, Trailer, page_checksum};

/// Writes one file, page by page, into memory.
///
/// Memory: the output, about eight bytes of index a page, and some 20 KiB of compression tables.
pub struct Encoder {
    header: Header,
    out: Vec<u8>,
    crc: Crc,
    index: IndexWriter,
    frames: FrameWriter,
    /// The page written last; 0 before the first.
    previous: u32,
    /// XOR of the pages written so far; kept for tracked snapshots only, where it is the post-apply checksum.
    database: Checksum,
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Its two checksums, which are also the last bytes of `bytes`.
    pub trailer: Trailer,
}

/// Why a file cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The header breaks a rule.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The page is not as long as the header says.
    #[error("page {pgno} has {len} bytes, not one page")]
    PageLength {
        /// The page refused.
        pgno: u32,
        /// Its length in bytes.
        len: usize,
    },
    /// The page is 0, the lock page, or above the size of the database.
    #[error("page {pgno} does not belong to a database of {commit} pages")]
    Outside {
        /// The page refused.
        pgno: u32,
        /// The size of the database in pages.
        commit: u32,
    },
    /// Pages must ascend.
    #[error("page {pgno} comes after page {previous}")]
    Order {
        /// The page refused.
        pgno: u32,
        /// The page written before it.
        previous: u32,
    },
    /// A snapshot must hold every page.
    #[error("the snapshot lacks page {0}")]
    Gap(u32),
    /// A tracked incremental file needs the checksum of the database after it.
    #[error("no post-apply checksum")]
    MissingPostApply,
    /// A file without checksums cannot state one.
    #[error("a post-apply checksum {0} in a file without checksums")]
    UnexpectedPostApply(Checksum),
    /// The pages of a snapshot, or their absence in a deletion, have another checksum than the caller states.
    #[error("the pages have checksum {computed}, the caller states {stated}")]
    PostApply {
        /// The checksum of the pages written.
        computed: Checksum,
        /// The checksum stated.
        stated: Checksum,
    },
}

impl Encoder {
    /// Starts a file with this header.
    pub fn new(header: Header) -> Result<Self, EncodeError> {
        header.validate()?;
        let bytes = header.to_bytes();
        let mut crc = Crc::new();
        crc.update(&bytes);
        Ok(Self {
            header,
            out: bytes.to_vec(),
            crc,
            index: IndexWriter::default(),
            frames: FrameWriter::new(header.page_size),
            previous: 0,
            database: Checksum::EMPTY,
        })
    }

    /// The header the file was started with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The length of the file so far in bytes, without the index and trailer that [`finish`](Self::finish)
    /// adds.
    pub fn len_so_far(&self) -> usize {
        self.out.len()
    }

    /// Adds one page. Pages ascend; a snapshot takes every page from 1 on except the lock page.
    ///
    /// After an error the encoder is as it was before the call.
    pub fn page(&mut self, pgno: u32, data: &[u8]) -> Result<(), EncodeError> {
        self.check_page(pgno, data)?;
        let offset = self.out.len();
        let head = self.frames.write(pgno, data, &mut self.out);
        self.crc.update(&head);
        self.crc.update(data);
        let len = (self.out.len() - offset) as u32;
        self.index.push(IndexEntry { pgno, len, offset: offset as u64 });
        if self.header.chain == Chain::Snapshot {
            self.database = self.database.toggled(page_checksum(pgno, data));
        }
        self.previous = pgno;
        Ok(())
    }

    /// Ends the file.
    ///
    /// `post_apply` is the checksum of the database after the file: needed for an incremental file with
    /// checksums; `None` for one without. A snapshot's and a deletion's follow from the file itself: `None`
    /// takes the computed one, `Some` is compared with it.
    pub fn finish(mut self, post_apply: Option<Checksum>) -> Result<Encoded, EncodeError> {
        self.check_complete()?;
        let post_apply = self.settle_post_apply(post_apply)?;
        let index = self.index.finish();
        let post_apply_bytes = Trailer::post_apply_bytes(post_apply);
        for part in [&END_OF_PAGES[..], &index, &post_apply_bytes] {
            self.crc.update(part);
            self.out.extend_from_slice(part);
        }
        let file = self.crc.checksum();
        self.out.extend_from_slice(&file.get().to_be_bytes());
        debug_assert!(self.out.len() >= HEADER_LEN + END_OF_PAGES.len() + 9 + TRAILER_LEN);
        Ok(Encoded { bytes: self.out, trailer: Trailer { post_apply, file } })
    }

    fn check_page(&self, pgno: u32, data: &[u8]) -> Result<(), EncodeError> {
        let Header { page_size, commit, .. } = self.header;
        if data.len() != page_size.bytes() {
            return Err(EncodeError::PageLength { pgno, len: data.len() });
        }
        if pgno == 0 || pgno > commit || pgno == page_size.lock_page() {
            return Err(EncodeError::Outside { pgno, commit });
        }
        if pgno <= self.previous {
            return Err(EncodeError::Order { pgno, previous: self.previous });
        }
        match page_size.next_stored(self.previous) {
            Some(next) if self.header.is_snapshot() && pgno != next => Err(EncodeError::Gap(next)),
            _ => Ok(()),
        }
    }

    /// A snapshot must reach the last page of the database.
    fn check_complete(&self) -> Result<(), EncodeError> {
        match self.header.page_size.next_stored(self.previous) {
            Some(next) if self.header.is_snapshot() && next <= self.header.commit => {
                Err(EncodeError::Gap(next))
            }
            _ => Ok(()),
        }
    }

    fn settle_post_apply(&self, stated: Option<Checksum>) -> Result<Option<Checksum>, EncodeError> {
        let computed = match self.header.chain {
            Chain::Untracked => {
                return stated.map_or(Ok(None), |sum| Err(EncodeError::UnexpectedPostApply(sum)));
            }
            Chain::After(_) if self.header.commit > 0 => {
                return stated.map(Some).ok_or(EncodeError::MissingPostApply);
            }
            // For a deletion this is the empty database's checksum.
            Chain::After(_) | Chain::Snapshot => self.database,
        };
        match stated {
            Some(stated) if stated != computed => Err(EncodeError::PostApply { computed, stated }),
            _ => Ok(Some(computed)),
        }
    }
}

/// Writes the file that deletes a database: it holds no pages and commits none, whatever `header.commit` says.
///
/// The header's checksums must be tracked; the format has no deletion without them.
pub fn encode_deletion(header: Header) -> Result<Encoded, EncodeError> {
    Encoder::new(Header { commit: 0, ..header })?.finish(None)
}
