//! A TCP relay between two programs that can be told what gets through, and from whom.
//!
//! Passes bytes and knows nothing of what they mean. What is held back is not lost: it goes on when the way is open
//! again, as after a partition of a real network.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

/// How often a connection that is held back looks whether it may go on.
const LOOK: Duration = Duration::from_millis(20);

/// How many bytes one read asks for.
const READ_BYTES: usize = 64 << 10;

/// What gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// Everything.
    #[default]
    Open,
    /// Nothing: connections are ended, new ones at once.
    Refused,
    /// Nothing, and nobody is told: connections are made and stay, and are silent both ways.
    Silent,
    /// What the client sends, and none of the answers.
    Deaf,
}

impl Way {
    fn holds(self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self == Self::Silent,
            Direction::ToClient => matches!(self, Self::Silent | Self::Deaf),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

/// The way from one program to a server. It may be set at any time and holds for open connections, too.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<Way>>);

impl Gate {
    /// From here on.
    pub fn set(&self, way: Way) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    fn way(&self) -> Way {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which gate a connection goes through, by the address it comes from; `None`: nobody's, and it is ended.
pub type Gatekeeper = Arc<dyn Fn(SocketAddr) -> Option<Gate> + Send + Sync>;

/// Relays connections to `server`, as long as the program runs; where it listens.
///
/// # Errors
/// No port is free.
pub fn relay(server: SocketAddr, gatekeeper: Gatekeeper) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let gatekeeper = Arc::clone(&gatekeeper);
            // A connection that breaks is nobody's fault.
            thread::spawn(move || drop(serve(&client, server, &*gatekeeper)));
        }
    });
    Ok(address)
}

fn serve(
    client: &TcpStream,
    server: SocketAddr,
    gatekeeper: &dyn Fn(SocketAddr) -> Option<Gate>,
) -> Result<()> {
    let gate = gatekeeper(client.peer_addr()?).context("nobody's connection")?;
    if gate.way() == Way::Refused {
        return Ok(());
    }
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pump(client, &server, &gate, Direction::ToServer);
            let _ = server.shutdown(Shutdown::Write);
        });
        scope.spawn(|| {
            pump(&server, client, &gate, Direction::ToClient);
            // A server that has said all ends the connection.
            ended.store(true, Ordering::Relaxed);
            end(client, &server);
        });
        while !ended.load(Ordering::Relaxed) {
            if gate.way() == Way::Refused {
                end(client, &server);
            }
            thread::sleep(LOOK);
        }
    });
    Ok(())
}

/// It may have ended already.
fn end(client: &TcpStream, server: &TcpStream) {
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, gate: &Gate, direction: Direction) {
    let mut bytes = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        while gate.way().holds(direction) {
            thread::sleep(LOOK);
        }
        if to.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

/// Whether a process has the socket that is bound to `address` and connected to somebody, as the system says.
#[must_use]
pub fn has_socket(pid: u32, address: SocketAddr) -> bool {
    let Some(inode) = inode_of(address) else { return false };
    let link = format!("socket:[{inode}]");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
        .any(|target| target.as_os_str() == link.as_str())
}

/// The inode of the socket with this local address, from the kernel's table (proc_pid_net(5)).
fn inode_of(address: SocketAddr) -> Option<u64> {
    let SocketAddr::V4(address) = address else { return None };
    let ip = u32::from_ne_bytes(address.ip().octets());
    let local = format!("{ip:08X}:{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let row = table.lines().find(|line| line.split_whitespace().nth(1) == Some(local.as_str()))?;
    row.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{io::ErrorKind, process};

    use super::*;

    /// A server that sends back what it gets, and a way to it.
    fn echo() -> (SocketAddr, Gate) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        let gate = Gate::default();
        let of_all = gate.clone();
        (relay(server, Arc::new(move |_| Some(of_all.clone()))).unwrap(), gate)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream
    }

    fn said(mut stream: &TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text)?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn what_is_held_back_goes_on_later() {
        for way in [Way::Silent, Way::Deaf] {
            let (address, gate) = echo();
            let stream = connect(address);
            assert_eq!(said(&stream, b"one").unwrap(), b"one");
            gate.set(way);
            assert_eq!(said(&stream, b"two").unwrap_err().kind(), ErrorKind::WouldBlock, "{way:?}");
            gate.set(Way::Open);
            let mut late = [0; 3];
            (&stream).read_exact(&mut late).unwrap();
            assert_eq!(&late, b"two", "{way:?}");
        }
    }

    #[test]
    fn a_refused_way_ends_connections() {
        let (address, gate) = echo();
        let stream = connect(address);
        assert_eq!(said(&stream, b"one").unwrap(), b"one");
        gate.set(Way::Refused);
        assert_eq!((&stream).read(&mut [0; 1]).unwrap(), 0);
        assert!(said(&connect(address), b"two").is_err());
        gate.set(Way::Open);
        assert_eq!(said(&connect(address), b"three").unwrap(), b"three");
    }

    #[test]
    fn a_connection_is_known_by_its_process() {
        let (address, _) = echo();
        let stream = connect(address);
        assert!(has_socket(process::id(), stream.local_addr().unwrap()));
        assert!(!has_socket(1, stream.local_addr().unwrap()));
        drop(stream);
    }
}
