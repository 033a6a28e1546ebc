//! `on-alarm` as the actor's tables ask for it, since no request reaches it.
//!
//! Each attempt adds `(due, attempt, at)` to the table `alarm_log`, which it makes. Then it does what the table
//! `alarm_plan (attempt, action)` says, if there is such a table: the actions of its number, in the order of their
//! rowids. An action is `error`, `trap`, `spin`, `begin`, `delete`, `set MS` for an alarm that much
//! later, or `call CLASS NAME` for a `POST /` to another actor.

use std::time::Duration;

use wasmkeep_sdk::{
    CallRequest, Result, alarm,
    bindings::alarm::{Guest, export_alarm},
    call, params, storage,
};

use crate::{Sql, limits};

impl Guest for Sql {
    fn on_alarm(due_ms: u64, attempt: u32) -> Result<(), String> {
        run(due_ms, attempt).map_err(|error| error.to_string())
    }
}

fn run(due_ms: u64, attempt: u32) -> Result<()> {
    storage::exec("CREATE TABLE IF NOT EXISTS alarm_log (due, attempt, at)", params![])?;
    storage::exec(
        "INSERT INTO alarm_log VALUES (?, ?, ?)",
        params![due_ms as i64, i64::from(attempt), alarm::now_ms() as i64],
    )?;
    let planned = "SELECT count(*) FROM sqlite_schema WHERE name = 'alarm_plan'";
    if storage::query_one::<i64>(planned, params![])? == 0 {
        return Ok(());
    }
    let plan = "SELECT action FROM alarm_plan WHERE attempt = ? ORDER BY rowid";
    for action in storage::query::<String>(plan, params![i64::from(attempt)])? {
        act(&action)?;
    }
    Ok(())
}

fn act(action: &str) -> Result<()> {
    match action.split_once(' ').unwrap_or((action, "")) {
        ("set", ms) => alarm::set_in(Duration::from_millis(ms.parse()?))?,
        ("begin", _) => {
            storage::exec("BEGIN", params![])?;
        }
        ("call", actor) => {
            let (class, name) = actor.split_once(' ').unwrap_or((actor, "x"));
            call(class, name, CallRequest::post("/"))?;
        }
        ("delete", _) => storage::delete_self(),
        ("trap", _) => limits::trap(),
        ("spin", _) => limits::spin(),
        _ => Err(wasmkeep_sdk::Error::new(500, "asked to fail"))?,
    }
    Ok(())
}

export_alarm!(Sql);
