//! Listening sockets: one per shard on the same address, and none where another process already listens. Owns
//! binding; accepting is the front's.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// Connections the kernel keeps for a shard that has not accepted them yet. The kernel caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

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

/// Listens on `address` with one socket per shard. The kernel spreads connections over them.
///
/// The first socket binds and listens alone, without SO_REUSEPORT, so a second process on this address is told;
/// only then is the port opened for the other shards. A process that comes later fails on its own first socket.
///
/// # Errors
/// When any of the sockets cannot listen; none is left then.
pub fn listen(address: SocketAddr, shards: usize) -> Result<Bound, ListenError> {
    let explain = |error: rustix::io::Errno| match error {
        rustix::io::Errno::ADDRINUSE => ListenError::InUse(address),
        rustix::io::Errno::ACCESS => ListenError::NotAllowed(address),
        rustix::io::Errno::ADDRNOTAVAIL => ListenError::NotLocal(address),
        other => ListenError::Other { address, source: other.into() },
    };
    let first = open(address, false).map_err(explain)?;
    let actual = first.local_addr().map_err(|source| ListenError::Other { address, source })?;
    sockopt::set_socket_reuseport(&first, true).map_err(explain)?;
    let mut listeners = vec![first];
    for _ in 1..shards {
        listeners.push(open(actual, true).map_err(explain)?);
    }
    Ok(Bound { address: actual, listeners })
}

fn open(address: SocketAddr, shared: bool) -> rustix::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connections of an earlier process may linger in TIME_WAIT; they must not keep the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, net::TcpStream};

    fn any_port() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
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

    #[test]
    fn an_address_that_cannot_be_listened_on_says_why() {
        let error = listen("192.0.2.1:0".parse().unwrap(), 1).unwrap_err();
        assert!(matches!(error, ListenError::NotLocal(_)), "{error}");
    }
}
