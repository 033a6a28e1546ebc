//! A connection to another node as hyper reads and writes it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::stream::Stream;

/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;

pub(super) struct PeerIo {
    stream: Stream,
}

impl PeerIo {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }
}

impl Read for PeerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let room = cursor.remaining().min(READ_BYTES);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes[..room]))?;
        cursor.put_slice(&bytes[..read]);
        Poll::Ready(Ok(()))
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
