//! As the [relay](super::relay), in HTTP: hyper towards whoever sends and towards the process beyond, and nothing else.
//! It routes, checks, counts and limits nothing. As the node does, it looks for what may have come before it waits on
//! the ring, and drives the far connection in the task that waits for the answer.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
};

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::{LocalExecutorBuilder, Placement, net::TcpStream};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1 as client,
    rt,
    server::conn::http1 as server,
    service::service_fn,
};
use rustix::{io::Errno, net::RecvFlags};

use super::{echo::MESSAGE_BYTES_MAX, relay::connections};

/// Is that process until a connection closes. Prints its address first.
///
/// # Errors
/// As the system says.
pub fn serve(beyond: SocketAddr) -> io::Result<()> {
    LocalExecutorBuilder::new(Placement::Unbound).make()?.run(async {
        let (near, far) = connections(beyond).await?;
        relay(near, far).await.map_err(io::Error::other)
    })
}

async fn relay(near: TcpStream, far: TcpStream) -> hyper::Result<()> {
    let only_looks = Rc::new(Cell::new(false));
    let (requests, driver) = client::handshake(Io::new(far, Rc::clone(&only_looks))).await?;
    let far = RefCell::new(Far { requests, driver, only_looks });
    let service = service_fn(|request| ask(&far, request));
    server::Builder::new().serve_connection(Io::new(near, Rc::default()), service).await
}

/// The connection to the process beyond.
struct Far {
    requests: client::SendRequest<Incoming>,
    driver: client::Connection<Io, Incoming>,
    only_looks: Rc<Cell<bool>>,
}

async fn ask(far: &RefCell<Far>, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let sent = far.borrow_mut().requests.send_request(request);
    let mut answer = pin!(async {
        let (head, body) = sent.await?.into_parts();
        Ok(Response::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    });
    poll_fn(|cx| {
        for only_looks in [true, true, false] {
            far.borrow_mut().drive(cx, only_looks);
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}

impl Far {
    fn drive(&mut self, cx: &mut Context<'_>, only_looks: bool) {
        self.only_looks.set(only_looks);
        // Its end shows in the answer.
        let _ = Pin::new(&mut self.driver).poll(cx);
        self.only_looks.set(false);
    }
}

/// A socket as hyper reads and writes it.
struct Io {
    stream: TcpStream,
    only_looks: Rc<Cell<bool>>,
}

impl Io {
    fn new(stream: TcpStream, only_looks: Rc<Cell<bool>>) -> Self {
        Self { stream, only_looks }
    }

    /// What has come, if anything.
    fn look(&self, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        // SAFETY: the stream owns the descriptor and outlives the borrow.
        let socket = unsafe { BorrowedFd::borrow_raw(self.stream.as_raw_fd()) };
        match rustix::net::recv(socket, bytes, RecvFlags::DONTWAIT) {
            Ok((_, len)) => Poll::Ready(Ok(len)),
            Err(Errno::AGAIN) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let room = cursor.remaining().min(bytes.len());
        let bytes = &mut bytes[..room];
        let mut read = self.look(bytes);
        if read.is_pending() && !self.only_looks.get() {
            read = Pin::new(&mut self.stream).poll_read(cx, bytes);
        }
        let len = ready!(read)?;
        cursor.put_slice(&bytes[..len]);
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
