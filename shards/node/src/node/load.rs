//! From a configuration to what the shards share: the components compiled, the cluster joined.

use std::{
    any::Any,
    collections::HashMap,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Instant,
};

use arc_swap::ArcSwap;
use wasmkeep_cluster::ClusterEvent;
use wasmkeep_host::{Identity, LoadError, Runtime, Timers};
use wasmkeep_protocol::{failover::Places, placement::shard_of};
use wasmkeep_storage::Pacer;

use super::{
    NodeError,
    files::{Fitted, SPARES},
    seat::Control,
};
use crate::{
    cluster::{Cluster, ClusterConfig, LocalNode},
    config::{ComponentConfig, Config},
    egress::Egress,
    metrics::{ClusterMetrics, Metrics},
    runtime::OffloadPool,
    state::{Class, Code, NodeState, Stateless},
};

/// Loads the components and joins the cluster: what the shards of the node share.
pub(super) fn load(
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
        let version = load_one(runtime, &class.component, config.while_compiling, Runtime::load_actor)?;
        tracing::info!(class = %class.class, version = version.id(), component = %class.component.path.display(), "serving");
        let env = Arc::clone(&class.component.env);
        classes.insert(
            class.class.clone(),
            Class {
                code: ArcSwap::from_pointee(Code { version, env }),
                access: class.access.clone(),
                durability: class.durability,
            },
        );
    }
    let stateless = match &config.stateless {
        None => None,
        Some(component) => {
            let version = load_one(runtime, component, config.while_compiling, Runtime::load_stateless)?;
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
    let metrics = Metrics::new(offload.clone(), Arc::clone(&config.log_lines_lost));
    // Last: nothing of the cluster is touched by a node that could not serve.
    let me = LocalNode {
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
        spares_dir: data_dir.join(SPARES),
        databases_dir: data_dir.join("actors").join(config.tenant.as_str()),
        limits,
        shards: config.placement.shards,
        connections_max: fitted.connections_max,
        kept: Mutex::new(Places::new(fitted.connections_max)),
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
    me: LocalNode,
    joined: ClusterConfig,
    metrics: ClusterMetrics,
    controls: &[flume::Sender<Control>],
) -> Result<Cluster, NodeError> {
    let controls = controls.to_vec();
    let notify = move |event: ClusterEvent| {
        let each = |control: fn() -> Control| {
            for shard in &controls {
                // A shard that is gone has no actors.
                let _ = shard.send(control());
            }
        };
        match event {
            // The node's own side keeps them.
            ClusterEvent::Valid(_) | ClusterEvent::HeartbeatFailed(_) | ClusterEvent::View(_) => {}
            ClusterEvent::Collected { deleted, failed } => {
                metrics.collected.inc_by(deleted);
                metrics.collect_failures.inc_by(u64::from(failed));
            }
            ClusterEvent::Lapsed => {
                each(|| Control::Lost(None, "this node cannot reach the cluster's bucket".into()))
            }
            ClusterEvent::EndEvents => each(|| Control::EndEvents),
            ClusterEvent::Look(actor, answer) => {
                let shard = shard_of(actor.hash(), controls.len());
                // A shard that is gone drops the answer, which says no.
                let _ = controls[shard].send(Control::Look(actor, answer));
            }
            ClusterEvent::GivenUp(actor, why) => {
                tracing::error!(class = %actor.class, name = %actor.name, "giving the actor up: {why}");
                let shard = shard_of(actor.hash(), controls.len());
                let lost =
                    Control::Lost(Some(actor), "the actor's last writes did not reach the bucket".into());
                let _ = controls[shard].send(lost);
            }
        }
    };
    Ok(Cluster::join(me, joined, notify)?)
}

/// Loads a component; says so when it has to be compiled, which takes a while for a large one.
pub(super) fn load_one(
    runtime: &Runtime,
    component: &ComponentConfig,
    while_compiling: fn(&Path, usize) -> Box<dyn Any>,
    load: fn(&Runtime, &[u8]) -> Result<wasmkeep_host::Version, LoadError>,
) -> Result<wasmkeep_host::Version, NodeError> {
    let ComponentConfig { path, wasm, .. } = component;
    let failed = |source| NodeError::Component { path: path.clone(), source };
    if runtime.is_compiled(wasm) {
        return load(runtime, wasm).map_err(failed);
    }
    tracing::info!(component = %path.display(), bytes = wasm.len(), "compiling; the code is kept for the next start");
    let began = Instant::now();
    let shown = while_compiling(path, wasm.len());
    let loaded = load(runtime, wasm);
    drop(shown);
    let version = loaded.map_err(failed)?;
    tracing::info!(component = %path.display(), seconds = began.elapsed().as_secs_f32(), "compiled");
    Ok(version)
}
