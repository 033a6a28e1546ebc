//! A cluster of real processes over a bucket server, each of whose ways can be cut.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::proxy::{Gate, Way, has_socket, relay};
use crate::{
    bucket::{BucketServer, NAME},
    http::{Answer, Connection},
    server::Server,
};

/// How long a client waits for one answer: longer than any documented wait.
pub const PATIENCE: Duration = Duration::from_secs(65);

/// Longest time until a cluster that is whole serves an actor.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Where a node listens for clients and for other nodes, on a loopback address of its own.
const PORTS: (u16, u16) = (8080, 7443);

/// How the nodes are run.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The node's binary.
    pub binary: PathBuf,
    /// The sql sample.
    pub guest: PathBuf,
    /// For the data directories and the logs.
    pub folder: PathBuf,
    /// Nodes talk plain HTTP with each other.
    pub plaintext: bool,
}

/// Ways that are cut together.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// From a node to the bucket.
    Bucket(usize),
    /// From every node to the bucket.
    AllBuckets,
    /// From the others to a node.
    Peers(usize),
    /// From a node to the others.
    ToPeers(usize),
}

/// See the module.
pub struct Nodes {
    setting: Setting,
    bucket: BucketServer,
    nodes: Vec<Node>,
    /// Of each node, by the node it leads to.
    ways: Arc<Vec<Vec<Gate>>>,
    pids: Arc<Vec<AtomicU32>>,
    /// Actors that were made for one purpose or another.
    actors: AtomicU64,
}

struct Node {
    listen: SocketAddr,
    cluster_listen: SocketAddr,
    /// Where the other nodes reach it: a relay.
    advertised: SocketAddr,
    /// Where it reaches the bucket: another.
    bucket: SocketAddr,
    to_bucket: Gate,
    running: Mutex<Option<Server>>,
    /// Counts up; odd from a hurt to the start after it.
    hurts: AtomicU64,
}

impl Nodes {
    /// Starts `count` nodes, all at once.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(setting: Setting, count: usize) -> Result<Self> {
        let bucket = BucketServer::start(Duration::ZERO, None)?;
        let ways: Arc<Vec<Vec<Gate>>> =
            Arc::new((0..count).map(|_| (0..count).map(|_| Gate::default()).collect()).collect());
        let pids: Arc<Vec<AtomicU32>> = Arc::new((0..count).map(|_| AtomicU32::new(0)).collect());
        let nodes = (0..count).map(|node| {
            let (listen, cluster_listen) = (address(node, PORTS.0), address(node, PORTS.1));
            let (ways, pids) = (Arc::clone(&ways), Arc::clone(&pids));
            let from_peers = Arc::new(move |from| Some(ways[owner_of(&pids, from)?][node].clone()));
            let advertised = relay(if setting.plaintext { listen } else { cluster_listen }, from_peers)?;
            let to_bucket = Gate::default();
            let gate = to_bucket.clone();
            Ok(Node {
                listen,
                cluster_listen,
                advertised,
                bucket: relay(bucket.address(), Arc::new(move |_| Some(gate.clone())))?,
                to_bucket,
                running: Mutex::default(),
                hurts: AtomicU64::new(1),
            })
        });
        let nodes = nodes.collect::<Result<_>>()?;
        let nodes = Self { setting, bucket, nodes, ways, pids, actors: AtomicU64::new(0) };
        thread::scope(|scope| {
            let nodes = &nodes;
            let starts: Vec<_> = (0..count).map(|node| scope.spawn(move || nodes.revive(node))).collect();
            starts.into_iter().try_for_each(|start| start.join().expect("no panic"))
        })?;
        Ok(nodes)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The name of a node, as its answers carry it.
    #[must_use]
    pub fn name(node: usize) -> String {
        format!("n{node}")
    }

    /// Starts a node that does not run.
    ///
    /// # Errors
    /// It does not start.
    pub fn revive(&self, number: usize) -> Result<()> {
        let (setting, node) = (&self.setting, &self.nodes[number]);
        let mut command = Command::new(&setting.binary);
        command.envs(self.bucket.environment());
        command.env("AWS_ENDPOINT", format!("http://{}", node.bucket));
        command.arg("serve").arg(format!("--listen={}", node.listen));
        command.arg("--data-dir").arg(self.data_dir(number));
        command.arg(format!("--actor=sql={}", setting.guest.display()));
        command.arg(format!("--bucket=s3://{NAME}/chaos"));
        command.arg(format!("--node-id={}", Self::name(number)));
        if setting.plaintext {
            command.arg("--cluster-plaintext=accept");
            command.arg(format!("--advertise=http://{}", node.advertised));
        } else {
            command.arg(format!("--cluster-listen={}", node.cluster_listen));
            command.arg(format!("--cluster-advertise=https://{}", node.advertised));
        }
        command.args(["--shards=1", "--overprovisioned"]);
        command.args(["--hibernate-after-secs=5", "--history-retention-secs=0"]);
        let log = setting.folder.join(format!("{}.log", Self::name(number)));
        let server = Server::start(command, node.listen, &log)?;
        self.pids[number].store(server.pid(), Ordering::Relaxed);
        *node.running() = Some(server);
        node.note(|hurts| hurts + hurts % 2);
        // What it said to the bucket so far is of no interest.
        drop(self.bucket.take_served());
        Ok(())
    }

    fn data_dir(&self, node: usize) -> PathBuf {
        self.setting.folder.join(Self::name(node))
    }

    /// Ends a node with SIGKILL.
    ///
    /// # Errors
    /// It does not run, or its disk cannot be wiped.
    pub fn kill(&self, node: usize, wipes: bool) -> Result<()> {
        // Dropped, it is killed.
        drop(self.taken(node)?);
        if wipes {
            fs::remove_dir_all(self.data_dir(node))?;
        }
        Ok(())
    }

