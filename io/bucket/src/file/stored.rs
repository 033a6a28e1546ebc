//! One object's file: a header that carries the version, then the body. Owns that format.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use bytes::Bytes;
use futures::stream;

use crate::outcome::{Failure, ReadError, Version};
use crate::{Body, Meta, Nonce};

/// First bytes of an object's file, form 1.
const MAGIC: &[u8; 8] = b"WKOBJ1\n\0";

/// Magic, 32 bytes of version, 8 bytes of body length (little endian).
const HEADER_BYTES: usize = 48;

/// Bytes read from the disk at a time.
const CHUNK_BYTES: u64 = 256 << 10;

/// The header of a body of `size` bytes in the version `version`.
pub(super) fn header(version: &Nonce, size: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..40].copy_from_slice(version.as_str().as_bytes());
    header[40..].copy_from_slice(&size.to_le_bytes());
    header
}

/// Reads what an object's file says of itself.
pub(super) fn meta(file: &File) -> Result<Meta, ReadError> {
    let attributes = file.metadata().map_err(io_failure)?;
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged("has no whole header"));
        }
        read => read.map_err(io_failure)?,
    }
    let (magic, rest) = header.split_at(8);
    let (version, size) = rest.split_at(32);
    let version = std::str::from_utf8(version).ok().and_then(Nonce::from_text);
    let size = size.try_into().map_or(0, u64::from_le_bytes);
    let whole = attributes.len() == size.saturating_add(HEADER_BYTES as u64);
    let (true, true, Some(version)) = (magic == MAGIC, whole, version) else {
        return Err(damaged("does not fit its header"));
    };
    let version = Version::new(version.as_str()).map_err(damaged)?;
    let modified_ms = modified_ms(&attributes);
    Ok(Meta { version, size, modified_ms })
}

/// The size and time of an object whose header cannot be believed.
pub(super) fn outside(file: &File) -> io::Result<(u64, u64)> {
    let attributes = file.metadata()?;
    Ok((attributes.len().saturating_sub(HEADER_BYTES as u64), modified_ms(&attributes)))
}

fn modified_ms(attributes: &std::fs::Metadata) -> u64 {
    attributes.mtime().max(0) as u64 * 1000 + attributes.mtime_nsec() as u64 / 1_000_000
}

/// The bytes `range` of the body, read as they are asked for. Replacing or deleting the object does not
/// disturb it: the open file stays.
pub(super) fn body(file: File, range: Range<u64>) -> Body {
    let length = range.end - range.start;
    let chunks = stream::unfold(Some((file, range)), |state| async move {
        let (file, range) = state.filter(|(_, range)| !range.is_empty())?;
        match read_chunk(file, range).await {
            Ok((chunk, rest)) => Some((Ok(chunk), Some(rest))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Body::counted(length, chunks)
}

async fn read_chunk(file: File, range: Range<u64>) -> Result<(Bytes, (File, Range<u64>)), ReadError> {
    let end = range.end.min(range.start + CHUNK_BYTES);
    let read = tokio::task::spawn_blocking(move || {
        let mut chunk = vec![0; (end - range.start) as usize];
        file.read_exact_at(&mut chunk, HEADER_BYTES as u64 + range.start)?;
        Ok((Bytes::from(chunk), (file, end..range.end)))
    });
    match read.await {
        Ok(read) => read.map_err(io_failure),
        Err(error) => Err(Failure::Unavailable(error.to_string()).into()),
    }
}

fn io_failure(error: io::Error) -> ReadError {
    Failure::Unavailable(error.to_string()).into()
}

fn damaged(reason: impl ToString) -> ReadError {
    ReadError::Damaged(format!("its file {}", reason.to_string()))
}
