//! Requests to other servers, and ways to do them badly.

use std::{
    cell::RefCell,
    io::{Read, Write},
    time::Duration,
};

use serde_json::{Value as Json, json};
use wasmkeep_sdk::{
    Error, Request, Response, Result,
    bindings::{
        http::wasi::http::types::{Fields, FutureIncomingResponse, OutgoingRequest, Scheme},
        outgoing::wasi::http::outgoing_handler,
    },
    outbound,
};

use crate::{Routed, number};

thread_local! {
    /// Requests that an event left open.
    static KEPT: RefCell<Vec<FutureIncomingResponse>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn route(request: Request) -> Routed {
    let answer = match request.path() {
        "/outbound" => one(request),
        "/outbound-many" => many(&request),
        "/outbound-kept" => Ok(json!(KEPT.with_borrow(|kept| states(kept)))),
        _ => return Routed::Elsewhere(request),
    };
    Routed::Answer(answer.and_then(|json| Response::json(&json)))
}

/// Sends one request to `url` and says what came of it.
///
/// `method`; `header=NAME:VALUE`; `body=BYTES` sends so many bytes, of which `stall=1` stops at the half;
/// `pass=1` sends the body of this request on; `connect_ms`, `first_ms`, `between_ms`; `read=0` does not read
/// the answer's body, `read=N` reads at most N bytes of it and lets go, otherwise it is read to its end.
fn one(mut request: Request) -> Result<Json> {
    let method = request.query_value("method").unwrap_or_else(|| "GET".to_owned());
    let mut call = outbound::call(method, url(&request)?);
    if let Some(header) = request.query_value("header") {
        let (name, value) = header.split_once(':').ok_or_else(|| Error::new(400, "header=NAME:VALUE"))?;
        call = call.header(name, value);
    }
    for (name, set) in [
        ("connect_ms", outbound::Call::connect_timeout as fn(_, _) -> _),
        ("first_ms", outbound::Call::first_byte_timeout),
        ("between_ms", outbound::Call::between_bytes_timeout),
    ] {
        if request.query_value(name).is_some() {
            call = set(call, Duration::from_millis(number(&request, name, 0)?));
        }
    }
    if request.query_value("pass").is_some() {
        let mut reader = request.reader()?;
        call = call.stream(move |writer| std::io::copy(&mut reader, writer).map(drop));
    } else if request.query_value("body").is_some() {
        let bytes: usize = number(&request, "body", 0)?;
        call = match request.query_value("stall") {
            None => call.body(vec![b'b'; bytes]),
            Some(_) => call.stream(move |writer| {
                writer.write_all(&vec![b'b'; bytes / 2])?;
                Err(std::io::Error::other("half is enough"))
            }),
        };
    }
    let most = request.query_value("read").map(|_| number(&request, "read", 0_u64)).transpose()?;
    Ok(match call.send() {
        Ok(reply) => told(reply, most),
        Err(error) => failed(&error),
    })
}

fn told(mut reply: outbound::Reply, most: Option<u64>) -> Json {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let headers: Vec<_> = reply.headers().into_iter().map(|(name, value)| [name, text(value)]).collect();
    let mut body = Vec::new();
    let read = match most {
        Some(0) => Ok(()),
        Some(most) => {
            reply.reader().and_then(|reader| Ok(reader.take(most).read_to_end(&mut body).map(drop)?))
        }
        None => reply.reader().and_then(|mut reader| Ok(reader.read_to_end(&mut body).map(drop)?)),
    };
    let bytes = body.len();
    body.truncate(200);
    json!({
        "status": reply.status(),
        "headers": headers,
        "bytes": bytes,
        "body": text(body),
        "broken": read.err().map(|error| error.to_string()),
    })
}

fn failed(error: &outbound::Error) -> Json {
    json!({ "error": error.code().map(|code| format!("{code:?}")), "text": error.to_string() })
}

/// Opens `count` requests to `url` at once and waits for all of them, or with `keep=1` leaves them open.
fn many(request: &Request) -> Result<Json> {
    let url = url(request)?;
    let authority = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let mut refused = Vec::new();
    let mut open = Vec::new();
    for _ in 0..number(request, "count", 1)? {
        let outgoing = OutgoingRequest::new(Fields::new());
        let set = outgoing
            .set_scheme(Some(&Scheme::Http))
            .and_then(|()| outgoing.set_authority(Some(authority)))
            .and_then(|()| outgoing.set_path_with_query(Some("/")));
        if set.is_err() {
            return Err(Error::new(400, "url= takes http://HOST/"));
        }
        match outgoing_handler::handle(outgoing, None) {
            Ok(future) => open.push(future),
            Err(code) => refused.push(format!("{code:?}")),
        }
    }
    if request.query_value("keep").is_some() {
        KEPT.with_borrow_mut(|kept| kept.append(&mut open));
    }
    refused.extend(states(&open));
    Ok(json!(refused))
}

/// Waits for all before any is let go.
fn states(open: &[FutureIncomingResponse]) -> Vec<String> {
    open.iter().for_each(|future| future.subscribe().block());
    open.iter().map(state).collect()
}

/// The status or the error of a request that was sent.
fn state(future: &FutureIncomingResponse) -> String {
    match future.get() {
        None => "open".to_owned(),
        Some(Ok(Ok(response))) => response.status().to_string(),
        Some(Ok(Err(code))) => format!("{code:?}"),
        Some(Err(())) => "taken".to_owned(),
    }
}

fn url(request: &Request) -> Result<String> {
    request.query_value("url").ok_or_else(|| Error::new(400, "url= is missing"))
}
