//! What is asked of each server, in which order, and what makes a measurement count.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    http::Connection,
    load::{Aim, Client, Figures, Load},
    process,
    server::Server,
    subject::Subject,
};

/// Connections of the loaded scenarios: enough that an actor always has a next event waiting.
const CONNECTIONS: u32 = 32;

/// Actors of the spread scenario.
const SPREAD_ACTORS: usize = 1000;

/// Between two first requests where it is their latency that is measured, and not how many actors a machine can make.
const PACE_MS: u64 = 2;

/// Before anything is measured: code is compiled, caches are filled, both servers reach their speed.
const WARM_UP_SECONDS: u64 = 2;

/// How long one answer to a question of our own may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the data directories are, and with it what a write means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// In memory: a sync costs nothing; the node commits without one.
    Memory,
    /// On disk: workerd syncs once per write, the node is asked for durable writes.
    Disk,
}

/// One kind of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Every connection adds to one counter.
    HotWrite,
    /// Every connection reads one counter.
    HotRead,
    /// Every request adds to one of 1,000 counters.
    SpreadWrite,
    /// One connection adds to one new counter after another.
    FirstAlone,
    /// One connection does, with a pause before each.
    FirstPaced,
    /// 32 connections do, without.
    FirstCrowded,
}

impl Scenario {
    /// Those of a ground, in the order they are run.
    #[must_use]
    pub fn of(ground: Ground) -> &'static [Self] {
        match ground {
            Ground::Memory => &[
                Self::HotWrite,
                Self::HotRead,
                Self::SpreadWrite,
                Self::FirstPaced,
                Self::FirstAlone,
                Self::FirstCrowded,
            ],
            // Reads do not touch the disk.
            Ground::Disk => {
                &[Self::HotWrite, Self::SpreadWrite, Self::FirstPaced, Self::FirstAlone, Self::FirstCrowded]
            }
        }
    }

    /// As tables call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::HotWrite => "one actor, write, 32 connections",
            Self::HotRead => "one actor, read, 32 connections",
            Self::SpreadWrite => "1,000 actors, write, 32 connections",
            Self::FirstPaced => "first request to a new actor, after 2 ms of rest",
            Self::FirstAlone => "first request to a new actor, 1 connection",
            Self::FirstCrowded => "first request to a new actor, 32 connections",
        }
    }

    fn load<'a>(self, suffix: &'a str, seconds: u64) -> Load<'a> {
        let (method, aim, prefix, connections) = match self {
            Self::HotWrite => ("POST", Aim::Hot, HOT, CONNECTIONS),
            Self::HotRead => ("GET", Aim::Hot, HOT, CONNECTIONS),
            Self::SpreadWrite => ("POST", Aim::Spread(SPREAD_ACTORS), "/actor/counter/spread-", CONNECTIONS),
            Self::FirstPaced => ("POST", Aim::Fresh, "/actor/counter/paced-", 1),
            Self::FirstAlone => ("POST", Aim::Fresh, "/actor/counter/alone-", 1),
            Self::FirstCrowded => ("POST", Aim::Fresh, "/actor/counter/crowd-", CONNECTIONS),
        };
        let suffix = if method == "GET" { "" } else { suffix };
        let pause_ms = if self == Self::FirstPaced { PACE_MS } else { 0 };
        Load { method, aim, prefix, suffix, connections, pause_ms, seconds }
    }
}

const HOT: &str = "/actor/counter/hot";

/// One measurement.
#[derive(Debug, Clone)]
pub struct Measured {
    /// As the client saw it.
    pub figures: Figures,
    /// CPU time of the server for each request, in microseconds.
    pub cpu_us: f64,
    /// Cores the client kept busy, 0 to 1: near 1 it is the client that is measured.
    pub client_busy: f64,
    /// Load average of the machine when it ended.
    pub load: f64,
    /// Why it does not count.
    pub invalid: Option<String>,
}

/// Brings a server to its speed.
///
/// # Errors
/// The client cannot be run.
pub fn warm_up(client: &Client, server: &Server, subject: Subject, ground: Ground) -> Result<()> {
    let suffix = suffix(subject, ground);
    client.run(server.address(), &Scenario::HotWrite.load(suffix, WARM_UP_SECONDS))?;
    // The actors of this one are then in memory, as those of the measured run are.
    client.run(server.address(), &Scenario::SpreadWrite.load(suffix, WARM_UP_SECONDS))?;
    Ok(())
}

