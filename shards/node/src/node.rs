//! One node, from its configuration to its end: the order in which things start and stop.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use wasmkeep_host::{Identity, LoadError, Runtime, RuntimeConfig, RuntimeError, Timers};
use wasmkeep_protocol::{ActorClass, ActorId, lease::Exit, limits, placement::shard_of};
use wasmkeep_storage::Pacer;

use crate::{
    alarm::{self, Found, ShardAlarms},
    cluster::{Cluster, ClusterConfig, ClusterError, Me, Word},
    config::{ComponentConfig, Config},
    egress::Egress,
    http::{self, Admission, Front, Handover, Inbound, ListenError, Stats},
    metrics::{ClusterMetrics, Metrics, Watched},
    runtime::{
        Endpoint, Hooks, OffloadPool, PreflightError, ShardContext, ShardFailed, Shards, StartError, mesh,
        offload::OFFLOAD_THREADS, preflight, preflight::open_files_max, start,
    },
    shard::{Message, Shard},
    state::{Class, Code, NodeState, Stateless},
};

/// Instances alive beyond the resident actors: those being replaced, and stateless requests under way.
const SPARE_INSTANCES: usize = 256;

/// Descriptors a node needs besides those of connections and actors: rings, listeners, logs, components.
const OTHER_FILES: u64 = 128;

/// Alarms found in databases that wait for their shard to take them.
const FOUND_MAX: usize = 64;

/// Descriptors of a resident actor: its database and its WAL.
const FILES_PER_ACTOR: u64 = 2;

