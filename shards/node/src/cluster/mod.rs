//! A node and its bucket: what the shards ask of the bucket core, and what it tells them.
//!
//! Owns the start (proof of the store, start check, first lease) and the end of a node's membership. The deciding
//! code is `protocol`'s, what carries it out `cluster`'s and `replica`'s; both live on the bucket core in a
//! [`ClusterService`]. Nothing here waits on a shard's own core.

mod bucket_side;
mod lease;
mod trust;

use std::{
    convert::Infallible,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use wasmkeep_bucket::BucketUrl;
use wasmkeep_cluster::{ClusterEvent, ClusterService, Existence, LaneBuckets, ServiceConfig, cluster_secret};
use wasmkeep_core::{BucketCore, BucketThreadRuntime, CoreConfig, Gone, Lane, Laned, ProveError, prove};
use wasmkeep_protocol::{
    ActorId, NodeId, Tenant,
    call_signature::{Secret, SeenNonces},
    clock::Moment,
    lease::{Exit, Identity, Timing},
    limits::PAGE_BYTES,
    object_keys::CLUSTER_SECRET,
    ownership::Denial,
    records::{Presence, Process},
    trust::Plaintext,
    view::View,
};
use wasmkeep_replica::{HistoryError, UploadBudget};
use wasmkeep_runtime::Runtime;
use wasmkeep_s3::AnyBucket;

pub(crate) use self::lease::{LeaseCell, LeaseToken};
use crate::tls::{self, IdentityError};

/// How often a node that starts looks whether the first listing of heartbeats is there.
const LISTED_LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a node takes part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The bucket all nodes of the cluster share.
    pub bucket: BucketUrl,
    /// The process's environment, of which the `AWS_*` variables are used (R-FLAG-4).
    pub environment: Vec<(String, String)>,
    /// URL at which other nodes reach this one; its listening address when there is none.
    pub advertise: Option<String>,
    /// Where other nodes connect with TLS, if they do (R-TLS-1).
    pub listener: Option<ClusterListener>,
    /// The timings of the lease, the same on every node of the cluster.
    pub timing: Timing,
    /// What is made of plain HTTP between nodes (R-TLS-3).
    pub plaintext: Plaintext,
    /// CPU of the bucket thread (R-FLAG-7).
    pub cpu: Option<usize>,
    /// Time history stays in the bucket before it may be collected (R-HIST-1).
    pub retention: Duration,
    /// Longest time a request is kept for a dead node's actor; zero for none (R-WAIT-1).
    pub failover_wait: Duration,
}

/// A node's listener for the others.
#[derive(Debug, Clone)]
pub struct ClusterListener {
    /// Where it listens.
    pub listen: SocketAddr,
    /// `https://HOST:PORT` at which the others reach it.
    pub advertise: String,
}

/// Why a node does not become part of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The bucket's settings, or the thread.
    #[error(transparent)]
    Core(#[from] wasmkeep_core::StartError),
    /// The store.
    #[error(transparent)]
    Store(#[from] ProveError),
    /// The start check, or what ended the membership before it began.
    #[error("{0}")]
    Membership(Exit),
    /// A live node has another ttl.
    #[error(
        "the lease of node {node} lasts {ttl:?} and this node's would last {ours:?}: give all nodes of a cluster the \
         same --lease-ttl-ms"
    )]
    OtherTtl {
        /// Which node.
        node: NodeId,
        /// Its ttl.
        ttl: Duration,
        /// This node's.
        ours: Duration,
    },
    /// Its certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The bucket thread ended.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The bucket by one lane.
type LaneBucket = Laned<AnyBucket>;

/// What lives on the bucket core.
type Service = ClusterService<LaneBucket, BucketThreadRuntime>;

/// A node's side of its cluster, for any thread. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster {
    core: BucketCore<Rc<Service>>,
    pub(crate) lease: Arc<LeaseCell>,
    pub(crate) view: Arc<arc_swap::ArcSwap<View>>,
    pub(crate) config: Arc<ClusterConfig>,
    /// On a node with a cluster listener.
    pub(crate) identity: Option<Arc<tls::Identity>>,
    /// When it was last said which nodes are not used, in nanoseconds since boot.
    unused_said: Arc<AtomicU64>,
    /// The same of a call that was not believed.
    unbelieved_said: Arc<AtomicU64>,
    /// What calls between nodes are signed with; none when the bucket's is malformed (R-CALL-2).
    pub(crate) secret: Option<Arc<Secret>>,
    /// Calls from other nodes that were accepted lately.
    pub(crate) seen: Arc<Mutex<SeenNonces>>,
    /// For whole databases on their way to the bucket.
    pub(crate) uploads: UploadBudget,
    exit: Ending,
}

