//! Metrics in the Prometheus text format (R-OPS-5).
//!
//! Every shard counts on handles of its own, so counting never makes two cores share a cache line; the `shard`
//! label tells them apart and `sum by (class)` joins them.

mod cluster;
mod sockets;

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use wasmkeep_actor::{AlarmError, Happening};
use wasmkeep_protocol::ActorClass;

use self::sockets::SocketFamilies;
pub(crate) use self::{cluster::ClusterMetrics, sockets::SocketMetrics};
use crate::{
    egress::OutboundMetrics,
    http::{Admission, Stats},
    runtime::{Beat, OffloadPool},
};

/// The class under which requests outside any class are counted.
const NO_CLASS: &str = "";

type Seconds = Counter<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    class: String,
    status: u16,
    shard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: String,
    shard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    class: String,
    outcome: &'static str,
    shard: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabels {
    shard: u64,
}

/// All metrics of a node.
pub(crate) struct Metrics {
    registry: Registry,
    families: Families,
    /// Of outbound requests.
    pub(crate) outbound: OutboundMetrics,
    /// Of a node with a bucket.
    pub(crate) cluster: ClusterMetrics,
    watched: Arc<OnceLock<Watched>>,
}

/// What the executors and the fronts count by themselves, read when somebody asks.
#[derive(Debug)]
pub(crate) struct Watched {
    /// One per shard.
    pub(crate) beats: Vec<Arc<Beat>>,
    /// One per shard.
    pub(crate) fronts: Vec<Arc<Stats>>,
    /// The node's connections.
    pub(crate) admission: Admission,
}

struct Families {
    requests: Family<RequestLabels, Counter>,
    calls: Family<OutcomeLabels, Counter>,
    alarm_attempts: Family<OutcomeLabels, Counter>,
    events: Family<ClassLabels, Histogram, fn() -> Histogram>,
    sql_seconds: Family<ClassLabels, Seconds>,
    wakes: Family<ClassLabels, Counter>,
    hibernations: Family<ClassLabels, Counter>,
    dozes: Family<ClassLabels, Counter>,
    failures: Family<ClassLabels, Counter>,
    rollbacks: Family<ClassLabels, Counter>,
    resident: Family<ShardLabels, Gauge>,
    hibernated: Family<ShardLabels, Gauge>,
    mailbox: Family<ShardLabels, Gauge>,
    memory: Family<ShardLabels, Gauge>,
    hops: Family<ShardLabels, Counter>,
    sockets: SocketFamilies,
    alarms: Family<ShardLabels, Gauge>,
}

/// Seconds: 50 µs to 52 s, a factor of 2 apart: the fastest event and the longest allowed one both inside.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 21))
}

impl Metrics {
    /// `log_lines_lost` is counted by whoever writes the log.
    pub(crate) fn new(offload: OffloadPool, log_lines_lost: Arc<AtomicU64>) -> Self {
        let families = Families {
            requests: Family::default(),
            calls: Family::default(),
            alarm_attempts: Family::default(),
            events: Family::new_with_constructor(latency_histogram as fn() -> Histogram),
            sql_seconds: Family::default(),
            wakes: Family::default(),
            hibernations: Family::default(),
            dozes: Family::default(),
            failures: Family::default(),
            rollbacks: Family::default(),
            resident: Family::default(),
            hibernated: Family::default(),
            mailbox: Family::default(),
            memory: Family::default(),
            hops: Family::default(),
            sockets: SocketFamilies::default(),
            alarms: Family::default(),
        };
        let watched = Arc::new(OnceLock::new());
        let mut registry = Registry::with_prefix("wasmkeep");
        families.register(&mut registry);
        let outbound = OutboundMetrics::default();
        outbound.register(&mut registry);
        let cluster = ClusterMetrics::default();
        cluster.register(&mut registry);
        let collector = RuntimeCollector { watched: Arc::clone(&watched), offload, log_lines_lost };
        registry.register_collector(Box::new(collector));
        Self { registry, families, outbound, cluster, watched }
    }

