//! What each shard of a node is given when it starts, and its life from there to its end.

use std::{
    convert::Infallible,
    net::TcpListener,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{channel::oneshot, future::join_all};
use glommio::task::JoinHandle;
use wasmkeep_protocol::{ActorClass, ActorId};

use super::NodeError;
use crate::{
    alarm::{self, Found, ShardAlarms},
    config::Config,
    http::{self, Admission, Connections, Front, Handover, Inbound, NodesListener, Stats},
    runtime::{Endpoint, ShardContext, Sleeper, mesh},
    shard::{Message, Shard},
    state::NodeState,
};

/// Alarms found in databases that wait for their shard to take them.
const FOUND_MAX: usize = 64;

/// How long the actors go on as usual for requests that have come. What takes longer has its event by then, as a rule.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// How long a shard waits for its listeners to end, and for the other shards to come as far.
const QUIET_WITHIN: Duration = Duration::from_secs(1);

/// How long connections may stay open once the actors are closed: each has been told something by then, unless the
/// machine is far behind.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// How much longer than this shard the others may take to close their actors.
const OTHERS_WITHIN: Duration = Duration::from_secs(5);

/// What a shard is told from outside its mesh.
pub(super) enum Control {
    /// A class has a new version; to be dropped once the shard's actors know.
    Renew(ActorClass, flume::Sender<()>),
    Stop(Duration),
    /// The node lost this actor, or all of them.
    Lost(Option<ActorId>, String),
    /// The actor's alarm is to be looked at; whether it was.
    Look(ActorId, oneshot::Sender<bool>),
    /// A stop's time for events in flight is over.
    EndEvents,
}

/// The alarms of a node that starts.
pub(super) struct Alarms {
    pub(super) shards: Vec<ShardAlarms>,
    /// What must be told to the shards before the index is complete.
    pub(super) look: Option<(Vec<flume::Sender<Found>>, alarm::Mark)>,
}

impl Alarms {
    pub(super) fn open(config: &Config, state: &NodeState) -> Result<Self, NodeError> {
        let folder = config.data_dir.join("alarms").join(config.tenant.as_str());
        let refused = |source| NodeError::DataDir { path: folder.clone(), source };
        let opened = alarm::open(&folder, state.shards).map_err(refused)?;
        state.looking_for_alarms.store(!opened.is_complete, Ordering::Release);
        let mut senders = Vec::new();
        let shards = opened.shards.into_iter().map(|(index, known)| {
            let found = (!opened.is_complete).then(|| {
                let (sender, found) = flume::bounded(FOUND_MAX);
                senders.push(sender);
                found
            });
            ShardAlarms { index, known, found }
        });
        let shards = shards.collect();
        Ok(Self { shards, look: (!opened.is_complete).then_some((senders, opened.mark)) })
    }
}

/// What travels to a shard's thread.
struct Seat {
    alarms: ShardAlarms,
    endpoint: Endpoint<Message>,
    listener: TcpListener,
    /// For other nodes.
    nodes: Option<TcpListener>,
    control: flume::Receiver<Control>,
    state: Arc<NodeState>,
    admission: Admission,
    nodes_admitted: Admission,
    report: flume::Sender<(usize, Arc<Stats>)>,
    /// No shard takes in connections any more, and the requests that have come are with their actors.
    quiet: Meeting,
    /// The actors of all shards are closed: until then another may send a connection or an event here.
    closed: Meeting,
}

/// A point of the stop that no shard passes before the others have come to it.
#[derive(Clone)]
struct Meeting {
    /// To be dropped by a shard that comes.
    ours: flume::Sender<Infallible>,
    /// Ends when all have.
    all: flume::Receiver<Infallible>,
}

impl Meeting {
    fn new() -> Self {
        let (ours, all) = flume::bounded(0);
        Self { ours, all }
    }

    /// Waits for the others, but not for one that failed.
    async fn meet(self, sleeper: &Sleeper, within: Duration) {
        drop(self.ours);
        // Nothing is ever sent: the end of the last sender is the answer.
        let _ = sleeper.timeout(within, self.all.recv_async()).await;
    }
}

/// A seat is taken once, by the shard of its place.
#[derive(Clone)]
pub(super) struct Place(Arc<std::sync::Mutex<Option<Seat>>>);

/// Where connections come in, and how many.
pub(super) struct Doors {
    /// One for each shard.
    pub(super) clients: Vec<TcpListener>,
    pub(super) clients_admitted: Admission,
    /// As many, on a node with a cluster listener.
    pub(super) nodes: Option<Vec<TcpListener>>,
    pub(super) nodes_admitted: Admission,
}

/// One for each shard.
pub(super) fn seats(
    doors: Doors,
    controlled: Vec<flume::Receiver<Control>>,
    alarms: Vec<ShardAlarms>,
    state: &Arc<NodeState>,
    report: &flume::Sender<(usize, Arc<Stats>)>,
) -> Vec<Place> {
    let endpoints = mesh(state.shards, mesh::INBOX_MESSAGES);
    let (quiet, closed) = (Meeting::new(), Meeting::new());
    let Doors { clients, clients_admitted, nodes, nodes_admitted } = doors;
    let nodes = nodes.map_or_else(
        || (0..state.shards).map(|_| None).collect(),
        |nodes| nodes.into_iter().map(Some).collect::<Vec<_>>(),
    );
    endpoints
        .into_iter()
        .zip(clients.into_iter().zip(nodes))
        .zip(controlled)
        .zip(alarms)
        .map(|(((endpoint, (listener, nodes)), control), alarms)| {
            let seat = Seat {
                alarms,
                endpoint,
                listener,
                nodes,
                control,
                state: Arc::clone(state),
                admission: clients_admitted.clone(),
                nodes_admitted: nodes_admitted.clone(),
                report: report.clone(),
                quiet: quiet.clone(),
                closed: closed.clone(),
            };
            Place(Arc::new(std::sync::Mutex::new(Some(seat))))
        })
        .collect()
}

impl Place {
    /// The life of the shard that sits here; says how many actors had to be cut.
    pub(super) async fn run(self, context: ShardContext) -> usize {
        let seat = self.0.lock().ok().and_then(|mut seat| seat.take());
        match seat {
            Some(seat) => seat.run(context).await,
            None => 0,
        }
    }
}

impl Seat {
    /// A shard's whole life; says how many actors had to be cut.
    async fn run(self, context: ShardContext) -> usize {
        let Self { alarms, endpoint, listener, nodes, control, state, .. } = self;
        let Self { admission, nodes_admitted, report, quiet, closed, .. } = self;
        let sleeper = context.sleeper.clone();
        let shard = Shard::new(Arc::clone(&state), context.clone(), endpoint, alarms);
        let mut config = http::Config::new(context.index);
        config.limits.body_bytes_max = state.limits.body_bytes_max;
        config.operators = crate::shard::is_operators;
        let (router, answering) = (Rc::clone(&shard), Rc::clone(&shard));
        let front = Front::new(
            config,
            sleeper.clone(),
            admission,
            move |path| router.owner(path),
            move |request| Rc::clone(&answering).answer(request),
        );
        let sending = Rc::clone(&shard);
        let send = move |handover: Handover| sending.hand_over(handover);
        let mut doors = vec![glommio::spawn_local(Rc::clone(&front).accept(listener, send.clone())).detach()];
        if let (Some(listener), Some((identity, watch))) = (nodes, shard.tls()) {
            front.keep_nodes(watch.clone());
            let nodes = NodesListener { listener, identity, watch, admission: nodes_admitted };
            doors.push(glommio::spawn_local(Rc::clone(&front).accept_nodes(nodes, send.clone())).detach());
        }
        let (receiving, receiver) = (Rc::clone(&shard), Rc::clone(&front));
        glommio::spawn_local(async move {
            while let Some(message) = receiving.endpoint.receive().await {
                match message {
                    Message::Event(boxed) => {
                        let (id, event) = *boxed;
                        receiving.dispatch(&id, event);
                    }
                    Message::Connection(handover) => {
                        Rc::clone(&receiver).spawn(Inbound::from(handover), send.clone());
                    }
                    Message::Gauges(done) => {
                        receiving.update_gauges();
                        drop(done);
                    }
                }
            }
        })
        .detach();
        state.shards_ready.fetch_add(1, Ordering::Relaxed);
        // Whoever starts the node waits for every shard's report before it says that it serves.
        let _ = report.send((context.index, Arc::clone(front.stats())));
        drop(report);
        let grace = loop {
            match control.recv_async().await {
                Ok(Control::Renew(class, known)) => {
                    shard.renew(&class);
                    drop(known);
                }
                Ok(Control::Stop(grace)) => break grace,
                Ok(Control::Lost(actor, why)) => shard.lose(actor.as_ref(), why),
                Ok(Control::Look(actor, answer)) => shard.look(actor, answer),
                Ok(Control::EndEvents) => {}
                // The node was dropped without being stopped.
                Err(_) => break Duration::ZERO,
            }
        };
        let losing = Rc::clone(&shard);
        glommio::spawn_local(async move {
            while let Ok(told) = control.recv_async().await {
                match told {
                    Control::Lost(actor, why) => losing.lose(actor.as_ref(), why),
                    Control::EndEvents => losing.lose(None, "this node is stopping".into()),
                    Control::Renew(..) | Control::Stop(_) | Control::Look(..) => {}
                }
            }
        })
        .detach();
        let end = End { quiet, closed, grace };
        end.come(&shard, front.connections(), doors, &sleeper).await
    }
}

/// How a shard stops.
struct End {
    quiet: Meeting,
    closed: Meeting,
    /// For events in flight.
    grace: Duration,
}

impl End {
    /// Ends listeners, connections and actors, in this order; says how many actors had to be cut.
    async fn come(
        self,
        shard: &Shard,
        connections: &Connections,
        doors: Vec<JoinHandle<()>>,
        sleeper: &Sleeper,
    ) -> usize {
        // Whose connection ends finds the doors shut, and what came in before that is served.
        connections.refuse();
        let _ = sleeper.timeout(QUIET_WITHIN, join_all(doors)).await;
        connections.stop();
        // Those whose actors are not found yet would find them stopped.
        let _ = sleeper.timeout(ANSWERS_WITHIN, connections.answered()).await;
        self.quiet.meet(sleeper, QUIET_WITHIN).await;
        let cut = shard.stop(self.grace).await;
        self.closed.meet(sleeper, self.grace + OTHERS_WITHIN).await;
        connections.leave();
        let _ = sleeper.timeout(DRAIN_WITHIN, connections.drained()).await;
        cut
    }
}
