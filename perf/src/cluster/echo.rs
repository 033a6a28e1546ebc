//! The least a forwarded request can cost: one message to another process over loopback TCP, and one back.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Bytes of a message and of its answer.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// There.
    pub request: usize,
    /// And back.
    pub answer: usize,
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
    answer: Vec<u8>,
    _processes: Vec<Process>,
}

impl Process {
    fn start(sizes: Sizes, relay_to: Option<SocketAddr>) -> Result<Self> {
        let Sizes { request, answer } = sizes;
        let mut command = Command::new(env::current_exe()?);
        command.arg(format!("--echo={request},{answer}")).stdout(Stdio::piped());
        command.args(relay_to.map(|address| format!("--relay={address}")));
        let mut child = command.spawn()?;
        let said = child.stdout.take().context("it has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }
}

impl Echo {
    /// Starts the process that answers.
    ///
    /// # Errors
    /// As the system says.
    pub fn start(sizes: Sizes) -> Result<Self> {
        Self::of(sizes, vec![Process::start(sizes, None)?])
    }

    /// The same behind a [relay](super::relay).
    ///
    /// # Errors
    /// As the system says.
    pub fn start_behind_relay(sizes: Sizes) -> Result<Self> {
        let echo = Process::start(sizes, None)?;
        let relay = Process::start(sizes, Some(echo.address))?;
        Self::of(sizes, vec![relay, echo])
    }

    /// Connected to the first.
    fn of(sizes: Sizes, processes: Vec<Process>) -> Result<Self> {
        let stream = TcpStream::connect(processes[0].address)?;
        stream.set_nodelay(true)?;
        let (request, answer) = (vec![1; sizes.request], vec![0; sizes.answer]);
        Ok(Self { stream, request, answer, _processes: processes })
    }

    /// One round trip.
    ///
    /// # Errors
    /// The other process ended.
    pub fn round_trip(&mut self) -> io::Result<Duration> {
        let began = Instant::now();
        self.stream.write_all(&self.request)?;
        self.stream.read_exact(&mut self.answer)?;
        Ok(began.elapsed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is the other process until the connection closes. Prints its address first.
///
/// # Errors
/// As the system says.
pub fn serve(sizes: Sizes) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut request, answer) = (vec![0; sizes.request], vec![2; sizes.answer]);
    while stream.read_exact(&mut request).is_ok() {
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// How many bytes a GET is as a client sends it, and its answer.
///
/// # Errors
/// The connection breaks.
pub fn sizes(address: SocketAddr, path: &str) -> Result<Sizes> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n");
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    // A short answer comes in one piece.
    let answer = stream.read(&mut [0; 4096])?;
    Ok(Sizes { request: request.len(), answer })
}
