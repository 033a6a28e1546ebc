//! One run of wrk with `load.lua`, and the line of figures it ends with.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::Args;

/// The client and its script.
#[derive(Debug, Clone, Args)]
pub struct Client {
    /// wrk's binary.
    #[arg(long, value_name = "FILE", default_value = "wrk")]
    pub wrk: PathBuf,

    /// What wrk sends.
    #[arg(long, value_name = "FILE")]
    pub load_script: PathBuf,
}

/// Which actor each request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// One actor.
    Hot,
    /// One of so many, drawn anew each time.
    Spread(usize),
    /// One never asked before.
    Fresh,
}

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Method of every request.
    pub method: &'a str,
    /// Which actors.
    pub aim: Aim,
    /// Path up to the number of the actor; the whole of it for [`Aim::Hot`].
    pub prefix: &'a str,
    /// Path after it.
    pub suffix: &'a str,
    /// Kept-alive connections, each with one request under way.
    pub connections: u32,
    /// Between an answer and the next request of its connection, in milliseconds.
    pub pause_ms: u64,
    /// How long.
    pub seconds: u64,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Answers received, whatever their status.
    pub requests: u64,
    /// Time measured, in microseconds.
    pub duration_us: u64,
    /// Median latency, in microseconds.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Connections, reads and writes that failed, and answers that took longer than [`TIMEOUT_SECONDS`].
    pub errors: u64,
    /// Answers with a status of 400 or more.
    pub bad_status: u64,
}

impl Figures {
    /// Answers per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 * 1e6 / (self.duration_us.max(1)) as f64
    }
}

/// wrk counts a slower answer as an error.
const TIMEOUT_SECONDS: u64 = 10;

impl Client {
    /// Runs the load to its end.
    ///
    /// # Errors
    /// wrk cannot be run or does not end with figures. A server that answers badly is no error: see
    /// [`Figures::errors`] and [`Figures::bad_status`].
    pub fn run(&self, address: SocketAddr, load: &Load<'_>) -> Result<Figures> {
        let (mode, actors) = match load.aim {
            Aim::Hot => ("hot", 1),
            Aim::Spread(actors) => ("spread", actors),
            Aim::Fresh => ("fresh", 1),
        };
        let mut command = Command::new(&self.wrk);
        // One thread: it saturates neither server, and `fresh` counts its actors in one place.
        command.arg("-t1").arg(format!("-c{}", load.connections)).arg(format!("-d{}s", load.seconds));
        command.arg(format!("--timeout={TIMEOUT_SECONDS}s")).arg("-s").arg(&self.load_script);
        command.arg(format!("http://{address}")).arg("--");
        command.args([load.method, mode, load.prefix, load.suffix]);
        command.args([actors.to_string(), load.pause_ms.to_string()]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("{:?} cannot be run", self.wrk))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match parse(&text) {
            Some(figures) if output.status.success() => Ok(figures),
            _ => bail!("wrk gave no figures: {text}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

fn parse(output: &str) -> Option<Figures> {
    let line = output.lines().find_map(|line| line.strip_prefix("RESULT "))?;
    let figure = |name: &str| -> Option<u64> {
        line.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?.parse().ok()
    };
    Some(Figures {
        requests: figure("requests")?,
        duration_us: figure("duration_us")?,
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
        max_us: figure("max_us")?,
        errors: figure("errors")?,
        bad_status: figure("bad_status")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_figures_is_found_among_the_clients_own_words() {
        let output = "Running 1s test\n  2 threads\nRequests/sec: 3\n\
            RESULT requests=500 duration_us=250000 p50_us=14 p99_us=83 max_us=91 errors=1 bad_status=2\n";
        let figures = parse(output).unwrap();
        let all = [figures.requests, figures.p50_us, figures.p99_us, figures.max_us];
        assert_eq!(all, [500, 14, 83, 91]);
        assert_eq!((figures.errors, figures.bad_status), (1, 2));
        assert!((figures.per_second() - 2000.0).abs() < 1e-9);
        assert_eq!(parse("RESULT requests=500 duration_us=1\n"), None);
        assert_eq!(parse("Running 1s test\n"), None);
    }
}
