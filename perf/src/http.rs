//! A blocking HTTP/1.1 client of one kept-alive connection.
//!
//! Small on purpose: between the clock readings of a latency there is one write, the reads, and a parse. It
//! follows no redirect and sends nothing twice.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Headers of one answer; servers here send about ten.
const HEADERS_MAX: usize = 64;

/// Bytes of one answer. What the samples say is far shorter; more is not what was asked for.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How many bytes one read asks for.
const READ_BYTES: usize = 16 << 10;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its whole body.
    pub body: Vec<u8>,
    /// Whether it says that trying again may help.
    pub retry_after: bool,
    /// The node that gave it, if it says so.
    pub node: Option<String>,
}

impl Answer {
    /// The body as text, without white space around it.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

/// A kept-alive connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    authority: SocketAddr,
    /// What was read and not yet used.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects; connecting, one read and one write may each take `patience`.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream, authority: address, buffer: Vec::new() })
    }

    /// Sends one request and reads its whole answer. After an error the connection must not be used again.
    ///
    /// # Errors
    /// A lost or silent connection, and an answer that is not HTTP/1.1 with a length or in chunks.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n",
            self.authority,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request)?;
        let head = self.head()?;
        let body = match head.length {
            Length::Bytes(bytes) => self.take(bytes)?,
            Length::Chunks => self.chunks()?,
        };
        Ok(Answer { status: head.status, body, retry_after: head.retry_after, node: head.node })
    }

    fn head(&mut self) -> io::Result<Head> {
        loop {
            let parsed = parse_head(&self.buffer)?;
            if let Some((head, bytes)) = parsed {
                self.buffer.drain(..bytes);
                return Ok(head);
            }
            self.read_more()?;
        }
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let (start, bytes) = loop {
                match httparse::parse_chunk_size(&self.buffer).map_err(|_| wrong("a chunk without a size"))? {
                    httparse::Status::Complete((start, bytes)) => break (start, bytes),
                    httparse::Status::Partial => self.read_more()?,
                }
            };
            self.buffer.drain(..start);
            let bytes = usize::try_from(bytes).map_err(|_| wrong("a huge chunk"))?;
            // Trailers are not read: an answer of a server here has none.
            let mut chunk = self.take(bytes.checked_add(2).ok_or_else(|| wrong("a huge chunk"))?)?;
            if !chunk.ends_with(b"\r\n") {
                return Err(wrong("a chunk longer than its size"));
            }
            if bytes == 0 {
                return Ok(body);
            }
            chunk.truncate(bytes);
            body.append(&mut chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(wrong("a body that does not end"));
            }
        }
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > ANSWER_BYTES_MAX {
            return Err(wrong("a huge body"));
        }
        while self.buffer.len() < bytes {
            self.read_more()?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[filled..]);
        self.buffer.truncate(filled + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug)]
struct Head {
    status: u16,
    length: Length,
    retry_after: bool,
    node: Option<String>,
}

#[derive(Debug)]
enum Length {
    Bytes(usize),
    Chunks,
}

/// The head at the start of `buffer` and its length in bytes; `None` while it is incomplete.
fn parse_head(buffer: &[u8]) -> io::Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let status = response.parse(buffer).map_err(|error| wrong(&error.to_string()))?;
    let httparse::Status::Complete(bytes) = status else { return Ok(None) };
    let (mut length, mut retry_after, mut node) = (None, false, None);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).ok();
            let value = text.and_then(|text| text.trim().parse().ok());
            length = Some(Length::Bytes(value.ok_or_else(|| wrong("a content-length that is no number"))?));
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            length = Some(Length::Chunks);
        } else if header.name.eq_ignore_ascii_case("retry-after") {
            retry_after = true;
        } else if header.name.eq_ignore_ascii_case("x-wasmkeep-node") {
            node = Some(String::from_utf8_lossy(header.value).into_owned());
        }
    }
    let status = response.code.ok_or_else(|| wrong("a head without a status"))?;
    // These two have no body and say nothing of its length (RFC 9112 section 6.3).
    let length = if matches!(status, 204 | 304) { Some(Length::Bytes(0)) } else { length };
    let length = length.ok_or_else(|| wrong("neither a length nor chunks"))?;
    Ok(Some((Head { status, length, retry_after, node }, bytes)))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer has {what}"))
}

#[cfg(test)]
mod tests;