/// How the membership ended, once it has: then the channel is closed.
#[derive(Clone)]
pub(crate) struct Ending {
    how: Arc<OnceLock<Exit>>,
    open: flume::Receiver<Infallible>,
}

impl Ending {
    /// Waits for the end. `None`: the bucket thread ended without saying how.
    pub(crate) fn wait(&self) -> Option<Exit> {
        let Err(_) = self.open.recv();
        self.how.get().cloned()
    }
}

/// What a node is, to its cluster.
pub(crate) struct LocalNode {
    pub(crate) node: NodeId,
    pub(crate) tenant: Tenant,
    pub(crate) listening: SocketAddr,
    pub(crate) storage_bytes_max: u64,
}

impl Cluster {
    /// Joins: opens the bucket, proves the store, passes the start check and waits for the first lease, which takes
    /// 15 s after a first start or a crash (R-LEASE-8). A bucket that does not answer is tried again.
    ///
    /// # Errors
    /// [`ClusterError`]; the node must not serve.
    pub(crate) fn join(
        me: LocalNode,
        config: ClusterConfig,
        notify: impl Fn(ClusterEvent) + Send + 'static,
    ) -> Result<Self, ClusterError> {
        let timing = config.timing;
        let process = Process::from_bits(rand::random());
        let lease = Arc::new(LeaseCell::default());
        let view = Arc::new(arc_swap::ArcSwap::from_pointee(View::unknown(&timing)));
        let advertise = config.advertise.clone().unwrap_or_else(|| format!("http://{}", me.listening));
        trust::warn_of_public(config.plaintext, &advertise);
        let listener = config.listener.as_ref();
        let certificate =
            listener.map(|_| tls::Identity::new(Arc::clone(&view)).map(Arc::new)).transpose()?;
        let (valid, first_lease) = flume::bounded(1);
        let service_config = ServiceConfig {
            identity: Identity { node: me.node, process },
            presence: Presence {
                advertise,
                cluster_advertise: listener.map(|listener| listener.advertise.clone()),
                fingerprint: certificate.as_ref().map(|made| made.fingerprint().to_string()),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Presence::default()
            },
            tenant: me.tenant,
            timing,
            retention: config.retention,
            pages_max: u32::try_from(me.storage_bytes_max / u64::from(PAGE_BYTES)).unwrap_or(u32::MAX),
        };
        let heard = {
            let (lease, view) = (Arc::clone(&lease), Arc::clone(&view));
            move |event| match event {
                ClusterEvent::Valid(renewed) => {
                    lease.renew(renewed.epoch(), renewed.until().since_boot());
                    // Only the first is waited for.
                    let _ = valid.try_send(());
                }
                ClusterEvent::HeartbeatFailed(reason) => lease.failed(reason),
                ClusterEvent::View(seen) => view.store(seen),
                ClusterEvent::Lapsed => {
                    lease.lapse();
                    notify(ClusterEvent::Lapsed);
                }
                event => notify(event),
            }
        };
        let core_config = CoreConfig {
            url: config.bucket.clone(),
            environment: config.environment.clone(),
            cpu: config.cpu,
        };
        let core = BucketCore::start(core_config, move |bucket| {
            ClusterService::new(lane_buckets(&bucket), BucketThreadRuntime, service_config, heard)
        })?;
        let (ended, open) = flume::bounded(0);
        let exit = Ending { how: Arc::default(), open };
        let how = Arc::clone(&exit.how);
        let mut cluster = Self {
            core,
            lease,
            view,
            config: Arc::new(config),
            identity: certificate,
            unused_said: Arc::default(),
            unbelieved_said: Arc::default(),
            secret: None,
            seen: Arc::default(),
            uploads: UploadBudget::default(),
            exit,
        };
        block_on(cluster.core.run(Lane::Lease, async |service| {
            tracing::info!("proving that the bucket keeps its conditions");
            prove(&service.buckets().lease, |why| tracing::warn!("{why}; trying again")).await.map(drop)
        }))??;
        let secret = block_on(cluster.core.run(Lane::Lease, async move |service| {
            cluster_secret(&service.buckets().lease, &BucketThreadRuntime, timing.timeout).await
        }))?;
        cluster.secret = match secret {
            Ok(secret) => Some(Arc::new(secret)),
            Err(error) => {
                tracing::error!(
                    "{CLUSTER_SECRET} in the bucket: {error}; this node makes and takes no calls between nodes"
                );
                None
            }
        };
        tracing::info!("checking that no other process runs with this node id");
        let ending_lease = Arc::clone(&cluster.lease);
        block_on(cluster.core.post(Lane::Lease, move |service| {
            let (service, lease) = (Rc::clone(service), Arc::clone(&ending_lease));
            tokio::task::spawn_local(async move {
                let exit = service.live().await;
                lease.lapse();
                // Nobody else sets it.
                let _ = how.set(exit);
                drop(ended);
            });
        }))?;
        let valid = flume::Selector::new()
            .recv(&first_lease, |valid| valid.is_ok())
            .recv(&cluster.exit.open, |_| false)
            .wait();
        if valid {
            return cluster.agreeing();
        }
        Err(cluster.exit.wait().map_or(ClusterError::Gone(Gone), ClusterError::Membership))
    }

