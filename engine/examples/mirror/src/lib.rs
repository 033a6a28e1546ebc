//! Keeps copies of what other servers answer. One actor is one collection.
//!
//! | request | answer |
//! |---|---|
//! | `GET /?url=URL` | the copy; fetched first when there is none, asked about with its `etag` when it is old |
//! | `GET /through?url=URL` | the page as it arrives, nothing kept |
//! | `POST /?url=URL` | sends the body on, and answers what came back |
//! | `GET /list` | the copies there are, with their sizes |
//!
//! `MAX_AGE_SECS` in the class's values says how long a copy is good for (60 unless given).

use std::{
    env,
    io::copy,
    time::{Duration, SystemTime},
};

use wasmkeep_sdk::{Error, Handle, Init, Request, Response, Result, actor, outbound, params, storage};

const COPY_BYTES_MAX: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

struct Mirror;

struct Copy {
    body: Vec<u8>,
    kind: String,
    etag: Option<String>,
    taken_at: i64,
}

impl Init for Mirror {
    fn init() -> Result<()> {
        storage::exec(
            "CREATE TABLE IF NOT EXISTS copy (
                url TEXT PRIMARY KEY, body BLOB NOT NULL, kind TEXT NOT NULL, etag TEXT, taken_at INTEGER NOT NULL
            )",
            params![],
        )?;
        Ok(())
    }
}

impl Handle for Mirror {
    fn handle(mut request: Request) -> Result<Response> {
        match (request.method(), request.path()) {
            ("GET", "/") => page(&url(&request)?),
            ("GET", "/through") => through(&url(&request)?),
            ("POST", "/") => {
                let url = url(&request)?;
                let body = request.body(COPY_BYTES_MAX)?;
                pass_back(outbound::post(url, body).first_byte_timeout(PATIENCE).send().map_err(unreachable)?)
            }
            ("GET", "/list") => list(),
            _ => Err(Error::new(
                404,
                "this mirror takes GET /?url=, GET /through?url=, POST /?url= and GET /list",
            )),
        }
    }
}

/// The copy of a page, made or renewed when it has to be.
fn page(url: &str) -> Result<Response> {
    let kept = kept(url)?;
    if let Some(copy) = kept.as_ref().filter(|copy| now() - copy.taken_at <= max_age()) {
        return Ok(answer(copy, "kept"));
    }
    let mut call = outbound::get(url).first_byte_timeout(PATIENCE).between_bytes_timeout(PATIENCE);
    if let Some(etag) = kept.as_ref().and_then(|copy| copy.etag.clone()) {
        call = call.header("if-none-match", etag);
    }
    let mut reply = match (call.send(), kept) {
        (Ok(reply), Some(copy)) if reply.status() == 304 => {
            storage::exec("UPDATE copy SET taken_at = ? WHERE url = ?", params![now(), url])?;
            return Ok(answer(&copy, "confirmed"));
        }
        (Ok(reply), _) => reply,
        // An old copy is better than none.
        (Err(_), Some(copy)) => return Ok(answer(&copy, "old")),
        (Err(error), None) => return Err(unreachable(error)),
    };
    if reply.status() != 200 {
        return pass_back(reply);
    }
    let copy = Copy {
        kind: kind(&reply),
        etag: reply.header("etag"),
        body: reply.body(COPY_BYTES_MAX).map_err(unreachable)?,
        taken_at: now(),
    };
    storage::exec(
        "INSERT OR REPLACE INTO copy (url, body, kind, etag, taken_at) VALUES (?, ?, ?, ?, ?)",
        params![url, &copy.body[..], &copy.kind, copy.etag.as_deref(), copy.taken_at],
    )?;
    Ok(answer(&copy, "fetched"))
}

fn kept(url: &str) -> Result<Option<Copy>> {
    let read = "SELECT body, kind, etag, taken_at FROM copy WHERE url = ?";
    let row: Option<(Vec<u8>, String, Option<String>, i64)> = storage::query_optional(read, params![url])?;
    Ok(row.map(|(body, kind, etag, taken_at)| Copy { body, kind, etag, taken_at }))
}

fn answer(copy: &Copy, source: &str) -> Response {
    Response::new(copy.body.clone()).header("content-type", copy.kind.clone()).header("x-mirror", source)
}

/// The page as it arrives: reading waits for the server, writing for the client.
fn through(url: &str) -> Result<Response> {
    let mut reply = outbound::get(url).send().map_err(unreachable)?;
    let (status, kind) = (reply.status(), kind(&reply));
    let mut body = reply.reader().map_err(unreachable)?;
    let response = Response::stream(move |writer| copy(&mut body, writer).map(drop));
    Ok(response.status(status).header("content-type", kind))
}

fn pass_back(mut reply: outbound::Reply) -> Result<Response> {
    let (status, kind) = (reply.status(), kind(&reply));
    let body = reply.body(COPY_BYTES_MAX).map_err(unreachable)?;
    Ok(Response::new(body).status(status).header("content-type", kind))
}

fn list() -> Result<Response> {
    let copies: Vec<(String, i64)> =
        storage::query("SELECT url, length(body) FROM copy ORDER BY url", params![])?;
    Ok(Response::text(copies.into_iter().map(|(url, bytes)| format!("{bytes} {url}\n")).collect::<String>()))
}

fn kind(reply: &outbound::Reply) -> String {
    reply.header("content-type").unwrap_or_else(|| "application/octet-stream".to_owned())
}

fn url(request: &Request) -> Result<String> {
    request.query_value("url").ok_or_else(|| Error::new(400, "say which page with ?url="))
}

fn unreachable(error: outbound::Error) -> Error {
    Error::new(502, error.to_string())
}

fn max_age() -> i64 {
    env::var("MAX_AGE_SECS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

actor!(Mirror, init);
