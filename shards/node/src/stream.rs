//! A connection's bytes, in plain or with TLS around them. Owns how they reach the socket; whose they are is its
//! user's business.

use std::{
    io::{self, IoSlice},
    os::fd::{BorrowedFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll},
};

use futures::io::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

use crate::{
    tcp::{Reading, Tcp},
    tls::{Session, TlsStream},
};

/// A connection as its shard uses it.
pub(crate) enum Stream {
    /// To a client, or between nodes in plain HTTP.
    Plain(Tcp),
    /// Between nodes.
    Tls(Box<TlsStream>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(stream.into())
    }
}

impl Stream {
    /// Whether the other side has shown the certificate of a node.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Writes what is taken of `slices`, one of which is not empty. With TLS, what was taken may still wait in here:
    /// it is on its way once [`Stream::poll_flush`] is ready.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => stream.poll_send(cx, slices),
            Self::Tls(stream) => stream.poll_send(cx, slices),
        }
    }

    /// Hands the kernel what still waits in here.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_flush(cx),
        }
    }

    /// How it is read from here on.
    pub(crate) fn set_reading(&mut self, reading: Reading) {
        match self {
            Self::Plain(stream) => stream.set_reading(reading),
            Self::Tls(stream) => stream.set_reading(reading),
        }
    }

    /// Its socket.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(stream) => stream.descriptor(),
            Self::Tls(stream) => stream.descriptor(),
        }
    }

    /// What takes it to another shard.
    pub(crate) fn into_parts(self) -> io::Result<(OwnedFd, Option<Box<Session>>)> {
        let fd = self.descriptor().try_clone_to_owned()?;
        let session = match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream.into_session()),
        };
        Ok((fd, session))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => stream.poll_read(cx, bytes),
            Self::Tls(stream) => stream.poll_read(cx, bytes),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self.get_mut(), cx)
    }

    /// Ends our side; what the other says can still be read.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => stream.poll_close(cx),
            Self::Tls(stream) => stream.poll_close(cx),
        }
    }
}
