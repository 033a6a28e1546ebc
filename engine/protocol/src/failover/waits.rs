//! The kept requests of one node (R-WAIT-1 to R-WAIT-3).
//!
//! Requests for one actor wait together: the actor is asked for once, about once a second, and what comes of it
//! ends all of them. While its owner is only silent nothing is asked at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Places, Suspects};
use crate::{
    ActorId, NodeId,
    clock::Moment,
    forwarding::Refusal,
    limits::{FAILOVER_ASK_PERIOD, FAILOVER_SPREAD},
    ownership::{Denial, Owner},
    view::{Standing, View},
};

/// A kept request, by a number of its node's.
pub type Kept = u64;

/// How many are kept, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `--failover-wait-secs`; zero keeps nothing.
    pub wait: Duration,
    /// Connections the node takes: a quarter of them may be kept ([`Places`]).
    pub connections_max: usize,
}

impl Limits {
    /// For a node that takes so many connections.
    #[must_use]
    pub const fn new(wait: Duration, connections_max: usize) -> Self {
        Self { wait, connections_max }
    }
}

/// Why a request was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// Over a cap: 503 at once, counted.
    OverCap,
    /// The waits are turned off, or this node stops or has no lease: 503 at once.
    Off,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsInput {
    /// Time passed, or there is a new view, or somebody is suspected or no longer.
    Look,
    /// This node took the actor: because of [`WaitsEffect::Ask`], or of a request that came after those that wait.
    Taken(ActorId),
    /// The same: it did not.
    Denied(ActorId, Denial),
    /// The request's client closed its connection.
    Left(Kept),
    /// This node begins to stop.
    Stop,
    /// This node's lease ran out.
    Lapsed,
    /// It is valid again.
    Valid,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsEffect {
    /// Read the actor's record, and take the actor if it is free ([`crate::ownership::Input::Want`], fresh).
    Ask(ActorId),
    /// The wait of this request is over.
    End(Kept, End),
}

/// How a wait ended; one label of `wasmkeep_failover_waits_total` each (R-WAIT-5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// This node took the actor: serve it here.
    Served,
    /// Another node took the actor: send it there, once.
    Sent(NodeId),
    /// The owner proved alive: send it there, as any other request.
    OwnerAlive(NodeId),
    /// 503: its time was up.
    TimedOut,
    /// 503: this node stops.
    Stopping,
    /// 503: this node's lease ran out.
    LeaseLapsed,
    /// Its client left: it never runs.
    Dropped,
}

impl End {
    /// What the request is answered, if nobody serves it: the same sentence whatever ended its wait.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::TimedOut | Self::Stopping | Self::LeaseLapsed => Some(Refusal::NotReachable),
            Self::Served | Self::Sent(_) | Self::OwnerAlive(_) | Self::Dropped => None,
        }
    }

    /// The metric's label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Sent(_) => "sent_to_new_owner",
            Self::OwnerAlive(_) => "owner_alive",
            Self::TimedOut => "timed_out",
            Self::Stopping => "stopping",
            Self::LeaseLapsed => "lease_lapsed",
            Self::Dropped => "client_left",
        }
    }
}

/// The kept requests of one node.
#[derive(Debug)]
pub struct Waits {
    wait: Duration,
    places: Places,
    requests: BTreeMap<Kept, Request>,
    actors: BTreeMap<ActorId, Group>,
    stopping: bool,
    lapsed: bool,
}

#[derive(Debug)]
struct Request {
    actor: ActorId,
    until: Moment,
}

/// The requests kept for one actor.
#[derive(Debug)]
struct Group {
    /// Whose node they wait for.
    owner: NodeId,
    requests: BTreeSet<Kept>,
    ask: Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// Not while the owner is only silent.
    No,
    /// Due then.
    At(Moment),
    /// Under way.
    Asked,
}

