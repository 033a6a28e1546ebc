//! What an actor in memory costs: touches many actors once and watches the server's memory meanwhile.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    http::Connection,
    process::{self, memory, open_databases},
    server::Server,
    subject::{Census, Programs, Subject},
};

/// Connections that touch actors.
const CONNECTIONS: usize = 16;

/// Time between two looks at the server. A look reads every open descriptor, so not more often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// For how long after the last touch the server is watched: an actor of a node closes its database and gives back
/// other memory once it was idle for 2 to 3 s; workerd lets one go after 10.
const LINGER: Duration = Duration::from_secs(7);

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for idle actors to leave memory: workerd lets them go after 10 s and looks at intervals.
const SETTLE_MAX: Duration = Duration::from_secs(40);

/// Time for the allocator to give back what is free, once the last actor left.
const SETTLE_AFTER: Duration = Duration::from_secs(3);

/// Idle seconds of the node that is to keep every actor.
const KEEP_SECONDS: u32 = 3600;

/// One look at a server.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Actors in memory.
    pub actors: usize,
    /// Resident memory, in bytes.
    pub bytes: u64,
}

/// What touching many actors cost.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Actors touched.
    pub touched: usize,
    /// After one actor was touched, before the rest.
    pub before: Look,
    /// The look with the most actors in memory.
    pub fullest: Look,
    /// Peak of resident memory, in bytes.
    pub peak_bytes: u64,
    /// After idle actors had time to leave; `None` where they were told to stay.
    pub settled: Option<Look>,
}

impl Footprint {
    /// Bytes for each actor in memory, beyond what the server needs without.
    #[must_use]
    pub fn per_actor(&self) -> f64 {
        let bytes = self.fullest.bytes.saturating_sub(self.before.bytes);
        bytes as f64 / self.fullest.actors.saturating_sub(self.before.actors).max(1) as f64
    }
}

/// Measures a server's memory over `actors` actors, with its data directory in `folder`.
///
/// The node runs twice: told to keep every actor, for the cost of one; then with an idle time of 2 s, for what
/// remains when they hibernate. workerd has no such setting and runs once.
///
/// # Errors
/// The server fails or answers an actor's first request with anything but 200.
pub fn footprint(
    programs: &Programs,
    subject: Subject,
    folder: &std::path::Path,
    actors: usize,
) -> Result<Footprint> {
    // A quarter more than needed: the node shares the number evenly among its shards, chance does not.
    let flags = |idle: u32| {
        vec![format!("--max-resident={}", actors + actors / 4 + 16), format!("--hibernate-after-secs={idle}")]
    };
    if subject == Subject::Workerd {
        return touch_and_watch(&programs.start(subject, &folder.join("kept"), &[])?, subject, actors, true);
    }
    let kept = programs.start(subject, &folder.join("kept"), &flags(KEEP_SECONDS))?;
    let mut footprint = touch_and_watch(&kept, subject, actors, false)?;
    kept.stop()?;
    let idle = programs.start(subject, &folder.join("idle"), &flags(2))?;
    footprint.settled = touch_and_watch(&idle, subject, actors, true)?.settled;
    idle.stop()?;
    Ok(footprint)
}

fn touch_and_watch(server: &Server, subject: Subject, actors: usize, settle: bool) -> Result<Footprint> {
    let look = || -> Result<Look> {
        let actors = match subject.census() {
            Census::OpenDatabases(extension) => open_databases(server.pid(), extension)?,
            Census::Metric(name) => metric(server.address(), name)?,
        };
        Ok(Look { actors, bytes: memory(server.pid())?.resident_bytes })
    };
    touch(server.address(), "first-", 0, 1, 1)?;
    let before = look()?;
    let mut fullest = before;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let touching = scope.spawn(|| {
            let touched = touch_all(server.address(), actors);
            done.store(true, Ordering::Release);
            touched
        });
        let mut touched_at = None;
        while touched_at.is_none_or(|at: Instant| at.elapsed() < LINGER) {
            if touched_at.is_none() && done.load(Ordering::Acquire) {
                touched_at = Some(Instant::now());
            }
            let now = look()?;
            if now.actors >= fullest.actors {
                fullest = now;
            }
            thread::sleep(LOOK_EVERY);
        }
        touching.join().unwrap_or_else(|_| bail!("a client panicked"))
    })
    .with_context(|| format!("touching {actors} actors of {subject}:\n{}", server.log_end()))?;
    let peak_bytes = process::memory(server.pid())?.peak_bytes;
    let settled = if settle { Some(settled(&look, before.actors)?) } else { None };
    Ok(Footprint { touched: actors, before, fullest, peak_bytes, settled })
}

fn touch_all(address: SocketAddr, actors: usize) -> Result<()> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|client| scope.spawn(move || touch(address, "one-of-many-", client, actors, CONNECTIONS)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
    })
}

fn touch(address: SocketAddr, prefix: &str, first: usize, actors: usize, step: usize) -> Result<()> {
    let mut connection = Connection::open(address, PATIENCE)?;
    for actor in (first..actors).step_by(step) {
        let answer = connection.ask("POST", &format!("/actor/counter/{prefix}{actor}"), b"")?;
        if answer.status != 200 || answer.text() != "1" {
            bail!("the first request to an actor gave {} {:?}", answer.status, answer.text());
        }
    }
    Ok(())
}

/// The sum of a metric over its labels.
fn metric(address: SocketAddr, name: &str) -> Result<usize> {
    let text = Connection::open(address, PATIENCE)?.ask("GET", "/_wasmkeep/metrics", b"")?.text();
    sum_of(&text, name).with_context(|| format!("the node has no metric {name}"))
}

fn sum_of(text: &str, name: &str) -> Option<usize> {
    let values = text.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then(|| value.parse::<usize>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

/// Waits until no more actors are in memory than `few`, or no longer.
fn settled(look: &impl Fn() -> Result<Look>, few: usize) -> Result<Look> {
    let deadline = Instant::now() + SETTLE_MAX;
    while look()?.actors > few && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
    }
    thread::sleep(SETTLE_AFTER);
    look()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_no_other_is() {
        let text = "# TYPE a gauge\na{shard=\"0\"} 3\na{shard=\"1\"} 4\nab{shard=\"0\"} 100\nc 7\n";
        assert_eq!((sum_of(text, "a"), sum_of(text, "c"), sum_of(text, "d")), (Some(7), Some(7), None));
    }

    #[test]
    fn an_actor_costs_what_memory_grew_by_for_each_that_came() {
        let footprint = Footprint {
            touched: 10,
            before: Look { actors: 1, bytes: 1000 },
            fullest: Look { actors: 5, bytes: 1800 },
            peak_bytes: 2000,
            settled: None,
        };
        assert!((footprint.per_actor() - 200.0).abs() < 1e-9);
    }
}
