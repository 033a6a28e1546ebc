//! A connection to another node as hyper reads and writes it.

use std::{
    cell::{Cell, RefCell},
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use futures::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::{stream::Stream, tcp::Reading};

/// Bytes read at a time. One buffer per shard.
const SCRATCH_BYTES: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

pub(super) struct PeerIo {
    stream: Stream,
    reading: Rc<Cell<Reading>>,
    /// A look has taken all there was.
    is_empty: bool,
}

impl PeerIo {
    pub(super) fn new(stream: Stream, reading: Rc<Cell<Reading>>) -> Self {
        Self { stream, reading, is_empty: false }
    }

    pub(super) fn into_stream(mut self) -> Stream {
        self.stream.set_reading(Reading::LookThenWait);
        self.stream
    }
}

impl Read for PeerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let reading = self.reading.get();
        // Who looks asks again in any case.
        if mem::take(&mut self.is_empty) && reading == Reading::Look {
            return Poll::Pending;
        }
        self.stream.set_reading(reading);
        SCRATCH.with_borrow_mut(|scratch| {
            let room = cursor.remaining().min(SCRATCH_BYTES);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut scratch[..room]))?;
            self.is_empty = (1..room).contains(&read);
            cursor.put_slice(&scratch[..read]);
            Poll::Ready(Ok(()))
        })
    }
}

impl Write for PeerIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
