//! The connections with TLS that a shard has, for as long as their other sides are trusted (R-TLS-4). Owns their end;
//! whoever carries one only sees it break off.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    rc::Rc,
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustix::net::Shutdown;
use wasmkeep_protocol::{NodeId, limits::RELAY_LOOK_EVERY, trust::Fingerprint, view::View};

use crate::{cluster::moment, runtime::Sleeper, tcp::Tcp};

/// The connections of one shard. Clones are handles on the same ones.
#[derive(Clone)]
pub(crate) struct Watch(Rc<Inner>);

struct Inner {
    view: Arc<ArcSwap<View>>,
    sleeper: Sleeper,
    all: RefCell<BTreeMap<u64, Entry>>,
    next: Cell<u64>,
    looking: Cell<bool>,
}

struct Entry {
    node: NodeId,
    fingerprint: Fingerprint,
    /// Open as long as the entry is there.
    fd: RawFd,
}

/// Keeps a connection among its shard's.
pub(super) struct Watched {
    watch: Watch,
    id: u64,
}

impl Watch {
    /// None yet.
    pub(crate) fn new(view: Arc<ArcSwap<View>>, sleeper: Sleeper) -> Self {
        Self(Rc::new(Inner {
            view,
            sleeper,
            all: RefCell::default(),
            next: Cell::new(0),
            looking: Cell::new(false),
        }))
    }

    /// Whose certificate this is, if it is trusted now.
    pub(super) fn trusted(&self, fingerprint: &Fingerprint) -> Option<(NodeId, Fingerprint)> {
        let view = self.0.view.load();
        let node = view.trusted(fingerprint.as_str(), moment())?;
        Some((node.clone(), fingerprint.clone()))
    }

    /// A connection begins.
    pub(super) fn enter(&self, node: NodeId, fingerprint: Fingerprint, stream: &Tcp) -> Watched {
        let id = self.0.next.replace(self.0.next.get() + 1);
        let entry = Entry { node, fingerprint, fd: stream.descriptor().as_raw_fd() };
        self.0.all.borrow_mut().insert(id, entry);
        self.keep_looking();
        Watched { watch: self.clone(), id }
    }

    /// Looks as long as there are connections.
    fn keep_looking(&self) {
        if self.0.looking.replace(true) {
            return;
        }
        let inner = Rc::clone(&self.0);
        glommio::spawn_local(async move {
            while !inner.all.borrow().is_empty() {
                inner.sleeper.sleep(RELAY_LOOK_EVERY).await;
                inner.cut();
            }
            inner.looking.set(false);
        })
        .detach();
    }
}

impl Inner {
    /// Ends the connections of those that are not trusted any more, in both directions.
    fn cut(&self) {
        let (view, all, now) = (self.view.load(), self.all.borrow(), moment());
        let mut cut = BTreeSet::new();
        for Entry { node, fingerprint, fd } in all.values() {
            if view.trusts(node, fingerprint.as_str(), now) {
                continue;
            }
            // SAFETY: an entry is removed before its connection's descriptor is closed.
            let socket = unsafe { BorrowedFd::borrow_raw(*fd) };
            // One that is closed already has not been dropped yet.
            if rustix::net::shutdown(socket, Shutdown::Both).is_ok() {
                cut.insert(node);
            }
        }
        for node in cut {
            tracing::info!(%node, "its certificate is not trusted any more: connections with it were cut");
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.0.all.borrow_mut().remove(&self.id);
    }
}
