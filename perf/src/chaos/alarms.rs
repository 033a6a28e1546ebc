//! Alarms of actors that nobody asks for: each is to fire, and soon, whatever becomes of the node that had it.

use std::{
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};

use super::nodes::Nodes;
use crate::http::Answer;

/// How far ahead an alarm is set: its node is gone by then.
const AHEAD: Duration = Duration::from_secs(5);

/// How late an alarm of a lost node may be: a lease and the grace, the turns of three nodes, and a takeover beside them.
pub const LATE_MAX: Duration = Duration::from_secs(60);

/// Alarms that were set, and are in the bucket.
#[derive(Debug, Default)]
pub struct Alarms {
    /// Of these actors, at these times in milliseconds since the Unix epoch.
    set: Vec<(String, u64)>,
}

/// What became of them.
#[derive(Debug, Default)]
pub struct Fired {
    /// How late the first attempt of each began, in milliseconds, the latest last.
    pub late_ms: Vec<u64>,
    /// Attempts beyond the first.
    pub again: usize,
    /// What should not be.
    pub wrong: Vec<String>,
}

impl Alarms {
    /// Sets one for an actor that `node` has and nobody asks for again.
    ///
    /// # Errors
    /// It is not set.
    pub fn set(&mut self, nodes: &Nodes, node: usize) -> Result<()> {
        let actor = nodes.actor_of(node, "alarm")?;
        let due_ms = now_ms() + AHEAD.as_millis() as u64;
        served(&nodes.ask(node, "POST", &format!("/actor/sql/{actor}/alarm?set={due_ms}"), b"")?)?;
        // What is durable now was preceded by the alarm.
        let path = format!("/actor/sql/{actor}/sql?as=durable");
        served(&nodes.ask(node, "POST", &path, b"CREATE TABLE kept (n INTEGER)")?)?;
        self.set.push((actor, due_ms));
        Ok(())
    }

    /// How many were set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.set.len()
    }

    /// Gives the last one its time, and looks at them all.
    ///
    /// # Errors
    /// An actor cannot be asked.
    pub fn look(&self, nodes: &Nodes) -> Result<Fired> {
        let last_ms = self.set.iter().map(|(_, due_ms)| *due_ms).max().unwrap_or_default();
        let end = Duration::from_millis(last_ms) + LATE_MAX;
        thread::sleep(end.saturating_sub(Duration::from_millis(now_ms())));
        let mut fired = Fired::default();
        for (actor, due_ms) in &self.set {
            let attempts = attempts(nodes, actor)?;
            // Asking for the actor is what makes one fire that was missed: far too late.
            let first = attempts.iter().filter(|(due, _)| due == due_ms).map(|(_, at)| *at).min();
            match first.map(|at| at.checked_sub(*due_ms)) {
                Some(None) => fired.wrong.push(format!("{actor}: its alarm was early: {attempts:?}")),
                None => fired.wrong.push(format!("{actor}: its alarm was missed: {attempts:?}")),
                Some(Some(late)) if late > LATE_MAX.as_millis() as u64 => {
                    fired.wrong.push(format!("{actor}: its alarm was {late} ms late"));
                }
                Some(Some(late)) => fired.late_ms.push(late),
            }
            fired.again += attempts.len().saturating_sub(1);
        }
        fired.late_ms.sort_unstable();
        Ok(fired)
    }
}

/// When the alarms of an actor were due, and when they were run.
fn attempts(nodes: &Nodes, actor: &str) -> Result<Vec<(u64, u64)>> {
    let has_log = "SELECT count(*) FROM sqlite_schema WHERE name = 'alarm_log'";
    if rows(nodes, actor, has_log)? == [[0]] {
        return Ok(Vec::new());
    }
    let rows = rows(nodes, actor, "SELECT due, at FROM alarm_log ORDER BY rowid")?;
    rows.iter().map(|row| row.first().copied().zip(row.get(1).copied()).context("two columns")).collect()
}

fn rows(nodes: &Nodes, actor: &str, query: &str) -> Result<Vec<Vec<u64>>> {
    let path = format!("/actor/sql/{actor}/sql?as=query");
    let answer = nodes.insist("POST", &path, query.as_bytes())?;
    let mut value: serde_json::Value = serde_json::from_str(&answer.text())?;
    serde_json::from_value(value["ok"]["rows"].take()).with_context(|| format!("rows in {}", answer.text()))
}

fn served(answer: &Answer) -> Result<()> {
    let text = answer.text();
    ensure!(answer.status == 200 && text.contains("\"ok\""), "an alarm: {} {text}", answer.status);
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
