//! A TCP connection as its shard reads and writes it. Owns when the socket itself is asked and when the ring is waited
//! on: the ring's way costs several system calls, and what answers at once has mostly answered by then.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    os::fd::{AsRawFd, BorrowedFd},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags},
};

/// Reads that find something without the ring, of all connections of a shard, until one is woken by it. A shard sees what
/// else has come only when it turns to the ring, so clients that are always ready must not keep it from that.
const LOOKS_MAX: u8 = 8;

thread_local! {
    static LOOKS: Cell<u8> = const { Cell::new(0) };
}

/// Whether a shard may do without its ring for a while.
pub(crate) fn may_look() -> bool {
    LOOKS.get() < LOOKS_MAX
}

/// Lets the shard turn to its ring, and then to this task again.
pub(crate) fn turn_to_ring(cx: &mut Context<'_>) {
    LOOKS.set(0);
    // Its first poll marks the executor's queue and wakes the task.
    let _ = pin!(glommio::executor().yield_task_queue_now()).poll(cx);
}

/// How a connection is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// What is there, or else when the ring says so.
    LookThenWait,
    /// What is there. Nobody is woken: whoever reads asks again.
    Look,
    /// When the ring says so. For who has looked, or expects nothing.
    Wait,
}

/// A TCP connection.
pub(crate) struct Tcp {
    stream: TcpStream,
    reading: Reading,
    /// The ring is to say when something comes.
    waits: bool,
}

impl From<TcpStream> for Tcp {
    fn from(stream: TcpStream) -> Self {
        Self { stream, reading: Reading::LookThenWait, waits: false }
    }
}

impl Tcp {
    /// How it is read from here on.
    pub(crate) fn set_reading(&mut self, reading: Reading) {
        self.reading = reading;
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let looks = match self.reading {
            Reading::LookThenWait => may_look(),
            Reading::Look => true,
            Reading::Wait => false,
        };
        if looks {
            let found = self.look(bytes);
            if found.is_ready() || self.reading == Reading::Look {
                return found;
            }
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, bytes);
        if read.is_ready() && self.waits {
            // It had been found empty, so it was the ring that told of this.
            LOOKS.set(0);
        }
        self.waits = read.is_pending();
        read
    }

    /// What has come, if anything.
    fn look(&self, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        match rustix::net::recv(self.descriptor(), bytes, RecvFlags::DONTWAIT) {
            Ok((_, len)) => {
                LOOKS.set(LOOKS.get().saturating_add(1));
                Poll::Ready(Ok(len))
            }
            Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Writes what the kernel takes, all slices in one call.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let fd = self.descriptor();
        let sent = match slices {
            [one] => rustix::net::send(fd, one, flags),
            many => rustix::net::sendmsg(fd, many, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Ok(len) => Poll::Ready(Ok(len)),
            // Arms the socket, or finds that it has room by now.
            Err(Errno::AGAIN) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                Pin::new(&mut self.stream).poll_write(cx, first.map_or(&[], |slice| slice))
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Ends our side; what the other says can still be read.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the stream owns the descriptor and outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.stream.as_raw_fd()) }
    }
}