    /// Asks a node to stop.
    ///
    /// # Errors
    /// It does not run, or does not end in time.
    pub fn terminate(&self, node: usize) -> Result<()> {
        let status = self.taken(node)?.stop()?;
        ensure!(status.success(), "{} stopped with {status}", Self::name(node));
        Ok(())
    }

    /// From here on it may break connections, until it is started again.
    pub fn hurt(&self, node: usize) {
        self.nodes[node].note(|hurts| hurts + 1 + hurts % 2);
    }

    fn taken(&self, node: usize) -> Result<Server> {
        self.hurt(node);
        self.nodes[node].running().take().with_context(|| format!("{} does not run", Self::name(node)))
    }

    /// Freezes a node.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self, node: usize) -> Result<()> {
        self.hurt(node);
        self.signal(node, Signal::STOP)
    }

    /// Lets a frozen node go.
    ///
    /// # Errors
    /// It does not run.
    pub fn thaw(&self, node: usize) -> Result<()> {
        self.signal(node, Signal::CONT)
    }

    fn signal(&self, node: usize, signal: Signal) -> Result<()> {
        let running = self.nodes[node].running();
        let server = running.as_ref().with_context(|| format!("{} does not run", Self::name(node)))?;
        let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Sets what gets through.
    pub fn cut(&self, part: Part, way: Way) {
        for from in 0..self.count() {
            if matches!(part, Part::AllBuckets) || matches!(part, Part::Bucket(node) if node == from) {
                self.nodes[from].to_bucket.set(way);
            }
            for to in (0..self.count()).filter(|to| *to != from) {
                let cut = matches!(part, Part::Peers(node) if node == to)
                    || matches!(part, Part::ToPeers(node) if node == from);
                if cut {
                    self.ways[from][to].set(way);
                }
            }
        }
    }

    /// Waits until a node has ended by itself, as one that was fenced does.
    ///
    /// # Errors
    /// It goes on.
    pub fn ended(&self, node: usize, limit: Duration) -> Result<()> {
        self.taken(node)?.ended(limit).map(drop)
    }

    /// Whether its process has not ended.
    ///
    /// # Errors
    /// As the system says.
    pub fn runs(&self, node: usize) -> Result<bool> {
        match &mut *self.nodes[node].running() {
            Some(server) => server.runs(),
            None => Ok(false),
        }
    }

    /// One request to a node on a connection of its own.
    ///
    /// # Errors
    /// No answer: it may have run.
    pub fn ask(&self, node: usize, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        Connection::open(self.nodes[node].listen, PATIENCE)?.ask(method, path, body)
    }

    /// One to any node, again and again until it is served.
    ///
    /// # Errors
    /// It is not served in time.
    pub fn insist(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let began = Instant::now();
        let mut asked = 0;
        loop {
            match self.ask(asked % self.count(), method, path, body) {
                Ok(answer) if answer.status == 200 => return Ok(answer),
                Ok(answer) if began.elapsed() > SERVED_WITHIN => {
                    bail!("{path}: {} {}", answer.status, answer.text())
                }
                Err(error) if began.elapsed() > SERVED_WITHIN => return Err(error).context(path.to_owned()),
                Ok(_) | Err(_) => thread::sleep(Duration::from_millis(200)),
            }
            asked += 1;
        }
    }

    /// A new actor, which this node has.
    ///
    /// # Errors
    /// The node takes none.
    pub fn actor_of(&self, node: usize, kind: &str) -> Result<String> {
        let began = Instant::now();
        while began.elapsed() < SERVED_WITHIN {
            let number = self.actors.fetch_add(1, Ordering::Relaxed);
            let actor = format!("{kind}-{number}");
            let answer = self.ask(node, "GET", &format!("/actor/sql/{actor}/size"), b"")?;
            if answer.status == 200 && answer.node.as_deref() == Some(&Self::name(node)) {
                return Ok(actor);
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("{} takes no actor", Self::name(node))
    }

    /// What was done to a node so far; a client without an answer asks for it.
    #[must_use]
    pub fn hurts(&self, node: usize) -> Hurts {
        Hurts(self.nodes[node].hurts.load(Ordering::Relaxed))
    }

    /// Asks all to stop.
    ///
    /// # Errors
    /// One does not end in time.
    pub fn stop(&self) -> Result<()> {
        (0..self.count()).try_for_each(|node| self.terminate(node))
    }
}

/// What was done to a node so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hurts(u64);

impl Hurts {
    /// Whether nothing was done to it between this moment and `later`.
    #[must_use]
    pub fn none_until(self, later: Self) -> bool {
        self == later && self.0.is_multiple_of(2)
    }
}

impl Node {
    fn note(&self, next: impl Fn(u64) -> u64) {
        let _ = self.hurts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |hurts| Some(next(hurts)));
    }

    fn running(&self) -> MutexGuard<'_, Option<Server>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address that nobody else of this machine picks for a connection.
fn address(node: usize, port: u16) -> SocketAddr {
    let [_, _, high, low] = process::id().to_be_bytes();
    let last = u8::try_from(node + 2).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(127, high.max(1), low, last), port))
}

/// The node a connection comes from.
fn owner_of(pids: &[AtomicU32], from: SocketAddr) -> Option<usize> {
    (0..pids.len()).find(|node| has_socket(pids[*node].load(Ordering::Relaxed), from))
}

/// The sql sample in a folder of samples.
///
/// # Errors
/// It is not there.
pub fn sample(guests: &Path) -> Result<PathBuf> {
    let guest = guests.join("sql.wasm");
    fs::canonicalize(&guest).with_context(|| format!("{guest:?}"))
}
