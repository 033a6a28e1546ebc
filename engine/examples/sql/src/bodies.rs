//! Bodies and heads, right and wrong.

use std::io::Write;

use wasmkeep_sdk::{Request, Response, Result};

use crate::{Routed, number};

const CHUNK_BYTES: usize = 64 << 10;

pub(crate) fn route(request: Request) -> Routed {
    Routed::Answer(match request.path() {
        "/echo" => echo(request),
        "/count" => count(request),
        "/stream" => stream(&request),
        "/status" => number(&request, "code", 200).map(|code| Response::text("as asked\n").status(code)),
        "/header" => header(&request),
        "/short-body" => Ok(announced("10", "half\n")),
        "/long-body" => Ok(announced("5", "half\nmore\n")),
        _ => return Routed::Elsewhere(request),
    })
}

/// Sends the request's body back as it arrives.
fn echo(mut request: Request) -> Result<Response> {
    let length = request.header("content-length");
    let mut reader = request.reader()?;
    let response = Response::stream(move |writer| {
        while let Some(chunk) = reader.chunk(CHUNK_BYTES)? {
            writer.write_all(&chunk)?;
        }
        Ok(())
    });
    Ok(match length {
        Some(length) => response.header("content-length", length),
        None => response,
    })
}

/// Reads the request's body and answers how many bytes it had.
fn count(mut request: Request) -> Result<Response> {
    let mut reader = request.reader()?;
    let mut bytes = 0;
    while let Some(chunk) = reader.chunk(CHUNK_BYTES)? {
        bytes += chunk.len();
    }
    Ok(Response::text(format!("{bytes}\n")))
}

/// `bytes` bytes, `chunk` at a time, each chunk passed on before the next; byte number i is i modulo 251.
fn stream(request: &Request) -> Result<Response> {
    let bytes: usize = number(request, "bytes", 1 << 20)?;
    let chunk: usize = number(request, "chunk", CHUNK_BYTES)?;
    Ok(Response::stream(move |writer| {
        let mut sent = 0;
        while sent < bytes {
            let until = bytes.min(sent + chunk.max(1));
            let piece: Vec<u8> = (sent..until).map(|index| (index % 251) as u8).collect();
            writer.write_all(&piece)?;
            writer.flush()?;
            sent = until;
        }
        Ok(())
    }))
}

/// A response with the header of the query, `name` and `value`.
fn header(request: &Request) -> Result<Response> {
    let name = request.query_value("name").unwrap_or_else(|| "x-asked".to_owned());
    let value = request.query_value("value").unwrap_or_else(|| "1".to_owned());
    Ok(Response::text("as asked\n").header(name, value))
}

/// A body with a `content-length` that is not its own.
fn announced(length: &str, body: &'static str) -> Response {
    Response::stream(|writer| writer.write_all(body.as_bytes())).header("content-length", length)
}
