//! How long actors of a node that died are away.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use super::{Place, Programs, Settings, get, path};
use crate::{bucket::Served, figure::Figure};

/// Nodes that die, each at another moment of its heartbeat, and the actors of each.
const VICTIMS: usize = 6;
const ACTORS_EACH: usize = 4;

/// One actor's way.
struct Way {
    /// From the last lease write of its node to its new owner.
    owned: Duration,
    /// From there to the answer: the restore, and the event.
    restored: Duration,
}

/// Kills nodes in turn and asks for their actors at one that stays.
///
/// # Errors
/// An actor is not served.
pub fn figures(programs: &Programs, data_dir: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let mut ways = Vec::new();
    for _ in 0..rounds {
        ways.extend(round(&Place::new(programs, data_dir, Settings::default())?)?);
    }
    let mut owned: Vec<_> = ways.iter().map(|way| way.owned.as_secs_f64()).collect();
    let mut restored: Vec<_> = ways.iter().map(|way| way.restored.as_secs_f64()).collect();
    let (p50, p99) = (quantile(&mut owned, 0.5), quantile(&mut owned, 0.99));
    let restore = quantile(&mut restored, 0.99);
    Ok(vec![Figure {
        name: "from a node's last lease write to the next owner of its actors",
        measured: format!(
            "p50 {p50:.1} s, p99 {p99:.1} s of {} actors; then p99 {restore:.3} s to the answer",
            ways.len()
        ),
        target: "p99 under 21 s",
        is_reached: p99 < 21.0,
    }])
}

fn round(place: &Place) -> Result<Vec<Way>> {
    let names: Vec<String> = (0..VICTIMS).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = ["stays"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut nodes = place.start(&names)?;
    let stays = nodes.remove(0);
    let owner = |actor: usize| actor / ACTORS_EACH;
    for actor in 0..VICTIMS * ACTORS_EACH {
        get(nodes[owner(actor)].address(), &path(actor))?;
    }
    thread::sleep(Duration::from_secs(4));
    let mut killed = Vec::new();
    for (number, node) in nodes.drain(..).enumerate() {
        // Their heartbeats keep step with one another as far as they started together.
        thread::sleep(Duration::from_millis(500));
        drop(node);
        killed.push((format!("nodes/v{number}"), Instant::now()));
    }
    // The system keeps the sockets of a killed process for a moment: who connects then is cut off (R-FWD-2).
    thread::sleep(Duration::from_millis(500));
    let address = stays.address();
    let answered: Vec<Instant> = thread::scope(|scope| {
        let clients: Vec<_> = (0..VICTIMS * ACTORS_EACH)
            .map(|actor| {
                scope.spawn(move || -> Result<Instant> {
                    get(address, &path(actor))?;
                    Ok(Instant::now())
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().map_err(|_| anyhow!("a panic"))?)
            .collect::<Result<_>>()
    })?;
    let served = place.bucket.take_served();
    let puts = |key: String| -> Vec<Instant> {
        let of_key = |served: &&Served| served.kind == "PUT" && served.key.ends_with(&key);
        served.iter().filter(of_key).map(|served| served.arrived).collect()
    };
    answered
        .into_iter()
        .enumerate()
        .map(|(actor, answered)| {
            let (key, died) = &killed[owner(actor)];
            let beats = puts(key.clone());
            let last = beats.into_iter().filter(|at| at <= died).max().context("it never renewed")?;
            let taken = puts(format!("/counter/c{actor}")).into_iter().max().context("nobody took it")?;
            Ok(Way { owned: taken - last, restored: answered.saturating_duration_since(taken) })
        })
        .collect()
}

/// Of one value at least.
fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * quantile).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_smallest_value_that_so_many_do_not_exceed() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (of, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert!((quantile(&mut values, of) - expected).abs() < f64::EPSILON, "{of}");
        }
        assert!((quantile(&mut [7.0], 0.99) - 7.0).abs() < f64::EPSILON);
    }
}
