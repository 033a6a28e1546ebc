//! The command line: every flag, its default and its help.

mod actor;
mod cluster;
mod parse;

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use wasmkeep_bucket::BucketUrl;
use wasmkeep_node::{
    config::OutboundRange,
    runtime::{
        placement::{IO_MEMORY_BYTES, RING_DEPTH},
        watchdog::FROZEN_AFTER,
    },
};
use wasmkeep_protocol::{ActorClass, access::Rule, durability::Durability, lease::Timing, limits};

pub use actor::{ActorCommand, ActorPath, At, Export, FileMode, Inspect, Verify};
pub use cluster::{ClusterCommand, ClusterStatus, Fence, Forget};

/// A self-hosted platform of actors: WebAssembly components, each with its own SQLite database.
#[derive(Debug, Parser)]
#[command(name = "wasmkeep", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "Begin:   wasmkeep new guest-book && cd guest-book\n\
         serve:   wasmkeep dev\n\
         try it:  curl -X POST http://127.0.0.1:8080/actor/guest-book/lobby -d '{\"name\": \"Ada\"}'")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a node that serves actors.
    #[command(
        after_help = "Exit statuses: 0 stopped cleanly, 2 a flag cannot be used, 3 a component cannot \
        be served, 4 the data directory cannot be used, 5 the address is taken, 6 memlock is too low, \
        7 io_uring is not available, 8 the cores cannot be used as asked, 9 the bucket cannot be used, \
        14 another process has this node id, 15 the node was fenced, 17 a shard made no progress, 18 a second \
        signal ended it at once, 70 a fault of ours."
    )]
    Serve(Box<Serve>),
    /// Serve the sample actors and print what to try.
    Demo(Box<Demo>),
    /// Make a project of an actor, with a test.
    New(New),
    /// Build and serve the actor of this folder, again whenever a file changes.
    #[command(
        after_help = "A new version is served from each actor's next event on, with the data it has. What does \
        not build leaves the version before in place.\n\nExit statuses: those of `wasmkeep serve`, and 16 when \
        nothing on this machine builds components."
    )]
    Dev(Box<Dev>),
    /// Look at one actor's history in the bucket.
    #[command(
        subcommand,
        disable_help_subcommand = true,
        after_help = "Exit statuses: 0 done, 2 a flag cannot be used, 9 the bucket does not answer, 10 there is \
        no such actor or state, 11 the history is damaged or incomplete, 13 the output cannot be written, \
        70 a fault of ours."
    )]
    Actor(ActorCommand),
    /// Look at a cluster through its bucket, and take a node's lease away.
    #[command(
        subcommand,
        disable_help_subcommand = true,
        after_help = "Exit statuses: 0 done, 1 no node is live (status), 2 a flag cannot be used, 9 the bucket does \
        not answer, 12 refused and nothing changed, 70 a fault of ours."
    )]
    Cluster(ClusterCommand),
}

/// `wasmkeep serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// A stateless component that answers every path outside /actor and /_wasmkeep.
    #[arg(value_name = "STATELESS.wasm")]
    pub stateless: Option<PathBuf>,

    /// Serve actors of CLASS with this component; repeat for more classes.
    #[arg(long = "actor", value_name = "CLASS=FILE.wasm", value_parser = parse::actor)]
    pub actors: Vec<(ActorClass, PathBuf)>,

    /// Values for actors, one NAME=VALUE a line; for every class, or for one as CLASS=FILE. Repeatable.
    #[arg(long = "env", value_name = "[CLASS=]FILE")]
    pub env: Vec<EnvFile>,

    /// Who may reach CLASS from outside: open, existing, existing:NAME or internal. Repeatable.
    #[arg(long = "access", value_name = "CLASS=RULE", value_parser = parse::access)]
    pub access: Vec<(ActorClass, Rule)>,

    /// What is in the bucket before an answer of CLASS leaves: event (what was written durably) or gate (every
    /// write it could have seen). Repeatable.
    #[arg(long = "durability", value_name = "CLASS=WHEN", value_parser = parse::durability)]
    pub durability: Vec<(ActorClass, Durability)>,

    /// How the node itself runs.
    #[command(flatten)]
    pub node: Node,
}

/// `wasmkeep demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Folder with the sample components (chat.wasm, counter.wasm, notes.wasm, sql.wasm, site.wasm).
    #[arg(long, value_name = "DIR", default_value = "target/guests")]
    pub samples: PathBuf,

    /// How the node itself runs.
    #[command(flatten)]
    pub node: Node,
}

