//! Runs the SQL it is posted, and misbehaves on request: the tool with which the platform itself is tested,
//! and a place to try what SQLite does here.
//!
//! | module | requests |
//! |---|---|
//! | [`statements`] | `POST /sql`, `POST /steps`, `GET /size`, `POST /delete` |
//! | [`bodies`] | `/echo`, `/count`, `/stream`, `/status`, `/header`, `/short-body`, `/long-body` |
//! | [`raw`] | `/no-response`, `/unfinished`, `/trailers`, `/trap-after-head`, `/answer-first` |
//! | [`limits`] | `/spin`, `/sleep`, `/trap`, `/panic`, `/exit`, `/recurse`, `/grow` |
//! | [`surroundings`] | `/headers`, `/context`, `/env`, `/clock`, `/random`, `/fs`, `/socket`, `/log`, `/set`, `/get`, `/alarm`, `/call`, `/sockets` |
//! | [`outward`] | `/outbound`, `/outbound-many`, `/outbound-kept` |
//!
//! Numbers in the query (`?ms=20`) are decimal.

mod alarm;
mod bodies;
mod init;
mod limits;
mod outward;
mod raw;
mod statements;
mod surroundings;
mod system;
mod values;

use std::str::FromStr;

use wasmkeep_sdk::{Error, Handle, Request, Response, Result};

/// The actor. Its exports are in [`raw`], [`init`] and [`alarm`], since some requests must not go through the SDK.
struct Sql;

impl Handle for Sql {
    fn handle(request: Request) -> Result<Response> {
        let routes = [statements::route, bodies::route, limits::route, surroundings::route, outward::route];
        let mut request = Some(request);
        for route in routes {
            match route(request.take().expect("a route that answers nothing gives the request back")) {
                Routed::Answer(answer) => return answer,
                Routed::Elsewhere(back) => request = Some(back),
            }
        }
        Err(Error::new(404, "no such request; the sample's source lists them"))
    }
}

/// What a group of requests did with one.
enum Routed {
    Answer(Result<Response>),
    /// It belongs to another group.
    Elsewhere(Request),
}

/// The number `name` of the query, or `default` when it is not given.
fn number<T: FromStr>(request: &Request, name: &str, default: T) -> Result<T> {
    match request.query_value(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| Error::new(400, format!("{name}={text} is not a number"))),
    }
}
