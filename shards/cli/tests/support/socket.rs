//! A WebSocket client that can also say what no proper client says.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use super::Node;

/// The mask of every frame sent; that it is known makes raw frames easy to write.
const MASK: [u8; 4] = [1, 2, 3, 4];

/// An open WebSocket.
pub struct Socket {
    stream: BufReader<TcpStream>,
    pub answer: Head,
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    pub text: String,
}

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Node {
    /// Opens a WebSocket at `path`.
    #[track_caller]
    pub fn socket(&self, path: &str) -> Socket {
        let opened = self.try_socket(path, "");
        opened.unwrap_or_else(|head| panic!("{path} was answered {head:?}\n{}", self.log()))
    }

    /// As [`Node::socket`], with more header lines; the answer's head when it is not let in.
    pub fn try_socket(&self, path: &str, headers: &str) -> Result<Socket, Head> {
        Socket::open(self.connect(), path, headers)
    }
}

impl Socket {
    /// Asks for a WebSocket on a connection that may have served requests before.
    pub fn open(stream: TcpStream, path: &str, headers: &str) -> Result<Socket, Head> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        Socket::begin(stream, request.as_bytes())
    }

    /// As [`Socket::open`], with the bytes to send.
    pub fn begin(stream: TcpStream, request: &[u8]) -> Result<Socket, Head> {
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(request).unwrap();
        let answer = read_head(&mut stream);
        if answer.status == 101 { Ok(Socket { stream, answer }) } else { Err(answer) }
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        // A node that has failed the connection may have closed it by now.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Sends a frame; `first` is its first byte: FIN, the reserved bits and the opcode.
    pub fn frame(&mut self, first: u8, payload: &[u8]) {
        self.raw(&frame(first, payload));
    }

    pub fn text(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes());
    }

    pub fn close(&mut self, code: u16, reason: &str) {
        self.frame(0x88, &[&code.to_be_bytes(), reason.as_bytes()].concat());
    }

    /// The next frame; `None` when the node has closed the connection.
    pub fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).ok()?;
        assert_eq!(head[0] & 0xf0, 0x80, "a node sends whole frames without extensions");
        let len = match head[1] {
            126 => self.length::<2>(),
            127 => self.length::<8>(),
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame { opcode: head[0] & 0x0f, payload })
    }

    /// The payload of the next message; pings before it are answered.
    #[track_caller]
    pub fn expect_message(&mut self) -> Vec<u8> {
        loop {
            match self.receive() {
                Some(Frame { opcode: 9, payload }) => self.frame(0x8a, &payload),
                Some(Frame { opcode: 1 | 2, payload }) => return payload,
                other => panic!("not a message: {other:?}"),
            }
        }
    }

    fn length<const BYTES: usize>(&mut self) -> usize {
        let mut bytes = [0; BYTES];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte))
    }

    /// The next frame, which is a text.
    #[track_caller]
    pub fn expect_text(&mut self) -> String {
        match self.receive() {
            Some(Frame { opcode: 1, payload }) => String::from_utf8(payload).unwrap(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The next frame, which is a close frame; pings before it are passed over.
    #[track_caller]
    pub fn expect_close(&mut self) -> (u16, String) {
        loop {
            match self.receive() {
                Some(Frame { opcode: 9, .. }) => {}
                Some(Frame { opcode: 8, payload }) if payload.is_empty() => return (1005, String::new()),
                Some(Frame { opcode: 8, payload }) => {
                    let code = u16::from_be_bytes([payload[0], payload[1]]);
                    return (code, String::from_utf8(payload[2..].to_vec()).unwrap());
                }
                other => panic!("not a close frame: {other:?}"),
            }
        }
    }

    /// Waits for the end of the connection.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let next = self.receive();
        assert_eq!(next, None);
    }

    pub fn set_read_timeout(&self, timeout: Duration) {
        self.stream.get_ref().set_read_timeout(Some(timeout)).unwrap();
    }

    pub fn shutdown(&self) {
        self.stream.get_ref().shutdown(Shutdown::Both).unwrap();
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        let linger = rustix::net::sockopt::set_socket_linger(self.stream.get_ref(), Some(Duration::ZERO));
        linger.unwrap();
    }

    pub fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// A frame as a client sends it.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
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

fn read_head(stream: &mut BufReader<TcpStream>) -> Head {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let read = stream.read_line(&mut text).unwrap();
        assert!(read > 0, "the connection ended in a head: {text:?}");
    }
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    Head { status, text }
}