impl Waits {
    /// No request.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let Limits { wait, connections_max } = limits;
        let places = Places::new(connections_max);
        let (requests, actors) = (BTreeMap::new(), BTreeMap::new());
        Self { wait, places, requests, actors, stopping: false, lapsed: false }
    }

    /// Requests kept now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// When [`WaitsInput::Look`] is due at the latest; a node leaves the view without any other sign, so it is due
    /// with every view as well.
    #[must_use]
    pub fn wake(&self) -> Option<Moment> {
        let ends = self.requests.values().map(|request| request.until);
        let asks = self.actors.values().filter_map(|group| match group.ask {
            Ask::At(due) => Some(due),
            Ask::No | Ask::Asked => None,
        });
        ends.chain(asks).min()
    }

    /// Keeps a request for an actor whose owner is, or seems, gone. [`WaitsInput::Look`] comes next.
    ///
    /// # Errors
    /// Why it is answered at once instead.
    pub fn keep(&mut self, now: Moment, kept: Kept, actor: &ActorId, owner: &NodeId) -> Result<(), NotKept> {
        if self.wait.is_zero() || self.stopping || self.lapsed {
            return Err(NotKept::Off);
        }
        self.places.take(actor)?;
        self.requests.insert(kept, Request { actor: actor.clone(), until: now + self.wait });
        let fresh = || Group { owner: owner.clone(), requests: BTreeSet::new(), ask: Ask::No };
        let group = self.actors.entry(actor.clone()).or_insert_with(fresh);
        group.requests.insert(kept);
        Ok(())
    }

    /// Takes one input.
    pub fn step(
        &mut self,
        now: Moment,
        view: &View,
        suspects: &Suspects,
        input: WaitsInput,
    ) -> Vec<WaitsEffect> {
        let mut effects = Vec::new();
        match input {
            WaitsInput::Look => {}
            WaitsInput::Taken(actor) => self.end_all(&actor, &End::Served, &mut effects),
            WaitsInput::Denied(actor, denial) => self.denied(now, suspects, &actor, denial, &mut effects),
            WaitsInput::Left(kept) => self.end(kept, End::Dropped, &mut effects),
            WaitsInput::Stop => self.stopping = true,
            WaitsInput::Lapsed => self.lapsed = true,
            WaitsInput::Valid => self.lapsed = false,
        }
        self.end_by_time(now, &mut effects);
        self.look(now, view, suspects, &mut effects);
        effects
    }

    fn end(&mut self, kept: Kept, end: End, effects: &mut Vec<WaitsEffect>) {
        let Some(request) = self.requests.remove(&kept) else { return };
        effects.push(WaitsEffect::End(kept, end));
        self.places.leave(&request.actor);
        if let Some(group) = self.actors.get_mut(&request.actor) {
            group.requests.remove(&kept);
            if group.requests.is_empty() {
                self.actors.remove(&request.actor);
            }
        }
    }

    fn end_all(&mut self, actor: &ActorId, end: &End, effects: &mut Vec<WaitsEffect>) {
        let requests = self.actors.remove(actor).map(|group| group.requests).unwrap_or_default();
        for kept in requests {
            self.requests.remove(&kept);
            self.places.leave(actor);
            effects.push(WaitsEffect::End(kept, end.clone()));
        }
    }

    /// This node did not get the actor: somebody else has it, or it is to be asked for again.
    fn denied(
        &mut self,
        now: Moment,
        suspects: &Suspects,
        actor: &ActorId,
        denial: Denial,
        effects: &mut Vec<WaitsEffect>,
    ) {
        let Some(group) = self.actors.get_mut(actor) else { return };
        group.ask = Ask::At(now + FAILOVER_ASK_PERIOD);
        match denial {
            Denial::Owned(Owner::Live(node)) if !suspects.suspects(&node) => {
                let end = if node == group.owner { End::OwnerAlive(node) } else { End::Sent(node) };
                self.end_all(actor, &end, effects);
            }
            // Taken over by a node that is gone as well by now: wait for that one.
            Denial::Owned(Owner::Live(node) | Owner::Silent(node) | Owner::Ending(node)) => {
                group.owner = node
            }
            _ => {}
        }
    }

    fn end_by_time(&mut self, now: Moment, effects: &mut Vec<WaitsEffect>) {
        let (stopping, lapsed) = (self.stopping, self.lapsed);
        let ended: Vec<(Kept, End)> = self
            .requests
            .iter()
            .filter_map(|(kept, request)| match () {
                () if stopping => Some((*kept, End::Stopping)),
                () if lapsed => Some((*kept, End::LeaseLapsed)),
                () if now >= request.until => Some((*kept, End::TimedOut)),
                () => None,
            })
            .collect();
        for (kept, end) in ended {
            self.end(kept, end, effects);
        }
    }

    /// What the view means for each actor that is waited for.
    fn look(&mut self, now: Moment, view: &View, suspects: &Suspects, effects: &mut Vec<WaitsEffect>) {
        let mut alive = Vec::new();
        for (actor, group) in &mut self.actors {
            let suspected = suspects.suspects(&group.owner);
            let stopping = view.stopping().any(|node| *node == group.owner);
            match view.standing(&group.owner, now) {
                Standing::Live if !suspected => alive.push((actor.clone(), group.owner.clone())),
                // Its actor may have been given up meanwhile: the record tells, about once a second. One that fell
                // silent while it gave its actors up has the fewer of them.
                Standing::Live => group.ask_at(now + FAILOVER_ASK_PERIOD),
                Standing::Silent if stopping => group.ask_at(now + FAILOVER_ASK_PERIOD),
                Standing::Gone => group.ask_at(now + spread(actor)),
                Standing::Silent | Standing::Ending | Standing::Absent => group.wait(),
            }
            if matches!(group.ask, Ask::At(due) if due <= now) {
                group.ask = Ask::Asked;
                effects.push(WaitsEffect::Ask(actor.clone()));
            }
        }
        for (actor, owner) in alive {
            self.end_all(&actor, &End::OwnerAlive(owner), effects);
        }
    }
}

impl Group {
    fn ask_at(&mut self, due: Moment) {
        if self.ask == Ask::No {
            self.ask = Ask::At(due);
        }
    }

    fn wait(&mut self) {
        if self.ask != Ask::Asked {
            self.ask = Ask::No;
        }
    }
}

/// How long after it is known to be free an actor is asked for: each at a moment of its own.
fn spread(actor: &ActorId) -> Duration {
    let spread_ms = u64::try_from(FAILOVER_SPREAD.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(actor.hash() % spread_ms.max(1))
}

#[cfg(test)]
mod tests;