    /// To be called once, when the shards run.
    pub(crate) fn watch(&self, watched: Watched) {
        // A node starts its shards once.
        let _ = self.watched.set(watched);
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// The handles of one shard's sockets.
    pub(crate) fn sockets(&self, shard: usize) -> SocketMetrics {
        self.families.sockets.shard(shard as u64)
    }

    /// The handles of one shard.
    pub(crate) fn shard(&self, shard: usize) -> ShardMetrics {
        let shard = shard as u64;
        let labels = ShardLabels { shard };
        let families = &self.families;
        ShardMetrics {
            resident: families.resident.get_or_create_owned(&labels),
            hibernated: families.hibernated.get_or_create_owned(&labels),
            mailbox: families.mailbox.get_or_create_owned(&labels),
            memory: families.memory.get_or_create_owned(&labels),
            hops: families.hops.get_or_create_owned(&labels),
            requests: families.requests.clone(),
            calls: Outcomes::new(&families.calls, shard),
            alarm_attempts: Outcomes::new(&families.alarm_attempts, shard),
            alarms: families.alarms.get_or_create_owned(&labels),
            events: families.events.clone(),
            class_families: ClassFamilies {
                sql_seconds: families.sql_seconds.clone(),
                wakes: families.wakes.clone(),
                hibernations: families.hibernations.clone(),
                dozes: families.dozes.clone(),
                failures: families.failures.clone(),
                rollbacks: families.rollbacks.clone(),
            },
            by_class: RefCell::default(),
            by_status: RefCell::default(),
            shard,
        }
    }
}

impl Families {
    #[rustfmt::skip]
    fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered, by class (empty outside any) and status", self.requests.clone());
        registry.register("calls", "Calls between actors, by the class called and how they ended", self.calls.clone());
        registry.register("alarm_attempts", "Attempts at alarms, by class and how they ended", self.alarm_attempts.clone());
        registry.register("alarms", "Alarms pending or to be tried again", self.alarms.clone());
        registry.register("event_seconds", "Time events ran, from their start to their end", self.events.clone());
        registry.register("sql_seconds", "Time SQLite worked for events", self.sql_seconds.clone());
        registry.register("actor_wakes", "Actors that became resident", self.wakes.clone());
        registry.register("actor_hibernations", "Actors that went to sleep", self.hibernations.clone());
        registry.register("actor_dozes", "Idle actors that closed their database", self.dozes.clone());
        registry.register("event_failures", "Events that trapped, ran out of time or hit a fault of the node", self.failures.clone());
        registry.register("event_rollbacks", "Events that ended with a transaction open", self.rollbacks.clone());
        registry.register("actors_resident", "Actors in memory", self.resident.clone());
        registry.register("actors_hibernated", "Actors known and asleep", self.hibernated.clone());
        registry.register("mailbox_events", "Events waiting for their actor", self.mailbox.clone());
        registry.register("instance_memory_bytes", "Linear memory of live instances", self.memory.clone());
        registry.register("mesh_hops", "Requests sent to the shard of their actor", self.hops.clone());
        self.sockets.register(registry);
    }
}

struct ClassFamilies {
    sql_seconds: Family<ClassLabels, Seconds>,
    wakes: Family<ClassLabels, Counter>,
    hibernations: Family<ClassLabels, Counter>,
    dozes: Family<ClassLabels, Counter>,
    failures: Family<ClassLabels, Counter>,
    rollbacks: Family<ClassLabels, Counter>,
}

struct ClassMetrics {
    events: Histogram,
    sql_seconds: Seconds,
    wakes: Counter,
    hibernations: Counter,
    dozes: Counter,
    failures: Counter,
    rollbacks: Counter,
}