    /// The same, unless a live node has another ttl: then the lease is given up again. Two that start at the same moment
    /// may miss each other; the watch then warns of it on both.
    fn agreeing(self) -> Result<Self, ClusterError> {
        let timing = self.config.timing;
        let until = moment() + timing.listing_gap_max();
        while !self.view.load().is_listed() && moment() < until {
            std::thread::sleep(LISTED_LOOK_EVERY);
        }
        let other = self.view.load().other_ttl(timing.ttl, moment()).map(|(node, ttl)| (node.clone(), ttl));
        let Some((node, ttl)) = other else { return Ok(self) };
        self.stop();
        self.leave();
        Err(ClusterError::OtherTtl { node, ttl, ours: timing.ttl })
    }

    /// How the membership ends.
    pub(crate) fn ending(&self) -> Ending {
        self.exit.clone()
    }

    /// Takes the actor without looking at its history; the generation of the hold.
    pub(crate) async fn claim(&self, actor: &ActorId, fresh: bool) -> Result<u64, Denial> {
        let actor = actor.clone();
        let claimed =
            self.core.run(Lane::Durable, async move |service| service.claim(&actor, fresh).await).await;
        claimed.unwrap_or(Err(Denial::NotTaking))
    }

    /// Whether another node has the actor, or had it last, by its record. A bucket that does not say so says no.
    pub(crate) async fn is_elsewhere(&self, actor: &ActorId) -> bool {
        let actor = actor.clone();
        let looked =
            self.core.run(Lane::Housekeeping, async move |service| service.is_elsewhere(&actor).await);
        looked.await.unwrap_or(false)
    }

    /// Whether the actor exists. Nothing is taken.
    pub(crate) async fn existence(&self, actor: &ActorId) -> Result<Existence, HistoryError> {
        let actor = actor.clone();
        let looked = self.core.run(Lane::Durable, async move |service| service.existence(&actor).await);
        looked.await.unwrap_or(Err(HistoryError::Silent))
    }

    /// Whoever claimed the actor has no use for it.
    pub(crate) async fn unused(&self, actor: &ActorId) {
        let actor = actor.clone();
        // A core that is gone holds nothing.
        let _ = self.core.post(Lane::Durable, move |service| service.unused(&actor)).await;
    }

    /// A clean stop begins: nothing more is taken.
    pub(crate) fn stop(&self) {
        // A core that is gone takes nothing.
        let _ = block_on(self.core.post(Lane::Lease, |service| service.stop()));
    }

    /// Every actor is closed: gives up what is held, then the lease; how it ended.
    pub(crate) fn leave(&self) -> Option<Exit> {
        let closing = self.core.post(Lane::Lease, |service| {
            let service = Rc::clone(service);
            tokio::task::spawn_local(async move { service.closed().await });
        });
        block_on(closing).ok()?;
        self.exit.wait()
    }
}

fn lane_buckets(bucket: &LaneBucket) -> LaneBuckets<LaneBucket> {
    LaneBuckets {
        lease: bucket.on(Lane::Lease),
        durable: bucket.on(Lane::Durable),
        upload: bucket.on(Lane::Upload),
        restore: bucket.on(Lane::Restore),
        housekeeping: bucket.on(Lane::Housekeeping),
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Now, as leases and trust are judged.
pub(crate) fn moment() -> Moment {
    Moment::after_boot(BucketThreadRuntime.now())
}

/// Waits on a thread that has nothing else to do: the node's own, at its start and its end.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}
