//! Heads: finding the end of one in bytes as they arrive, and judging it once it is whole.

use super::{BodyFraming, HOST, Limits, TARGET, TOKEN, Violation, all, bad};
use std::ops::Range;

/// Longest method, in bytes. The longest registered one (UPDATEREDIRECTREF) has 17.
const METHOD_BYTES_MAX: usize = 32;

/// A request head that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, the empty line included.
    pub len: usize,
    /// Where in those bytes the target's path is: from its first `/` to before `?`. `*` for `OPTIONS *`.
    pub path: Range<usize>,
    /// Where the digit is of a minor version above 1, which is taken as 1 (RFC 9110 section 2.5): the parser behind the
    /// guard knows only the two, so whoever passes the head on puts `1` there.
    pub newer_minor_at: Option<usize>,
    /// How the body that follows is framed.
    pub framing: BodyFraming,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the client asks for a WebSocket.
    pub wants_websocket: bool,
}

/// Looks for the end of a head in a buffer that grows at its end; each byte is looked at once.
#[derive(Debug, Default, Clone, Copy)]
pub struct HeadScan {
    /// Bytes already scanned.
    at: usize,
    /// Where the current line begins.
    line: usize,
    /// The first bytes were judged.
    begun: bool,
    /// The one empty line that may come before a request line has come.
    has_skipped: bool,
}

impl HeadScan {
    /// How many bytes at the start of `buffer` are an empty line before the request line, which means nothing: some
    /// clients send one after a body (RFC 9112 section 2.2). Whoever reads drops them and goes on with what follows.
    /// Once before each request; another empty line is no request line.
    pub fn skip_empty_line(&mut self, buffer: &[u8]) -> usize {
        if self.has_skipped || !buffer.starts_with(b"\r\n") {
            return 0;
        }
        self.has_skipped = true;
        2
    }

    /// The length of the head at the start of `buffer` once it is whole; `None` while it is not. `buffer` must
    /// begin with the bytes of the last call, without what [`HeadScan::skip_empty_line`] found.
    ///
    /// # Errors
    /// What cannot become a head whatever follows: garbage instead of a method, a line that does not end in
    /// CRLF, too many bytes.
    pub fn advance(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, Violation> {
        if buffer == b"\r" && !self.has_skipped {
            // Half of an empty line.
            return Ok(None);
        }
        if !self.begun {
            // A TLS hello or other garbage may never send a newline: it is refused by its first bytes.
            let method = buffer.iter().take(METHOD_BYTES_MAX + 1).take_while(|byte| **byte != b' ');
            if !method.clone().all(|byte| TOKEN[*byte as usize]) || method.count() > METHOD_BYTES_MAX {
                return Err(bad("the request does not begin with a method"));
            }
            self.begun = buffer.len() > METHOD_BYTES_MAX || buffer.contains(&b' ');
        }
        while let Some(found) = memchr::memchr(b'\n', &buffer[self.at..]) {
            let newline = self.at + found;
            if newline >= limits.head_bytes_max {
                break;
            }
            if newline == self.line || buffer[newline - 1] != b'\r' {
                return Err(bad("a line of the head does not end in CRLF"));
            }
            if newline - 1 == self.line {
                return Ok(Some(newline + 1));
            }
            self.at = newline + 1;
            self.line = newline + 1;
        }
        if buffer.len() >= limits.head_bytes_max {
            return Err(Violation::new(431, "the request's head is too large"));
        }
        self.at = buffer.len();
        Ok(None)
    }
}

/// Judges a whole head, as found by [`HeadScan`].
///
/// # Errors
/// The first rule it breaks.
pub fn parse_head(head: &[u8], limits: &Limits) -> Result<Head, Violation> {
    let mut lines = Lines { head, at: 0 };
    let request = Request::parse(head, lines.next().unwrap_or_default())?;
    let mut fields = Fields::default();
    let mut count = 0;
    for line in lines {
        count += 1;
        if count > limits.headers_max {
            return Err(Violation::new(431, "the request has too many headers"));
        }
        let (name, value) = parse_field(&head[line])?;
        fields.take(name, value)?;
    }
    fields.judge(head, request, limits)
}

/// Lines of a head as ranges, without their CRLF, up to the empty one.
struct Lines<'a> {
    head: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let newline = self.at + memchr::memchr(b'\n', &self.head[self.at..])?;
        let line = self.at..newline.saturating_sub(1);
        self.at = newline + 1;
        (!line.is_empty()).then_some(line)
    }
}

#[derive(Debug)]
struct Request {
    path: Range<usize>,
    minor: u8,
    newer_minor_at: Option<usize>,
}

impl Request {
    fn parse(head: &[u8], line: Range<usize>) -> Result<Request, Violation> {
        let bytes = &head[line.clone()];
        let malformed = bad("the request line is malformed");
        let first = memchr::memchr(b' ', bytes).ok_or(malformed)?;
        let last = memchr::memrchr(b' ', bytes).ok_or(malformed)?;
        let method = &bytes[..first];
        if method.is_empty() || method.len() > METHOD_BYTES_MAX || !all(method, &TOKEN) || first == last {
            return Err(malformed);
        }
        let minor = parse_version(method, &bytes[last + 1..])?;
        let target = line.start + first + 1..line.start + last;
        let path = parse_target(head, target, method)?;
        // The version ends the line.
        Ok(Request { path, minor: minor.min(1), newer_minor_at: (minor > 1).then(|| line.end - 1) })
    }
}

