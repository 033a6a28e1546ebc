//! rustls over a shard's sockets. Owns the two buffers between them: what was read and not decrypted yet, and, within
//! rustls, what was encrypted and not written yet.

use std::{
    cell::RefCell,
    io::{self, IoSlice, Read, Write},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures::future::poll_fn;
use glommio::net::TcpStream;
use rustls::{AlertDescription, ClientConnection, Connection, Error, pki_types::ServerName};
use wasmkeep_protocol::{NodeId, trust::Fingerprint};

use super::{Identity, Watch, identity::NAME, watch::Watched};
use crate::tcp::{Reading, Tcp};

/// Bytes read from a socket in one call: two records. One buffer per shard.
const SCRATCH_BYTES: usize = 32 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// TLS without its socket: what goes to another shard with a connection.
pub(crate) struct Session {
    connection: Connection,
    /// Read and not looked at: what came before it has to be taken first.
    ahead: Vec<u8>,
    /// The other side has sent something of its own, so it has accepted our certificate.
    heard: bool,
    refused: Refused,
}

/// Whether the other side refused our certificate, and so read nothing (case H8). A client's handshake is over before
/// it can know; it shows with the first read.
#[derive(Clone, Default)]
pub(crate) struct Refused(Arc<AtomicBool>);

impl Refused {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection with TLS around it.
pub(crate) struct TlsStream {
    // First, so that it is gone before the descriptor is closed and given to another.
    watched: Watched,
    stream: Tcp,
    session: Box<Session>,
}

/// Opens TLS to the node that has this certificate.
pub(crate) async fn connect(
    identity: &Identity,
    watch: &Watch,
    stream: TcpStream,
    node: &NodeId,
    fingerprint: &Fingerprint,
) -> io::Result<TlsStream> {
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let config = identity.client(fingerprint).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let (mut stream, mut session) = (Tcp::from(stream), Box::new(Session::new(connection.into())));
    poll_fn(|cx| session.poll_handshake(&mut stream, cx)).await?;
    Ok(TlsStream::new(watch, stream, session, node.clone(), fingerprint.clone()))
}

impl TlsStream {
    pub(super) fn new(
        watch: &Watch,
        stream: Tcp,
        session: Box<Session>,
        node: NodeId,
        fingerprint: Fingerprint,
    ) -> Self {
        Self { watched: watch.enter(node, fingerprint, &stream), stream, session }
    }

    /// One that came from another shard; `None` when it is nobody's any more.
    pub(crate) fn arrived(watch: &Watch, stream: TcpStream, session: Box<Session>) -> Option<Self> {
        let (node, fingerprint) = watch.trusted(&session.fingerprint()?)?;
        Some(Self::new(watch, stream.into(), session, node, fingerprint))
    }

    /// Whether the other side has refused our certificate; kept up to date.
    pub(crate) fn refused(&self) -> Refused {
        self.session.refused.clone()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.descriptor()
    }

    pub(crate) fn set_reading(&mut self, reading: Reading) {
        self.stream.set_reading(reading);
    }

    pub(crate) fn into_session(self) -> Box<Session> {
        drop(self.watched);
        self.session
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        self.session.poll_read(&mut self.stream, cx, bytes)
    }

    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.session.poll_send(&mut self.stream, cx, slices)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.poll_flush(&mut self.stream, cx)
    }

    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Once only: rustls does not say it twice.
        self.session.connection.send_close_notify();
        ready!(self.poll_flush(cx))?;
        self.stream.poll_close(cx)
    }
}

impl Session {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, ahead: Vec::new(), heard: false, refused: Refused::default() }
    }

    /// Of the certificate the other side has shown.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.connection.peer_certificates()?.first().map(|certificate| Fingerprint::of(certificate))
    }

    /// Ready when both sides have all they need to send; for a client that is before the other has judged it.
    pub(super) fn poll_handshake(&mut self, stream: &mut Tcp, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(stream, cx))?;
            if !self.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(stream, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// What it wants to say last, after an error.
    pub(super) fn last_words(&mut self) -> Vec<u8> {
        let mut words = Vec::new();
        // A Vec takes everything.
        while self.connection.wants_write() && self.connection.write_tls(&mut words).is_ok() {}
        words
    }

    fn poll_read(
        &mut self,
        stream: &mut Tcp,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.connection.reader().read(bytes) {
                Ok(len) => {
                    self.heard |= len > 0;
                    return Poll::Ready(Ok(len));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_fill(stream, cx))?;
        }
    }

    /// Takes in what has come; says how many bytes, none at the end.
    fn poll_fill(&mut self, stream: &mut Tcp, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let taken = if self.ahead.is_empty() {
            SCRATCH.with_borrow_mut(|scratch| {
                let len = ready!(stream.poll_read(cx, scratch))?;
                if len == 0 {
                    // rustls tells an end that was announced from one that was not.
                    self.connection.read_tls(&mut io::empty())?;
                }
                Poll::Ready(self.take(&scratch[..len]))
            })
        } else {
            let ahead = std::mem::take(&mut self.ahead);
            Poll::Ready(self.take(&ahead))
        };
        if self.connection.wants_write() {
            // Answers of TLS itself, an alert maybe: they go out now or with the next write.
            let _ = self.poll_flush(stream, cx);
        }
        taken
    }

    /// Decrypts until there is something to read.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Nothing counts behind the other side's goodbye.
            if self.connection.read_tls(&mut rest)? == 0 {
                rest = &[];
            }
            match self.connection.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => break,
                Ok(_) => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
        self.ahead = rest.to_vec();
        Ok(bytes.len())
    }

    fn broken(&self, error: Error) -> io::Error {
        // What the other side's verifier says, and nothing else: it has not finished its handshake.
        let is_refusal = matches!(error, Error::AlertReceived(AlertDescription::AccessDenied));
        if is_refusal && !self.heard && !self.connection.is_handshaking() {
            self.refused.0.store(true, Ordering::Relaxed);
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    fn poll_send(
        &mut self,
        stream: &mut Tcp,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(stream, cx))?;
        let taken = self.connection.writer().write_vectored(slices)?;
        match self.poll_flush(stream, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The rest is written with the next flush.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(&mut self, stream: &mut Tcp, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket { stream, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => {
                    self.look_why(stream, cx);
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// After a write that failed: the reason may be an alert that came before.
    fn look_why(&mut self, stream: &mut Tcp, cx: &mut Context<'_>) {
        SCRATCH.with(|scratch| {
            if let Ok(mut scratch) = scratch.try_borrow_mut()
                && let Poll::Ready(Ok(len)) = stream.poll_read(cx, &mut scratch)
            {
                let _ = self.take(&scratch[..len]);
            }
        });
    }
}

/// A socket as rustls writes to it.
struct Socket<'a, 'b> {
    stream: &'a mut Tcp,
    cx: &'a mut Context<'b>,
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.stream.poll_send(self.cx, slices) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
