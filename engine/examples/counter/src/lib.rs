//! A counter. `POST` adds one and answers the number, `POST /durable` answers once it is durable, `GET` reads.

use wasmkeep_sdk::{Error, Handle, Init, Request, Response, Result, actor, params, storage};

const ADD: &str = "INSERT INTO counter VALUES (1, 1) ON CONFLICT DO UPDATE SET n = n + 1";
const READ: &str = "SELECT n FROM counter";

struct Counter;

impl Init for Counter {
    fn init() -> Result<()> {
        storage::exec("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER)", params![])?;
        Ok(())
    }
}

impl Handle for Counter {
    fn handle(request: Request) -> Result<Response> {
        let n: i64 = match (request.method(), request.path()) {
            ("POST", "/") => storage::query_one(&format!("{ADD} RETURNING n"), params![])?,
            ("POST", "/durable") => {
                storage::exec_durable(ADD, params![])?;
                storage::query_one(READ, params![])?
            }
            ("GET", "/") => storage::query_optional(READ, params![])?.unwrap_or(0),
            _ => return Err(Error::new(404, "this counter takes GET /, POST / and POST /durable")),
        };
        Ok(Response::text(format!("{n}\n")))
    }
}

actor!(Counter, init);
