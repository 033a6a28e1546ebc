//! What it costs to ask a node that does not have the actor.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use super::{
    PATIENCE, Place, Programs, Settings,
    echo::{self, Between, Echo},
    get, path,
};
use crate::{figure::Figure, http::Connection};

/// How often each of the five is measured in turn, and how many requests at a time.
const ROUNDS: usize = 20;
const REQUESTS: usize = 300;

/// What was measured with one kind of nodes. Nanoseconds.
struct Forwarding {
    bare: u64,
    relayed: u64,
    /// By a process that speaks HTTP.
    spoken: u64,
    owner: u64,
    other: u64,
}

/// Microseconds of `--spin-before-park-us` in the runs that spin.
const SPIN_US: u64 = 50;

/// What forwarding may add in plain HTTP, in bare round trips.
const TIMES_MAX: f64 = 1.5;

/// What it may add with TLS, of what it adds or may add in plain HTTP: where that is next to nothing, a ratio to it says
/// nothing.
const WITH_TLS: f64 = 1.25;

/// Measures it in plain and with TLS, with shards that park at once and with shards that spin before.
///
/// # Errors
/// A node does not answer.
pub fn figures(programs: &Programs, data_dir: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (spin_us, plain_name, encrypted_name) in [
        (0, "forwarding in plain HTTP", "forwarding with TLS"),
        (SPIN_US, "forwarding in plain HTTP, spinning", "forwarding with TLS, spinning"),
    ] {
        let with = |encrypted| {
            let settings = Settings { spin_us, encrypted, ..Settings::default() };
            measure(&Place::new(programs, data_dir, settings)?)
        };
        let plain = with(false)?;
        figures.push(Figure {
            name: plain_name,
            measured: plain.to_string(),
            target: "under 1.5",
            is_reached: plain.times() < TIMES_MAX,
        });
        let encrypted = with(true)?;
        let more = encrypted.added() as f64 / plain.added() as f64;
        figures.push(Figure {
            name: encrypted_name,
            measured: format!("{encrypted}; {more:.2} of what plain HTTP adds"),
            target: "under 1.25 of plain HTTP, or under 1.88 round trips",
            is_reached: more < WITH_TLS || encrypted.times() < WITH_TLS * TIMES_MAX,
        });
    }
    Ok(figures)
}

impl Forwarding {
    fn added(&self) -> u64 {
        self.other.saturating_sub(self.owner)
    }

    /// What it adds, in bare round trips.
    fn times(&self) -> f64 {
        self.added() as f64 / self.bare as f64
    }
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let Self { bare, relayed, spoken, owner, other } = *self;
        let (times, added) = (self.times(), micros(self.added()));
        write!(f, "adds {times:.2} of a bare round trip ({added:.1} µs beside {:.1}); ", micros(bare))?;
        let [copies, speaks] = [relayed, spoken].map(|with| micros(with.saturating_sub(bare)));
        write!(f, "a relay that only copies adds {copies:.1} µs, one that speaks HTTP {speaks:.1}; ")?;
        write!(f, "p50 at the owner {:.1} µs, elsewhere {:.1}", micros(owner), micros(other))
    }
}

fn measure(place: &Place) -> Result<Forwarding> {
    let [owner, other] = place.nodes(["a", "b"])?;
    let path = path(0);
    get(owner.address(), &path)?;
    let elsewhere = get(other.address(), &path)?;
    ensure!(elsewhere.node.as_deref() == Some("a"), "{elsewhere:?} was not forwarded");

    let messages = echo::messages(owner.address(), &path)?;
    let mut echo = Echo::start(&messages, Between::Nothing)?;
    let mut relay = Echo::start(&messages, Between::Copy)?;
    let mut http_relay = Echo::start(&messages, Between::Http)?;
    let mut owner = Connection::open(owner.address(), PATIENCE)?;
    let mut other = Connection::open(other.address(), PATIENCE)?;
    let [mut bare, mut relayed, mut spoken, mut at_owner, mut elsewhere] = [(); 5].map(|()| Times::default());
    for _ in 0..=ROUNDS {
        bare.round(|| Ok(echo.round_trip()?))?;
        relayed.round(|| Ok(relay.round_trip()?))?;
        spoken.round(|| Ok(http_relay.round_trip()?))?;
        at_owner.round(|| ask(&mut owner, &path))?;
        elsewhere.round(|| ask(&mut other, &path))?;
    }
    Ok(Forwarding {
        bare: bare.p50()?,
        relayed: relayed.p50()?,
        spoken: spoken.p50()?,
        owner: at_owner.p50()?,
        other: elsewhere.p50()?,
    })
}

/// How long each took, in rounds.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn round(&mut self, mut once: impl FnMut() -> Result<Duration>) -> Result<()> {
        for _ in 0..REQUESTS {
            self.0.push(once()?);
        }
        Ok(())
    }

    /// Without the first round, which warms everything up.
    fn p50(&self) -> Result<u64> {
        let mut times = Histogram::<u64>::new(3)?;
        for time in self.0.iter().skip(REQUESTS) {
            times.record(u64::try_from(time.as_nanos())?)?;
        }
        Ok(times.value_at_quantile(0.5))
    }
}

fn ask(connection: &mut Connection, path: &str) -> Result<Duration> {
    let began = Instant::now();
    let answer = connection.ask("GET", path, b"")?;
    let took = began.elapsed();
    ensure!(answer.status == 200, "{}", answer.text());
    ensure!(answer.node.as_deref() == Some("a"), "{answer:?} is not of the actor's node");
    Ok(took)
}
