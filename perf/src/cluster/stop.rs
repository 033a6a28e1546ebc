//! What clients see of a node that stops cleanly.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};

use super::{PATIENCE, Place, Programs, Settings, get, path};
use crate::{figure::Figure, http::Connection};

const ACTORS: usize = 64;

/// Clients of the node that stays, and as many of the one that stops.
const CLIENTS: usize = 8;

/// How long they ask before the stop and after it.
const AROUND: Duration = Duration::from_secs(3);

/// What one client, or all, saw.
#[derive(Default)]
struct Seen {
    answered: usize,
    failed: Vec<String>,
    /// Connections that ended before anything of an answer came.
    moved: usize,
    longest: Duration,
}

/// Stops one of two nodes while clients read from actors of both.
///
/// # Errors
/// A node does not start or stop.
pub fn figures(programs: &Programs, data_dir: &Path) -> Result<Vec<Figure>> {
    let place = Place::new(programs, data_dir, Settings::default())?;
    let [stops, stays] = place.nodes(["a", "b"])?;
    let addresses = [stops.address(), stays.address()];
    for actor in 0..ACTORS {
        get(addresses[actor % 4 / 3], &path(actor))?;
    }
    let is_over = AtomicBool::new(false);
    let (through_stayer, through_stopper, took) = thread::scope(|scope| -> Result<_> {
        let clients = |order: [SocketAddr; 2]| -> Vec<_> {
            let is_over = &is_over;
            (0..CLIENTS).map(|number| scope.spawn(move || client(order, number, is_over))).collect()
        };
        let [stopper, stayer] = addresses;
        let (of_stayer, of_stopper) = (clients([stayer, stayer]), clients([stopper, stayer]));
        thread::sleep(AROUND);
        let began = Instant::now();
        let status = stops.stop()?;
        ensure!(status.success(), "the node that was to stop cleanly ended with {status}");
        let took = began.elapsed();
        thread::sleep(AROUND);
        is_over.store(true, Ordering::Relaxed);
        let sum = |clients: Vec<thread::ScopedJoinHandle<'_, Seen>>| {
            clients.into_iter().try_fold(Seen::default(), |sum, client| {
                Ok::<_, anyhow::Error>(sum.and(client.join().map_err(|_| anyhow!("a panic"))?))
            })
        };
        Ok((sum(of_stayer)?, sum(of_stopper)?, took))
    })?;
    let figure = |name, seen: &Seen| {
        let failed = seen.failed.first().map_or_else(String::new, |first| format!(", first: {first}"));
        let measured = format!(
            "{} failed of {}{failed}; the longest took {:.0} ms, {} connections ended unused, the stop took {:.1} s",
            seen.failed.len(),
            seen.answered,
            seen.longest.as_secs_f64() * 1e3,
            seen.moved,
            took.as_secs_f64(),
        );
        Figure { name, measured, target: "none failed", is_reached: seen.failed.is_empty() }
    };
    Ok(vec![
        figure("GETs by the other node while a node stops", &through_stayer),
        figure("GETs by the node that stops, then the other", &through_stopper),
    ])
}

impl Seen {
    fn and(mut self, other: Self) -> Self {
        self.failed.extend(other.failed);
        Self {
            answered: self.answered + other.answered,
            failed: self.failed,
            moved: self.moved + other.moved,
            longest: self.longest.max(other.longest),
        }
    }
}

/// Asks the first node, and the second from when the first takes no connection any more.
fn client(order: [SocketAddr; 2], number: usize, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut connection = None;
    let mut at = 0;
    let mut actor = number * ACTORS / CLIENTS;
    while !is_over.load(Ordering::Relaxed) {
        let open = match connection.take() {
            Some(open) => open,
            None => match Connection::open(order[at], PATIENCE) {
                Ok(open) => open,
                Err(_) if at == 0 => {
                    at = 1;
                    continue;
                }
                Err(error) => {
                    seen.failed.push(error.to_string());
                    return seen;
                }
            },
        };
        let mut open = open;
        actor = (actor + 1) % ACTORS;
        let asked = Instant::now();
        match open.ask("GET", &path(actor), b"") {
            Ok(answer) if answer.status == 200 => {
                seen.answered += 1;
                seen.longest = seen.longest.max(asked.elapsed());
                connection = Some(open);
            }
            Ok(answer) => seen.failed.push(format!("{} {}", answer.status, answer.text())),
            // A kept-alive connection may end between two requests at any time: a GET is sent again.
            Err(error) if is_closed(&error) && at == 0 => seen.moved += 1,
            Err(error) => seen.failed.push(error.to_string()),
        }
    }
    seen
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
