//! The mesh: one bounded inbox per shard, every shard may write to every inbox.
//!
//! Owns the queues and their counters; does not know what a message means. A receive loop must never wait for
//! room in another inbox before it takes its next message: two full inboxes would wait for each other. Spawn the
//! work, or answer over a channel that the message carries.

use super::Sleeper;
use futures::future::{Either, select};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Default room of one inbox, in messages. At 20 µs a message a full inbox is 20 ms of work: more room would
/// only turn overload into latency.
pub const INBOX_MESSAGES: usize = 1024;

/// Why a message was not taken. The message was dropped, except where it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The inbox stayed full for as long as the sender would wait.
    #[error("shard {0} is busy; retry")]
    Full(usize),
    /// The shard ended, or was never there.
    #[error("shard {0} has stopped")]
    Closed(usize),
}

/// A shard's place in the mesh: its inbox and the way to all others. Messages of one sender to one shard arrive in
/// order.
#[derive(Debug)]
pub struct Endpoint<M> {
    index: usize,
    inbox: flume::Receiver<M>,
    outboxes: Arc<[flume::Sender<M>]>,
    hops: Arc<AtomicU64>,
}

/// A mesh of `shards` endpoints whose inboxes hold `room` messages each.
pub fn mesh<M: Send + 'static>(shards: usize, room: usize) -> Vec<Endpoint<M>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| flume::bounded(room)).unzip();
    let outboxes: Arc<[flume::Sender<M>]> = senders.into();
    let hops = Arc::new(AtomicU64::new(0));
    receivers
        .into_iter()
        .enumerate()
        .map(|(index, inbox)| Endpoint { index, inbox, outboxes: outboxes.clone(), hops: hops.clone() })
        .collect()
}

impl<M: Send + 'static> Endpoint<M> {
    /// Which shard this is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Shards in the mesh.
    pub fn shards(&self) -> usize {
        self.outboxes.len()
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// The message comes back with the reason.
    pub fn try_send(&self, to: usize, message: M) -> Result<(), (M, SendError)> {
        let Some(outbox) = self.outboxes.get(to) else { return Err((message, SendError::Closed(to))) };
        match outbox.try_send(message) {
            Ok(()) => {
                self.hops.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(flume::TrySendError::Full(message)) => Err((message, SendError::Full(to))),
            Err(flume::TrySendError::Disconnected(message)) => Err((message, SendError::Closed(to))),
        }
    }

    /// Sends, waiting up to about `wait` for room.
    ///
    /// # Errors
    /// The message is dropped, and with it whatever reply channel it carried.
    pub async fn send(
        &self,
        to: usize,
        message: M,
        wait: Duration,
        sleeper: &Sleeper,
    ) -> Result<(), SendError> {
        let message = match self.try_send(to, message) {
            Ok(()) => return Ok(()),
            Err((message, SendError::Full(_))) => message,
            Err((_, closed)) => return Err(closed),
        };
        let sending = pin!(self.outboxes[to].send_async(message));
        match select(sending, pin!(sleeper.sleep(wait))).await {
            Either::Left((Ok(()), _)) => {
                self.hops.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Either::Left((Err(_), _)) => Err(SendError::Closed(to)),
            Either::Right(_) => Err(SendError::Full(to)),
        }
    }

    /// The next message for this shard; `None` is never seen while this endpoint lives.
    pub async fn receive(&self) -> Option<M> {
        self.inbox.recv_async().await.ok()
    }

    /// Messages waiting for this shard.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// Messages that crossed the whole mesh since its start.
    pub fn hops(&self) -> u64 {
        self.hops.load(Ordering::Relaxed)
    }
}
