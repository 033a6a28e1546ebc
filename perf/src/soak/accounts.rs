//! Accounts: banks book on them by calls, and the balance is to be what was acknowledged.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Share, Tally};
use crate::http::{Answer, Connection};

/// Banks of a thread, each an actor that waits for its account.
const BANKS: u64 = 8;

/// Between two bookings of a thread.
const PAUSE: Duration = Duration::from_millis(10);

const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again what was refused without being run.
pub(super) fn insist(
    connection: &mut Connection,
    method: &str,
    path: &str,
    body: &[u8],
    tally: &mut Tally,
) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = connection.ask(method, path, body)?;
        if answer.status != 503 || Instant::now() > deadline {
            return Ok(answer);
        }
        tally.again += 1;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Books and compares, at the end, each balance.
///
/// # Errors
/// When the node cannot be reached at all.
pub fn run(share: &Share) -> Result<Tally> {
    let mut tally = Tally::default();
    let actors: Vec<u32> = share.actors().collect();
    let mut connection = Connection::open(share.address, PATIENCE)?;
    let mut booked: BTreeMap<u32, u64> = BTreeMap::new();
    for turn in 0u64.. {
        if Instant::now() >= share.until {
            break;
        }
        let account = actors[turn as usize % actors.len()];
        let bank = format!("bank-{}-{}", share.first, turn % BANKS);
        let wish =
            json!({ "id": format!("{}-{turn}", share.first), "to": format!("a-{account}"), "amount": 1 });
        let path = format!("/actor/bank/{bank}/deposit");
        let answer = insist(&mut connection, "POST", &path, wish.to_string().as_bytes(), &mut tally)?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.text());
        *booked.entry(account).or_default() += 1;
        tally.bookings += 1;
        thread::sleep(PAUSE);
    }
    for (account, amount) in booked {
        let path = format!("/actor/bank/bank-{}-0/balance?of=a-{account}", share.first);
        let answer = insist(&mut connection, "GET", &path, b"", &mut tally)?;
        if answer.text().trim() != amount.to_string() {
            tally.wrong.push(format!("account {account} has {}, not {amount}", answer.text()));
        }
    }
    Ok(tally)
}
