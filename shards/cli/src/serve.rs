//! `wasmkeep serve`: from flags to a running node, and from a signal to its end.

mod placement;
mod values;

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::{Arc, mpsc},
    time::Duration,
};

use wasmkeep_node::{
    Config, Interrupt, Node, NodeError,
    config::{ActorLimits, ClassConfig, ClusterConfig, ClusterListener, ComponentConfig},
};
use wasmkeep_protocol::{
    ActorClass,
    access::Rule,
    durability::Durability,
    lease::{Exit, Timing},
    limits, trust,
};

pub(crate) use self::values::Values;
use crate::{
    args::{self, Plaintext, Serve},
    exit::{self, Failure, Status},
    logs, signals,
};

/// Runs a node until it is told to stop.
///
/// # Errors
/// One sentence and the status of the process.
pub fn serve(flags: Serve) -> Result<(), Failure> {
    let config = config(flags)?;
    let told = signals::take()?;
    let node = start(config, &told)?;
    logs::announce(format!("listening on http://{}", node.address()));
    run(node, &told)
}

/// Starts a node. The process ends at once and cleanly when it is told to stop meanwhile, and later when a shard of the
/// node freezes: not even a stop would come to its end then.
pub(crate) fn start(config: Config, told: &Interrupt) -> Result<Node, Failure> {
    let node = match Node::start(config, told) {
        Err(NodeError::Interrupted) => {
            tracing::info!("{}", NodeError::Interrupted);
            exit::now(Status::Clean)
        }
        started => started?,
    };
    let frozen = node.frozen();
    std::thread::spawn(move || {
        if let Some(frozen) = frozen() {
            tracing::error!("{frozen}: this node gives its lease up and ends");
            exit::now(Status::Frozen);
        }
    });
    Ok(node)
}

/// Waits until the node is told to stop, or ends by itself, and stops it.
pub(crate) fn run(node: Node, told: &Interrupt) -> Result<(), Failure> {
    let (ended, why) = mpsc::channel();
    watch(told, &node, &ended);
    if let Ok(Some(exit)) = why.recv() {
        tracing::error!("{exit}");
    }
    stop(node)
}

/// Tells `ended` when the node is to stop: nothing when it was told to, and how its membership ended when it has.
fn watch(told: &Interrupt, node: &Node, ended: &mpsc::Sender<Option<Exit>>) {
    let (sender, told) = (ended.clone(), told.clone());
    // The receiver is gone once the node stops for another reason.
    std::thread::spawn(move || {
        told.wait();
        let _ = sender.send(None);
    });
    if let Some(wait) = node.ending() {
        let sender = ended.clone();
        std::thread::spawn(move || sender.send(wait()));
    }
}

/// Stops the node in order.
pub(crate) fn stop(node: Node) -> Result<(), Failure> {
    tracing::info!("stopping: events in flight have {:?}", limits::STOP_GRACE);
    let stopped = node.stop(limits::STOP_GRACE);
    if stopped.cut > 0 {
        tracing::warn!(actors = stopped.cut, "events that did not end in time were cut");
    }
    if let Some(failed) = stopped.failed.first() {
        return Err(Failure::new(Status::Internal, failed));
    }
    match stopped.membership {
        None => Ok(()),
        Some(Exit::Stopped { released }) => {
            if !released {
                tracing::warn!("the lease could not be released: others wait for it to lapse");
            }
            Ok(())
        }
        Some(exit) => Err(exit.into()),
    }
}