/// `wasmkeep new`
#[derive(Debug, Args)]
pub struct New {
    /// Name of the project, of its folder and of the class: a small letter, then small letters, digits and hyphens.
    #[arg(value_name = "NAME", value_parser = parse::class)]
    pub name: ActorClass,

    /// Language of the actor.
    #[arg(long, value_enum, default_value_t = Lang::Rust)]
    pub lang: Lang,
}

/// Languages that `new` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    /// Rust, with the SDK.
    Rust,
}

/// `wasmkeep dev`
#[derive(Debug, Args)]
pub struct Dev {
    /// Class to serve the actor as [default: the name of the package].
    #[arg(long, value_name = "CLASS", value_parser = parse::class)]
    pub class: Option<ActorClass>,

    /// Values for the actors, one NAME=VALUE a line. Repeatable.
    #[arg(long = "env", value_name = "[CLASS=]FILE")]
    pub env: Vec<EnvFile>,

    /// How the node itself runs.
    #[command(flatten)]
    pub node: Node,
}

/// Flags of a node, whatever it serves.
#[derive(Debug, Clone, Args)]
pub struct Node {
    /// Where clients connect; a name is looked up once.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_parser = parse::address)]
    pub listen: SocketAddr,

    /// Where databases and compiled code are kept; made when missing.
    #[arg(long, value_name = "DIR", default_value = ".wasmkeep")]
    pub data_dir: PathBuf,

    /// This node's name, in the `x-wasmkeep-node` header; in a cluster, unique among its nodes [default: local].
    #[arg(long, value_name = "ID")]
    pub node_id: Option<wasmkeep_protocol::NodeId>,

    /// Let actors connect to these addresses although they are not public. Repeatable.
    #[arg(long, value_name = "CIDR")]
    pub allow_outbound: Vec<OutboundRange>,

    /// Client connections at once; lowered to fit the open-file limit.
    #[arg(long, value_name = "N", default_value_t = limits::CONNECTIONS_MAX, value_parser = parse::at_least_one)]
    pub max_connections: usize,

    /// The bucket and the cluster.
    #[command(flatten)]
    pub cluster: Cluster,

    /// Limits of actors.
    #[command(flatten)]
    pub limits: ActorLimits,

    /// Which cores do the work, and how.
    #[command(flatten)]
    pub placement: Placement,
}

/// Flags of a node with a bucket (R-FLAG-3).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct Cluster {
    /// Keep actors in this bucket, shared with the other nodes: s3://BUCKET[/PREFIX], or file:///DIR for
    /// nodes on one machine. Credentials and endpoint come from the AWS_* variables.
    #[arg(long, value_name = "URL")]
    pub bucket: Option<BucketUrl>,

    /// URL at which other nodes reach this one [default: http:// and the --listen address].
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,

    /// Address of the listener for other nodes, with TLS, like 0.0.0.0:7443. Needed unless --cluster-plaintext
    /// accept; give it with --cluster-advertise.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::address)]
    pub cluster_listen: Option<SocketAddr>,

    /// URL at which other nodes reach that listener: https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub cluster_advertise: Option<String>,

    /// Whether plain HTTP is used with nodes that have no cluster listener: refuse or accept.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Plaintext::Refuse)]
    pub cluster_plaintext: Plaintext,

    /// Seconds a GET or an upgrade is kept for an actor whose node died; 0 for not at all [default: 25].
    #[arg(long, value_name = "SECONDS")]
    pub failover_wait_secs: Option<u64>,

    /// The lease's ttl; every other of its timings follows from it in the usual proportion. For tests: all nodes of a
    /// cluster have to have the same.
    #[arg(long, value_name = "MILLISECONDS", hide = true,
          value_parser = clap::value_parser!(u64).range(Timing::TTL_MIN.as_millis() as u64..=60_000))]
    pub lease_ttl_ms: Option<u64>,

    /// Seconds old history stays in the bucket before it may be deleted.
    #[arg(long, value_name = "SECONDS", default_value_t = limits::HISTORY_RETENTION.as_secs())]
    pub history_retention_secs: u64,

    /// CPU the bucket's thread stays on [default: any].
    #[arg(long, value_name = "CPU")]
    pub bucket_cpu: Option<usize>,
}

/// Whether plain HTTP is used between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plaintext {
    /// Never.
    Refuse,
    /// With nodes that have no cluster listener.
    Accept,
}