/// Runs one scenario for about `seconds`.
///
/// # Errors
/// The server or the client is gone. A server that answers wrongly gives a measurement that does not count.
pub fn measure(
    scenario: Scenario,
    client: &Client,
    server: &Server,
    subject: Subject,
    ground: Ground,
    seconds: u64,
) -> Result<Measured> {
    let load = scenario.load(suffix(subject, ground), seconds);
    let counted_before = if scenario == Scenario::HotWrite { Some(count(server)?) } else { None };
    let (server_before, client_before) =
        (process::cpu_time(server.pid())?, process::ended_children_cpu_time()?);
    let figures = client.run(server.address(), &load)?;
    let server_cpu = process::cpu_time(server.pid())?.saturating_sub(server_before);
    let client_cpu = process::ended_children_cpu_time()?.saturating_sub(client_before);
    let mut invalid = wrong_answers(&figures);
    if let Some(before) = counted_before {
        let added = count(server)?.saturating_sub(before);
        invalid = invalid.or_else(|| wrong_count(added, figures.requests, load.connections));
    }
    Ok(Measured {
        figures,
        cpu_us: server_cpu.as_secs_f64() * 1e6 / figures.requests.max(1) as f64,
        client_busy: client_cpu.as_secs_f64() * 1e6 / figures.duration_us.max(1) as f64,
        load: process::load_average()?,
        invalid,
    })
}

fn suffix(subject: Subject, ground: Ground) -> &'static str {
    match ground {
        Ground::Memory => "",
        Ground::Disk => subject.durable_suffix(),
    }
}

/// What the hot counter stands at.
fn count(server: &Server) -> Result<u64> {
    let answer = Connection::open(server.address(), PATIENCE)?.ask("GET", HOT, b"")?;
    answer.text().parse().with_context(|| format!("the counter says {:?}", answer.text()))
}

fn wrong_answers(figures: &Figures) -> Option<String> {
    if figures.requests == 0 {
        return Some("no answer at all".into());
    }
    (figures.errors + figures.bad_status > 0).then(|| {
        format!("{} failed requests, {} answers with an error status", figures.errors, figures.bad_status)
    })
}

/// A write that was answered was counted; one that was under way at the end may have been.
fn wrong_count(added: u64, answered: u64, connections: u32) -> Option<String> {
    (added < answered || added > answered + u64::from(connections))
        .then(|| format!("{answered} writes were answered and the counter went up by {added}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_failed_request_or_a_lost_write_does_not_count() {
        let good = Figures {
            requests: 100,
            duration_us: 1,
            p50_us: 1,
            p99_us: 1,
            max_us: 1,
            errors: 0,
            bad_status: 0,
        };
        assert_eq!(wrong_answers(&good), None);
        assert!(wrong_answers(&Figures { errors: 1, ..good }).is_some());
        assert!(wrong_answers(&Figures { bad_status: 1, ..good }).is_some());
        assert!(wrong_answers(&Figures { requests: 0, ..good }).is_some());
        assert_eq!(wrong_count(100, 100, 32), None);
        assert_eq!(wrong_count(132, 100, 32), None);
        assert!(wrong_count(99, 100, 32).is_some());
        assert!(wrong_count(133, 100, 32).is_some());
    }

    #[test]
    fn only_the_nodes_writes_on_disk_are_spelled_differently() {
        let path = |scenario: Scenario, subject, ground| {
            let load = scenario.load(suffix(subject, ground), 1);
            format!("{} {}#{}", load.method, load.prefix, load.suffix)
        };
        for scenario in Scenario::of(Ground::Memory) {
            let [ours, theirs] =
                [Subject::Wasmkeep, Subject::Workerd].map(|subject| path(*scenario, subject, Ground::Memory));
            assert_eq!(ours, theirs);
            assert!(ours.ends_with('#'));
        }
        let durable = path(Scenario::HotWrite, Subject::Wasmkeep, Ground::Disk);
        assert_eq!(durable, "POST /actor/counter/hot#/durable");
        assert_eq!(path(Scenario::HotRead, Subject::Wasmkeep, Ground::Disk), "GET /actor/counter/hot#");
    }
}
