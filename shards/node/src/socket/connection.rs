//! One WebSocket connection from its upgrade to its end: moves bytes between the socket, the decoder and the line.
//!
//! One task a connection, and nothing held while it is idle but what that task is made of: bytes are read into a
//! buffer of the shard.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use futures::{FutureExt, future::poll_fn, io::AsyncRead};

use super::{
    decoder::{Decoder, Incoming},
    frame::Frame,
    line::Input,
    mail::Letter,
    registry::{Hold, Socket},
};
use crate::{
    http::{Stats, Upgraded, answer_and_close},
    runtime::Sleep,
    stream::Stream,
};

/// Bytes read from a socket in one call. One buffer per shard.
const SCRATCH_BYTES: usize = 64 << 10;

/// Pieces handed to the kernel in one call: heads and payloads of half as many frames.
const PIECES: usize = 32;

/// Reads in a row before the executor has its turn.
const READS_MAX: usize = 8;

thread_local! {
    pub(super) static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Carries the connection of a socket in a task of its own.
pub(crate) fn serve(hold: Hold, upgraded: Upgraded) {
    let panics = Arc::clone(&upgraded.stats);
    let task = async move {
        let Upgraded { stream, answer, unread, ticket, stats } = upgraded;
        hold.socket.line.borrow_mut().begin(Instant::now(), Frame::raw(answer));
        let sleeper = hold.sockets.sleeper().clone();
        let decoder = Decoder::new(hold.sockets.rules().message_bytes_max);
        let mut connection =
            Connection { hold, stream, stats, decoder, unread, paused: false, ended: false, timer: None };
        poll_fn(|cx| connection.poll(cx)).await;
        let Connection { hold, stream, .. } = connection;
        let is_cut = hold.socket.line.borrow().is_cut();
        drop(hold);
        if !is_cut {
            // Boxed, so that its buffer is not part of a task that mostly waits.
            Box::pin(answer_and_close(stream, &[], &sleeper)).await;
        }
        drop(ticket);
    };
    // Boxed, since a future that is moved into another takes its place there twice.
    let task = Box::pin(AssertUnwindSafe(task).catch_unwind());
    glommio::spawn_local(async move {
        // A panic must not unwind through the executor: it would end the shard's thread.
        if task.await.is_err() {
            panics.count_panic(1);
            tracing::error!("a WebSocket connection panicked and was cut");
        }
    })
    .detach();
}

struct Connection {
    hold: Hold,
    stream: Stream,
    stats: Arc<Stats>,
    decoder: Decoder,
    /// Bytes that were read and not looked at: the actor has yet to take what came before them.
    unread: Bytes,
    /// Nothing is read until the actor has taken what came.
    paused: bool,
    /// The client will send nothing more.
    ended: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn socket(&self) -> &Rc<Socket> {
        &self.hold.socket
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Not woken by what it does itself.
        drop(self.socket().waker.take());
        for _ in 0..READS_MAX {
            self.write(cx);
            if self.socket().line.borrow().is_over() {
                return Poll::Ready(());
            }
            let moved = self.read(cx) | self.tick(cx);
            if !moved {
                self.socket().waker.set(Some(cx.waker().clone()));
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes until the queue is empty or the kernel takes no more.
    fn write(&mut self, cx: &mut Context<'_>) {
        loop {
            let wrote = {
                let line = self.hold.socket.line.borrow();
                let mut pieces = [&[][..]; PIECES];
                let count = line.unsent(&mut pieces);
                if count == 0 {
                    drop(line);
                    return self.flush(cx);
                }
                poll_write(&mut self.stream, cx, &pieces[..count])
            };
            match wrote {
                Poll::Pending => return,
                Poll::Ready(Ok(len)) => {
                    self.stats.count_written(len as u64);
                    self.hold.step(Input::Wrote(len));
                }
                Poll::Ready(Err(_)) => return self.hold.step(Input::Lost),
            }
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if let Poll::Ready(Err(_)) = self.stream.poll_flush(cx) {
            self.hold.step(Input::Lost);
        }
    }

    /// Reads once and looks at what came; says whether anything did.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ended || !self.socket().line.borrow().reads() {
            return false;
        }
        let must_pause = self.must_pause();
        if std::mem::replace(&mut self.paused, must_pause) != must_pause {
            self.hold.step(if must_pause { Input::Paused } else { Input::Resumed });
        }
        if must_pause {
            return false;
        }
        if !self.unread.is_empty() {
            let bytes = std::mem::take(&mut self.unread);
            let used = self.look_at(&bytes);
            self.unread = bytes.slice(used..);
            return true;
        }
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let len = match ready!(Pin::new(&mut self.stream).poll_read(cx, scratch)) {
                Ok(len @ 1..) => len,
                Ok(0) | Err(_) => {
                    self.ended = true;
                    self.hold.step(Input::Lost);
                    return Poll::Ready(());
                }
            };
            self.stats.count_read(len as u64);
            self.hold.step(Input::Heard);
            let used = self.look_at(&scratch[..len]);
            self.unread = Bytes::copy_from_slice(&scratch[used..len]);
            Poll::Ready(())
        });
        read.is_ready()
    }

    /// Whether the actor has yet to take so much that no more is read. An actor that has closed the socket takes
    /// nothing: what still comes is thrown away.
    fn must_pause(&self) -> bool {
        self.socket().line.borrow().is_open() && self.socket().mail.is_full()
    }

    /// Takes what is whole out of `bytes` until it must pause; says how many of them it has used.
    fn look_at(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.socket().line.borrow().reads() {
            if self.must_pause() {
                return bytes.len() - rest.len();
            }
            match self.decoder.take(&mut rest) {
                Ok(Some(incoming)) => self.take(incoming),
                Ok(None) => break,
                Err(breach) => self.hold.step(Input::Breach(breach)),
            }
        }
        bytes.len()
    }

    fn take(&self, incoming: Incoming) {
        let Hold { sockets, socket } = &self.hold;
        match incoming {
            Incoming::Message(message) if socket.line.borrow().is_open() => {
                sockets.metrics().received.inc();
                socket.mail.send(sockets, &socket.actor, socket.id, Letter::Message(message));
            }
            Incoming::Ping(payload) => self.hold.step(Input::Ping(payload)),
            Incoming::Close(why) => self.hold.step(Input::Closed(why)),
            Incoming::Message(_) | Incoming::Pong => {}
        }
    }

    /// Feeds the line when its time has come; says whether it had.
    fn tick(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.socket().line.borrow().due() else {
            self.timer = None;
            return false;
        };
        // A timer that is due earlier is left alone: it moves later with every sign of life.
        if self.timer.as_ref().is_none_or(|timer| timer.deadline() > due) {
            self.timer = Some(Box::pin(self.hold.sockets.sleeper().sleep_until(due)));
        }
        let is_pending = self.timer.as_mut().is_none_or(|timer| timer.as_mut().poll(cx).is_pending());
        if is_pending {
            return false;
        }
        self.timer = None;
        self.hold.step(Input::Tick);
        true
    }
}

/// Writes what is taken of up to [`PIECES`] pieces, the first of which is not empty.
pub(super) fn poll_write(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    pieces: &[&[u8]],
) -> Poll<io::Result<usize>> {
    let mut slices = [IoSlice::new(&[]); PIECES];
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(piece);
    }
    stream.poll_send(cx, &slices[..pieces.len()])
}