fn parse_version(method: &[u8], version: &[u8]) -> Result<u8, Violation> {
    match version {
        b"HTTP/1.1" => Ok(1),
        b"HTTP/1.0" => Ok(0),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor.is_ascii_digit() => Ok(minor - b'0'),
        b"HTTP/2.0" if method == b"PRI" => Err(bad("HTTP/2 is not spoken on this port")),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Violation::new(505, "only HTTP/1 is spoken here"))
        }
        _ => Err(bad("the request line does not end in an HTTP version")),
    }
}

/// Where the path is. The host of a target in absolute form counts, whatever the Host says (RFC 9112 section 3.2.2);
/// whoever hands the request on sees to that.
fn parse_target(head: &[u8], target: Range<usize>, method: &[u8]) -> Result<Range<usize>, Violation> {
    let bytes = &head[target.clone()];
    if bytes.is_empty() || !all(bytes, &TARGET) {
        return Err(bad("the request target has a character that must be percent-encoded"));
    }
    if method == b"CONNECT" {
        return Err(bad("CONNECT is not served here"));
    }
    if bytes == b"*" && method == b"OPTIONS" {
        return Ok(target);
    }
    let path_start = if bytes[0] == b'/' {
        0
    } else {
        let scheme_end = memchr::memmem::find(bytes, b"://")
            .filter(|end| {
                [&b"http"[..], b"https"].iter().any(|scheme| bytes[..*end].eq_ignore_ascii_case(scheme))
            })
            .ok_or(bad("the request target is neither a path nor an http URI"))?;
        let start = scheme_end + 3;
        let len = bytes[start..].iter().position(|byte| matches!(byte, b'/' | b'?'));
        let end = len.map_or(bytes.len(), |len| start + len);
        if start == end || !all(&bytes[start..end], &HOST) {
            return Err(bad("the request target's host is malformed"));
        }
        end
    };
    let path_end = memchr::memchr(b'?', &bytes[path_start..]).map_or(bytes.len(), |len| path_start + len);
    Ok(target.start + path_start..target.start + path_end)
}

/// Name and value of a header line.
fn parse_field(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if matches!(line[0], b' ' | b'\t') {
        return Err(bad("a header is folded over several lines"));
    }
    let colon = memchr::memchr(b':', line).ok_or(bad("a header has no colon"))?;
    let name = &line[..colon];
    if name.is_empty() || !all(name, &TOKEN) {
        return Err(bad("a header's name has a character that is not allowed there"));
    }
    let value = &line[colon + 1..];
    if value.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f) {
        return Err(bad("a header's value has a control character"));
    }
    Ok((name, trim(value)))
}

fn trim(value: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// What the headers that decide framing said.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
    chunked: bool,
    expect: Option<&'a [u8]>,
    wants_websocket: bool,
}

impl<'a> Fields<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Violation> {
        // By length first: most headers are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.replace(value).is_some() {
                    return Err(bad("the request has more than one Host"));
                }
                if !all(value, &HOST) {
                    return Err(bad("the request's Host is malformed"));
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") && self.expect.replace(value).is_some() => {
                return Err(Violation::new(417, "the request has more than one Expect"));
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                let mut protocols = value.split(|byte| *byte == b',');
                self.wants_websocket |= protocols.any(|one| trim(one).eq_ignore_ascii_case(b"websocket"));
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_decimal(value).ok_or(bad("the Content-Length is not one plain number"))?;
                if self.content_length.replace(length).is_some() {
                    return Err(bad("the request has more than one Content-Length"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked {
                    return Err(bad("the request has more than one Transfer-Encoding"));
                }
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("the only transfer encoding taken here is chunked"));
                }
                self.chunked = true;
            }
            _ => (),
        }
        Ok(())
    }

    fn judge(self, head: &[u8], request: Request, limits: &Limits) -> Result<Head, Violation> {
        if request.minor == 1 && self.host.is_none() {
            return Err(bad("the request has no Host"));
        }
        let framing = match (self.chunked, self.content_length) {
            (true, Some(_)) => {
                return Err(bad("the request has both Content-Length and Transfer-Encoding"));
            }
            (true, None) if request.minor == 0 => {
                return Err(bad("HTTP/1.0 has no transfer encodings"));
            }
            (true, None) => BodyFraming::chunked(limits.body_bytes_max),
            (false, Some(length)) if length > limits.body_bytes_max => {
                return Err(Violation::new(413, "the request's body is too large"));
            }
            (false, length) => BodyFraming::sized(length.unwrap_or(0)),
        };
        // HTTP/1.0 has no expectations: the header means nothing there.
        let expect = self.expect.filter(|_| request.minor == 1);
        if expect.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
            return Err(Violation::new(417, "the only expectation met here is 100-continue"));
        }
        Ok(Head {
            len: head.len(),
            path: request.path,
            newer_minor_at: request.newer_minor_at,
            framing,
            expects_continue: expect.is_some(),
            wants_websocket: self.wants_websocket,
        })
    }
}

/// Digits only, and only what fits.
fn parse_decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
