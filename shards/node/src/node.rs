//! One node, from its configuration to its end: the order in which things start and stop.

mod error;
mod files;
mod interrupt;
mod load;
mod seat;

use std::{
    any::Any,
    fs::File,
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use wasmkeep_host::{Runtime, RuntimeConfig};
use wasmkeep_protocol::{ActorClass, lease::Exit, limits::INSTANCES_AHEAD_PER_SHARD};

pub use self::{
    error::NodeError,
    interrupt::{Interrupt, Raise},
};
use self::{
    files::{Fitted, fit_open_files, take_data_dir},
    load::{load, load_one},
    seat::{Alarms, Control, Doors, seats},
};
use crate::{
    alarm,
    config::{ComponentConfig, Config},
    http::{self, Admission, Bound, Reserved, Stats},
    metrics::Watched,
    runtime::{
        Frozen, Hooks, OffloadPool, ShardFailed, Shards, Watch, offload::OFFLOAD_THREADS, preflight,
        preflight::open_files_max, start,
    },
    state::{Code, NodeState},
};

/// Instances alive beyond the resident actors: those being replaced, and stateless requests under way.
const SPARE_INSTANCES: usize = 256;

/// A running node.
pub struct Node {
    address: SocketAddr,
    shards: Shards<usize>,
    controls: Vec<flume::Sender<Control>>,
    state: Arc<NodeState>,
    runtime: Runtime,
    frozen: flume::Receiver<Frozen>,
    while_compiling: fn(&Path, usize) -> Box<dyn Any>,
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

/// Where a node is going to listen.
struct Ports {
    clients: Reserved,
    nodes: Option<Reserved>,
}

impl Ports {
    fn reserve(config: &Config) -> Result<Self, NodeError> {
        let clients = http::reserve(config.listen)?;
        let nodes = config.cluster.as_ref().and_then(|cluster| cluster.listener.as_ref());
        let nodes = nodes.map(|listener| http::reserve(listener.listen)).transpose()?;
        Ok(Self { clients, nodes })
    }

    fn listen(self, shards: usize) -> Result<(Bound, Option<Bound>), NodeError> {
        let clients = self.clients.listen(shards)?;
        let nodes = self.nodes.map(|reserved| reserved.listen(shards)).transpose()?;
        Ok((clients, nodes))
    }
}

/// What there is before a node serves.
struct Loaded {
    fitted: Fitted,
    runtime: Runtime,
    state: Arc<NodeState>,
    controls: Vec<flume::Sender<Control>>,
    controlled: Vec<flume::Receiver<Control>>,
    lock: File,
}

impl Node {
    /// Starts a node: checks the machine, takes the data directory and the addresses, loads the components, joins the
    /// cluster, and only then listens (R-LEASE-8) and starts the shards. Returns when it serves.
    ///
    /// # Errors
    /// [`NodeError`]; nothing runs then, but after [`NodeError::Interrupted`]: what was under way when `interrupt` was
    /// raised goes on until the process ends.
    pub fn start(config: Config, interrupt: &Interrupt) -> Result<Self, NodeError> {
        wasmkeep_storage::check_sqlite_version()?;
        preflight(&config.placement)?;
        let shards = config.placement.shards;
        let fitted = fit_open_files(&config, open_files_max())?;
        let lock = take_data_dir(&config.data_dir)?;
        let ports = Ports::reserve(&config)?;
        let runtime = Runtime::new(&RuntimeConfig {
            cache_dir: config.data_dir.join("compiled"),
            resident_max: fitted.resident_max + SPARE_INSTANCES + shards * INSTANCES_AHEAD_PER_SHARD,
            memory_bytes_max: config.limits.memory_bytes_max,
            line_numbers: config.line_numbers,
        })?;
        let offload = OffloadPool::start(OFFLOAD_THREADS).map_err(NodeError::Thread)?;
        let (controls, controlled): (Vec<_>, Vec<_>) = (0..shards).map(|_| flume::unbounded()).unzip();
        let state = interrupt.or_blocking({
            let (config, runtime, controls) = (config.clone(), runtime.clone(), controls.clone());
            let address = ports.clients.address();
            move || load(&config, &fitted, &runtime, offload, address, &controls)
        })??;
        let state = Arc::new(state);
        let loaded = Loaded { fitted, runtime, state: Arc::clone(&state), controls, controlled, lock };
        let started = Self::serve(&config, loaded, ports);
        if started.is_err()
            && let Some(cluster) = &state.cluster
        {
            // Nobody has to wait for the lease of a node that does not serve.
            cluster.stop();
            cluster.leave();
        }
        started
    }

    /// Listens and starts the shards.
    fn serve(config: &Config, loaded: Loaded, ports: Ports) -> Result<Self, NodeError> {
        let Loaded { fitted, runtime, state, controls, controlled, lock } = loaded;
        let shards = config.placement.shards;
        let alarms = Alarms::open(config, &state)?;
        let epochs = runtime.clone();
        let (found, frozen) = flume::bounded(1);
        // Without a bucket there is no lease to give up, and nobody else who could run the actors.
        let watch = config.cluster.as_ref().map(|_| Watch {
            frozen_after: config.frozen_after,
            // Nobody waits any more when the node was dropped.
            tell: Box::new(move |shard| drop(found.send(shard))),
        });
        let hooks = Hooks {
            on_tick: Box::new(move || epochs.advance_epoch()),
            stall_after: config.stall_after,
            watch,
            ..Hooks::default()
        };
        let admission = Admission::new(fitted.connections_max);
        let (report, reports) = flume::bounded(shards);
        let (bound, nodes) = ports.listen(shards)?;
        let doors = Doors {
            clients: bound.listeners,
            clients_admitted: admission.clone(),
            nodes: nodes.map(|bound| bound.listeners),
            nodes_admitted: Admission::new(fitted.cluster_connections_max),
        };
        let seats = seats(doors, controlled, alarms.shards, &state, &report);
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
        Ok(Self {
            address: bound.address,
            shards: running,
            controls,
            state,
            runtime,
            frozen,
            while_compiling: config.while_compiling,
            _lock: lock,
        })
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

    /// Waits until a shard of a node with a bucket makes no progress for longer than [`Config::frozen_after`]; `None` once
    /// the node has ended without that. Whoever is told has to end the process: a frozen shard cannot be stopped, and
    /// with the process the renewals of its lease end, so that other nodes take its actors.
    pub fn frozen(&self) -> impl FnOnce() -> Option<Frozen> + Send + use<> {
        let frozen = self.frozen.clone();
        move || frozen.recv().ok()
    }

    /// Puts a new version of a class in place. Each of its actors runs it from its next event on, with the data
    /// it has; no connection is closed, and events under way end where they began. Blocks while the component is
    /// compiled, and returns the id of the version once every shard knows of it.
    ///
    /// # Errors
    /// [`NodeError::UnknownClass`], and [`NodeError::Component`]: the version before stays.
    pub fn replace(&self, class: &ActorClass, component: &ComponentConfig) -> Result<String, NodeError> {
        let served = self.state.classes.get(class).ok_or_else(|| NodeError::UnknownClass(class.clone()))?;
        let version = load_one(&self.runtime, component, self.while_compiling, Runtime::load_actor)?;
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
