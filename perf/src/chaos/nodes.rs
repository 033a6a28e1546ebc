//! A cluster of real processes, and what is done to them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    http::{Answer, Connection},
    server::{Server, free_address},
};

/// How long a client waits for one answer: longer than any documented wait.
pub const PATIENCE: Duration = Duration::from_secs(65);

/// What is done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Killed with SIGKILL, started again on its disk.
    Kill,
    /// Killed, and its disk wiped.
    KillAndWipe,
    /// Frozen with SIGSTOP for longer than its lease, then let go: it is fenced and ends, and is started again.
    Freeze,
    /// Asked to stop with SIGTERM, and started again.
    Terminate,
}

impl Harm {
    /// Each kind, the `turn`-th time round; kills more often than the others.
    #[must_use]
    pub fn of(turn: usize) -> Self {
        match turn % 6 {
            0 | 2 => Self::Kill,
            1 | 4 => Self::KillAndWipe,
            3 => Self::Freeze,
            _ => Self::Terminate,
        }
    }
}

/// Nodes on one bucket.
pub struct Nodes {
    binary: PathBuf,
    guest: PathBuf,
    folder: PathBuf,
    addresses: Vec<SocketAddr>,
    running: Vec<Mutex<Option<Server>>>,
}

impl Nodes {
    /// Starts `count` nodes with the sql sample, all at once.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(binary: &Path, guests: &Path, folder: &Path, count: usize) -> Result<Self> {
        let guest = guests.join("sql.wasm");
        let nodes = Self {
            binary: binary.to_owned(),
            guest: fs::canonicalize(&guest).with_context(|| format!("{guest:?}"))?,
            folder: folder.to_owned(),
            addresses: (0..count).map(|_| free_address()).collect::<Result<_>>()?,
            running: (0..count).map(|_| Mutex::new(None)).collect(),
        };
        std::thread::scope(|scope| {
            let nodes = &nodes;
            let starts: Vec<_> = (0..count).map(|node| scope.spawn(move || nodes.revive(node))).collect();
            starts.into_iter().try_for_each(|start| start.join().expect("no panic"))
        })?;
        Ok(nodes)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.addresses.len()
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
    pub fn revive(&self, node: usize) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg(format!("--listen={}", self.addresses[node]));
        command.arg("--data-dir").arg(self.data_dir(node));
        command.arg(format!("--actor=sql={}", self.guest.display()));
        command.arg(format!("--bucket=file://{}", self.folder.join("bucket").display()));
        command.arg(format!("--node-id={}", Self::name(node)));
        command.args(["--cluster-plaintext=accept", "--shards=1", "--overprovisioned"]);
        command.args(["--hibernate-after-secs=5", "--history-retention-secs=0"]);
        let log = self.folder.join(format!("{}.log", Self::name(node)));
        let server = Server::start(command, self.addresses[node], &log)?;
        *self.running[node].lock().expect("no panic") = Some(server);
        Ok(())
    }

    fn data_dir(&self, node: usize) -> PathBuf {
        self.folder.join(Self::name(node))
    }

    /// Does harm to a node; it does not serve when this returns, but for a frozen one.
    ///
    /// # Errors
    /// It is not there, or does not end in time.
    pub fn hurt(&self, node: usize, harm: Harm) -> Result<()> {
        let mut running = self.running[node].lock().expect("no panic");
        let server = running.as_ref().with_context(|| format!("{} does not run", Self::name(node)))?;
        match harm {
            Harm::Freeze => signal(server, Signal::STOP)?,
            Harm::Kill | Harm::KillAndWipe => drop(running.take()),
            Harm::Terminate => {
                if let Some(server) = running.take() {
                    server.stop()?;
                }
            }
        }
        if harm == Harm::KillAndWipe {
            fs::remove_dir_all(self.data_dir(node))?;
        }
        Ok(())
    }

    /// Lets a frozen node go and waits until it has ended by itself, as one that was fenced does.
    ///
    /// # Errors
    /// It goes on.
    pub fn thaw(&self, node: usize) -> Result<()> {
        let server = self.running[node].lock().expect("no panic").take();
        if let Some(server) = server {
            signal(&server, Signal::CONT)?;
            server.ended(Duration::from_secs(60))?;
        }
        Ok(())
    }

    /// One request to a node on a connection of its own.
    ///
    /// # Errors
    /// No answer: it may have run.
    pub fn ask(&self, node: usize, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        Connection::open(self.addresses[node], PATIENCE)?.ask(method, path, body)
    }

    /// Asks all to stop.
    ///
    /// # Errors
    /// One does not end in time.
    pub fn stop(&self) -> Result<()> {
        for running in &self.running {
            let server = running.lock().expect("no panic").take();
            if let Some(server) = server {
                server.stop()?;
            }
        }
        Ok(())
    }
}

fn signal(server: &Server, signal: Signal) -> Result<()> {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
    Ok(kill_process(pid, signal)?)
}
