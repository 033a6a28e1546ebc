//! The least a forwarded request can cost: one message to another process over loopback TCP, and one back.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::println;

/// Bytes read at a time. A message is shorter and comes in one piece.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096;

/// What goes there and what comes back: a GET as a client sends it, and its answer.
#[derive(Debug, Clone)]
pub struct Messages {
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// What a message passes on its way to the process that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Nothing.
    Nothing,
    /// A process that [copies](super::relay).
    Copy,
    /// One that [speaks HTTP](super::http_relay).
    Http,
}

/// This program again, as another process.
struct Process {
    child: Child,
    address: SocketAddr,
}

/// A connection to another process that answers, or to one in between.
pub struct Echo {
    stream: TcpStream,
    request: Vec<u8>,
    _processes: Vec<Process>,
}

impl Process {
    /// `input` is what it is given to read.
    fn start(arguments: &[String], input: &[u8]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().context("it has no input")?.write_all(input)?;
        let said = child.stdout.take().context("it has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }
}

impl Echo {
    /// Starts the process that answers and what is in between.
    ///
    /// # Errors
    /// As the system says.
    pub fn start(messages: &Messages, between: Between) -> Result<Self> {
        let echo = Process::start(&["--echo".into()], &messages.answer)?;
        let relay = match between {
            Between::Nothing => None,
            Between::Copy => Some(format!("--relay={}", echo.address)),
            Between::Http => Some(format!("--http-relay={}", echo.address)),
        };
        let relay = relay.map(|relay| Process::start(&[relay], &[])).transpose()?;
        let processes: Vec<_> = relay.into_iter().chain([echo]).collect();
        let stream = TcpStream::connect(processes[0].address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: messages.request.clone(), _processes: processes })
    }

    /// One round trip.
    ///
    /// # Errors
    /// The other process ended.
    pub fn round_trip(&mut self) -> io::Result<Duration> {
        let began = Instant::now();
        self.stream.write_all(&self.request)?;
        match self.stream.read(&mut [0; MESSAGE_BYTES_MAX])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(began.elapsed()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the other process until the connection closes. Reads what it is to answer, then prints its address.
///
/// # Errors
/// As the system says.
pub fn serve() -> Result<()> {
    let mut answer = Vec::new();
    io::stdin().read_to_end(&mut answer)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    while stream.read(&mut [0; MESSAGE_BYTES_MAX]).is_ok_and(|len| len > 0) {
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// A GET as a client sends it, and what a node answers.
///
/// # Errors
/// The connection breaks.
pub fn messages(address: SocketAddr, path: &str) -> Result<Messages> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n").into_bytes();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&request)?;
    let mut answer = vec![0; MESSAGE_BYTES_MAX];
    let len = stream.read(&mut answer)?;
    answer.truncate(len);
    Ok(Messages { request, answer })
}
