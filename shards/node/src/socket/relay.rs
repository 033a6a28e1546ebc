//! One relayed WebSocket: a client's connection joined to one to its actor's node.
//!
//! Bytes go both ways as they come, and no faster than the other side takes them. The frames are the owner's business;
//! here only their ends are looked for, so that a client whose owner is lost can be told to connect again.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures::{FutureExt, future::poll_fn, io::AsyncRead};
use wasmkeep_protocol::close;

use super::{
    boundary::Boundary,
    connection::{SCRATCH, poll_write},
    frame::Frame,
    relays::RelayHold,
};
use crate::{
    http::{Stats, Upgraded, answer_and_close},
    peers::Joint,
    runtime::{Sleep, Sleeper},
    stream::Stream,
};

/// Reads in a row before the executor has its turn.
const READS_MAX: usize = 8;

/// What the client is told whose owner was lost, or ended the connection without a word.
pub(crate) const OWNER_LOST: &str = "the way to the actor's node was lost; connect again";

/// Joins the two connections in a task of its own.
pub(crate) fn join(hold: RelayHold, joint: Joint, upgraded: Upgraded) {
    let panics = Arc::clone(&upgraded.stats);
    let task = async move {
        let Upgraded { stream: client, answer, unread, ticket, stats } = upgraded;
        let mut frames = Boundary::default();
        frames.pass(&joint.unread);
        let first = Bytes::from([&answer[..], &joint.unread].concat());
        let mut relay = Relay {
            client,
            owner: joint.stream,
            down: Way { unsent: first },
            up: Way { unsent: unread },
            frames,
            stats,
            timer: None,
            hold,
        };
        let end = poll_fn(|cx| relay.poll(cx)).await;
        // Boxed, so that its buffer is not part of a task that mostly waits.
        Box::pin(relay.finish(end)).await;
        drop(ticket);
    };
    let task = Box::pin(AssertUnwindSafe(task).catch_unwind());
    glommio::spawn_local(async move {
        // A panic must not unwind through the executor: it would end the shard's thread.
        if task.await.is_err() {
            panics.count_panic(1);
            tracing::error!("a relayed WebSocket panicked and was cut");
        }
    })
    .detach();
}

/// How a relay ended.
enum End {
    /// The client's connection did.
    ClientGone,
    /// The client takes nothing of what it has to read.
    ClientStuck,
    /// The owner's connection did, after a close frame or without one.
    OwnerGone,
    /// This node ends it.
    Told(u16, &'static str),
}

struct Relay {
    hold: RelayHold,
    client: Stream,
    owner: Stream,
    /// From the owner to the client.
    down: Way,
    /// From the client to the owner.
    up: Way,
    /// Of what came from the owner.
    frames: Boundary,
    stats: Arc<Stats>,
    /// Runs while the client has something to read, from its last byte on.
    timer: Option<Pin<Box<Sleep>>>,
}

/// One direction.
struct Way {
    /// Read and not yet taken by the other side; nothing while the relay is idle.
    unsent: Bytes,
}

/// A step of one direction.
enum Moved {
    /// Bytes that were read, or that were written.
    Read(usize),
    Wrote(usize),
    /// The side that is read from ended.
    SourceGone,
    TargetGone,
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        for _ in 0..READS_MAX {
            let down = self.down.poll(cx, &mut self.owner, &mut self.client, |bytes| self.frames.pass(bytes));
            match down {
                Poll::Ready(Moved::SourceGone) => return Poll::Ready(End::OwnerGone),
                // What a side has said before it went is passed on first.
                Poll::Ready(Moved::TargetGone) => self.down.unsent = Bytes::new(),
                Poll::Ready(Moved::Wrote(len)) => {
                    self.stats.count_written(len as u64);
                    self.timer = None;
                }
                Poll::Ready(Moved::Read(_)) | Poll::Pending => {}
            }
            let up = self.up.poll(cx, &mut self.client, &mut self.owner, |_| {});
            match up {
                Poll::Ready(Moved::SourceGone) => return Poll::Ready(End::ClientGone),
                Poll::Ready(Moved::TargetGone) => self.up.unsent = Bytes::new(),
                Poll::Ready(Moved::Read(len)) => self.stats.count_read(len as u64),
                Poll::Ready(Moved::Wrote(_)) | Poll::Pending => {}
            }
            if let Some((code, reason)) = self.hold.told(cx) {
                return Poll::Ready(End::Told(code, reason));
            }
            if self.is_stuck(cx) {
                return Poll::Ready(End::ClientStuck);
            }
            if down.is_pending() && up.is_pending() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_stuck(&mut self, cx: &mut Context<'_>) -> bool {
        if self.down.unsent.is_empty() {
            self.timer = None;
            return false;
        }
        let hold = &self.hold;
        let timer = self.timer.get_or_insert_with(|| Box::pin(hold.sleeper().sleep(hold.stuck_after())));
        timer.as_mut().poll(cx).is_ready()
    }

    /// Gives the side that is left what it has yet to get, and closes both.
    async fn finish(self, end: End) {
        let Relay { hold, client, owner, down, up, frames, .. } = self;
        let sleeper: Sleeper = hold.sleeper().clone();
        let (code, reason) = match end {
            End::ClientStuck => return,
            End::ClientGone => {
                drop(client);
                // It may have said why it goes.
                return answer_and_close(owner, &up.unsent, &sleeper).await;
            }
            End::OwnerGone => (close::RESTART, OWNER_LOST),
            End::Told(code, reason) => (code, reason),
        };
        drop(owner);
        let mut last = down.unsent.to_vec();
        if frames.is_between() {
            last.extend(Frame::close(Some((code, reason))).rest(0).concat());
        }
        answer_and_close(client, &last, &sleeper).await;
        drop(hold);
    }
}

impl Way {
    /// Writes what is unsent; with nothing unsent, reads.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Stream,
        target: &mut Stream,
        look: impl FnOnce(&[u8]),
    ) -> Poll<Moved> {
        if !self.unsent.is_empty() {
            return Poll::Ready(match ready!(poll_write(target, cx, &[&self.unsent])) {
                Ok(len) => {
                    self.unsent.advance(len);
                    if self.unsent.is_empty() {
                        // Gives its memory back.
                        self.unsent = Bytes::new();
                    }
                    Moved::Wrote(len)
                }
                Err(_) => Moved::TargetGone,
            });
        }
        // What the target has taken has to leave before it takes more.
        if ready!(target.poll_flush(cx)).is_err() {
            return Poll::Ready(Moved::TargetGone);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let Ok(len @ 1..) = ready!(Pin::new(source).poll_read(cx, scratch)) else {
                return Poll::Ready(Moved::SourceGone);
            };
            look(&scratch[..len]);
            self.unsent = Bytes::copy_from_slice(&scratch[..len]);
            Poll::Ready(Moved::Read(len))
        })
    }
}
