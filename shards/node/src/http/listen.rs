//! Listening sockets: one per shard on the same address, and none where another process already listens. Owns
//! binding; accepting is the front's. Taking an address and listening on it are two steps: an address that cannot be
//! had is told before anything else begins, and nobody connects to a node that does not serve yet.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, sockopt},
};

/// Connections the kernel keeps for a shard that has not accepted them yet. The kernel caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// How long an address in use is tried again. The rings of a killed process let its sockets go within some tens of
/// milliseconds on a busy machine.
const FREED_WITHIN: Duration = Duration::from_secs(1);

const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Why no socket listens. One sentence, with the next step.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another socket has the address.
    #[error("{0} is already in use; stop the process that listens there or choose another address")]
    InUse(SocketAddr),
    /// Privileged port.
    #[error("this user may not listen on {0}; choose a port above 1023 or grant CAP_NET_BIND_SERVICE")]
    NotAllowed(SocketAddr),
    /// The address is not this machine's.
    #[error("{0} is not an address of this machine; choose one that is, or 0.0.0.0 for all of them")]
    NotLocal(SocketAddr),
    /// Anything else.
    #[error("listening on {address} failed: {source}; check the address and the open-file limit")]
    Other {
        /// Where.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Listening sockets of one address.
#[derive(Debug)]
pub struct Bound {
    /// The actual address: with port 0 asked, the port that was given.
    pub address: SocketAddr,
    /// One per shard.
    pub listeners: Vec<TcpListener>,
}

/// An address that is taken and on which nobody listens yet: who connects is refused.
#[derive(Debug)]
pub struct Reserved {
    address: SocketAddr,
    first: OwnedFd,
}

/// Takes `address`. One in use is tried again for a second: the kernel lets a dead process's sockets go a moment after
/// the process.
///
/// # Errors
/// When it cannot be had.
pub fn reserve(address: SocketAddr) -> Result<Reserved, ListenError> {
    let deadline = Instant::now() + FREED_WITHIN;
    loop {
        match bind(address, false) {
            Ok(first) => {
                let name = net::getsockname(&first).and_then(SocketAddr::try_from);
                let actual = name.map_err(|error| explain(address, error))?;
                return Ok(Reserved { address: actual, first });
            }
            Err(Errno::ADDRINUSE) if Instant::now() < deadline => thread::sleep(BETWEEN_TRIES),
            Err(error) => return Err(explain(address, error)),
        }
    }
}

impl Reserved {
    /// The actual address: with port 0 asked, the port that was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens with one socket per shard. The kernel spreads connections over them.
    ///
    /// The first socket listens alone, without SO_REUSEPORT, so that of two processes that took the address only one
    /// comes to listen; only then is the port opened for the other shards, at once, so that all share what comes.
    ///
    /// # Errors
    /// When any of the sockets cannot listen; none is left then.
    pub fn listen(self, shards: usize) -> Result<Bound, ListenError> {
        let Self { address, first } = self;
        let explain = |error| explain(address, error);
        net::listen(&first, BACKLOG).map_err(explain)?;
        sockopt::set_socket_reuseport(&first, true).map_err(explain)?;
        let mut listeners = vec![TcpListener::from(first)];
        for _ in 1..shards {
            let other = bind(address, true).map_err(explain)?;
            net::listen(&other, BACKLOG).map_err(explain)?;
            listeners.push(TcpListener::from(other));
        }
        Ok(Bound { address, listeners })
    }
}

fn explain(address: SocketAddr, error: Errno) -> ListenError {
    match error {
        Errno::ADDRINUSE => ListenError::InUse(address),
        Errno::ACCESS => ListenError::NotAllowed(address),
        Errno::ADDRNOTAVAIL => ListenError::NotLocal(address),
        other => ListenError::Other { address, source: other.into() },
    }
}

fn bind(address: SocketAddr, shared: bool) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connections of an earlier process may linger in TIME_WAIT; they must not keep the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, net::TcpStream};

    fn any_port() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn listen(address: SocketAddr, shards: usize) -> Result<Bound, ListenError> {
        reserve(address)?.listen(shards)
    }

    #[test]
    fn all_shards_share_the_port_that_was_given() {
        let bound = listen(any_port(), 3).unwrap();
        assert_ne!(bound.address.port(), 0);
        assert_eq!(bound.listeners.len(), 3);
        for listener in &bound.listeners {
            assert_eq!(listener.local_addr().unwrap(), bound.address);
        }
    }

    #[test]
    fn connections_reach_every_listener() {
        let bound = listen(any_port(), 2).unwrap();
        for listener in &bound.listeners {
            listener.set_nonblocking(true).unwrap();
        }
        let mut accepted = [0, 0];
        // Each connection is spread by a hash: 400 on one side has a chance of 2^-399.
        for _ in 0..400 {
            let mut client = TcpStream::connect(bound.address).unwrap();
            let index = loop {
                if let Some(index) = bound.listeners.iter().position(|listener| listener.accept().is_ok()) {
                    break index;
                }
            };
            accepted[index] += 1;
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the accepted side was closed");
        }
        assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
    }

    // R-FLAG-5
    #[test]
    fn a_second_node_on_the_same_address_is_told() {
        let bound = listen(any_port(), 2).unwrap();
        for shards in [1, 2] {
            let error = listen(bound.address, shards).unwrap_err();
            assert!(matches!(error, ListenError::InUse(_)), "{error}");
            assert!(error.to_string().contains("already in use"));
        }
        let address = bound.address;
        drop(bound);
        assert_eq!(listen(address, 2).unwrap().address, address);
    }

    #[test]
    fn connections_in_time_wait_do_not_keep_the_port() {
        let bound = listen(any_port(), 2).unwrap();
        let address = bound.address;
        let mut client = TcpStream::connect(address).unwrap();
        for listener in &bound.listeners {
            listener.set_nonblocking(true).unwrap();
        }
        let served = loop {
            if let Some((served, _)) = bound.listeners.iter().find_map(|listener| listener.accept().ok()) {
                break served;
            }
        };
        // The side that closes first keeps the connection in TIME_WAIT.
        drop(served);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        drop((client, bound));
        listen(address, 2).unwrap();
    }

    // R-LEASE-8
    #[test]
    fn whoever_connects_before_it_listens_is_refused_and_of_two_that_took_an_address_one_listens() {
        let first = reserve(any_port()).unwrap();
        let address = first.address();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // Nobody listens yet, so the kernel lets a second process take it too.
        let second = reserve(address).unwrap();
        let _bound = first.listen(3).unwrap();
        assert!(matches!(second.listen(3).unwrap_err(), ListenError::InUse(_)));
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn an_address_that_is_let_go_a_moment_later_is_taken() {
        let bound = listen(any_port(), 2).unwrap();
        let address = bound.address;
        let holder = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(bound);
        });
        assert_eq!(listen(address, 2).unwrap().address, address);
        holder.join().unwrap();
    }

    #[test]
    fn an_address_that_cannot_be_listened_on_says_why() {
        let error = listen("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert!(matches!(error, ListenError::NotLocal(_)), "{error}");
    }
}
