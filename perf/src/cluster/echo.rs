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

/// This program again, as the other process, and a connection to it.
pub struct Echo {
    process: Child,
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Echo {
    /// Starts it.
    ///
    /// # Errors
    /// As the system says.
    pub fn start(sizes: Sizes) -> Result<Self> {
        let Sizes { request, answer } = sizes;
        let mut command = Command::new(env::current_exe()?);
        command.arg(format!("--echo={request},{answer}")).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let said = process.stdout.take().context("it has no output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        let stream = TcpStream::connect(line.trim().parse::<SocketAddr>()?)?;
        stream.set_nodelay(true)?;
        Ok(Self { process, stream, request: vec![1; request], answer: vec![0; answer] })
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

impl Drop for Echo {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
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
