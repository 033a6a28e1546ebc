//! One page in a file: a small header and an LZ4 payload. It owns compression and nothing of page order.
//!
//! Two forms are read: the *block* form (a size field and a raw LZ4 block), which is also the one written, and
//! the older *frame* form (a whole LZ4 frame without a size field), which Litestream wrote up to 0.5.15.

use std::io::Read;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use lz4_flex::frame::FrameDecoder;

use crate::PageSize;

/// Page number (4) and flags (2).
pub(crate) const FRAME_HEADER_LEN: usize = 6;

/// The size field of the block form.
const SIZE_LEN: usize = 4;

/// The six zero bytes that stand where the frame after the last would start.
pub(crate) const END_OF_PAGES: [u8; FRAME_HEADER_LEN] = [0; FRAME_HEADER_LEN];

/// Page flag: a size field and an LZ4 block follow.
const BLOCK: u16 = 1;

/// How an LZ4 frame must start: the magic, version 1 with independent blocks and a content checksum, blocks of
/// 64 KiB at most. Every known writer of the frame form uses exactly this, a page is never larger, and larger
/// blocks would let a few bytes ask for megabytes of buffers.
const LZ4_FRAME_START: [u8; 6] = [0x04, 0x22, 0x4d, 0x18, 0x64, 0x40];

/// What follows the blocks of an LZ4 frame: the end mark and the content checksum.
const LZ4_FRAME_END_LEN: usize = 8;

/// Why a page's frame cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends before its fields do.
    #[error("the frame is cut off")]
    Cut,
    /// The frame is another page's than the index says.
    #[error("the frame says page {0}")]
    Number(u32),
    /// A flag other than "block" is set.
    #[error("unknown page flags {0:#x}")]
    Flags(u16),
    /// The size field disagrees with the length in the index.
    #[error("the size field says {stated} bytes and the index leaves {indexed}")]
    Size {
        /// Payload bytes by the size field.
        stated: u32,
        /// Payload bytes by the index.
        indexed: usize,
    },
    /// Not exactly one LZ4 frame with independent blocks of 64 KiB, an end mark and a content checksum.
    #[error("not one whole LZ4 frame of the expected kind")]
    Lz4Frame,
    /// LZ4 refuses the payload.
    #[error("bad LZ4 data: {0}")]
    Lz4(String),
    /// The payload does not expand to one page.
    #[error("the payload expands to {0} bytes, not to a page")]
    Expanded(usize),
}

/// Compresses pages, reusing its tables from page to page.
pub(crate) struct FrameWriter {
    table: CompressTable,
    scratch: Vec<u8>,
}

impl FrameWriter {
    pub(crate) fn new(page_size: PageSize) -> Self {
        // A table of 16-bit places is enough below 64 KiB and half as large.
        let small = page_size.bytes() < usize::from(u16::MAX);
        let table = if small { CompressTable::small() } else { CompressTable::large() };
        Self { table, scratch: vec![0; get_maximum_output_size(page_size.bytes())] }
    }

    /// Appends the frame of one page and returns the bytes of the frame that the file checksum covers besides
    /// the page: its header and size field.
    pub(crate) fn write(
        &mut self,
        pgno: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> [u8; FRAME_HEADER_LEN + SIZE_LEN] {
        let size = compress_into_with_table(data, &mut self.scratch, &mut self.table)
            .expect("the scratch space holds the worst case of one page");
        let mut head = [0; FRAME_HEADER_LEN + SIZE_LEN];
        head[..4].copy_from_slice(&pgno.to_be_bytes());
        head[4..6].copy_from_slice(&BLOCK.to_be_bytes());
        head[6..].copy_from_slice(&(size as u32).to_be_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.scratch[..size]);
        head
    }
}

/// A frame whose fields have been checked and whose payload has not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// Header and, in the block form, size field: what the file checksum covers besides the page.
    pub(crate) head: &'a [u8],
    payload: &'a [u8],
    block: bool,
}

impl<'a> Frame<'a> {
    /// Splits the bytes that the index gives to page `pgno`.
    pub(crate) fn parse(pgno: u32, bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (header, rest) = bytes.split_first_chunk::<FRAME_HEADER_LEN>().ok_or(FrameError::Cut)?;
        let [n0, n1, n2, n3, f0, f1] = *header;
        let stated_pgno = u32::from_be_bytes([n0, n1, n2, n3]);
        if stated_pgno != pgno {
            return Err(FrameError::Number(stated_pgno));
        }
        match u16::from_be_bytes([f0, f1]) {
            0 => Ok(Self { head: header, payload: rest, block: false }),
            BLOCK => {
                let (size, payload) = rest.split_first_chunk::<SIZE_LEN>().ok_or(FrameError::Cut)?;
                let stated = u32::from_be_bytes(*size);
                if stated as usize != payload.len() {
                    return Err(FrameError::Size { stated, indexed: payload.len() });
                }
                Ok(Self { head: &bytes[..FRAME_HEADER_LEN + SIZE_LEN], payload, block: true })
            }
            flags => Err(FrameError::Flags(flags)),
        }
    }

    /// Expands the payload into `page`, whose length is the page size.
    pub(crate) fn expand(&self, page: &mut [u8]) -> Result<(), FrameError> {
        let expanded = if self.block {
            decompress_into(self.payload, page).map_err(|error| FrameError::Lz4(error.to_string()))?
        } else {
            expand_lz4_frame(self.payload, page)?
        };
        if expanded == page.len() { Ok(()) } else { Err(FrameError::Expanded(expanded)) }
    }
}

/// Expands exactly one LZ4 frame that fills `payload`.
fn expand_lz4_frame(payload: &[u8], page: &mut [u8]) -> Result<usize, FrameError> {
    if !payload.starts_with(&LZ4_FRAME_START) {
        return Err(FrameError::Lz4Frame);
    }
    let bad_data = |error: std::io::Error| FrameError::Lz4(error.to_string());
    let mut decoder = FrameDecoder::new(payload);
    let mut filled = 0;
    while filled < page.len() {
        match decoder.read(&mut page[filled..]).map_err(bad_data)? {
            0 => return Ok(filled),
            n => filled += n,
        }
    }
    // The decoder takes a frame that ends without its end mark for a whole one.
    if decoder.get_ref().len() != LZ4_FRAME_END_LEN {
        return Err(FrameError::Lz4Frame);
    }
    // Reading on makes it check the content checksum.
    match decoder.read(&mut [0]).map_err(bad_data)? {
        0 if decoder.get_ref().is_empty() => Ok(filled),
        _ => Err(FrameError::Lz4Frame),
    }
}