/// Counts things of a class by how they ended.
pub(crate) struct Outcomes {
    family: Family<OutcomeLabels, Counter>,
    shard: u64,
    counters: RefCell<HashMap<(ActorClass, &'static str), Counter>>,
}

impl Outcomes {
    fn new(family: &Family<OutcomeLabels, Counter>, shard: u64) -> Self {
        Self { family: family.clone(), shard, counters: RefCell::default() }
    }

    pub(crate) fn count(&self, class: &ActorClass, outcome: &'static str) {
        self.counters
            .borrow_mut()
            .entry((class.clone(), outcome))
            .or_insert_with_key(|(class, outcome)| {
                let labels = OutcomeLabels { class: class.to_string(), outcome, shard: self.shard };
                self.family.get_or_create_owned(&labels)
            })
            .inc();
    }
}

/// What one shard counts on.
pub(crate) struct ShardMetrics {
    pub(crate) resident: Gauge,
    pub(crate) hibernated: Gauge,
    pub(crate) mailbox: Gauge,
    pub(crate) memory: Gauge,
    pub(crate) hops: Counter,
    requests: Family<RequestLabels, Counter>,
    pub(crate) calls: Outcomes,
    pub(crate) alarm_attempts: Outcomes,
    pub(crate) alarms: Gauge,
    events: Family<ClassLabels, Histogram, fn() -> Histogram>,
    class_families: ClassFamilies,
    by_class: RefCell<HashMap<ActorClass, Rc<ClassMetrics>>>,
    by_status: RefCell<HashMap<(Option<ActorClass>, u16), Counter>>,
    shard: u64,
}

impl ShardMetrics {
    /// Counts an answer.
    pub(crate) fn answered(&self, class: Option<&ActorClass>, status: http::StatusCode) {
        let key = (class.cloned(), status.as_u16());
        self.by_status
            .borrow_mut()
            .entry(key)
            .or_insert_with_key(|(class, status)| {
                let class = class.as_ref().map_or(NO_CLASS, ActorClass::as_str).to_owned();
                let labels = RequestLabels { class, status: *status, shard: self.shard };
                self.requests.get_or_create_owned(&labels)
            })
            .inc();
    }

    pub(crate) fn observe(&self, class: &ActorClass, happening: &Happening<'_>) {
        let metrics = self.class(class);
        match happening {
            Happening::Woke(_) => {
                metrics.wakes.inc();
            }
            Happening::Slept => {
                metrics.hibernations.inc();
            }
            Happening::Dozed => {
                metrics.dozes.inc();
            }
            Happening::Turn { elapsed, sql } => {
                metrics.events.observe(elapsed.as_secs_f64());
                metrics.sql_seconds.inc_by(sql.as_secs_f64());
            }
            Happening::Failed(_) => {
                metrics.failures.inc();
            }
            Happening::RolledBack => {
                metrics.rollbacks.inc();
            }
            Happening::Alarm { ended, .. } => {
                let outcome = match ended {
                    Ok(()) => "succeeded",
                    Err(AlarmError::Absent) => "absent",
                    Err(AlarmError::Refused(_)) => "refused",
                    Err(AlarmError::Poisoned(_)) => "failed",
                };
                self.alarm_attempts.count(class, outcome);
            }
            Happening::Roused | Happening::StorageTrouble(_) => {}
        }
    }

