//! What an idle WebSocket costs: opens one at each of many actors, waits until all of them hibernate, and divides
//! what the node's memory grew by.
//!
//! Everything a socket brings with it counts: its task, its place in the registry, the name of its actor. What
//! the kernel keeps for a connection does not.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use wasmkeep_perf::{
    http::Connection,
    machine, println, process,
    server::{Server, free_address},
};

/// What a socket may cost, in bytes.
const PER_SOCKET_BYTES_MAX: f64 = 8192.0;

/// Sockets opened and closed before the first look, so that what any number of them needs is there.
const WARM_UP: usize = 300;

/// Time for actors to hibernate.
const HIBERNATE_MAX: Duration = Duration::from_secs(60);

/// Time for the allocator to give back what is free.
const SETTLE: Duration = Duration::from_secs(4);

/// Seconds of silence after which the node pings; clients here answer none.
const PING_SECONDS: u32 = 3600;

/// Measures the memory of idle WebSockets on hibernated actors.
#[derive(Debug, Parser)]
struct Flags {
    /// The node's binary.
    #[arg(long, value_name = "FILE")]
    wasmkeep: PathBuf,

    /// Folder with the sample components.
    #[arg(long, value_name = "DIR")]
    guests: PathBuf,

    /// Sockets, one at each actor.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    sockets: u32,

    /// Folder for the data directory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    data_dir: PathBuf,
}

fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let folder = tempfile::Builder::new().prefix("wasmkeep-idle-sockets-").tempdir_in(&flags.data_dir)?;
    let count = flags.sockets as usize;
    let server = start(&flags, &folder.path().join("data"), &folder.path().join("log"))?;

    drop(open(server.address(), "warm", WARM_UP)?);
    let before = idle_memory(&server, 0)?;
    let began = Instant::now();
    let sockets = open(server.address(), "idle", count)?;
    let opening = began.elapsed();
    let after = idle_memory(&server, count)?;
    drop(sockets);
    let closed = idle_memory(&server, 0)?;

    let per_socket = after.saturating_sub(before) as f64 / count as f64;
    println!("machine: {}", machine::describe());
    println!("load average: {:.2}", process::load_average()?);
    println!("node: {}", machine::version_of(&flags.wasmkeep, "--version")?);
    println!(
        "{count} sockets opened in {:.1} s, one at each actor, every actor hibernated",
        opening.as_secs_f64()
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "resident: {:.1} MiB before, {:.1} MiB with them, {:.1} MiB after",
        mib(before),
        mib(after),
        mib(closed)
    );
    let held = per_socket < PER_SOCKET_BYTES_MAX;
    println!("bytes for each socket: {per_socket:.0}");
    println!("under {PER_SOCKET_BYTES_MAX} bytes: {}", if held { "yes" } else { "NO" });
    server.stop()?;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(flags: &Flags, data_dir: &std::path::Path, log: &std::path::Path) -> Result<Server> {
    let address = free_address()?;
    let guest = flags.guests.join("sockets.wasm");
    let guest = fs::canonicalize(&guest).with_context(|| format!("{guest:?}"))?;
    let mut command = Command::new(&flags.wasmkeep);
    command.arg("serve").arg(format!("--listen={address}"));
    command.arg("--data-dir").arg(data_dir);
    command.arg(format!("--actor=sockets={}", guest.display()));
    command.arg(format!("--max-connections={}", flags.sockets + 100));
    command.arg(format!("--websocket-ping-secs={PING_SECONDS}"));
    // Few at a time: what an actor in memory costs is another measurement.
    command.args(["--max-resident=200", "--hibernate-after-secs=1", "--overprovisioned"]);
    Server::start(command, address, log)
}

fn open(address: SocketAddr, prefix: &str, count: usize) -> Result<Vec<TcpStream>> {
    (0..count)
        .map(|number| {
            upgrade(address, &format!("/actor/sockets/{prefix}-{number}"))
                .with_context(|| format!("socket {number} of {count}; is the open-file limit high enough?"))
        })
        .collect()
}

fn upgrade(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut bytes = [0; 512];
        match stream.read(&mut bytes)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            len => head.extend_from_slice(&bytes[..len]),
        }
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    ensure!(line.starts_with("HTTP/1.1 101"), "the upgrade was answered {line:?}");
    Ok(stream)
}

/// The node's memory once `sockets` are open and no actor is resident.
fn idle_memory(server: &Server, sockets: usize) -> Result<u64> {
    let deadline = Instant::now() + HIBERNATE_MAX;
    loop {
        let text =
            Connection::open(server.address(), HIBERNATE_MAX)?.ask("GET", "/_wasmkeep/metrics", b"")?.text();
        let (open, resident) =
            (gauge(&text, "wasmkeep_websockets"), gauge(&text, "wasmkeep_actors_resident"));
        if open == sockets as f64 && resident == 0.0 {
            break;
        }
        if Instant::now() > deadline {
            bail!(
                "{open} sockets are open and {resident} actors resident, not {sockets} and 0:\n{}",
                server.log_end()
            );
        }
        thread::sleep(Duration::from_millis(500));
    }
    thread::sleep(SETTLE);
    Ok(process::memory(server.pid())?.resident_bytes)
}

/// The sum of a gauge over the shards.
fn gauge(metrics: &str, name: &str) -> f64 {
    let lines =
        metrics.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with('{'));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
