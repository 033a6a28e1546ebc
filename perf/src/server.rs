//! A server process: started, waited for until it answers, stopped.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::http::Connection;

/// How long a server may take until it answers. A first start compiles its components.
const START_MAX: Duration = Duration::from_secs(120);

/// How long a server may take to end after SIGTERM; longer than a node's grace for events in flight.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Bytes of a server's log shown when it fails.
const LOG_SHOWN_BYTES: usize = 2000;

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

/// A port of the loopback interface that nobody listens on now.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<SocketAddr> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(probe.local_addr()?)
}

impl Server {
    /// Runs `command`, its output going to the file `log`, and waits until something answers at `address`.
    ///
    /// # Errors
    /// The command cannot be run, ends, or does not answer in time; with the end of its log.
    pub fn start(mut command: Command, address: SocketAddr, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("the log {log:?} cannot be written"))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
        let mut server = Self { child, address, log: log.to_owned() };
        let deadline = Instant::now() + START_MAX;
        while !server.answers() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{:?} ended at its start with {status}:\n{}", command.get_program(), server.log_end());
            }
            if Instant::now() > deadline {
                bail!("{:?} does not answer:\n{}", command.get_program(), server.log_end());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Any answer will do: a server that says 404 is up.
    fn answers(&self) -> bool {
        let connection = Connection::open(self.address, Duration::from_secs(2));
        connection.is_ok_and(|mut connection| connection.ask("GET", "/", b"").is_ok())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of what it has printed so far.
    #[must_use]
    pub fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(LOG_SHOWN_BYTES);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// As the system says.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// It does not end within `limit`; it was killed then.
    pub fn ended(mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("the server did not end within {limit:?}:\n{}", self.log_end());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to stop and waits for its end.
    ///
    /// # Errors
    /// It does not end in time; it was killed then.
    pub fn stop(self) -> Result<ExitStatus> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // One that ended already is found by the wait.
            let _ = kill_process(pid, Signal::TERM);
        }
        self.ended(STOP_MAX)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
