//! One shard: its actors, and the requests that reach them from its own connections and from other shards.

mod ahead;
mod alarms;
mod answer;
mod body;
mod calls;
mod calls_abroad;
mod elsewhere;
mod gate;
mod guest;
mod handing_on;
mod instances;
mod keeping;
mod leased;
mod relaying;
mod replica;
mod requests;
mod resending;
mod route;
mod sending_on;
mod spares;
mod upgrade;
mod world;

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use http::HeaderValue;
use wasmkeep_actor::{
    Actors, Limits, Refusal,
    alarm::{self, Book},
};
use wasmkeep_host::ActorEvent;
use wasmkeep_protocol::{
    ActorClass, ActorId, close,
    limits::{DOZE_AFTER, SOCKET_CLOSE_WITHIN},
    placement::shard_of,
};

pub(crate) use self::route::is_operators;
use self::{calls::ShardCalls, elsewhere::Abroad, keeping::Keeping, world::ShardWorld};
use crate::{
    alarm::ShardAlarms,
    http as front,
    metrics::ShardMetrics,
    peers::Peers,
    runtime::{Endpoint, SendError, ShardContext},
    socket,
    state::NodeState,
    tls,
};

/// How long a request waits for room in another shard's inbox.
const MESH_WAIT: Duration = Duration::from_secs(1);

/// How often idle actors are looked for, at most; less often when nothing could be idle long enough.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Actors that fell idle in one interval of the sweep close their databases over most of the next, in so many steps: all at
/// once they would take the cores from actors at work, and the memory that they give back would be gone when new
/// ones want it.
const DOZE_STEPS: usize = 80;

/// Between two steps.
const DOZE_PAUSE: Duration = Duration::from_millis(10);

/// What shards send each other.
pub(crate) enum Message {
    /// An event for an actor of the receiving shard. Boxed, so that an inbox's places are small.
    Event(Box<(ActorId, ActorEvent)>),
    /// A connection whose requests belong to the receiving shard.
    Connection(front::Handover),
    /// Bring the gauges up to date, then drop this.
    Gauges(flume::Sender<()>),
}

/// One shard.
pub(crate) struct Shard {
    node: Arc<NodeState>,
    context: ShardContext,
    world: Rc<ShardWorld>,
    actors: Rc<Actors<ShardWorld>>,
    pub(crate) endpoint: Endpoint<Message>,
    pub(crate) metrics: Rc<ShardMetrics>,
    node_header: HeaderValue,
    sweeping: Cell<bool>,
    sweeping_rooms: Cell<bool>,
    watching_owners: Cell<bool>,
    /// On a node with a bucket.
    abroad: Option<Abroad>,
}

impl Shard {
    pub(crate) fn new(
        node: Arc<NodeState>,
        context: ShardContext,
        endpoint: Endpoint<Message>,
        alarms: ShardAlarms,
    ) -> Rc<Self> {
        let metrics = Rc::new(node.metrics.shard(context.index));
        let ShardAlarms { index, known, found } = alarms;
        let book = Rc::new(Book::new(index, known));
        let world = Rc::new(ShardWorld::new(Arc::clone(&node), context.clone(), Rc::clone(&metrics), book));
        let limits = Limits {
            mailbox_events_max: node.limits.mailbox_events_max,
            resident_max: node.limits.resident_max.div_ceil(context.count),
            event_wall_clock: node.limits.event_wall_clock,
            doze_after: DOZE_AFTER,
            hibernate_after: node.limits.hibernate_after,
        };
        let actors = Actors::new(Rc::clone(&world), limits);
        // A checked node id is made of letters a header may hold.
        let node_header = HeaderValue::from_str(node.node_id.as_str())
            .unwrap_or_else(|_| HeaderValue::from_static("invalid"));
        let tls = node.cluster.as_ref().and_then(|cluster| {
            let watch = tls::Watch::new(Arc::clone(&cluster.view), context.sleeper.clone());
            Some((cluster.identity.clone()?, watch))
        });
        let abroad = node.cluster.clone().map(|cluster| Abroad {
            peers: Peers::new(Rc::clone(&world.offload), context.sleeper.clone(), tls.clone(), {
                let cluster = cluster.clone();
                move || cluster.is_known()
            }),
            tls,
            keeping: Keeping::new(cluster.clone(), context.sleeper.clone(), Arc::clone(&node)),
            hints: elsewhere::hints(node.limits.hibernate_after),
            relays: socket::Relays::new(
                context.sleeper.clone(),
                node.limits.socket_ping_after * 2,
                node.metrics.cluster.relayed.clone(),
            ),
            cluster,
        });
        let shard = Rc::new(Self {
            abroad,
            node,
            context,
            world,
            actors,
            endpoint,
            metrics,
            node_header,
            sweeping: Cell::new(false),
            sweeping_rooms: Cell::new(false),
            watching_owners: Cell::new(false),
        });
        // Set here and nowhere else.
        let _ = shard.world.calls.set(ShardCalls::new(&shard));
        shard.world.sockets.connect(upgrade::post(&shard));
        let _ = shard.world.shard.set(Rc::downgrade(&shard));
        glommio::spawn_local(alarm::keep(Rc::clone(&shard.world), Rc::clone(&shard.actors))).detach();
        if let Some(found) = found {
            glommio::spawn_local(alarms::take_found(Rc::clone(&shard.world), found)).detach();
        }
        shard
    }

