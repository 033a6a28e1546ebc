//! A listener in use, and its end: every connection that a client took for made is served.

use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, RawFd};

use glommio::net::TcpListener;
use socket2::{SockFilter, SockRef};

/// A listener in use.
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    /// Its socket, which it owns.
    descriptor: RawFd,
}

impl From<std::net::TcpListener> for Listening {
    fn from(listener: std::net::TcpListener) -> Self {
        let descriptor = listener.into_raw_fd();
        // SAFETY: the descriptor was owned by the listener and is owned by glommio's from here on.
        Self { listener: unsafe { TcpListener::from_raw_fd(descriptor) }, descriptor }
    }
}

impl Listening {
    /// From here on no connection begins: whoever tries hears nothing yet. Those that have begun are made and can be
    /// accepted; what the kernel made between the last accept and the end of a listener it would cut off, with the
    /// request that may be in it.
    pub(super) fn let_nobody_begin(&self) {
        let_nobody_begin(self.socket());
    }

    /// From here on the kernel refuses connections. Closing would do so only once the ring lets go of the socket, and
    /// who connected until then would be cut off with its request.
    pub(super) fn refuse_more(&self) {
        // Nobody can connect to one that is shut already.
        let _ = rustix::net::shutdown(self.socket(), rustix::net::Shutdown::Both);
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: the listener owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// Has the kernel drop every SYN that begins a connection. The filter sees packets from their TCP header on.
fn let_nobody_begin(listener: BorrowedFd<'_>) {
    /// Instructions of the kernel's classic packet filter.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_UNLESS_EQUAL: u16 = 0x15;
    const TAKE: u16 = 0x06;
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    const EVERYTHING: u32 = u32::MAX;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_AT),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_UNLESS_EQUAL, 0, 1, SYN),
        SockFilter::new(TAKE, 0, 0, 0),
        SockFilter::new(TAKE, 0, 0, EVERYTHING),
    ];
    // Without it one in a great many connections is cut off.
    let _ = SockRef::from(&listener).attach_filter(&filter);
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
        time::Duration,
    };

    use super::*;

    // R-LEASE-6
    #[test]
    fn a_listener_that_ends_lets_nobody_begin_and_keeps_who_has_begun() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut begun = TcpStream::connect(address).unwrap();
        let_nobody_begin(listener.as_fd());
        begun.write_all(b"request").unwrap();
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(300));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(listener);
        let mut request = [0; 7];
        accepted.set_nonblocking(false).unwrap();
        accepted.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        let refused = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
