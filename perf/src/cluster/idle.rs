//! What a cluster asks of its bucket while nobody asks anything of it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};

use super::{PATIENCE, Place, Programs, Settings, path};
use crate::{bucket::Served, figure::Figure, http::Connection};

/// Clients that wake the actors.
const CLIENTS: usize = 64;

/// Longer than anything that follows from a last request: a second attempt at an upload, a sweep.
const SETTLED_AFTER: Duration = Duration::from_secs(20);

/// Listens to the bucket for so long.
const WATCHED: Duration = Duration::from_secs(60);

/// Two nodes, of which one has `actors` in memory.
///
/// # Errors
/// An actor does not answer.
pub fn figures(programs: &Programs, data_dir: &Path, actors: usize) -> Result<Vec<Figure>> {
    let settings = Settings { residents: Some(actors), ..Settings::default() };
    let place = Place::new(programs, data_dir, settings)?;
    let nodes = place.nodes(["a", "b"])?;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut client = Connection::open(nodes[0].address(), PATIENCE)?;
                    loop {
                        let actor = next.fetch_add(1, Ordering::Relaxed);
                        if actor >= actors {
                            return Ok(());
                        }
                        let answer = client.ask("POST", &path(actor), b"")?;
                        ensure!(answer.status == 200, "{}", answer.text());
                    }
                })
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| anyhow!("a panic"))?)
    })?;
    thread::sleep(SETTLED_AFTER);
    place.bucket.take_served();
    thread::sleep(WATCHED);
    let served = place.bucket.take_served();

    let (leases, others): (Vec<_>, Vec<_>) =
        served.into_iter().partition(|served| served.key.starts_with("nodes/"));
    let beats = leases.iter().filter(|served| served.kind == "PUT").count();
    let per_beat = leases.len() as f64 / beats as f64;
    let (of_actors, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|served| is_of_an_actor(&served.key));
    let per_second = of_actors.len() as f64 / WATCHED.as_secs_f64();
    Ok(vec![
        Figure {
            name: "lease requests per heartbeat, each node",
            measured: format!("{per_beat:.2} in {beats} heartbeats of two nodes"),
            target: "2 at most",
            // A heartbeat whose listing is just outside.
            is_reached: leases.len() <= 2 * beats + 2,
        },
        Figure {
            name: "requests per second of idle actors",
            measured: format!("{per_second:.2} of {actors} actors{}", list(&of_actors)),
            target: "0",
            is_reached: of_actors.is_empty(),
        },
        Figure {
            name: "all other requests",
            measured: format!("{:.2} a second{}", others.len() as f64 / WATCHED.as_secs_f64(), list(&others)),
            target: "not more than one listing in ten seconds for each node",
            is_reached: others.len() as f64 <= 2.0 * (WATCHED.as_secs_f64() / 10.0 + 1.0),
        },
    ])
}

/// An actor's ownership record, or its history.
fn is_of_an_actor(key: &str) -> bool {
    key.starts_with("owners/") || key.starts_with("actors/")
}

/// What they were, by kind and the first part of the key.
fn list(served: &[Served]) -> String {
    let mut counts = BTreeMap::<_, usize>::new();
    for Served { kind, key, .. } in served {
        let folder = key.split('/').next().unwrap_or(key);
        *counts.entry((kind, folder)).or_default() += 1;
    }
    counts.iter().map(|((kind, folder), count)| format!(", {count} {kind} of {folder}/")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn requests_are_told_apart_by_whose_they_are_and_counted_by_folder() {
        let now = Instant::now();
        let served = |kind: &str, key: &str| Served {
            kind: kind.into(),
            key: key.into(),
            arrived: now,
            ended: now,
            bytes: 0,
        };
        let others = [served("LIST", "alarms/"), served("GET", "cluster/secret"), served("LIST", "alarms/")];
        assert_eq!(list(&others), ", 1 GET of cluster/, 2 LIST of alarms/");
        assert!(
            is_of_an_actor("owners/default/counter/c1") && is_of_an_actor("actors/default/counter/c1/wal/")
        );
        assert!(!others.iter().any(|served| is_of_an_actor(&served.key)));
    }
}
