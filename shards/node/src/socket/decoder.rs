//! What is received: bytes of a client in, whole messages and control frames out. Pure.
//!
//! Owns every rule of RFC 6455 on frames from a client, and holds of a message only what has arrived: a client
//! that announces much and sends nothing costs nothing.

use std::{io::Cursor, mem};

use bytes::Bytes;
use tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Control, Data, OpCode},
};
use wasmkeep_host::Message;
use wasmkeep_protocol::close;

/// The longest head of a frame: two bytes, eight of length, four of mask.
const HEAD_BYTES_MAX: usize = 14;

/// Payload of a control frame (RFC 6455 section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// Something whole that a client sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    Message(Message),
    Ping(Bytes),
    Pong,
    /// With the code and the reason, if the client gave any.
    Close(Option<(u16, String)>),
}

/// A rule the client broke. Nothing after it can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breach {
    pub(super) code: u16,
    pub(super) reason: &'static str,
}

const fn protocol(reason: &'static str) -> Breach {
    Breach { code: close::PROTOCOL_ERROR, reason }
}

const NOT_UTF8: Breach = Breach { code: close::NOT_UTF8, reason: "the text is not UTF-8" };

const TOO_LARGE: Breach = Breach { code: close::TOO_LARGE, reason: "the message is too large" };

/// One client's frames, as far as they have come.
#[derive(Debug)]
pub(super) struct Decoder {
    message_bytes_max: usize,
    /// The beginning of a head that is not whole.
    head: [u8; HEAD_BYTES_MAX],
    head_len: u8,
    frame: Option<Open>,
    message: Option<Partial>,
    /// Payload of a control frame that is not whole.
    control: Vec<u8>,
}

/// A frame whose payload is arriving.
#[derive(Debug)]
struct Open {
    kind: Kind,
    is_final: bool,
    mask: [u8; 4],
    len: usize,
    arrived: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Ping,
    Pong,
    Close,
}

/// A message whose last frame has not ended.
#[derive(Debug)]
struct Partial {
    is_text: bool,
    bytes: Vec<u8>,
    /// How many of them are known to be whole characters; of a text only.
    checked: usize,
}

impl Decoder {
    pub(super) fn new(message_bytes_max: usize) -> Decoder {
        Decoder {
            message_bytes_max,
            head: [0; HEAD_BYTES_MAX],
            head_len: 0,
            frame: None,
            message: None,
            control: Vec::new(),
        }
    }

