//! A TCP connection as its shard reads and writes it. Owns when the socket itself is asked and when the ring is waited
//! on: the ring's way costs several system calls, and what answers at once has mostly answered by then.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    os::fd::{AsRawFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use glommio::{net::TcpStream, timer::Timer};
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

#[cfg(test)]
pub(crate) fn use_up_looks() {
    LOOKS.set(LOOKS_MAX);
}

/// A shard's turn to its ring. The executor asks its ring when no task can run, so this one must not, for a moment.
pub(crate) struct Turn {
    timer: Timer,
    moment: Duration,
    has_waited: bool,
}

impl Turn {
    pub(crate) fn new() -> Self {
        let moment = Duration::from_micros(1);
        Self { timer: Timer::new(moment), moment, has_waited: false }
    }
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while Pin::new(&mut self.timer).poll(cx).is_ready() {
            if self.has_waited {
                LOOKS.set(0);
                return Poll::Ready(());
            }
            // It was over before the executor had it.
            self.moment *= 2;
            self.timer = Timer::new(self.moment);
        }
        self.has_waited = true;
        Poll::Pending
    }
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

#[cfg(test)]
mod tests {
    use std::{io::Write, net, task::Waker};

    use glommio::{LocalExecutorBuilder, Placement, net::TcpListener};

    use super::*;

    /// Runs `test` with both ends of a connection, the other one a plain socket.
    fn with_pair(test: impl AsyncFnOnce(Tcp, net::TcpStream)) {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).make().unwrap();
        executor.run(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let other = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            other.set_nodelay(true).unwrap();
            test(listener.accept().await.unwrap().into(), other).await;
        });
    }

    fn poll(tcp: &mut Tcp, cx: &mut Context<'_>) -> Poll<usize> {
        tcp.poll_read(cx, &mut [0; 16]).map(Result::unwrap)
    }

    fn look(tcp: &mut Tcp) -> Poll<usize> {
        poll(tcp, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_look_takes_what_is_there_and_waits_for_nothing() {
        with_pair(async |mut tcp, mut other| {
            tcp.set_reading(Reading::Look);
            assert!(look(&mut tcp).is_pending());
            other.write_all(b"abc").unwrap();
            assert_eq!(look(&mut tcp), Poll::Ready(3));
            assert!(look(&mut tcp).is_pending());
            drop(other);
            assert_eq!(look(&mut tcp), Poll::Ready(0));
        });
    }

    #[test]
    fn after_several_finds_the_ring_is_waited_on_and_may_be_done_without_again() {
        with_pair(async |mut tcp, mut other| {
            for _ in 0..LOOKS_MAX {
                assert!(may_look());
                other.write_all(b"a").unwrap();
                assert_eq!(look(&mut tcp), Poll::Ready(1));
            }
            assert!(!may_look());
            let writes = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                other.write_all(b"b").unwrap();
                other
            });
            assert_eq!(std::future::poll_fn(|cx| poll(&mut tcp, cx)).await, 1);
            assert!(may_look());
            writes.join().unwrap();
        });
    }

    #[test]
    fn a_task_that_turns_to_the_ring_lets_others_have_what_came_for_them() {
        with_pair(async |mut tcp, mut other| {
            let read = std::rc::Rc::new(Cell::new(0));
            let seen = read.clone();
            tcp.set_reading(Reading::Wait);
            let reader = glommio::spawn_local(async move {
                seen.set(std::future::poll_fn(|cx| poll(&mut tcp, cx)).await);
            });
            glommio::yield_if_needed().await;
            other.write_all(b"abc").unwrap();
            use_up_looks();
            // The first may come before the ring has been told that there is somebody who reads.
            for _ in 0..3 {
                Turn::new().await;
            }
            assert_eq!(read.get(), 3);
            assert!(may_look());
            reader.await;
        });
    }
}