    fn class(&self, class: &ActorClass) -> Rc<ClassMetrics> {
        if let Some(metrics) = self.by_class.borrow().get(class) {
            return Rc::clone(metrics);
        }
        let labels = ClassLabels { class: class.to_string(), shard: self.shard };
        let families = &self.class_families;
        let metrics = Rc::new(ClassMetrics {
            events: self.events.get_or_create_owned(&labels),
            sql_seconds: families.sql_seconds.get_or_create_owned(&labels),
            wakes: families.wakes.get_or_create_owned(&labels),
            hibernations: families.hibernations.get_or_create_owned(&labels),
            dozes: families.dozes.get_or_create_owned(&labels),
            failures: families.failures.get_or_create_owned(&labels),
            rollbacks: families.rollbacks.get_or_create_owned(&labels),
        });
        self.by_class.borrow_mut().insert(class.clone(), Rc::clone(&metrics));
        metrics
    }
}

/// Reads what others count, when somebody asks.
#[derive(Debug)]
struct RuntimeCollector {
    watched: Arc<OnceLock<Watched>>,
    offload: OffloadPool,
    log_lines_lost: Arc<AtomicU64>,
}

impl Collector for RuntimeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(watched) = self.watched.get() {
            encode_executors(&mut encoder, &watched.beats)?;
            encode_fronts(&mut encoder, &watched.fronts)?;
            let open = ConstGauge::new(watched.admission.open() as i64);
            encode_one(&mut encoder, "connections", "Client connections open", &open)?;
        }
        let bugs = ConstCounter::new(wasmkeep_host::bugs_caught());
        let help = "Panics of the host caught while an event ran; expected to be 0";
        encode_one(&mut encoder, "host_bugs", help, &bugs)?;
        let panics = ConstCounter::new(self.offload.panics());
        encode_one(
            &mut encoder,
            "offload_panics",
            "Jobs off the shards that panicked; expected to be 0",
            &panics,
        )?;
        let lost = ConstCounter::new(self.log_lines_lost.load(Ordering::Relaxed));
        encode_one(&mut encoder, "log_lines_lost", "Log lines that nobody read in time", &lost)?;
        let waiting = ConstGauge::new(self.offload.waiting() as i64);
        encode_one(&mut encoder, "offload_waiting", "Jobs waiting for an offload thread", &waiting)
    }
}

fn encode_executors(encoder: &mut DescriptorEncoder<'_>, beats: &[Arc<Beat>]) -> Result<(), std::fmt::Error> {
    let busy = |beat: &Arc<Beat>| beat.busy().as_secs_f64();
    encode_each(encoder, "shard_busy_seconds", "Time actors held the core", beats, busy)?;
    let stalls = |beat: &Arc<Beat>| beat.stalls();
    encode_each(encoder, "shard_stalls", "Polls of one actor that held the core too long", beats, stalls)?;
    let silences = |beat: &Arc<Beat>| beat.silences();
    encode_each(encoder, "shard_silences", "Times a busy shard went silent for 2 s", beats, silences)
}

#[rustfmt::skip]
fn encode_fronts(encoder: &mut DescriptorEncoder<'_>, fronts: &[Arc<Stats>]) -> Result<(), std::fmt::Error> {
    let mut each = |name, help, value: fn(&Stats) -> u64| {
        encode_each(encoder, name, help, fronts, |stats: &Arc<Stats>| value(stats))
    };
    each("connections_accepted", "Connections accepted", Stats::accepted)?;
    each("connections_over_limit", "Connections answered 503 because the node had too many", Stats::over_limit)?;
    each("connection_moves", "Connections handed to the shard of their actor", Stats::moved_away)?;
    each("connection_panics", "Panics that reached a connection; expected to be 0", Stats::panics)?;
    each("requests_malformed", "Requests refused before they reached an actor", Stats::refused)?;
    each("client_timeouts", "Connections ended because a client was too slow", Stats::timeouts)?;
    each("received_bytes", "Bytes read from clients", Stats::bytes_read)?;
    each("sent_bytes", "Bytes written to clients", Stats::bytes_written)
}

fn encode_one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), std::fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// One counter per shard.
fn encode_each<T, N>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    shards: &[T],
    value: impl Fn(&T) -> N,
) -> Result<(), std::fmt::Error>
where
    ConstCounter<N>: EncodeMetric,
{
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (shard, item) in shards.iter().enumerate() {
        let labels = ShardLabels { shard: shard as u64 };
        ConstCounter::new(value(item)).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