fn config(flags: Serve) -> Result<Config, Failure> {
    let Serve { stateless, actors, env, access, durability, node } = flags;
    if actors.is_empty() && stateless.is_none() {
        let sentence = "nothing to serve: add --actor CLASS=FILE.wasm, or the path of a stateless component";
        return Err(Failure::new(Status::Usage, sentence));
    }
    let mut classes: HashSet<&ActorClass> = HashSet::new();
    for (class, _) in &actors {
        if !classes.insert(class) {
            let sentence = format!("the class {class} is given twice: use --actor once for each class");
            return Err(Failure::new(Status::Usage, sentence));
        }
    }
    if let Some(path) = &stateless {
        check_is_no_pair(path)?;
    }
    let known = |class: &ActorClass, flag: &str| {
        if classes.contains(class) {
            return Ok(());
        }
        let sentence =
            format!("{flag} names the class {class}, which is not served: add --actor {class}=FILE.wasm");
        Err(Failure::new(Status::Usage, sentence))
    };
    let mut rules: BTreeMap<ActorClass, Rule> = BTreeMap::new();
    for (class, rule) in access {
        known(&class, "--access")?;
        if rules.insert(class.clone(), rule).is_some() {
            let sentence = format!("--access is given twice for the class {class}: keep one");
            return Err(Failure::new(Status::Usage, sentence));
        }
    }
    let mut durabilities: BTreeMap<ActorClass, Durability> = BTreeMap::new();
    for (class, durability) in durability {
        known(&class, "--durability")?;
        if durability == Durability::Gate && node.cluster.bucket.is_none() {
            let sentence = "--durability gate waits for a bucket: add --bucket, or leave it out";
            return Err(Failure::new(Status::Usage, sentence));
        }
        if durabilities.insert(class.clone(), durability).is_some() {
            let sentence = format!("--durability is given twice for the class {class}: keep one");
            return Err(Failure::new(Status::Usage, sentence));
        }
    }
    for class in env.iter().filter_map(|file| file.class.as_ref()) {
        known(class, "--env")?;
    }
    let values = Values::read(&env)?;
    let mut configured = Vec::new();
    for (class, path) in &actors {
        let component = component(path, values.of(Some(class)))?;
        let access = rules.remove(class).unwrap_or_default();
        let durability = durabilities.remove(class).unwrap_or_default();
        configured.push(ClassConfig { class: class.clone(), component, access, durability });
    }
    let stateless = stateless.map(|path| component(&path, values.of(None))).transpose()?;
    node_config(node, configured, stateless)
}

/// A class and its file without the flag in front of them are taken for the path of a stateless component.
fn check_is_no_pair(path: &Path) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    match text.split_once('=') {
        Some((class, _)) if class.parse::<ActorClass>().is_ok() && !path.exists() => {
            Err(Failure::new(Status::Usage, format!("there is no file {path:?}: write --actor {text}")))
        }
        _ => Ok(()),
    }
}

/// A node's configuration from its flags and what it serves.
pub(crate) fn node_config(
    flags: args::Node,
    classes: Vec<ClassConfig>,
    stateless: Option<ComponentConfig>,
) -> Result<Config, Failure> {
    let cluster = cluster(&flags)?;
    let limits = flags.limits;
    let node_id = match flags.node_id {
        Some(node_id) => node_id,
        None => "local".parse().map_err(|error| Failure::new(Status::Internal, error))?,
    };
    Ok(Config {
        cluster,
        listen: flags.listen,
        data_dir: flags.data_dir,
        node_id,
        tenant: "default".parse().map_err(|error| Failure::new(Status::Internal, error))?,
        classes,
        stateless,
        allow_outbound: flags.allow_outbound,
        line_numbers: false,
        connections_max: flags.max_connections,
        limits: ActorLimits {
            resident_max: limits.max_resident,
            hibernate_after: limits.hibernate_after_secs.0,
            socket_ping_after: limits.websocket_ping_secs.0,
            event_wall_clock: limits.event_limit_secs.0,
            mailbox_events_max: limits.mailbox,
            memory_bytes_max: mib(limits.actor_memory_mib)?,
            storage_bytes_max: limits.actor_storage_mib << 20,
            body_bytes_max: limits.max_body_mib << 20,
            buffered_body_bytes_max: limits.buffered_body_kib << 10,
        },
        stall_after: Duration::from_millis(flags.placement.stall_after_ms),
        frozen_after: flags.placement.frozen_after_secs.0,
        while_compiling: logs::while_compiling,
        log_lines_lost: logs::lost(),
        placement: placement::from_flags(flags.placement)?,
    })
}

