//! Reminders: every one is to come, and once.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Share, Tally, accounts::insist};
use crate::http::Connection;

/// Between two reminders of a thread.
const PAUSE: Duration = Duration::from_millis(10);

/// Longest time a reminder is set ahead, in milliseconds: longer than an actor stays awake.
const AHEAD_MS: u64 = 6000;

/// Time for the last ones to come.
const DRAIN: Duration = Duration::from_secs(60);

const PATIENCE: Duration = Duration::from_secs(60);

/// Sets reminders and looks, at the end, what came.
///
/// # Errors
/// When the node cannot be reached at all.
pub fn run(share: &Share) -> Result<Tally> {
    let mut tally = Tally::default();
    let actors: Vec<u32> = share.actors().collect();
    let mut connection = Connection::open(share.address, PATIENCE)?;
    let mut set: BTreeMap<u32, u64> = BTreeMap::new();
    for turn in 0u64.. {
        if Instant::now() >= share.until {
            break;
        }
        let actor = actors[turn as usize % actors.len()];
        let number = set.entry(actor).or_default();
        // Spread without chance, so that two runs ask for the same.
        let in_ms = 1 + (turn * 7919) % AHEAD_MS;
        let wish = json!({ "in_ms": in_ms, "text": number.to_string() }).to_string();
        let path = format!("/actor/reminder/r-{actor}/remind");
        let answer = insist(&mut connection, "POST", &path, wish.as_bytes(), &mut tally)?;
        ensure!(answer.status == 204, "{path}: {} {}", answer.status, answer.text());
        *number += 1;
        tally.reminders += 1;
        thread::sleep(PAUSE);
    }
    let deadline = Instant::now() + DRAIN;
    for (actor, count) in set {
        loop {
            let answer =
                insist(&mut connection, "GET", &format!("/actor/reminder/r-{actor}/"), b"", &mut tally)?;
            let seen: Value = serde_json::from_str(&answer.text())?;
            let waits = seen["to_come"].as_array().is_none_or(|waits| !waits.is_empty());
            if waits && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            check(actor, count, &seen, &mut tally);
            break;
        }
    }
    Ok(tally)
}

fn check(actor: u32, count: u64, seen: &Value, tally: &mut Tally) {
    let mut came: Vec<u64> = seen["came"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str()?.parse().ok())
        .collect();
    came.sort_unstable();
    if came != (0..count).collect::<Vec<_>>() {
        tally.wrong.push(format!("reminder {actor}: {} of {count} came: {seen}", came.len()));
    }
}
