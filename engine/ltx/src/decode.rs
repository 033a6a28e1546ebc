//! Reading a file: first its structure, then its contents, in steps. It owns every check that the bytes of one
//! file allow, and knows nothing of the database the file is for.
//!
//! Memory on any input: a list of at most twice the length of the input, and a fixed amount for one page.

use std::ops::Deref;

use crate::checksum::Crc;
use crate::frame::{END_OF_PAGES, FRAME_HEADER_LEN, Frame, FrameError};
use crate::index::{ENTRY_LEN_MIN, IndexEntry, IndexError, IndexReader};
use crate::{Checksum, HEADER_LEN, Header, HeaderError, TRAILER_LEN, Trailer, TrailerError, page_checksum};

/// The length field after the page index.
const INDEX_LEN_LEN: usize = 8;

/// A file whose structure is sound: header, trailer, index and frames agree with each other. The pages have
/// not been looked at.
#[derive(Debug, Clone)]
pub struct File<'a> {
    bytes: &'a [u8],
    header: Header,
    trailer: Trailer,
    index: Vec<IndexEntry>,
    /// Where the six zero bytes after the last frame start.
    end_of_pages: usize,
}

/// A file whose checksums have been verified. Only [`File::verify`] and [`Verifier::finish`] make one.
#[derive(Debug, Clone)]
pub struct Verified<'a>(File<'a>);

/// Why bytes are not a sound file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than an empty file.
    #[error("{0} bytes are too few for an LTX file")]
    Short(usize),
    /// The header breaks a rule.
    #[error("header: {0}")]
    Header(#[from] HeaderError),
    /// The trailer breaks a rule.
    #[error("trailer: {0}")]
    Trailer(#[from] TrailerError),
    /// The page index is malformed.
    #[error("page index: {0}")]
    Index(#[from] IndexError),
    /// The page index does not give the frames one after the other.
    #[error("page {pgno} is said to be at byte {stated}, the frame before it ends at {expected}")]
    Place {
        /// The page concerned.
        pgno: u32,
        /// Its offset by the index.
        stated: u64,
        /// The offset that leaves no gap.
        expected: u64,
    },
    /// A frame reaches past the pages.
    #[error("the frame of page {0} reaches past the pages")]
    Overrun(u32),
    /// Pages must ascend, belong to the database and not be the lock page.
    #[error("page {pgno} after page {previous} in a database of {commit} pages")]
    Order {
        /// The page concerned.
        pgno: u32,
        /// The page before it; 0 for none.
        previous: u32,
        /// The size of the database in pages.
        commit: u32,
    },
    /// A snapshot must hold every page.
    #[error("the snapshot lacks page {0}")]
    Gap(u32),
    /// The mark after the last frame is not six zero bytes, or not where the index ends the frames.
    #[error("no end of pages at byte {0}")]
    EndOfPages(u64),
    /// One page's frame is bad.
    #[error("page {pgno}: {error}")]
    Frame {
        /// The page concerned.
        pgno: u32,
        /// What is wrong.
        error: FrameError,
    },
    /// The contents are not those the file was written with.
    #[error("the file's checksum is {computed}, it states {stated}")]
    FileChecksum {
        /// The checksum of the contents.
        computed: Checksum,
        /// The checksum in the trailer.
        stated: Checksum,
    },
    /// The pages of a snapshot are not those of the database it states.
    #[error("the pages have checksum {computed}, the snapshot states {stated}")]
    PostApply {
        /// The checksum of the pages.
        computed: Checksum,
        /// The checksum in the trailer.
        stated: Checksum,
    },
}

impl<'a> File<'a> {
    /// Checks the structure of a file without expanding a page.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let short = DecodeError::Short(bytes.len());
        let (header_bytes, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(short.clone())?;
        let (rest, trailer_bytes) = rest.split_last_chunk::<TRAILER_LEN>().ok_or(short.clone())?;
        let (body, index_len) = rest.split_last_chunk::<INDEX_LEN_LEN>().ok_or(short.clone())?;
        let header = Header::from_bytes(header_bytes)?;
        let trailer = Trailer::from_bytes(trailer_bytes, &header)?;

        let index_len = u64::from_be_bytes(*index_len);
        let frames_len = usize::try_from(index_len)
            .ok()
            .and_then(|len| body.len().checked_sub(len))
            .and_then(|len| len.checked_sub(END_OF_PAGES.len()))
            .ok_or(IndexError::Length(index_len))?;
        let end_of_pages = HEADER_LEN + frames_len;
        let (mark, index) = body[frames_len..].split_at(END_OF_PAGES.len());
        if mark != END_OF_PAGES {
            return Err(DecodeError::EndOfPages(end_of_pages as u64));
        }
        let index = read_index(&header, index, &bytes[..end_of_pages])?;
        Ok(Self { bytes, header, trailer, index, end_of_pages })
    }

    /// What the file is about.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The checksums the file states.
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The pages in the file, ascending.
    pub fn index(&self) -> &[IndexEntry] {
        &self.index
    }

    /// Reads one page by way of the index into `page`, whose length must be the page size; `false` when the
    /// file does not hold it.
    ///
    /// # Panics
    /// When `page` has another length.
    pub fn read_page(&self, pgno: u32, page: &mut [u8]) -> Result<bool, DecodeError> {
        match self.index.binary_search_by_key(&pgno, |entry| entry.pgno) {
            Ok(at) => self.expand(at, page).map(|_| true),
            Err(_) => Ok(false),
        }
    }

    /// Expands and checks everything, in one go.
    pub fn verify(self) -> Result<Verified<'a>, DecodeError> {
        let mut verifier = self.verifier();
        while verifier.step(usize::MAX)? {}
        verifier.finish()
    }

    /// Expands and checks everything, in steps: for a caller that must not hold its core for long.
    pub fn verifier(self) -> Verifier<'a> {
        let mut crc = Crc::new();
        crc.update(&self.bytes[..HEADER_LEN]);
        let page = vec![0; self.header.page_size.bytes()];
        Verifier { file: self, crc, database: Checksum::EMPTY, next: 0, page }
    }

    fn expand(&self, at: usize, page: &mut [u8]) -> Result<Frame<'a>, DecodeError> {
        assert_eq!(page.len(), self.header.page_size.bytes(), "the space must be one page");
        let IndexEntry { pgno, len, offset } = self.index[at];
        let start = offset as usize;
        let of_page = |error| DecodeError::Frame { pgno, error };
        let frame = Frame::parse(pgno, &self.bytes[start..start + len as usize]).map_err(of_page)?;
        frame.expand(page).map_err(of_page)?;
        Ok(frame)
    }
}