/// The cluster's part of the configuration, with every combination of flags that cannot work refused (R-FLAG-5).
fn cluster(flags: &args::Node) -> Result<Option<ClusterConfig>, Failure> {
    let usage = |sentence: &str| Err(Failure::new(Status::Usage, sentence));
    let args::Cluster { bucket, advertise, cluster_listen, cluster_advertise, cluster_plaintext, .. } =
        &flags.cluster;
    let Some(bucket) = bucket else {
        let names_cluster = advertise.is_some() || cluster_listen.is_some() || cluster_advertise.is_some();
        if names_cluster || *cluster_plaintext == Plaintext::Accept {
            return usage(
                "a node without a bucket is in no cluster: add --bucket s3://BUCKET[/PREFIX] or --bucket file:///DIR",
            );
        }
        return Ok(None);
    };
    if flags.node_id.is_none() {
        return usage("a node with a bucket needs a name of its own there: add --node-id ID");
    }
    if advertise.is_none() && flags.listen.ip().is_unspecified() {
        return usage("other nodes cannot reach every address at once: add --advertise http://HOST:PORT");
    }
    if !advertise.as_ref().is_none_or(|url| is_url(url, "http://")) {
        return usage("--advertise must be http://HOST:PORT, without a path");
    }
    let ttl = flags.cluster.lease_ttl_ms.map(Duration::from_millis);
    let timing = ttl.map_or_else(Timing::default, Timing::of_ttl);
    let failover_wait = flags.cluster.failover_wait_secs.map(Duration::from_secs);
    Ok(Some(ClusterConfig {
        bucket: bucket.clone(),
        environment: std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect(),
        advertise: advertise.clone(),
        listener: listener(&flags.cluster)?,
        plaintext: match cluster_plaintext {
            Plaintext::Refuse => trust::Plaintext::Refuse,
            Plaintext::Accept => trust::Plaintext::Accept,
        },
        cpu: flags.cluster.bucket_cpu,
        retention: Duration::from_secs(flags.cluster.history_retention_secs),
        timing,
        failover_wait: failover_wait.unwrap_or_else(|| timing.failover_wait()),
    }))
}

/// The listener for other nodes, which every node has unless it talks plain HTTP (R-TLS-1).
fn listener(flags: &args::Cluster) -> Result<Option<ClusterListener>, Failure> {
    let usage = |sentence: &str| Err(Failure::new(Status::Usage, sentence));
    match (flags.cluster_listen, &flags.cluster_advertise) {
        (Some(listen), Some(advertise)) if is_url(advertise, "https://") => {
            Ok(Some(ClusterListener { listen, advertise: advertise.clone() }))
        }
        (_, Some(advertise)) if !is_url(advertise, "https://") => {
            usage("--cluster-advertise must be https://HOST:PORT, without a path")
        }
        (Some(_), _) => usage(
            "other nodes have to know where the cluster listener is: add --cluster-advertise https://HOST:PORT",
        ),
        (None, Some(_)) => {
            usage("nothing listens at --cluster-advertise: add --cluster-listen ADDRESS, like 0.0.0.0:7443")
        }
        (None, None) if flags.cluster_plaintext == Plaintext::Refuse => usage(
            "nodes talk to each other with TLS: add --cluster-listen ADDRESS and --cluster-advertise \
             https://HOST:PORT, or --cluster-plaintext accept on a private network",
        ),
        (None, None) => Ok(None),
    }
}

/// Whether it is `scheme` and HOST:PORT, nothing else.
fn is_url(url: &str, scheme: &str) -> bool {
    let host = url.strip_prefix(scheme).filter(|host| !host.contains(['/', '?', '#', '@']));
    let parts = host.and_then(|host| host.rsplit_once(':'));
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn mib(number: u64) -> Result<usize, Failure> {
    usize::try_from(number << 20).map_err(|error| Failure::new(Status::Usage, error))
}

/// Reads a component.
pub(crate) fn component(path: &Path, env: Arc<Vec<(String, String)>>) -> Result<ComponentConfig, Failure> {
    let wasm = std::fs::read(path).map_err(|error| {
        Failure::new(Status::Component, format!("the component {path:?} cannot be read: {error}"))
    })?;
    Ok(ComponentConfig { path: path.to_owned(), wasm: wasm.into(), env })
}

#[cfg(test)]
mod tests;
