//! A connection to another node as hyper reads and writes it.

use std::{
    cell::{Cell, RefCell},
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::{stream::Stream, tcp::Reading};

/// Bytes read at a time. One buffer per shard.
const SCRATCH_BYTES: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// What who uses a connection tells the part of it that hyper has.
pub(super) struct Use {
    /// How it is read.
    pub(super) reading: Cell<Reading>,
    /// A request was given to it whose answer is not whole.
    pub(super) is_asked: Cell<bool>,
}

pub(super) struct PeerIo {
    /// `None` once it is somebody else's.
    stream: Option<Stream>,
    used: Rc<Use>,
    /// A look has taken all there was.
    is_empty: bool,
}

impl PeerIo {
    pub(super) fn new(stream: Stream, used: Rc<Use>) -> Self {
        Self { stream: Some(stream), used, is_empty: false }
    }

    pub(super) fn into_stream(mut self) -> Option<Stream> {
        let mut stream = self.stream.take()?;
        stream.set_reading(Reading::LookThenWait);
        Some(stream)
    }

    fn stream(&mut self) -> io::Result<&mut Stream> {
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for PeerIo {
    /// Whoever waited for the answer has left. The other node is to know at once, and not take it for the end of what
    /// is sent: a reset says so.
    fn drop(&mut self) {
        if let Some(stream) = self.stream.as_ref().filter(|_| self.used.is_asked.get()) {
            let _ = rustix::net::sockopt::set_socket_linger(stream.descriptor(), Some(Duration::ZERO));
        }
    }
}

impl Read for PeerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let reading = self.used.reading.get();
        // Who looks asks again in any case.
        if mem::take(&mut self.is_empty) && reading == Reading::Look {
            return Poll::Pending;
        }
        self.stream()?.set_reading(reading);
        SCRATCH.with_borrow_mut(|scratch| {
            let room = cursor.remaining().min(SCRATCH_BYTES);
            let read = ready!(Pin::new(self.stream()?).poll_read(cx, &mut scratch[..room]))?;
            self.is_empty = (1..room).contains(&read);
            cursor.put_slice(&scratch[..read]);
            Poll::Ready(Ok(()))
        })
    }
}

impl Write for PeerIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()?).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_close(cx)
    }
}
