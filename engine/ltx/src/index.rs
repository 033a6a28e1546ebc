//! The page index at the end of a file: where each page's frame is. It owns the varints and nothing of frames.

/// The shortest entry: three numbers of one byte.
pub(crate) const ENTRY_LEN_MIN: usize = 3;

/// Where one page lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The page number, at least 1.
    pub pgno: u32,
    /// Bytes of the frame: its header, size field and payload.
    pub len: u32,
    /// Bytes from the start of the file to the frame.
    pub offset: u64,
}

/// Why the page index is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The stated length of the index does not fit into the file.
    #[error("the page index claims {0} bytes, more than the file has")]
    Length(u64),
    /// A number is cut off, too large for its field, or not in its shortest form.
    #[error("a malformed number at byte {0} of the page index")]
    Number(usize),
    /// The list ends before its stated length.
    #[error("{0} bytes follow the end of the page index")]
    Excess(usize),
}

/// The index of a file being written: already encoded, so that a file of a million pages costs a few bytes a
/// page and no second list.
#[derive(Debug, Default)]
pub(crate) struct IndexWriter(Vec<u8>);

impl IndexWriter {
    pub(crate) fn push(&mut self, entry: IndexEntry) {
        self.number(entry.pgno.into());
        self.number(entry.offset);
        self.number(entry.len.into());
    }

    /// The whole index with its length field.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.number(0);
        let len = self.0.len() as u64;
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Reads the entries of an index, without its length field, one by one.
pub(crate) struct IndexReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> IndexReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next entry, `None` at the end of the list, which must also be the end of the bytes.
    pub(crate) fn next_entry(&mut self) -> Result<Option<IndexEntry>, IndexError> {
        let pgno = self.number_u32()?;
        if pgno == 0 {
            let excess = self.bytes.len() - self.at;
            return if excess == 0 { Ok(None) } else { Err(IndexError::Excess(excess)) };
        }
        let offset = self.number()?;
        let len = self.number_u32()?;
        Ok(Some(IndexEntry { pgno, len, offset }))
    }

    fn number_u32(&mut self) -> Result<u32, IndexError> {
        let start = self.at;
        u32::try_from(self.number()?).map_err(|_| IndexError::Number(start))
    }

    fn number(&mut self) -> Result<u64, IndexError> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(IndexError::Number(start))?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let padded = byte == 0 && shift != 0;
                return if padded { Err(IndexError::Number(start)) } else { Ok(value) };
            }
        }
        Err(IndexError::Number(start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<IndexEntry>, IndexError> {
        let mut reader = IndexReader::new(bytes);
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    #[test]
    fn a_malformed_number_is_refused_where_it_starts() {
        assert_eq!(read(&[]), Err(IndexError::Number(0)));
        assert_eq!(read(&[1, 0x80]), Err(IndexError::Number(1)));
        assert_eq!(read(&[1, 0x80, 0, 5, 0]), Err(IndexError::Number(1)));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0]), Err(IndexError::Number(0)));
        let eleven_bytes = [&[1][..], &[0xff; 10], &[1, 1, 0]].concat();
        assert_eq!(read(&eleven_bytes), Err(IndexError::Number(1)));
        let bit_65 = [&[1][..], &[0xff; 9], &[2, 1, 0]].concat();
        assert_eq!(read(&bit_65), Err(IndexError::Number(1)));
        assert_eq!(read(&[0, 0]), Err(IndexError::Excess(1)));
    }

    proptest! {
        #[test]
        fn entries_survive_the_way_through_bytes(
            raw in prop::collection::vec((1u32.., any::<u32>(), any::<u64>()), 0..50),
        ) {
            let entries: Vec<_> = raw.iter().map(|&(pgno, len, offset)| IndexEntry { pgno, len, offset }).collect();
            let mut writer = IndexWriter::default();
            entries.iter().for_each(|&entry| writer.push(entry));
            let bytes = writer.finish();
            let (list, len) = bytes.split_at(bytes.len() - 8);
            prop_assert_eq!(len, (list.len() as u64).to_be_bytes());
            prop_assert_eq!(read(list), Ok(entries));
        }
    }
}