    /// This node's certificate, and the connections on which other nodes have shown theirs.
    pub(crate) fn tls(&self) -> Option<(Arc<tls::Identity>, tls::Watch)> {
        self.abroad.as_ref()?.tls.clone()
    }

    /// Hands an event to an actor of this shard.
    pub(crate) fn dispatch(self: &Rc<Self>, id: &ActorId, event: ActorEvent) {
        self.actors.dispatch(id, event);
    }

    /// Hands an event to its actor, here or on the shard that owns it.
    pub(crate) async fn deliver(self: &Rc<Self>, id: &ActorId, event: ActorEvent) -> Result<(), SendError> {
        let owner = shard_of(id.hash(), self.context.count);
        if owner == self.context.index {
            self.dispatch(id, event);
            return Ok(());
        }
        self.metrics.hops.inc();
        let message = Message::Event(Box::new((id.clone(), event)));
        self.endpoint.send(owner, message, MESH_WAIT, &self.context.sleeper).await
    }

    /// The node lost an actor, or every one of this shard (R-LEASE-3, R-WS-1).
    pub(crate) fn lose(&self, actor: Option<&ActorId>, why: String) {
        self.actors.lose(actor, &Refusal::NotHeld(why));
        match actor {
            Some(actor) => self.world.sockets.close_actor(actor, close::RESTART, "the actor moved"),
            None => self.world.sockets.close_all(close::RESTART, "the actor moved"),
        }
    }

    /// A class has a new version.
    pub(crate) fn renew(&self, class: &ActorClass) {
        self.actors.renew(class);
    }

    /// Sends a connection to the shard it belongs to; one that cannot be taken there now is given back.
    pub(crate) fn hand_over(&self, handover: front::Handover) -> Result<(), front::Handover> {
        let shard = handover.shard;
        match self.endpoint.try_send(shard, Message::Connection(handover)) {
            Err((Message::Connection(handover), _)) => Err(handover),
            _ => Ok(()),
        }
    }

    /// The shard that owns what this request target names; `None` when any shard may answer.
    pub(crate) fn owner(&self, target: &str) -> Option<usize> {
        route::actor_hash_of(target).map(|hash| shard_of(hash, self.context.count))
    }

    /// Sets the gauges that are counted rather than kept.
    pub(crate) fn update_gauges(&self) {
        let (resident, asleep) = self.actors.counts();
        self.metrics.resident.set(resident as i64);
        self.metrics.hibernated.set(asleep as i64);
        self.metrics.mailbox.set(self.actors.waiting() as i64);
        self.metrics.alarms.set(self.world.book.len() as i64);
        self.metrics.memory.set(self.world.memory.bytes() as i64);
    }

    /// Looks for idle actors as long as there are resident ones; a shard without any has no timer.
    pub(super) fn keep_sweeping(self: &Rc<Self>) {
        if self.sweeping.replace(true) {
            return;
        }
        let shard = Rc::clone(self);
        glommio::spawn_local(async move {
            let every = SWEEP_EVERY.min(shard.node.limits.hibernate_after);
            while shard.actors.counts().0 > 0 {
                shard.context.sleeper.sleep(every).await;
                shard.actors.sweep();
                shard.world.ahead.sweep(shard.node.now());
                let at_once = shard.actors.drowsy().div_ceil(DOZE_STEPS);
                while shard.actors.doze(at_once) {
                    shard.context.sleeper.pause(DOZE_PAUSE).await;
                }
            }
            shard.world.ahead.clear();
            shard.sweeping.set(false);
        })
        .detach();
    }

    /// Finishes what waits within `grace`, closes every actor and every socket, and says how many actors did not
    /// end in time.
    pub(crate) async fn stop(&self, grace: Duration) -> usize {
        self.world.book.stop();
        if let Some(abroad) = &self.abroad {
            abroad.keeping.stop();
        }
        self.actors.stop();
        if self.context.sleeper.timeout(grace, self.actors.stopped()).await.is_err() {
            self.actors.give_up();
            // Those that only waited sleep at once; one that still runs is cut when the process ends.
            let _ = self.context.sleeper.timeout(Duration::from_secs(1), self.actors.stopped()).await;
        }
        // After the events: what they send still goes out.
        // In a cluster another node has the actors at once.
        let code = if self.abroad.is_some() { close::RESTART } else { close::GOING_AWAY };
        let sockets = &self.world.sockets;
        sockets.close_all(code, STOPPING);
        let none_left = async {
            if let Some(abroad) = &self.abroad {
                abroad.relays.close(code, STOPPING, |_| true);
                abroad.relays.none_left().await;
            }
            sockets.none_left().await;
        };
        let _ = self.context.sleeper.timeout(SOCKET_CLOSE_WITHIN, none_left).await;
        self.world.ahead.clear();
        self.actors.counts().0
    }
}

/// What the clients of WebSockets are told.
const STOPPING: &str = "the node is stopping";
