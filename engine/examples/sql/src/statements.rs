//! SQL from the request.
//!
//! `POST /sql?as=KIND&params=[…]` runs the body. KIND is `exec`, `durable`, `query` (the default), `script` or
//! `cursor`, which reads `max` rows at a time.
//!
//! `POST /steps?then=END` runs a JSON array of `{"as", "sql", "params"}` in one event, goes on after errors and
//! answers one outcome a step; with `as` `alarm`, `sql` is the milliseconds after which the alarm is due. `then` is how the event ends: with the answer, or by `trap`, `spin`, `sleep`.
//!
//! An outcome is `{"ok": …}` or `{"error": {"kind", …}}`; the status of `/sql` is 200 or 400.

use std::{thread, time::Duration};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use wasmkeep_sdk::{
    Error, Request, Response, Result, alarm,
    bindings::platform::wasmkeep::actor::storage::{self as host, ResultSet, Value},
};

use crate::{Routed, limits, number, values};

const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Deserialize)]
struct Step {
    #[serde(rename = "as", default = "query")]
    kind: String,
    sql: String,
    #[serde(default)]
    params: Vec<Json>,
    #[serde(default = "batch_rows")]
    max: u32,
}

fn query() -> String {
    "query".to_owned()
}

fn batch_rows() -> u32 {
    100
}

pub(crate) fn route(request: Request) -> Routed {
    Routed::Answer(match (request.method(), request.path()) {
        ("POST", "/sql") => one(request),
        ("POST", "/steps") => steps(request),
        ("POST", "/delete") => {
            host::delete_self();
            Ok(Response::text("deleted when this event ends\n"))
        }
        ("GET", "/size") => Ok(Response::text(format!("{}\n", host::size()))),
        _ => return Routed::Elsewhere(request),
    })
}

fn one(mut request: Request) -> Result<Response> {
    let params = request.query_value("params").unwrap_or_else(|| "[]".to_owned());
    let step = Step {
        kind: request.query_value("as").unwrap_or_else(query),
        params: serde_json::from_str(&params).map_err(|error| Error::new(400, format!("params: {error}")))?,
        max: number(&request, "max", batch_rows())?,
        sql: request.text(BODY_BYTES_MAX)?,
    };
    let outcome = outcome(&step)?;
    let status = if outcome.get("error").is_some() { 400 } else { 200 };
    Ok(Response::json(&outcome)?.status(status))
}

fn steps(mut request: Request) -> Result<Response> {
    let then = request.query_value("then").unwrap_or_default();
    let steps: Vec<Step> = request.json(BODY_BYTES_MAX)?;
    let outcomes = steps.iter().map(outcome).collect::<Result<Vec<_>>>()?;
    match then.as_str() {
        "trap" => limits::trap(),
        "spin" => limits::spin(),
        "sleep" => thread::sleep(Duration::from_secs(3600)),
        _ => {}
    }
    Response::json(&outcomes)
}

fn outcome(step: &Step) -> Result<Json> {
    let params = step.params.iter().map(values::from_json).collect::<Result<Vec<_>>>()?;
    let outcome = match step.kind.as_str() {
        "exec" => host::exec(&step.sql, &params).map(changes),
        "durable" => host::exec_durable(&step.sql, &params).map(changes),
        "query" => host::query(&step.sql, &params).map(|set| rows(&set)),
        "script" => host::exec_script(&step.sql).map(|()| Json::Null),
        "cursor" => read_cursor(step, &params),
        "alarm" => set_alarm(&step.sql),
        other => {
            return Err(Error::new(
                400,
                format!("as={other}: exec, durable, query, script, cursor or alarm"),
            ));
        }
    };
    Ok(match outcome {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": describe(error) }),
    })
}

/// Sets the alarm, among the statements around it.
fn set_alarm(wait_ms: &str) -> Result<Json, host::Error> {
    let wait_ms =
        wait_ms.parse().map_err(|_| host::Error::Refused("an alarm takes milliseconds".to_owned()))?;
    let set = alarm::set_in(Duration::from_millis(wait_ms));
    set.map(|()| Json::Null).map_err(|error| host::Error::Refused(error.to_string()))
}

fn changes(changes: host::Changes) -> Json {
    json!({ "rows": changes.rows, "last_insert_rowid": changes.last_insert_rowid })
}

fn rows(set: &ResultSet) -> Json {
    let rows: Vec<_> = set.rows.iter().map(|row| row_json(row)).collect();
    json!({ "columns": set.columns, "rows": rows })
}

fn row_json(row: &[Value]) -> Json {
    row.iter().map(values::to_json).collect()
}

/// All rows, and the size of each batch they came in.
fn read_cursor(step: &Step, params: &[Value]) -> Result<Json, host::Error> {
    let cursor = host::open_cursor(&step.sql, params)?;
    let (mut rows, mut batches) = (Vec::new(), Vec::new());
    loop {
        let batch = cursor.next(step.max)?;
        if batch.is_empty() {
            break;
        }
        batches.push(batch.len());
        rows.extend(batch.iter().map(|row| row_json(row)));
    }
    Ok(json!({ "columns": cursor.columns(), "rows": rows, "batches": batches }))
}

fn describe(error: host::Error) -> Json {
    match error {
        host::Error::Sqlite(error) => json!({
            "kind": "sqlite",
            "code": error.extended_code,
            "message": error.message,
            "offset": error.sql_offset,
        }),
        host::Error::Refused(message) => json!({ "kind": "refused", "message": message }),
        host::Error::Full => json!({ "kind": "full" }),
        host::Error::Interrupted => json!({ "kind": "interrupted" }),
        host::Error::NotDurable(message) => json!({ "kind": "not-durable", "message": message }),
    }
}