/// Reads the index and follows it over the frames: they must lie one after the other from the header to the
/// end of `bytes`. The list is as long as both the index and the frames can really be, so it never costs twice
/// the memory of the input, whatever the input claims.
fn read_index(header: &Header, index: &[u8], bytes: &[u8]) -> Result<Vec<IndexEntry>, DecodeError> {
    let frames_max = (bytes.len() - HEADER_LEN) / FRAME_HEADER_LEN;
    let mut entries = Vec::with_capacity(frames_max.min(index.len() / ENTRY_LEN_MIN));
    let mut reader = IndexReader::new(index);
    let mut expected = HEADER_LEN;
    let mut previous = 0;
    while let Some(entry) = reader.next_entry()? {
        check_order(header, entry.pgno, previous)?;
        let IndexEntry { pgno, len, offset } = entry;
        if offset != expected as u64 {
            return Err(DecodeError::Place { pgno, stated: offset, expected: expected as u64 });
        }
        let frame = bytes[expected..].get(..len as usize).ok_or(DecodeError::Overrun(pgno))?;
        Frame::parse(pgno, frame).map_err(|error| DecodeError::Frame { pgno, error })?;
        entries.push(entry);
        expected += frame.len();
        previous = pgno;
    }
    if expected != bytes.len() {
        return Err(DecodeError::EndOfPages(expected as u64));
    }
    match header.page_size.next_stored(previous) {
        Some(next) if header.is_snapshot() && next <= header.commit => Err(DecodeError::Gap(next)),
        _ => Ok(entries),
    }
}

fn check_order(header: &Header, pgno: u32, previous: u32) -> Result<(), DecodeError> {
    let commit = header.commit;
    if pgno <= previous || pgno > commit || pgno == header.page_size.lock_page() {
        return Err(DecodeError::Order { pgno, previous, commit });
    }
    match header.page_size.next_stored(previous) {
        Some(next) if header.is_snapshot() && pgno != next => Err(DecodeError::Gap(next)),
        _ => Ok(()),
    }
}

/// The verification of one file, in steps.
pub struct Verifier<'a> {
    file: File<'a>,
    crc: Crc,
    database: Checksum,
    next: usize,
    page: Vec<u8>,
}

impl<'a> Verifier<'a> {
    /// Looks at up to `pages_max` more pages; `false` once all have been seen.
    pub fn step(&mut self, pages_max: usize) -> Result<bool, DecodeError> {
        let end = self.next.saturating_add(pages_max).min(self.file.index.len());
        while self.next < end {
            let frame = self.file.expand(self.next, &mut self.page)?;
            self.crc.update(frame.head);
            self.crc.update(&self.page);
            if self.file.header.is_snapshot() && self.file.header.is_tracked() {
                let pgno = self.file.index[self.next].pgno;
                self.database = self.database.toggled(page_checksum(pgno, &self.page));
            }
            self.next += 1;
        }
        Ok(self.next < self.file.index.len())
    }

    /// Looks at what is left and compares the checksums.
    pub fn finish(mut self) -> Result<Verified<'a>, DecodeError> {
        while self.step(usize::MAX)? {}
        let Self { file, mut crc, database, .. } = self;
        let before_file_checksum = file.bytes.len() - 8;
        crc.update(&file.bytes[file.end_of_pages..before_file_checksum]);
        let (computed, stated) = (crc.checksum(), file.trailer.file);
        if computed != stated {
            return Err(DecodeError::FileChecksum { computed, stated });
        }
        match file.trailer.post_apply {
            Some(stated) if file.header.is_snapshot() && database != stated => {
                Err(DecodeError::PostApply { computed: database, stated })
            }
            _ => Ok(Verified(file)),
        }
    }
}

impl<'a> Deref for Verified<'a> {
    type Target = File<'a>;

    fn deref(&self) -> &File<'a> {
        &self.0
    }
}

impl<'a> Verified<'a> {
    /// The pages in ascending order.
    pub fn pages(&self) -> Pages<'_> {
        Pages { file: &self.0, next: 0, page: vec![0; self.0.header.page_size.bytes()] }
    }

    pub(crate) fn expand_at(&self, at: usize, page: &mut [u8]) {
        self.0.expand(at, page).expect("every page was expanded when the file was verified");
    }
}

/// Walks over the pages of a verified file, lending one at a time.
pub struct Pages<'a> {
    file: &'a File<'a>,
    next: usize,
    page: Vec<u8>,
}

impl Pages<'_> {
    /// The next page's number and data; `None` after the last.
    pub fn next_page(&mut self) -> Option<(u32, &[u8])> {
        let pgno = self.file.index.get(self.next)?.pgno;
        self.file
            .expand(self.next, &mut self.page)
            .expect("every page was expanded when the file was verified");
        self.next += 1;
        Some((pgno, &self.page))
    }
}
