//! Bodies: how many of the bytes that follow a head belong to it.

use super::{TOKEN, Violation, all, bad};

/// Bytes of all trailers of one body together. Over it: 431.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Bytes of all chunk extensions of one body together, which are read past (RFC 9112 section 7.1.1). Over it: 431.
/// Below what the parser behind the guard takes (16 KiB).
const EXTENSION_BYTES_MAX: usize = 4 << 10;

/// Hexadecimal digits of a chunk size; more cannot be a size this server takes, leading zeros or not.
const SIZE_DIGITS_MAX: u8 = 16;

/// Trailers that would change how a message is framed, routed or trusted (RFC 9110 section 6.5.1).
const TRAILERS_FORBIDDEN: [&str; 23] = [
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
    "http2-settings",
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
    extension_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size {
        value: u64,
        digits: u8,
    },
    /// Blanks behind the size, before the `;` of an extension.
    ExtensionStart(u64),
    Extension(u64),
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
        BodyFraming::Chunked(Chunks {
            state,
            room,
            trailer: Vec::new(),
            trailer_bytes: 0,
            extension_bytes: 0,
        })
    }

    /// Whether the body is complete.
    pub fn is_complete(&self) -> bool {
        match self {
            BodyFraming::Sized(left) => *left == 0,
            BodyFraming::Chunked(chunks) => chunks.state == ChunkState::End,
        }
    }

    /// Whether `bytes`, which come next, hold the rest of the body. Where they break a rule that is for whoever takes
    /// them to find.
    pub fn would_complete(&self, bytes: &[u8]) -> bool {
        match self {
            BodyFraming::Sized(left) => bytes.len() as u64 >= *left,
            BodyFraming::Chunked(_) => {
                let mut ahead = self.clone();
                ahead.consume(bytes).is_err() || ahead.is_complete()
            }
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
            (ChunkState::Size { value, digits: 1.. }, b' ' | b'\t') => ChunkState::ExtensionStart(value),
            (ChunkState::Size { value, digits: 1.. }, b';') => ChunkState::Extension(value),
            (ChunkState::ExtensionStart(_) | ChunkState::Extension(_), _) => {
                return self.step_extension(byte);
            }
            (ChunkState::Size { value, digits }, _) => {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    b'a'..=b'f' => byte - b'a' + 10,
                    b'A'..=b'F' => byte - b'A' + 10,
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

    /// An extension is not looked at: only that its line ends where every parser sees it end.
    fn step_extension(&mut self, byte: u8) -> Result<(), Violation> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(Violation::new(431, "the extensions of the request's chunks are too large"));
        }
        self.state = match (self.state, byte) {
            (ChunkState::ExtensionStart(size), b' ' | b'\t') => ChunkState::ExtensionStart(size),
            (ChunkState::ExtensionStart(size), b';') => ChunkState::Extension(size),
            (ChunkState::Extension(size), b'\r') => ChunkState::SizeNewline(size),
            (ChunkState::Extension(size), b'\t' | 0x20..=0x7e | 0x80..) => ChunkState::Extension(size),
            _ => return Err(bad("a chunk's extension is malformed")),
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