/// Why a node does not start. One sentence each.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A component cannot be served.
    #[error("{path:?} cannot be served: {source}")]
    Component {
        /// Where it was read from.
        path: PathBuf,
        /// Why.
        source: LoadError,
    },
    /// A class that is not served was to be replaced.
    #[error("this node serves no class {0}")]
    UnknownClass(ActorClass),
    /// The data directory.
    #[error("the data directory {path:?} cannot be used: {source}")]
    DataDir {
        /// As given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another node has it.
    #[error("the data directory {0:?} is in use by another node; stop it or choose another --data-dir")]
    DataDirInUse(PathBuf),
    /// The address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The machine.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// The executors.
    #[error(transparent)]
    Start(#[from] StartError),
    /// wasmtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The client of outbound requests.
    #[error("outbound requests cannot be set up: {0}")]
    Outbound(#[from] reqwest::Error),
    /// The linked SQLite.
    #[error(transparent)]
    Sqlite(#[from] wasmkeep_storage::VersionError),
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Threads.
    #[error("a thread could not be started: {0}; free threads or descriptors and start again")]
    Thread(io::Error),
    /// Too few descriptors for even one connection and one actor.
    #[error(
        "the open-file limit of {0} is too low; raise it with `ulimit -n 65536` or LimitNOFILE=65536 in the systemd unit"
    )]
    OpenFiles(u64),
}

/// A running node.
pub struct Node {
    address: SocketAddr,
    shards: Shards<usize>,
    controls: Vec<flume::Sender<Control>>,
    state: Arc<NodeState>,
    runtime: Runtime,
    /// Held for the life of the node, so that no second one uses the data directory.
    _lock: File,
}

/// How a node ended.
#[derive(Debug)]
pub struct Stopped {
    /// Actors whose events did not end in time.
    pub cut: usize,
    /// Shards that failed rather than stopped.
    pub failed: Vec<ShardFailed>,
    /// How the node left its cluster, if it was in one.
    pub membership: Option<Exit>,
}

/// What a shard is told from outside its mesh.
enum Control {
    /// A class has a new version; to be dropped once the shard's actors know.
    Renew(ActorClass, flume::Sender<()>),
    Stop(Duration),
    /// The node lost this actor, or all of them.
    Lost(Option<ActorId>, String),
    /// A stop's time for events in flight is over.
    EndEvents,
}

impl Node {
    /// Starts a node: checks the machine, takes the data directory and the address, loads the components, starts
    /// the shards. Returns when it serves.
    ///
    /// # Errors
    /// [`NodeError`]; nothing runs then.
    pub fn start(config: Config) -> Result<Self, NodeError> {
        wasmkeep_storage::check_sqlite_version()?;
        preflight(&config.placement)?;
        let shards = config.placement.shards;
        let fitted = fit_open_files(&config, open_files_max())?;
        let lock = take_data_dir(&config.data_dir)?;
        let bound = http::listen(config.listen, shards)?;
        let runtime = Runtime::new(&RuntimeConfig {
            cache_dir: config.data_dir.join("compiled"),
            resident_max: fitted.resident_max + SPARE_INSTANCES,
            memory_bytes_max: config.limits.memory_bytes_max,
            line_numbers: config.line_numbers,
        })?;
        let offload = OffloadPool::start(OFFLOAD_THREADS).map_err(NodeError::Thread)?;
        let (controls, controlled): (Vec<_>, Vec<_>) = (0..shards).map(|_| flume::unbounded()).unzip();
        let state = Arc::new(load(&config, &fitted, &runtime, offload, bound.address, &controls)?);
        let alarms = Alarms::open(&config, &state)?;
        let epochs = runtime.clone();
        let hooks = Hooks {
            on_tick: Box::new(move || epochs.advance_epoch()),
            stall_after: config.stall_after,
            ..Hooks::default()
        };
        let admission = Admission::new(fitted.connections_max);
        let (report, reports) = flume::bounded(shards);
        let seats = seats(bound.listeners, controlled, alarms.shards, &state, &admission, &report);
        let running = start(&config.placement, hooks, move |context| {
            let seat = seats[context.index].clone();
            async move { seat.run(context).await }
        })?;
        drop(report);
        let mut fronts: Vec<(usize, Arc<Stats>)> = reports.into_iter().collect();
        fronts.sort_by_key(|(shard, _)| *shard);
        let fronts = fronts.into_iter().map(|(_, stats)| stats).collect();
        if let Some((senders, mark)) = alarms.look {
            alarm::scan(Arc::clone(&state), senders, mark).map_err(NodeError::Thread)?;
        }
        state.metrics.watch(Watched { beats: running.beats().to_vec(), fronts, admission });
        Ok(Self { address: bound.address, shards: running, controls, state, runtime, _lock: lock })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the membership of a node with a bucket: waits for its end, and says why. `None` at once without one.
    #[must_use]
    pub fn ending(&self) -> Option<impl FnOnce() -> Option<Exit> + Send + use<>> {
        let ending = self.state.cluster.as_ref()?.ending();
        Some(move || ending.wait())
    }

    /// Puts a new version of a class in place. Each of its actors runs it from its next event on, with the data
    /// it has; no connection is closed, and events under way end where they began. Blocks while the component is
    /// compiled, and returns the id of the version once every shard knows of it.
    ///
    /// # Errors
    /// [`NodeError::UnknownClass`], and [`NodeError::Component`]: the version before stays.
    pub fn replace(&self, class: &ActorClass, component: &ComponentConfig) -> Result<String, NodeError> {
        let served = self.state.classes.get(class).ok_or_else(|| NodeError::UnknownClass(class.clone()))?;
        let version = load_one(component, |wasm| self.runtime.load_actor(wasm))?;
        let id = version.id().to_owned();
        served.code.store(Arc::new(Code { version, env: Arc::clone(&component.env) }));
        let (known, knowing) = flume::bounded::<()>(1);
        for control in &self.controls {
            // A shard that is gone has no actors.
            let _ = control.send(Control::Renew(class.clone(), known.clone()));
        }
        drop(known);
        // Nothing is ever sent: the end of the last sender is the answer.
        let _ = knowing.recv();
        Ok(id)
    }

    /// Stops: takes nothing new, lets events in flight finish within `grace`, closes every actor.
    pub fn stop(self, grace: Duration) -> Stopped {
        self.state.stopping.store(true, Ordering::Relaxed);
        if let Some(cluster) = &self.state.cluster {
            cluster.stop();
        }
        for control in &self.controls {
            // A shard that is gone is told about by its join.
            let _ = control.send(Control::Stop(grace));
        }
        let mut stopped = Stopped { cut: 0, failed: Vec::new(), membership: None };
        for ended in self.shards.join() {
            match ended {
                Ok(cut) => stopped.cut += cut,
                Err(failed) => stopped.failed.push(failed),
            }
        }
        if let Some(cluster) = &self.state.cluster {
            stopped.membership = cluster.leave();
        }
        stopped
    }
}

/// What the open-file limit leaves of the numbers asked for.
struct Fitted {
    connections_max: usize,
    resident_max: usize,
    outbound_max: usize,
}

/// Lowers the numbers of connections and resident actors to what the open-file limit allows (R-FLAG-2): what is
/// left for both is shared in proportion, a connection needing one descriptor and an actor two. Outbound requests
/// have an eighth, so that actors cannot take the descriptors of clients.
fn fit_open_files(config: &Config, files: u64) -> Result<Fitted, NodeError> {
    let shards = config.placement.shards as u64;
    let outbound = (files / 8).min(limits::OUTBOUND_REQUESTS_MAX as u64);
    let other = OTHER_FILES + 32 * shards + outbound;
    let (connections, resident) = (config.connections_max as u64, config.limits.resident_max as u64);
    let wanted = connections.saturating_add(resident.saturating_mul(FILES_PER_ACTOR));
    let left = files.saturating_sub(other);
    if wanted <= left {
        return Ok(Fitted {
            connections_max: config.connections_max,
            resident_max: config.limits.resident_max,
            outbound_max: outbound as usize,
        });
    }
    let share = |part: u64| (u128::from(part) * u128::from(left) / u128::from(wanted)) as usize;
    let (connections, resident) = (share(connections), share(resident));
    if connections == 0 || resident < config.placement.shards {
        return Err(NodeError::OpenFiles(files));
    }
    tracing::warn!(
        open_files = files,
        connections,
        resident,
        "the open-file limit is low: fewer connections and fewer actors in memory than asked for"
    );
    Ok(Fitted { connections_max: connections, resident_max: resident, outbound_max: outbound as usize })
}

/// Makes the directory when missing and locks it.
fn take_data_dir(path: &Path) -> Result<File, NodeError> {
    let refused = |source| NodeError::DataDir { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(refused)?;
    let lock =
        File::options().create(true).write(true).truncate(false).open(path.join("lock")).map_err(refused)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(NodeError::DataDirInUse(path.to_owned())),
        Err(fs::TryLockError::Error(source)) => return Err(refused(source)),
    }
    let temporary = path.join("tmp");
    fs::create_dir_all(&temporary).map_err(refused)?;
    wasmkeep_storage::set_temp_folder(temporary);
    Ok(lock)
}

fn load(
    config: &Config,
    fitted: &Fitted,
    runtime: &Runtime,
    offload: OffloadPool,
    listening: SocketAddr,
    controls: &[flume::Sender<Control>],
) -> Result<NodeState, NodeError> {
    let data_dir = std::path::absolute(&config.data_dir)
        .map_err(|source| NodeError::DataDir { path: config.data_dir.clone(), source })?;
    let mut classes = HashMap::new();
    for class in &config.classes {
        let version = load_one(&class.component, |wasm| runtime.load_actor(wasm))?;
        tracing::info!(class = %class.class, version = version.id(), component = %class.component.path.display(), "serving");
        let env = Arc::clone(&class.component.env);
        classes.insert(
            class.class.clone(),
            Class { code: ArcSwap::from_pointee(Code { version, env }), access: class.access.clone() },
        );
    }
    let stateless = match &config.stateless {
        None => None,
        Some(component) => {
            let version = load_one(component, |wasm| runtime.load_stateless(wasm))?;
            let identity = Arc::new(Identity {
                tenant: config.tenant.to_string(),
                class: String::new(),
                name: "stateless".to_owned(),
                node: config.node_id.to_string(),
                generation: 0,
                version: version.id().to_owned(),
            });
            Some(Stateless { version, identity, env: Arc::clone(&component.env) })
        }
    };
    let metrics = Metrics::new(offload.clone());
    // Last: nothing of the cluster is touched by a node that could not serve.
    let me = Me {
        node: config.node_id.clone(),
        tenant: config.tenant.clone(),
        listening,
        storage_bytes_max: config.limits.storage_bytes_max,
    };
    let cluster = match config.cluster.clone() {
        Some(joined) => Some(join(me, joined, metrics.cluster.clone(), controls)?),
        None => None,
    };
    let mut limits = config.limits;
    limits.resident_max = fitted.resident_max;
    Ok(NodeState {
        node_id: config.node_id.clone(),
        tenant: config.tenant.clone(),
        classes,
        stateless,
        storage: wasmkeep_storage::Config {
            quota_bytes: config.limits.storage_bytes_max,
            pacer: Pacer::default(),
            root: data_dir.clone(),
        },
        databases_dir: data_dir.join("actors").join(config.tenant.as_str()),
        limits,
        shards: config.placement.shards,
        connections_max: fitted.connections_max,
        egress: Egress::new(&config.allow_outbound, fitted.outbound_max, metrics.outbound.clone())?,
        metrics,
        offload,
        cluster,
        timers: Timers::start().map_err(NodeError::Thread)?,
        shards_ready: AtomicUsize::new(0),
        stopping: AtomicBool::new(false),
        looking_for_alarms: AtomicBool::new(false),
        began: Instant::now(),
    })
}

/// Joins the cluster; what its bucket core says reaches the shards by their controls.
fn join(
    me: Me,
    joined: ClusterConfig,
    metrics: ClusterMetrics,
    controls: &[flume::Sender<Control>],
) -> Result<Cluster, NodeError> {
    let controls = controls.to_vec();
    let tell = move |word: Word| {
        let each = |control: fn() -> Control| {
            for shard in &controls {
                // A shard that is gone has no actors.
                let _ = shard.send(control());
            }
        };
        match word {
            Word::Valid => {}
            Word::Collected { deleted, failed } => {
                metrics.collected.inc_by(deleted);
                metrics.collect_failures.inc_by(u64::from(failed));
            }
            Word::Lapsed => {
                each(|| Control::Lost(None, "this node cannot reach the cluster's bucket".into()))
            }
            Word::EndEvents => each(|| Control::EndEvents),
            Word::GivenUp(actor, why) => {
                tracing::error!(class = %actor.class, name = %actor.name, "giving the actor up: {why}");
                let shard = shard_of(actor.hash(), controls.len());
                let lost =
                    Control::Lost(Some(actor), "the actor's last writes did not reach the bucket".into());
                let _ = controls[shard].send(lost);
            }
        }
    };
    Ok(Cluster::join(me, joined, tell)?)
}

fn load_one(
    component: &ComponentConfig,
    load: impl FnOnce(&[u8]) -> Result<wasmkeep_host::Version, LoadError>,
) -> Result<wasmkeep_host::Version, NodeError> {
    load(&component.wasm).map_err(|source| NodeError::Component { path: component.path.clone(), source })
}

/// The alarms of a node that starts.
struct Alarms {
    shards: Vec<ShardAlarms>,
    /// What must be told to the shards before the index is complete.
    look: Option<(Vec<flume::Sender<Found>>, alarm::Mark)>,
}

impl Alarms {
    fn open(config: &Config, state: &NodeState) -> Result<Self, NodeError> {
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
    control: flume::Receiver<Control>,
    state: Arc<NodeState>,
    admission: Admission,
    report: flume::Sender<(usize, Arc<Stats>)>,
}

/// A seat is taken once, by the shard of its place.
#[derive(Clone)]
struct Place(Arc<std::sync::Mutex<Option<Seat>>>);

fn seats(
    listeners: Vec<TcpListener>,
    controlled: Vec<flume::Receiver<Control>>,
    alarms: Vec<ShardAlarms>,
    state: &Arc<NodeState>,
    admission: &Admission,
    report: &flume::Sender<(usize, Arc<Stats>)>,
) -> Vec<Place> {
    let endpoints = mesh(state.shards, mesh::INBOX_MESSAGES);
    endpoints
        .into_iter()
        .zip(listeners)
        .zip(controlled)
        .zip(alarms)
        .map(|(((endpoint, listener), control), alarms)| {
            let seat = Seat {
                alarms,
                endpoint,
                listener,
                control,
                state: Arc::clone(state),
                admission: admission.clone(),
                report: report.clone(),
            };
            Place(Arc::new(std::sync::Mutex::new(Some(seat))))
        })
        .collect()
}

impl Place {
    async fn run(self, context: ShardContext) -> usize {
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
        let Self { alarms, endpoint, listener, control, state, admission, report } = self;
        let sleeper = context.sleeper.clone();
        let shard = Shard::new(Arc::clone(&state), context.clone(), endpoint, alarms);
        let mut config = http::Config::new(context.index);
        config.limits.body_bytes_max = state.limits.body_bytes_max;
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
        glommio::spawn_local(Rc::clone(&front).accept(listener, send.clone())).detach();
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
                    Control::Renew(..) | Control::Stop(_) => {}
                }
            }
        })
        .detach();
        front.connections().stop();
        let cut = shard.stop(grace).await;
        let _ = sleeper.timeout(Duration::from_secs(1), front.connections().drained()).await;
        cut
    }
}