/// Limits of actors.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct ActorLimits {
    /// Actors in memory at once; beyond it the least recently used one hibernates.
    #[arg(long, value_name = "N", default_value_t = limits::RESIDENT_MAX, value_parser = parse::at_least_one)]
    pub max_resident: usize,

    /// Idle seconds after which an actor hibernates.
    #[arg(long, value_name = "SECONDS", default_value_t = Seconds(limits::HIBERNATE_AFTER))]
    pub hibernate_after_secs: Seconds,

    /// Wall-clock seconds one event may take.
    #[arg(long, value_name = "SECONDS", default_value_t = Seconds(limits::EVENT_WALL_CLOCK))]
    pub event_limit_secs: Seconds,

    /// Events that may wait for one actor; the next one gets 503.
    #[arg(long, value_name = "N", default_value_t = limits::MAILBOX_EVENTS_MAX, value_parser = parse::at_least_one)]
    pub mailbox: usize,

    /// Linear memory of one actor, in MiB (1 to 4096).
    #[arg(long, value_name = "MIB", default_value_t = (limits::ACTOR_MEMORY_BYTES >> 20) as u64,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub actor_memory_mib: u64,

    /// Database of one actor, in MiB (1 to 1048576).
    #[arg(long, value_name = "MIB", default_value_t = limits::ACTOR_STORAGE_BYTES >> 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub actor_storage_mib: u64,

    /// Largest request body, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = limits::BODY_BYTES_MAX >> 20,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub max_body_mib: u64,

    /// Request bodies up to this many KiB are read before their event waits for its actor; longer ones as the actor reads
    /// (0 to 65536).
    #[arg(long, value_name = "KIB", default_value_t = limits::BUFFERED_BODY_BYTES_MAX >> 10,
          value_parser = parse::kib_of_a_body)]
    pub buffered_body_kib: usize,

    /// Seconds a WebSocket's client may be silent before it is sent a ping; as many again and it is dropped.
    #[arg(long, value_name = "SECONDS", default_value_t = Seconds(limits::SOCKET_PING_AFTER))]
    pub websocket_ping_secs: Seconds,
}

/// Placement flags (R-FLAG-7).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Placement")]
pub struct Placement {
    /// Shards, each an executor on a core of its own [default: one for each core of --cpuset; without that, one core less
    /// than there are, which is left to the bucket and to work that blocks].
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    pub shards: Option<usize>,

    /// Cores shards may run on, like 0-3,8, each on one of them [default: those this process may use].
    #[arg(long, value_name = "LIST")]
    pub cpuset: Option<String>,

    /// Let the kernel move shards between cores, as it does anyhow where --shards leaves no core and there is no --cpuset.
    /// For machines shared with other work.
    #[arg(long)]
    pub overprovisioned: bool,

    /// Microseconds a pinned shard looks for work before it sleeps. Lowers latency, costs idle CPU.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    pub spin_before_park_us: u64,

    /// Entries of each shard's io_uring.
    #[arg(long, value_name = "N", default_value_t = RING_DEPTH)]
    pub ring_depth: usize,

    /// Memory each shard registers with io_uring, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = IO_MEMORY_BYTES >> 10)]
    pub io_memory_kib: usize,

    /// Log who held a core for longer than this many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub stall_after_ms: u64,

    /// On a node with a bucket: end the process, and with it the lease, when a shard makes no progress for so many
    /// seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = Seconds(FROZEN_AFTER))]
    pub frozen_after_secs: Seconds,
}

/// The bucket of a command.
#[derive(Debug, Clone, Args)]
pub struct Bucket {
    /// The cluster's bucket: s3://BUCKET[/PREFIX], or file:///DIR. Credentials, region and endpoint come from the
    /// AWS_* variables.
    #[arg(long = "bucket", value_name = "URL")]
    pub url: BucketUrl,
}

/// One `--env`.
#[derive(Debug, Clone)]
pub struct EnvFile {
    /// The class it is for; all when absent.
    pub class: Option<ActorClass>,
    /// Lines of NAME=VALUE.
    pub file: PathBuf,
}

impl FromStr for EnvFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None => Ok(Self { class: None, file: text.into() }),
            Some((class, "")) => Err(format!("no file follows '{class}='")),
            Some((class, file)) => {
                let class = parse::class(class).map_err(|error| format!("the class '{class}': {error}"))?;
                Ok(Self { class: Some(class), file: file.into() })
            }
        }
    }
}

/// A time of the command line: seconds, fractions allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        /// A year: longer is a typing mistake, and keeps every sum of times far from overflow.
        const SECONDS_MAX: f64 = 365.0 * 24.0 * 3600.0;
        match text.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
                Ok(Self(Duration::from_secs_f64(seconds)))
            }
            _ => Err("must be a number of seconds above 0 and at most a year"),
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests;
