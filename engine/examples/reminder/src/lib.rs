//! Reminders, each given back when its time has come.
//!
//! `POST /remind` takes `{"in_ms": N, "text": "…"}`; `GET /` answers those to come and those that came. An actor has one
//! alarm, so it is always set to the earliest reminder.

use serde::{Deserialize, Serialize};
use wasmkeep_sdk::{Alarm, Error, Handle, Init, Request, Response, Result, actor, alarm, params, storage};

const BODY_BYTES_MAX: usize = 4096;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS reminder (
        id INTEGER PRIMARY KEY,
        due_ms INTEGER NOT NULL,
        text TEXT NOT NULL,
        came_ms INTEGER
    )";

#[derive(Deserialize)]
struct Wish {
    in_ms: u32,
    text: String,
}

#[derive(Serialize)]
struct Reminders {
    to_come: Vec<String>,
    came: Vec<String>,
}

struct Reminder;

impl Init for Reminder {
    fn init() -> Result<()> {
        storage::exec(SCHEMA, params![])?;
        Ok(())
    }
}

impl Handle for Reminder {
    fn handle(mut request: Request) -> Result<Response> {
        match (request.method(), request.path()) {
            ("GET", "/") => Response::json(&Reminders {
                to_come: texts("SELECT text FROM reminder WHERE came_ms IS NULL ORDER BY due_ms")?,
                came: texts("SELECT text FROM reminder WHERE came_ms IS NOT NULL ORDER BY came_ms, due_ms")?,
            }),
            ("POST", "/remind") => {
                remind(&request.json(BODY_BYTES_MAX)?)?;
                Ok(Response::default().status(204))
            }
            _ => Err(Error::new(404, "a reminder takes GET / and POST /remind")),
        }
    }
}

fn texts(sql: &str) -> Result<Vec<String>> {
    Ok(storage::query(sql, params![])?)
}

/// Keeps the reminder and its alarm together: both are there, or neither is.
fn remind(wish: &Wish) -> Result<()> {
    let due_ms = alarm::now_ms() + u64::from(wish.in_ms);
    storage::transaction(|| {
        storage::exec(
            "INSERT INTO reminder (due_ms, text) VALUES (?, ?)",
            params![due_ms as i64, &wish.text],
        )?;
        set_alarm()
    })
}

/// Sets the alarm to the earliest reminder that has not come.
fn set_alarm() -> Result<()> {
    let sql = "SELECT min(due_ms) FROM reminder WHERE came_ms IS NULL";
    match storage::query_one::<Option<i64>>(sql, params![])? {
        Some(due_ms) => alarm::set(due_ms.unsigned_abs())?,
        None => alarm::clear()?,
    }
    Ok(())
}

impl Alarm for Reminder {
    /// What has come is marked as such, so that a second run for the same alarm finds nothing to do.
    fn alarm(_due_ms: u64, _attempt: u32) -> Result<()> {
        storage::transaction(|| {
            let now_ms = alarm::now_ms() as i64;
            storage::exec(
                "UPDATE reminder SET came_ms = ?1 WHERE came_ms IS NULL AND due_ms <= ?1",
                params![now_ms],
            )?;
            set_alarm()
        })
    }
}

actor!(Reminder, init, alarm);
