//! Requests kept for actors whose node died, on one shard (R-WAIT). `protocol` decides when to ask for an actor and
//! how each wait ends; this holds the requests' ends and does the asking.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::channel::oneshot;
use wasmkeep_protocol::{
    ActorId, NodeId,
    failover::{End, Kept, Limits, NotKept, Suspects, Waits, WaitsEffect, WaitsInput},
};

pub(super) use crate::cluster::moment;
use crate::{cluster::Cluster, runtime::Sleeper, state::NodeState};

/// How often the view is looked at while requests are kept. A node leaves it without any other sign.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The kept requests of one shard, and whom it suspects.
pub(super) struct Keeping {
    cluster: Cluster,
    sleeper: Sleeper,
    node: Arc<NodeState>,
    waits: RefCell<Waits>,
    suspects: RefCell<Suspects>,
    ends: RefCell<HashMap<Kept, oneshot::Sender<End>>>,
    next: Cell<Kept>,
    looking: Cell<bool>,
    valid: Cell<bool>,
}

impl Keeping {
    pub(super) fn new(cluster: Cluster, sleeper: Sleeper, node: Arc<NodeState>) -> Rc<Self> {
        let waits = Waits::new(Limits::new(cluster.config.failover_wait, node.connections_max));
        Rc::new(Self {
            cluster,
            sleeper,
            node,
            waits: RefCell::new(waits),
            suspects: RefCell::default(),
            ends: RefCell::default(),
            next: Cell::new(0),
            looking: Cell::new(false),
            valid: Cell::new(true),
        })
    }

    /// A connection to this node could not be opened.
    pub(super) fn suspect(&self, node: &NodeId) {
        self.suspects.borrow_mut().failed(node, moment());
    }

    /// This node says that it stops.
    pub(super) fn stops(&self, node: &NodeId) {
        self.suspects.borrow_mut().stops(node, moment());
    }

    /// Whom this shard suspects now.
    pub(super) fn with_suspects<T>(&self, ask: impl FnOnce(&Suspects) -> T) -> T {
        self.look_at_suspects();
        ask(&self.suspects.borrow())
    }

    fn look_at_suspects(&self) {
        let view = self.cluster.view.load();
        self.suspects.borrow_mut().look(&view, self.cluster.config.timing.skew, moment());
    }

    /// Keeps a request until its wait ends. Dropping the future says that the client left.
    ///
    /// # Errors
    /// Why it is answered at once.
    pub(super) async fn keep(self: &Rc<Self>, actor: &ActorId, owner: &NodeId) -> Result<End, NotKept> {
        self.look_at_lease();
        let kept = self.next.replace(self.next.get() + 1);
        // Whichever shards keep requests, the node has so many places for them.
        let place = Place::take(&self.node, actor);
        let placed = match &place {
            Ok(_) => self.waits.borrow_mut().keep(moment(), kept, actor, owner),
            Err(over_cap) => Err(*over_cap),
        };
        if placed == Err(NotKept::OverCap) {
            self.node.metrics.cluster.waited("over_cap");
        }
        placed?;
        let (end, ended) = oneshot::channel();
        self.ends.borrow_mut().insert(kept, end);
        self.keep_looking();
        self.step(WaitsInput::Look);
        let mut leaving = Leaving { keeping: Rc::clone(self), kept: Some(kept) };
        let end = ended.await.unwrap_or(End::Stopping);
        leaving.kept = None;
        Ok(end)
    }

    /// This node has the actor: whoever waits for it, and would go on until its old owner is gone, is served.
    pub(super) fn taken(self: &Rc<Self>, actor: &ActorId) {
        if !self.waits.borrow().is_empty() {
            self.step(WaitsInput::Taken(actor.clone()));
        }
    }

    /// This node begins to stop.
    pub(super) fn stop(self: &Rc<Self>) {
        self.step(WaitsInput::Stop);
    }

    fn step(self: &Rc<Self>, input: WaitsInput) {
        let view = Arc::clone(&self.cluster.view.load());
        let effects = self.waits.borrow_mut().step(moment(), &view, &self.suspects.borrow(), input);
        for effect in effects {
            match effect {
                WaitsEffect::Ask(actor) => {
                    let keeping = Rc::clone(self);
                    glommio::spawn_local(async move {
                        let asked = keeping.cluster.claim(&actor, true).await;
                        keeping.step(match asked {
                            Ok(_) => WaitsInput::Taken(actor),
                            Err(denial) => WaitsInput::Denied(actor, denial),
                        });
                    })
                    .detach();
                }
                WaitsEffect::End(kept, end) => {
                    self.node.metrics.cluster.waited(end.label());
                    let waiting = self.ends.borrow_mut().remove(&kept);
                    if let Some(waiting) = waiting {
                        // A client that just left needs no end.
                        let _ = waiting.send(end);
                    }
                }
            }
        }
    }

    /// Tells the waits whether the lease is valid, if that has changed.
    fn look_at_lease(self: &Rc<Self>) {
        let valid = self.cluster.lease.epoch().is_some();
        if self.valid.replace(valid) != valid {
            self.step(if valid { WaitsInput::Valid } else { WaitsInput::Lapsed });
        }
    }

    /// Looks at the view as long as requests are kept.
    fn keep_looking(self: &Rc<Self>) {
        if self.looking.replace(true) {
            return;
        }
        let keeping = Rc::clone(self);
        glommio::spawn_local(async move {
            while !keeping.waits.borrow().is_empty() {
                keeping.sleeper.sleep(LOOK_EVERY).await;
                keeping.look_at_suspects();
                keeping.look_at_lease();
                keeping.step(WaitsInput::Look);
            }
            keeping.looking.set(false);
        })
        .detach();
    }
}

/// One of the node's places for kept requests, until it is dropped.
struct Place {
    node: Arc<NodeState>,
    actor: ActorId,
}

impl Place {
    fn take(node: &Arc<NodeState>, actor: &ActorId) -> Result<Self, NotKept> {
        node.kept().take(actor)?;
        Ok(Self { node: Arc::clone(node), actor: actor.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.node.kept().leave(&self.actor);
    }
}

/// Says that a client left before its wait ended.
struct Leaving {
    keeping: Rc<Keeping>,
    kept: Option<Kept>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(kept) = self.kept {
            self.keeping.ends.borrow_mut().remove(&kept);
            self.keeping.step(WaitsInput::Left(kept));
        }
    }
}
