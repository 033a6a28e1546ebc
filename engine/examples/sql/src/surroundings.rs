//! What an actor sees of the world around it.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, fs,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value as Json, json};
use wasmkeep_sdk::{Error, Request, Response, Result, actors, alarms, context, websockets};

use crate::{
    Routed, number,
    system::wasi::{
        random::random,
        sockets::{
            instance_network::instance_network,
            ip_name_lookup,
            network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress},
            tcp_create_socket, udp_create_socket,
        },
    },
};

/// Letters of a callee's answer that are shown.
const TEXT_SHOWN_MAX: usize = 10_000;

thread_local! {
    /// Lives as long as the instance.
    static KEPT: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn route(request: Request) -> Routed {
    let answer = match request.path() {
        "/headers" => Ok(headers(&request)),
        "/context" => Ok(who()),
        "/env" => Ok(environment()),
        "/clock" => clock(),
        "/random" => Ok(json!(random::get_random_bytes(16))),
        "/fs" => Ok(files(&request.query_value("path").unwrap_or_else(|| "/etc/passwd".to_owned()))),
        "/socket" => number(&request, "port", 80).map(sockets),
        "/log" => log(&request),
        "/set" => {
            KEPT.replace(request.query_value("value").unwrap_or_default());
            Ok(Json::Null)
        }
        "/get" => Ok(json!(KEPT.with_borrow(String::clone))),
        "/alarm" => alarm(&request),
        "/call" => call(&request),
        "/sockets" => Ok(outcome(websockets::connections(None).map(|open| open.len()))),
        _ => return Routed::Elsewhere(request),
    };
    Routed::Answer(answer.and_then(|json| Response::json(&json)))
}

/// `{"ok": …}` or `{"error": …}`, the error as the contract names it.
pub(crate) fn outcome<T: serde::Serialize, E: std::fmt::Debug>(result: std::result::Result<T, E>) -> Json {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": format!("{error:?}") }),
    }
}

fn headers(request: &Request) -> Json {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let headers: Vec<_> = request.headers().into_iter().map(|(name, value)| [name, text(value)]).collect();
    json!({
        "method": request.method(),
        "path": request.path(),
        "query": request.query(),
        "authority": request.authority(),
        "headers": headers,
    })
}

fn who() -> Json {
    let me = context::self_();
    json!({
        "tenant": me.tenant,
        "class": me.class,
        "name": me.name,
        "node": me.node,
        "generation": me.generation,
        "version": me.version,
        "caller": context::caller(),
    })
}

fn environment() -> Json {
    json!({ "env": env::vars().collect::<BTreeMap<_, _>>(), "args": env::args().collect::<Vec<_>>() })
}

fn clock() -> Result<Json> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let begun = Instant::now();
    Ok(json!({ "unix_ms": now.as_millis() as u64, "reading_ns": begun.elapsed().as_nanos() as u64 }))
}

fn files(path: &str) -> Json {
    json!({
        "read": outcome(fs::read(path).map(|bytes| bytes.len())),
        "list": outcome(fs::read_dir("/").map(|entries| entries.count())),
        "write": outcome(fs::write("written-by-an-actor", b"x")),
    })
}

fn sockets(port: u16) -> Json {
    let network = instance_network();
    let local = IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address: (127, 0, 0, 1) });
    let tcp = tcp_create_socket::create_tcp_socket(IpAddressFamily::Ipv4);
    json!({
        "tcp": outcome(tcp.and_then(|socket| socket.start_connect(&network, local))),
        "udp": outcome(udp_create_socket::create_udp_socket(IpAddressFamily::Ipv4)
            .and_then(|socket| socket.start_bind(&network, local))),
        "lookup": outcome(ip_name_lookup::resolve_addresses(&network, "localhost").map(|_| ())),
    })
}

/// Writes `lines` lines of `bytes` bytes to standard output and one to standard error.
fn log(request: &Request) -> Result<Json> {
    let (lines, bytes) = (number(request, "lines", 1)?, number(request, "bytes", 10)?);
    for _ in 0..lines {
        println!("{}", "o".repeat(bytes));
    }
    eprintln!("{}", request.query_value("text").unwrap_or_else(|| "an error line".to_owned()));
    Ok(json!({ "lines": lines, "bytes": bytes }))
}

fn alarm(request: &Request) -> Result<Json> {
    if let Some(wait) = request.query_value("in") {
        let wait = wait.parse().map_err(|_| Error::new(400, "in= takes milliseconds"))?;
        return Ok(outcome(wasmkeep_sdk::alarm::set_in(Duration::from_millis(wait))));
    }
    Ok(match request.query_value("set").as_deref() {
        None => outcome(alarms::get()),
        Some("") => outcome(alarms::clear()),
        Some(due_ms) => {
            outcome(alarms::set(due_ms.parse().map_err(|_| Error::new(400, "set= takes milliseconds"))?))
        }
    })
}

fn call(request: &Request) -> Result<Json> {
    let part = |name| request.query_value(name).ok_or_else(|| Error::new(400, format!("{name}= is missing")));
    let header = request.query_value("header").unwrap_or_else(|| "x-sent:1".to_owned());
    let (name, value) = header.split_once(':').unwrap_or((&header, ""));
    let sent = actors::Request {
        method: request.query_value("method").unwrap_or_else(|| "GET".to_owned()),
        path_with_query: request.query_value("path").unwrap_or_else(|| "/".to_owned()),
        headers: vec![(name.to_owned(), value.as_bytes().to_vec()); number(request, "headers", 1)?],
        body: vec![b'x'; number(request, "bytes", 0)?],
    };
    let answer = actors::call(&part("class")?, &part("name")?, &sent);
    Ok(outcome(answer.map(|response| {
        let text: String = String::from_utf8_lossy(&response.body).chars().take(TEXT_SHOWN_MAX).collect();
        json!({ "status": response.status, "bytes": response.body.len(), "text": text })
    })))
}
