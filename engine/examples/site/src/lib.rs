//! A stateless component: it answers requests that are not for an actor.

use wasmkeep_sdk::{Error, Handle, Request, Response, Result, stateless};

const PAGE: &str = include_str!("index.html");
const CHAT: &str = include_str!("chat.html");

struct Site;

impl Handle for Site {
    fn handle(request: Request) -> Result<Response> {
        match (request.method(), request.path()) {
            ("GET" | "HEAD", "/") => Ok(page(PAGE)),
            ("GET" | "HEAD", "/chat") => Ok(page(CHAT)),
            (_, path) => Err(Error::new(404, format!("there is nothing at {path}"))),
        }
    }
}

fn page(html: &str) -> Response {
    Response::new(html).header("content-type", "text/html; charset=utf-8")
}

stateless!(Site);
