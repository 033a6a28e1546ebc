//! What is sent: one frame, its head beside a payload that may be shared with the frames of other sockets.

use bytes::Bytes;
use tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Control, Data, OpCode},
};

/// The longest head of a frame that is not masked.
const HEAD_BYTES_MAX: usize = 10;

/// What a waiting frame costs beside its bytes: its place in the queue and its payload's bookkeeping.
const OVERHEAD_BYTES: usize = 64;

/// A whole frame on its way to a client. Cloning it copies no payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_len: u8,
    payload: Bytes,
}

impl Frame {
    pub(super) fn text(payload: Bytes) -> Frame {
        Frame::new(OpCode::Data(Data::Text), payload)
    }

    pub(super) fn binary(payload: Bytes) -> Frame {
        Frame::new(OpCode::Data(Data::Binary), payload)
    }

    pub(super) fn ping() -> Frame {
        Frame::new(OpCode::Control(Control::Ping), Bytes::new())
    }

    pub(super) fn pong(payload: Bytes) -> Frame {
        Frame::new(OpCode::Control(Control::Pong), payload)
    }

    /// A close frame; without a code, an empty one. `reason` is at most 123 bytes.
    pub(super) fn close(why: Option<(u16, &str)>) -> Frame {
        let payload = why.map_or_else(Vec::new, |(code, reason)| {
            let mut payload = code.to_be_bytes().to_vec();
            payload.extend_from_slice(reason.as_bytes());
            payload
        });
        Frame::new(OpCode::Control(Control::Close), payload.into())
    }

    /// Bytes that are no frame: the answer to the upgrade, which goes before all frames.
    pub(super) fn raw(bytes: Bytes) -> Frame {
        Frame { head: [0; HEAD_BYTES_MAX], head_len: 0, payload: bytes }
    }

    fn new(opcode: OpCode, payload: Bytes) -> Frame {
        let mut head = [0; HEAD_BYTES_MAX];
        let mut room = &mut head[..];
        // A head without a mask has at most ten bytes.
        let written =
            FrameHeader { opcode, ..FrameHeader::default() }.format(payload.len() as u64, &mut room);
        debug_assert!(written.is_ok());
        let head_len = (HEAD_BYTES_MAX - room.len()) as u8;
        Frame { head, head_len, payload }
    }

    /// Bytes on the wire.
    pub(super) fn len(&self) -> usize {
        usize::from(self.head_len) + self.payload.len()
    }

    /// Bytes it counts for while it waits.
    pub(super) fn cost(&self) -> usize {
        self.len() + OVERHEAD_BYTES
    }

    /// What is left to send when `written` bytes of it are: of the head and of the payload.
    pub(super) fn rest(&self, written: usize) -> [&[u8]; 2] {
        let head = &self.head[..usize::from(self.head_len)];
        let of_payload = written.saturating_sub(head.len());
        [&head[written.min(head.len())..], &self.payload[of_payload.min(self.payload.len())..]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(frame: &Frame) -> Vec<u8> {
        frame.rest(0).concat()
    }

    #[test]
    fn frames_are_whole_and_never_masked() {
        assert_eq!(bytes(&Frame::text(Bytes::from("hi"))), b"\x81\x02hi");
        assert_eq!(bytes(&Frame::binary(Bytes::new())), b"\x82\x00");
        assert_eq!(bytes(&Frame::ping()), b"\x89\x00");
        assert_eq!(bytes(&Frame::pong(Bytes::from("p"))), b"\x8a\x01p");
        assert_eq!(bytes(&Frame::close(None)), b"\x88\x00");
        assert_eq!(bytes(&Frame::close(Some((1000, "bye")))), b"\x88\x05\x03\xe8bye");
        assert_eq!(bytes(&Frame::raw(Bytes::from("HTTP"))), b"HTTP");
    }

    #[test]
    fn the_head_says_the_length_in_the_shortest_form() {
        for (len, head) in [
            (125, &b"\x82\x7d"[..]),
            (126, b"\x82\x7e\x00\x7e"),
            (65535, b"\x82\x7e\xff\xff"),
            (65536, b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
        ] {
            let frame = Frame::binary(vec![7; len].into());
            assert_eq!(frame.rest(0)[0], head);
            assert_eq!(frame.len(), head.len() + len);
        }
    }

    #[test]
    fn a_frame_written_in_part_goes_on_where_it_stopped() {
        let frame = Frame::text(Bytes::from("hello"));
        let whole = bytes(&frame);
        for written in 0..=whole.len() {
            assert_eq!(frame.rest(written).concat(), whole[written..], "{written}");
        }
    }
}
