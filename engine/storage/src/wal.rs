//! Reading SQLite's write-ahead log as SQLite writes it. Knows the format and nothing of what is done with the
//! pages.
//!
//! A frame counts when its salts are the log's, the checksum that runs through all frames before it is right, and
//! a frame that ends a transaction follows or is it. The size of the file says nothing: a transaction that was
//! rolled back leaves its frames behind until others are written over them.

use std::{
    ffi::{c_int, c_void},
    path::Path,
    ptr,
};

use rusqlite::ffi;
use wasmkeep_protocol::limits::PAGE_BYTES;

use crate::{connection::Connection, files};

/// Bytes at the start of a log, and in front of each page in it.
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const FRAME_HEADER_BYTES: usize = 24;
const PAGE: usize = PAGE_BYTES as usize;
pub(crate) const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE;

/// The first word of a log; its lowest bit says that checksums are over big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// One of SQLite's own open files, read beside it.
#[derive(Clone, Copy)]
pub(crate) struct OpenFile(*mut ffi::sqlite3_file);

impl OpenFile {
    /// The database file.
    pub(crate) fn database(connection: &Connection) -> Result<Self, c_int> {
        Self::ask(connection, ffi::SQLITE_FCNTL_FILE_POINTER)
    }

    /// The write-ahead log.
    pub(crate) fn wal(connection: &Connection) -> Result<Self, c_int> {
        Self::ask(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER)
    }

    fn ask(connection: &Connection, which: c_int) -> Result<Self, c_int> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        let out = (&raw mut file).cast::<c_void>();
        // SAFETY: the name and the out parameter live through the call, which stores a pointer to a file.
        let code = unsafe { ffi::sqlite3_file_control(connection.raw(), c"main".as_ptr(), which, out) };
        if code == ffi::SQLITE_OK { Ok(Self(file)) } else { Err(code) }
    }

    /// The database it belongs to is at `path` now.
    pub(crate) fn relocated(self, path: &Path) {
        // SAFETY: SQLite keeps the file's structure while the connection is open, and every caller holds the
        // connection.
        unsafe { files::relocated(self.0, path) };
    }

    /// Its size; 0 when it is not open.
    pub(crate) fn bytes(self) -> Result<u64, c_int> {
        // SAFETY: as for `read`.
        let ask =
            unsafe { self.0.as_ref().and_then(|file| file.pMethods.as_ref()).and_then(|m| m.xFileSize) };
        let Some(ask) = ask else { return Ok(0) };
        let mut bytes = 0;
        // SAFETY: as for `read`; the out parameter lives here.
        let code = unsafe { ask(self.0, &raw mut bytes) };
        if code == ffi::SQLITE_OK { Ok(bytes as u64) } else { Err(code) }
    }

    /// Fills `space` from `offset`; `false` when the file ends before, and then the rest is zeros.
    pub(crate) fn read(self, space: &mut [u8], offset: u64) -> Result<bool, c_int> {
        // SAFETY: SQLite keeps the file's structure while the connection is open, and every caller holds the
        // connection. A file that is not open has no methods.
        let read = unsafe { self.0.as_ref().and_then(|file| file.pMethods.as_ref()).and_then(|m| m.xRead) };
        let Some(read) = read else {
            space.fill(0);
            return Ok(false);
        };
        let (length, offset) = (space.len() as c_int, offset as i64);
        // SAFETY: as above; the space has the length given.
        match unsafe { read(self.0, space.as_mut_ptr().cast(), length, offset) } {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            code => Err(code),
        }
    }
}

/// A place between two frames: what it takes to know whether the next one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    salts: [u8; 8],
    big_endian: bool,
    sums: (u32, u32),
    /// Frames before it.
    frames: u32,
}

/// One frame that passed the checks.
pub(crate) struct Frame<'a> {
    pub(crate) pgno: u32,
    /// Size of the database in pages when the frame ends a transaction.
    pub(crate) commit: Option<u32>,
    pub(crate) page: &'a [u8],
}

impl Place {
    /// The start of the log as it is now; `None` when there is none yet.
    pub(crate) fn start(wal: OpenFile) -> Result<Option<Self>, c_int> {
        let mut header = [0; HEADER_BYTES];
        if !wal.read(&mut header, 0)? {
            return Ok(None);
        }
        let magic = word(&header, 0);
        let big_endian = magic & 1 == 1;
        let sums = checksum((0, 0), &header[..24], big_endian);
        if magic & !1 != MAGIC
            || sums != (word(&header, 24), word(&header, 28))
            || word(&header, 8) != PAGE_BYTES
        {
            return Ok(None);
        }
        let salts = header[16..24].try_into().expect("eight bytes");
        Ok(Some(Self { salts, big_endian, sums, frames: 0 }))
    }

    /// This place if the log is still the one it is in, otherwise the start of the one there is now.
    pub(crate) fn renewed(known: Option<Self>, wal: OpenFile) -> Result<Option<Self>, c_int> {
        let start = Self::start(wal)?;
        Ok(match (known, start) {
            (Some(known), Some(start)) if known.salts == start.salts => Some(known),
            (_, start) => start,
        })
    }

    /// Reads the frame at this place into `space`, of [`frame_space`], and goes past it; `None` when no frame
    /// that counts is here.
    pub(crate) fn next<'a>(
        &mut self,
        wal: OpenFile,
        space: &'a mut [u8],
    ) -> Result<Option<Frame<'a>>, c_int> {
        if !wal.read(space, self.offset())? || space[8..16] != self.salts {
            return Ok(None);
        }
        let sums = checksum(self.sums, &space[..8], self.big_endian);
        let sums = checksum(sums, &space[FRAME_HEADER_BYTES..], self.big_endian);
        if sums != (word(space, 16), word(space, 20)) {
            return Ok(None);
        }
        self.sums = sums;
        self.frames += 1;
        let commit = Some(word(space, 4)).filter(|pages| *pages > 0);
        Ok(Some(Frame { pgno: word(space, 0), commit, page: &space[FRAME_HEADER_BYTES..] }))
    }

    /// Frames before it.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// No other place has these bytes, in this log or in another.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let numbers = [u32::from(self.big_endian), self.sums.0, self.sums.1, self.frames];
        self.salts.into_iter().chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect()
    }

    fn offset(&self) -> u64 {
        offset_of(self.frames)
    }
}

/// Space for one frame.
pub(crate) fn frame_space() -> Vec<u8> {
    vec![0; FRAME_BYTES]
}

/// Reads the page of frame `frame`, counted from 0.
pub(crate) fn read_page(wal: OpenFile, frame: u32, page: &mut [u8]) -> Result<bool, c_int> {
    wal.read(page, offset_of(frame) + FRAME_HEADER_BYTES as u64)
}

/// The page number in the header of frame `frame`, counted from 0.
pub(crate) fn page_number(wal: OpenFile, frame: u32) -> Result<u32, c_int> {
    let mut number = [0; 4];
    wal.read(&mut number, offset_of(frame))?;
    Ok(u32::from_be_bytes(number))
}

/// Where frame `frame` begins, counted from 0.
pub(crate) fn offset_of(frame: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(frame) * FRAME_BYTES as u64
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// SQLite's own running checksum over 32-bit words, two at a time.
fn checksum(start: (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().expect("four bytes");
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    bytes.chunks_exact(8).fold(start, |(one, two), pair| {
        let one = one.wrapping_add(word(&pair[..4])).wrapping_add(two);
        let two = two.wrapping_add(word(&pair[4..])).wrapping_add(one);
        (one, two)
    })
}
