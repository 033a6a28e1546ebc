//! Files put together by hand, with right indexes and checksums around contents no writer would produce.

/// One frame: its bytes as they lie in the file, how many of them the file checksum covers, and the page that it
/// covers in place of the others.
pub struct Frame {
    pub pgno: u32,
    pub bytes: Vec<u8>,
    pub head_len: usize,
    pub page: Vec<u8>,
}

impl Frame {
    /// A frame of the older form around `payload`.
    pub fn of_lz4_frame(pgno: u32, payload: &[u8], page: Vec<u8>) -> Self {
        let bytes = [&pgno.to_be_bytes()[..], &[0, 0], payload].concat();
        Self { pgno, bytes, head_len: 6, page }
    }

    /// A frame of the current form around `payload`.
    pub fn of_block(pgno: u32, payload: &[u8], page: Vec<u8>) -> Self {
        let size = (payload.len() as u32).to_be_bytes();
        let bytes = [&pgno.to_be_bytes()[..], &[0, 1], &size, payload].concat();
        Self { pgno, bytes, head_len: 10, page }
    }
}

/// A file of these frames; `post_apply` as stored.
pub fn forge(header: &[u8], frames: &[Frame], post_apply: u64) -> Vec<u8> {
    let (mut bytes, mut summed, mut index) = (header.to_vec(), header.to_vec(), Vec::new());
    for frame in frames {
        for value in [u64::from(frame.pgno), bytes.len() as u64, frame.bytes.len() as u64] {
            push_number(&mut index, value);
        }
        bytes.extend_from_slice(&frame.bytes);
        summed.extend_from_slice(&frame.bytes[..frame.head_len]);
        summed.extend_from_slice(&frame.page);
    }
    index.push(0);
    let index_len = (index.len() as u64).to_be_bytes();
    let tail = [&[0; 6][..], &index, &index_len, &post_apply.to_be_bytes()].concat();
    bytes.extend_from_slice(&tail);
    summed.extend_from_slice(&tail);
    let checksum = crc::Crc::<u64>::new(&crc::CRC_64_GO_ISO).checksum(&summed) | 1 << 63;
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

fn push_number(index: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        index.push(value as u8 | 0x80);
        value >>= 7;
    }
    index.push(value as u8);
}
