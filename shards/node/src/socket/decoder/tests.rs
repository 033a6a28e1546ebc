use proptest::prelude::*;

use super::*;

const MAX: usize = 1000;
const MASK: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

/// A frame of a client: `first` is the byte with FIN, the reserved bits and the opcode.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | len as u8),
        len @ 126..65536 => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
    bytes
}

/// Everything a decoder makes of `bytes` that come in pieces of `piece`.
fn decode(bytes: &[u8], piece: usize) -> (Vec<Incoming>, Option<Breach>) {
    let mut decoder = Decoder::new(MAX);
    let mut all = Vec::new();
    for mut input in bytes.chunks(piece.max(1)) {
        loop {
            match decoder.take(&mut input) {
                Ok(Some(incoming)) => all.push(incoming),
                Ok(None) => break,
                Err(breach) => return (all, Some(breach)),
            }
        }
        assert!(input.is_empty());
    }
    (all, None)
}

fn text(text: &str) -> Incoming {
    Incoming::Message(Message::Text(text.into()))
}

#[track_caller]
fn check(frames: &[Vec<u8>], expected: &[Incoming], code: Option<u16>) {
    let bytes = frames.concat();
    for piece in [1, 2, 3, 7, bytes.len()] {
        let (all, breach) = decode(&bytes, piece);
        assert_eq!(all, expected, "in pieces of {piece}");
        assert_eq!(breach.map(|breach| breach.code), code, "in pieces of {piece}: {breach:?}");
    }
}

#[test]
fn whole_and_fragmented_messages_come_out_whole() {
    // case W3
    check(&[frame(0x81, b"hello")], &[text("hello")], None);
    check(&[frame(0x82, b"")], &[Incoming::Message(Message::Binary(vec![]))], None);
    check(&[frame(0x81, &[b'x'; 500])], &[text(&"x".repeat(500))], None);
    let fragments = [frame(0x01, b"a"), frame(0x00, b""), frame(0x00, b"b"), frame(0x80, b"c")];
    check(&fragments, &[text("abc")], None);
}

#[test]
fn a_control_frame_may_stand_between_fragments() {
    // case W3
    let frames = [frame(0x01, b"a"), frame(0x89, b"ping"), frame(0x8a, b""), frame(0x80, b"b")];
    check(&frames, &[Incoming::Ping("ping".into()), Incoming::Pong, text("ab")], None);
}

#[test]
fn a_character_may_be_split_over_fragments() {
    // case W3
    let euro = "€".as_bytes();
    check(&[frame(0x01, &euro[..1]), frame(0x00, &euro[1..2]), frame(0x80, &euro[2..])], &[text("€")], None);
}

#[test]
fn what_breaks_the_protocol_fails_the_connection() {
    // case W3
    let unmasked = vec![0x81, 0x02, b'h', b'i'];
    let mut announced = vec![0x82, 0xff];
    announced.extend((MAX as u64 + 1).to_be_bytes());
    announced.extend(MASK);
    let huge = [&[0x82, 0xff][..], &[0xff; 8], &MASK].concat();
    for (why, frames, code) in [
        ("a new text inside a message", vec![frame(0x01, b"a"), frame(0x81, b"b")], 1002),
        ("a continuation of nothing", vec![frame(0x80, b"a")], 1002),
        ("a continuation after the end", vec![frame(0x01, b"a"), frame(0x80, b"b"), frame(0x80, b"c")], 1002),
        ("a fragmented ping", vec![frame(0x09, b"a")], 1002),
        ("a ping of 126 bytes", vec![frame(0x89, &[0; 126])], 1002),
        ("a close of one byte", vec![frame(0x88, b"x")], 1002),
        ("an unmasked frame", vec![unmasked], 1002),
        ("the first reserved bit", vec![frame(0xc1, b"a")], 1002),
        ("the second reserved bit", vec![frame(0xa1, b"a")], 1002),
        ("the third reserved bit", vec![frame(0x91, b"a")], 1002),
        ("a reserved kind of data", vec![frame(0x83, b"a")], 1002),
        ("a reserved kind of control", vec![frame(0x8b, b"a")], 1002),
        ("a text that is not UTF-8", vec![frame(0x81, b"\xff")], 1007),
        ("a text that ends inside a character", vec![frame(0x81, b"\xe2\x82")], 1007),
        ("a reason that is not UTF-8", vec![frame(0x88, b"\x03\xe8\xff")], 1007),
        ("a message over the limit", vec![announced], 1009),
        ("a length of all ones", vec![huge], 1009),
        ("fragments over the limit together", vec![frame(0x02, &[0; 600]), frame(0x80, &[0; 401])], 1009),
    ] {
        let expected: Vec<Incoming> =
            if why == "a continuation after the end" { vec![text("ab")] } else { vec![] };
        let bytes = frames.concat();
        for piece in [1, bytes.len()] {
            let (all, breach) = decode(&bytes, piece);
            assert_eq!((all, breach.map(|breach| breach.code)), (expected.clone(), Some(code)), "{why}");
        }
    }
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
        check(&[frame(0x88, &code.to_be_bytes())], &[], Some(1002));
    }
}

#[test]
fn text_that_cannot_become_utf8_is_refused_before_its_end() {
    // case W3
    check(&[frame(0x01, b"ok\xff")], &[], Some(1007));
    let (_, breach) = decode(&frame(0x81, b"\xed\xa0\x80 and more")[..9], 1);
    assert_eq!(breach, Some(NOT_UTF8));
}

#[test]
fn a_close_brings_its_code_and_reason() {
    // case W2
    check(&[frame(0x88, b"")], &[Incoming::Close(None)], None);
    let reason = "r".repeat(close::REASON_BYTES_MAX);
    let payload = [&4999u16.to_be_bytes()[..], reason.as_bytes()].concat();
    check(&[frame(0x88, &payload)], &[Incoming::Close(Some((4999, reason)))], None);
}

#[test]
fn what_is_announced_and_not_sent_is_not_kept() {
    // case W4
    let mut decoder = Decoder::new(1 << 20);
    let mut head = vec![0x82, 0xff];
    head.extend((1u64 << 20).to_be_bytes());
    head.extend(MASK);
    assert_eq!(decoder.take(&mut &head[..]), Ok(None));
    assert_eq!(decoder.take(&mut &[0; 100][..]), Ok(None));
    let held = decoder.message.as_ref().map_or(0, |message| message.bytes.capacity());
    assert!(held < 1000, "{held}");
}

proptest! {
    #[test]
    fn any_message_in_any_fragments_and_pieces_comes_out_as_it_was(
        fragments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4),
        piece in 1usize..400,
    ) {
        let last = fragments.len() - 1;
        let mut bytes = Vec::new();
        for (at, fragment) in fragments.iter().enumerate() {
            let opcode = if at == 0 { 2 } else { 0 };
            bytes.extend(frame(if at == last { 0x80 } else { 0 } | opcode, fragment));
        }
        let expected = vec![Incoming::Message(Message::Binary(fragments.concat()))];
        prop_assert_eq!(decode(&bytes, piece), (expected, None));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), piece in 1usize..50) {
        decode(&bytes, piece);
    }
}
