//! The WebSockets that a shard relays to the nodes of their actors. Owns which there are and who is told to end; what
//! a relay does is [`relay`](super::relay)'s.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use wasmkeep_protocol::NodeId;

use crate::runtime::Sleeper;

/// How often a stopping shard looks whether its relays have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The relays of a shard. Clones are handles on the same ones.
#[derive(Clone)]
pub(crate) struct Relays(Rc<Inner>);

struct Inner {
    sleeper: Sleeper,
    /// Time without a byte taken after which a client that has something to read is cut.
    stuck_after: Duration,
    /// Of the node.
    open: Gauge,
    all: RefCell<BTreeMap<u64, Rc<Entry>>>,
    next: Cell<u64>,
}

/// One relay, as the shard sees it.
struct Entry {
    owner: NodeId,
    told: Cell<Option<(u16, &'static str)>>,
    waker: Cell<Option<Waker>>,
}

/// Keeps a relay among its shard's.
pub(crate) struct RelayHold {
    relays: Relays,
    id: u64,
    entry: Rc<Entry>,
}

impl Relays {
    /// None yet.
    pub(crate) fn new(sleeper: Sleeper, stuck_after: Duration, open: Gauge) -> Self {
        Self(Rc::new(Inner { sleeper, stuck_after, open, all: RefCell::default(), next: Cell::new(0) }))
    }

    /// A relay to this node begins.
    pub(crate) fn enter(&self, owner: &NodeId) -> RelayHold {
        let id = self.0.next.replace(self.0.next.get() + 1);
        let entry = Rc::new(Entry { owner: owner.clone(), told: Cell::new(None), waker: Cell::new(None) });
        self.0.all.borrow_mut().insert(id, Rc::clone(&entry));
        self.0.open.inc();
        RelayHold { relays: self.clone(), id, entry }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.all.borrow().is_empty()
    }

    /// Ends the relays to the nodes for which `ends` says so; their clients are told why.
    pub(crate) fn close(&self, code: u16, reason: &'static str, ends: impl Fn(&NodeId) -> bool) {
        let all = self.0.all.borrow();
        for entry in all.values().filter(|entry| ends(&entry.owner)) {
            entry.told.set(Some((code, reason)));
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Ends when there are none.
    pub(crate) async fn none_left(&self) {
        while !self.is_empty() {
            self.0.sleeper.sleep(LOOK_EVERY).await;
        }
    }
}

impl RelayHold {
    pub(super) fn sleeper(&self) -> &Sleeper {
        &self.relays.0.sleeper
    }

    pub(super) fn stuck_after(&self) -> Duration {
        self.relays.0.stuck_after
    }

    /// What the relay's client is to be closed with, once it was told; else `cx` is woken when it is.
    pub(super) fn told(&self, cx: &Context<'_>) -> Option<(u16, &'static str)> {
        let told = self.entry.told.get();
        if told.is_none() {
            self.entry.waker.set(Some(cx.waker().clone()));
        }
        told
    }
}

impl Drop for RelayHold {
    fn drop(&mut self) {
        self.relays.0.all.borrow_mut().remove(&self.id);
        self.relays.0.open.dec();
    }
}
