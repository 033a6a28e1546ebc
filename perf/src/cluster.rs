//! Figures of a cluster of real processes on a bucket that notes what it is asked.
//!
//! Each of them starts its own nodes on its own bucket.

pub mod echo;
pub mod failover;
pub mod forwarding;
pub mod http_relay;
pub mod idle;
pub mod relay;
pub mod stop;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use crate::{
    bucket::{self, BucketServer},
    http::{Answer, Connection},
    server::{Server, free_address},
};

/// Longest wait for one answer: longer than any documented wait.
const PATIENCE: Duration = Duration::from_secs(65);

/// How long a node may take until it is ready: its start check, and with TLS until its certificate is known.
const READY_MAX: Duration = Duration::from_secs(60);

/// What nodes are started from.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The node's binary.
    pub wasmkeep: PathBuf,
    /// Folder with the sample components.
    pub guests: PathBuf,
}

/// How the nodes of one figure are started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// `--spin-before-park-us`.
    pub spin_us: u64,
    /// With cluster listeners: what nodes say to each other is encrypted.
    pub encrypted: bool,
    /// Actors in memory that do not hibernate.
    pub residents: Option<usize>,
}

/// A bucket and the folder of the nodes on it.
pub struct Place {
    bucket: BucketServer,
    folder: TempDir,
    programs: Programs,
    settings: Settings,
}

impl Place {
    /// An empty one; data is kept below `data_dir`.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(programs: &Programs, data_dir: &Path, settings: Settings) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("wasmkeep-cluster-").tempdir_in(data_dir)?;
        let bucket = BucketServer::start(Duration::ZERO, None)?;
        Ok(Self { bucket, folder, programs: programs.clone(), settings })
    }

    /// Nodes of these names, started at once, when all are ready.
    fn nodes<const COUNT: usize>(&self, names: [&str; COUNT]) -> Result<[Server; COUNT]> {
        let nodes = self.start(&names)?;
        nodes.try_into().map_err(|_| anyhow!("another number of nodes"))
    }

    fn start(&self, names: &[&str]) -> Result<Vec<Server>> {
        thread::scope(|scope| {
            let starts: Vec<_> = names.iter().map(|name| scope.spawn(move || self.node(name))).collect();
            starts.into_iter().map(|start| start.join().map_err(|_| anyhow!("a panic"))?).collect()
        })
    }

    fn node(&self, name: &str) -> Result<Server> {
        let address = free_address()?;
        let guest = self.programs.guests.join("counter.wasm");
        let guest = fs::canonicalize(&guest).with_context(|| format!("{guest:?}"))?;
        let mut command = Command::new(&self.programs.wasmkeep);
        command.args(["serve", "--shards=1", "--overprovisioned"]);
        command.arg(format!("--node-id={name}")).arg(format!("--listen={address}"));
        command.arg(format!("--bucket=s3://{}", bucket::NAME));
        command.arg(format!("--actor=counter={}", guest.display()));
        command.arg(format!("--spin-before-park-us={}", self.settings.spin_us));
        if self.settings.encrypted {
            let peers = free_address()?;
            command
                .arg(format!("--cluster-listen={peers}"))
                .arg(format!("--cluster-advertise=https://{peers}"));
        } else {
            command.arg("--cluster-plaintext=accept");
        }
        if let Some(residents) = self.settings.residents {
            command.arg(format!("--max-resident={residents}")).arg("--hibernate-after-secs=86400");
        }
        command.arg("--data-dir").arg(self.folder.path().join(name)).env_remove("WASMKEEP_LOG");
        command.envs(self.bucket.environment());
        let server = Server::start(command, address, &self.folder.path().join(format!("{name}.log")))?;
        let deadline = Instant::now() + READY_MAX;
        while get(address, "/_wasmkeep/ready").is_err() {
            ensure!(Instant::now() < deadline, "{name} does not become ready:\n{}", server.log_end());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

/// The path of one of the actors.
fn path(actor: usize) -> String {
    format!("/actor/counter/c{actor}")
}

fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let answer = Connection::open(address, PATIENCE)?.ask("GET", path, b"")?;
    ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.text());
    Ok(answer)
}
