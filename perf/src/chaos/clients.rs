//! Clients that write and read while the cluster is hurt, and know what they were told.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

use super::{
    nodes::Nodes,
    record::{Fate, Record, count, numbers, was_served},
};
use crate::http::Answer;

/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(30);

/// Writes between two looks at how many there are.
const LOOK_EVERY: u64 = 10;

/// A GET that took so long was kept for a takeover.
const KEPT: Duration = Duration::from_secs(3);

/// Longest time until a GET is answered: `--failover-wait-secs`, or the limit of a forwarded one and a wait after it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(58);

/// Every number an actor has, as one value: a query gives a bounded number of rows.
const ALL: &str = "SELECT json_group_array(n) FROM (SELECT n FROM w ORDER BY rowid)";

/// The clients of one run.
pub struct Clients<'a> {
    nodes: &'a Nodes,
    done: AtomicBool,
    turn: AtomicUsize,
}

/// What the reader of one actor was told.
#[derive(Debug, Default)]
pub struct Reads {
    /// GETs that were served.
    pub served: usize,
    /// Those of them that were kept for a takeover.
    pub kept: usize,
    /// GETs that were refused.
    pub refused: usize,
    /// Longest wait for an answer.
    pub longest: Duration,
}

impl<'a> Clients<'a> {
    /// Clients of these nodes.
    #[must_use]
    pub fn new(nodes: &'a Nodes) -> Self {
        Self { nodes, done: AtomicBool::new(false), turn: AtomicUsize::new(0) }
    }

    /// They end after their next answer.
    pub fn stop(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    fn go_on(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    /// One request through the next node. `None`: the node was hurt meanwhile, and whether it ran is not known.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<Option<Answer>> {
        let node = self.turn.fetch_add(1, Ordering::Relaxed) % self.nodes.count();
        let (before, began) = (self.nodes.hurts(node), Instant::now());
        match self.nodes.ask(node, method, path, body) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if before.none_until(self.nodes.hurts(node)) => bail!(
                "{}, which was not hurt, did not answer {method} {path} after {:?}: {error}",
                Nodes::name(node),
                began.elapsed()
            ),
            Err(_) => Ok(None),
        }
    }

    /// Writes numbers to an actor durably, through one node after another, and now and then counts them.
    ///
    /// # Errors
    /// An answer that no document knows of, and a count that cannot be.
    pub fn write(&self, actor: usize) -> Result<Record> {
        let mut record = Record::default();
        let mut has_table = false;
        while self.go_on() {
            if !has_table {
                let create = b"CREATE TABLE IF NOT EXISTS w (n INTEGER)";
                has_table = self.change(actor, create)? == Fate::Acknowledged;
                continue;
            }
            let number = record.next();
            let insert = format!("INSERT INTO w VALUES ({number})");
            record.note(number, self.change(actor, insert.as_bytes())?);
            if number % LOOK_EVERY == 0 {
                self.look(actor, &record)?;
            }
            thread::sleep(PAUSE);
        }
        Ok(record)
    }

    fn change(&self, actor: usize, sql: &[u8]) -> Result<Fate> {
        Fate::of(self.ask("POST", &sql_path(actor, "durable"), sql)?.as_ref())
    }

    /// No node says less than was acknowledged, or more than was sent.
    fn look(&self, actor: usize, record: &Record) -> Result<()> {
        let Some(answer) = self.ask("POST", &sql_path(actor, "query"), b"SELECT count(*) FROM w")? else {
            return Ok(());
        };
        if was_served(&answer)? {
            let (found, (least, most)) = (count(&answer)?, record.bounds());
            ensure!(
                (least..=most).contains(&found),
                "{} has {found} numbers, where {least} to {most} may be: {:?} said so",
                name(actor),
                answer.node
            );
        }
        Ok(())
    }

    /// Sends GETs for an actor through one node after another.
    ///
    /// # Errors
    /// An answer that no document knows of, or none in time.
    pub fn read(&self, actor: usize) -> Result<Reads> {
        let mut reads = Reads::default();
        let path = format!("/actor/sql/{}/size", name(actor));
        while self.go_on() {
            let began = Instant::now();
            let answer = self.ask("GET", &path, b"")?;
            let took = began.elapsed();
            if let Some(answer) = answer {
                ensure!(took < ANSWERED_WITHIN, "a GET was answered {} after {took:?}", answer.status);
                reads.longest = reads.longest.max(took);
                if was_served(&answer)? {
                    reads.served += 1;
                    reads.kept += usize::from(took > KEPT);
                } else {
                    reads.refused += 1;
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(reads)
    }
}

/// The name of an actor.
#[must_use]
pub fn name(actor: usize) -> String {
    format!("actor-{actor}")
}

fn sql_path(actor: usize, kind: &str) -> String {
    format!("/actor/sql/{}/sql?as={kind}", name(actor))
}

/// What the actor has.
///
/// # Errors
/// It cannot be asked.
pub fn stored(nodes: &Nodes, actor: usize) -> Result<Vec<u64>> {
    numbers(&nodes.insist("POST", &sql_path(actor, "query"), ALL.as_bytes())?)
}
