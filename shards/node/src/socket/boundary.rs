//! Where the frames end that pass through a node which only carries them: a close frame of its own may go between two
//! frames and nowhere else. Looks at heads alone and judges nothing. Pure.

use std::io::Cursor;

use tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Control, OpCode},
};

/// The longest head of a frame: two bytes, eight of length, four of mask.
const HEAD_BYTES_MAX: usize = 14;

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    /// A head of which a part has come.
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    /// Bytes of the payload that are to come.
    payload_left: u64,
    /// A close frame has begun, or what came is no frame: nothing more can be said.
    ended: bool,
}

impl Boundary {
    /// Takes the bytes that pass next.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.payload_left.min(bytes.len() as u64);
            self.payload_left -= skipped;
            bytes = &bytes[skipped as usize..];
            if self.ended {
                return;
            }
            self.take_head(&mut bytes);
        }
    }

    /// Whether a frame may be put behind what has passed.
    pub(super) fn is_between(&self) -> bool {
        !self.ended && self.head_len == 0 && self.payload_left == 0
    }

    fn take_head(&mut self, bytes: &mut &[u8]) {
        let held = self.head_len;
        let len = bytes.len().min(HEAD_BYTES_MAX - held);
        self.head[held..held + len].copy_from_slice(&bytes[..len]);
        let mut cursor = Cursor::new(&self.head[..held + len]);
        match FrameHeader::parse(&mut cursor) {
            Ok(Some((header, payload_len))) => {
                // At least as many as were held: those did not make a head.
                *bytes = &bytes[cursor.position() as usize - held..];
                self.head_len = 0;
                self.payload_left = payload_len;
                self.ended = header.opcode == OpCode::Control(Control::Close);
            }
            Ok(None) => {
                self.head_len = held + len;
                *bytes = &bytes[len..];
            }
            Err(_) => self.ended = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[&[u8]]) -> bool {
        let mut boundary = Boundary::default();
        for piece in pieces {
            boundary.pass(piece);
        }
        boundary.is_between()
    }

    // R-WS-1, case W2
    #[test]
    fn a_frame_may_follow_whole_frames_and_no_close_frame() {
        let long = [&b"\x82\x7e\x01\x00"[..], &[7; 256]].concat();
        for (bytes, is_between) in [
            (&b""[..], true),
            (b"\x81\x02hi", true),
            (b"\x81\x02hi\x89\x00", true),
            (b"\x82\x00\x81\x02h", false),
            (&long, true),
            (&long[..200], false),
            (b"\x81\x82\x01\x02\x03\x04hi", true),
            (b"\x81\x02hi\x88\x02\x03\xe8", false),
            (b"\x88\x02\x03\xe8\x81\x00", false),
            // Not a kind of frame there is.
            (b"\x83\x00", false),
        ] {
            assert_eq!(after(&[bytes]), is_between, "{bytes:?}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(after(&single), is_between, "{bytes:?} byte by byte");
            for at in 0..bytes.len() {
                let (first, second) = bytes.split_at(at);
                assert_eq!(after(&[first, second]), is_between, "{bytes:?} in two at {at}");
            }
        }
        assert!(!after(&[b"\x81"]) && !after(&[b"\x82\x7e\x01"]));
    }
}
