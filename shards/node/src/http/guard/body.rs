//! Bodies: how many of the bytes that follow a head belong to it.

use super::{TOKEN, Violation, all, bad};

/// Bytes of all trailers of one body together. Over it: 431.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Hexadecimal digits of a chunk size; more cannot be a size this server takes, leading zeros or not.
const SIZE_DIGITS_MAX: u8 = 16;

/// Trailers that would change how a message is framed, routed or trusted (RFC 9110 section 6.5.1).
const TRAILERS_FORBIDDEN: [&str; 22] = [
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "max-forwards",
    "pragma",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Names of the platform's own headers begin so; only the platform sets them.
const OWN_PREFIX: &[u8] = b"x-wasmkeep-";

/// Where in its body a request is. Bytes go through [`BodyFraming::consume`] in any pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFraming {
    /// Bytes still to come.
    Sized(u64),
    /// Chunks.
    Chunked(Chunks),
}

/// State of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    state: ChunkState,
    /// Body bytes that may still come.
    room: u64,
    /// The trailer line under way and the bytes of all of them; allocated only where there are trailers.
    trailer: Vec<u8>,
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { value: u64, digits: u8 },
    SizeNewline(u64),
    Data(u64),
    DataReturn,
    DataNewline,
    Trailer,
    End,
}

impl BodyFraming {
    /// A body of `length` bytes; none for 0.
    pub const fn sized(length: u64) -> BodyFraming {
        BodyFraming::Sized(length)
    }

    /// A chunked body of at most `room` bytes.
    pub const fn chunked(room: u64) -> BodyFraming {
        let state = ChunkState::Size { value: 0, digits: 0 };
        BodyFraming::Chunked(Chunks { state, room, trailer: Vec::new(), trailer_bytes: 0 })
    }

    /// Whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match self {
            BodyFraming::Sized(left) => *left == 0,
            BodyFraming::Chunked(chunks) => chunks.state == ChunkState::End,
        }
    }

    /// How many bytes at the start of `bytes` belong to the body; fewer than all only when it is complete.
    ///
    /// # Errors
    /// The framing is broken or the body too large.
    pub fn consume(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        match self {
            BodyFraming::Sized(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            BodyFraming::Chunked(chunks) => chunks.consume(bytes),
        }
    }
}

impl Chunks {
    fn consume(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let mut at = 0;
        while at < bytes.len() && self.state != ChunkState::End {
            if let ChunkState::Data(left) = self.state {
                let taken = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - taken as u64;
                self.state = if left == 0 { ChunkState::DataReturn } else { ChunkState::Data(left) };
                at += taken;
            } else {
                self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// One byte of framing.
    fn step(&mut self, byte: u8) -> Result<(), Violation> {
        self.state = match (self.state, byte) {
            (ChunkState::Size { value, digits: 1.. }, b'\r') => ChunkState::SizeNewline(value),
            (ChunkState::Size { value, digits }, _) => {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    b'a'..=b'f' => byte - b'a' + 10,
                    b'A'..=b'F' => byte - b'A' + 10,
                    b';' => return Err(bad("chunk extensions are not taken here")),
                    _ => return Err(bad("a chunk's size is malformed")),
                };
                if digits == SIZE_DIGITS_MAX {
                    return Err(bad("a chunk's size is too long"));
                }
                ChunkState::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (ChunkState::SizeNewline(0), b'\n') => ChunkState::Trailer,
            (ChunkState::SizeNewline(size), b'\n') => {
                let room = self.room.checked_sub(size);
                self.room = room.ok_or(Violation::new(413, "the request's body is too large"))?;
                ChunkState::Data(size)
            }
            (ChunkState::DataReturn, b'\r') => ChunkState::DataNewline,
            (ChunkState::DataNewline, b'\n') => ChunkState::Size { value: 0, digits: 0 },
            (ChunkState::Trailer, _) => return self.step_trailer(byte),
            _ => return Err(bad("a chunk does not end in CRLF")),
        };
        Ok(())
    }

    fn step_trailer(&mut self, byte: u8) -> Result<(), Violation> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Violation::new(431, "the request's trailers are too large"));
        }
        if byte != b'\n' {
            self.trailer.push(byte);
            return Ok(());
        }
        let line = self.trailer.strip_suffix(b"\r");
        let line = line.ok_or(bad("a line of the trailers does not end in CRLF"))?;
        if line.is_empty() {
            self.state = ChunkState::End;
            self.trailer = Vec::new();
            return Ok(());
        }
        check_trailer(line)?;
        self.trailer.clear();
        Ok(())
    }
}

fn check_trailer(line: &[u8]) -> Result<(), Violation> {
    let malformed = bad("a trailer is malformed");
    let colon = memchr::memchr(b':', line).ok_or(malformed)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let control = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f;
    if name.is_empty() || !all(name, &TOKEN) || value.iter().any(control) {
        return Err(malformed);
    }
    let own = name.get(..OWN_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_PREFIX));
    if own || TRAILERS_FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes())) {
        return Err(bad("a trailer has a name that is only allowed among the headers"));
    }
    Ok(())
}