    /// Takes bytes from the front of `input` until something is whole or `input` is used up.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Result<Option<Incoming>, Breach> {
        loop {
            let Some(frame) = &mut self.frame else {
                if !self.take_head(input)? {
                    return Ok(None);
                }
                continue;
            };
            let len = (frame.len - frame.arrived).min(input.len());
            let (now, later) = input.split_at(len);
            *input = later;
            let into = match (&frame.kind, &mut self.message) {
                (Kind::Data, Some(message)) => &mut message.bytes,
                _ => &mut self.control,
            };
            let begin = into.len();
            into.extend_from_slice(now);
            unmask(&mut into[begin..], frame.mask, frame.arrived);
            frame.arrived += len;
            let (kind, is_final, whole) = (frame.kind, frame.is_final, frame.arrived == frame.len);
            if kind == Kind::Data
                && let Some(message) = &mut self.message
            {
                message.check(whole && is_final)?;
            }
            if !whole {
                return Ok(None);
            }
            self.frame = None;
            match kind {
                Kind::Data if !is_final => {}
                Kind::Data => return self.end_message(),
                Kind::Ping => return Ok(Some(Incoming::Ping(mem::take(&mut self.control).into()))),
                Kind::Pong => {
                    self.control = Vec::new();
                    return Ok(Some(Incoming::Pong));
                }
                Kind::Close => return close_of(&mem::take(&mut self.control)).map(Some),
            }
        }
    }

    /// Reads a head; false when it is not whole yet.
    fn take_head(&mut self, input: &mut &[u8]) -> Result<bool, Breach> {
        let held = usize::from(self.head_len);
        let len = (HEAD_BYTES_MAX - held).min(input.len());
        self.head[held..held + len].copy_from_slice(&input[..len]);
        let mut cursor = Cursor::new(&self.head[..held + len]);
        let parsed =
            FrameHeader::parse(&mut cursor).map_err(|_| protocol("a frame of a kind that does not exist"))?;
        let Some((header, payload_len)) = parsed else {
            self.head_len = (held + len) as u8;
            *input = &input[len..];
            return Ok(false);
        };
        // At least as many as were held: those did not make a head.
        *input = &input[cursor.position() as usize - held..];
        self.head_len = 0;
        self.begin(&header, payload_len)?;
        Ok(true)
    }

    /// Judges a head before anything of its payload is kept.
    fn begin(&mut self, header: &FrameHeader, payload_len: u64) -> Result<(), Breach> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(protocol("a reserved bit is set"));
        }
        let mask = header.mask.ok_or(protocol("a frame of a client is not masked"))?;
        let kind = match header.opcode {
            OpCode::Data(data) => {
                self.begin_data(data)?;
                Kind::Data
            }
            OpCode::Control(Control::Ping) => Kind::Ping,
            OpCode::Control(Control::Pong) => Kind::Pong,
            OpCode::Control(Control::Close) => Kind::Close,
            OpCode::Control(Control::Reserved(_)) => return Err(protocol("a reserved kind of frame")),
        };
        if kind == Kind::Data {
            let before = self.message.as_ref().map_or(0, |message| message.bytes.len());
            if payload_len > (self.message_bytes_max - before) as u64 {
                return Err(TOO_LARGE);
            }
        } else if !header.is_final {
            return Err(protocol("a control frame is fragmented"));
        } else if payload_len > CONTROL_BYTES_MAX {
            return Err(protocol("a control frame is longer than 125 bytes"));
        }
        self.frame =
            Some(Open { kind, is_final: header.is_final, mask, len: payload_len as usize, arrived: 0 });
        Ok(())
    }

    fn begin_data(&mut self, data: Data) -> Result<(), Breach> {
        let is_text = match (data, &self.message) {
            (Data::Continue, Some(_)) => return Ok(()),
            (Data::Continue, None) => return Err(protocol("a continuation of nothing")),
            (Data::Text | Data::Binary, Some(_)) => {
                return Err(protocol("a new message inside a fragmented one"));
            }
            (Data::Text, None) => true,
            (Data::Binary, None) => false,
            (Data::Reserved(_), _) => return Err(protocol("a reserved kind of frame")),
        };
        self.message = Some(Partial { is_text, bytes: Vec::new(), checked: 0 });
        Ok(())
    }

    fn end_message(&mut self) -> Result<Option<Incoming>, Breach> {
        let Some(Partial { is_text, bytes, .. }) = self.message.take() else { return Ok(None) };
        let message = if is_text {
            Message::Text(String::from_utf8(bytes).map_err(|_| NOT_UTF8)?)
        } else {
            Message::Binary(bytes)
        };
        Ok(Some(Incoming::Message(message)))
    }
}

impl Partial {
    /// Refuses a text as soon as it cannot become one. At its end the whole is looked at anyway.
    fn check(&mut self, is_end: bool) -> Result<(), Breach> {
        if !self.is_text || is_end {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(_) => self.checked = self.bytes.len(),
            // The last character is not whole.
            Err(error) if error.error_len().is_none() => self.checked += error.valid_up_to(),
            Err(_) => return Err(NOT_UTF8),
        }
        Ok(())
    }
}

fn close_of(payload: &[u8]) -> Result<Incoming, Breach> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(Incoming::Close(None))
        } else {
            Err(protocol("a close frame of one byte"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !close::may_come_from_client(code) {
        return Err(protocol("a close code that may not be sent"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| NOT_UTF8)?;
    Ok(Incoming::Close(Some((code, reason.to_owned()))))
}

/// Takes the mask off a piece of a payload that begins `offset` bytes into it.
fn unmask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut key = mask;
    key.rotate_left(offset % 4);
    let word = u32::from_ne_bytes(key);
    let (words, rest) = bytes.as_chunks_mut::<4>();
    for four in words {
        *four = (u32::from_ne_bytes(*four) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests;
