//! An S3-compatible server in memory, as far as a node asks, that takes the same time for every request and may have
//! a link of limited speed. Notes every request, so that a measurement can be made of what reached the bucket.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

/// The bucket's name, the first part of every path.
pub const NAME: &str = "bucket";

/// Bytes sent between two looks at the link.
const CHUNK_BYTES: usize = 64 << 10;

/// Keys of one page of a listing.
const PAGE_KEYS: usize = 1000;

/// Bytes of one request's body.
const BODY_BYTES_MAX: usize = 1 << 30;

/// A request as it was served.
#[derive(Debug, Clone)]
pub struct Served {
    /// `PUT`, `GET`, `LIST`, `DELETE` or `HEAD`.
    pub kind: String,
    /// Its key; the prefix of a listing.
    pub key: String,
    /// When its last byte came.
    pub arrived: Instant,
    /// When the last byte of its answer was handed to the system.
    pub ended: Instant,
    /// Bytes of the answer's body.
    pub bytes: usize,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Arc<[u8]>, String)>,
    writes: u64,
    served: Vec<Served>,
    /// When the link has sent everything it was given.
    link_free: Option<Instant>,
}

struct Shared {
    delay: Duration,
    /// Bytes a second; without limit if there is none.
    link: Option<u64>,
    state: Mutex<State>,
}

/// A running server; it ends with the process.
pub struct BucketServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Request {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Reply {
    status: u16,
    headers: String,
    body: Arc<[u8]>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BucketServer {
    /// Serves on a free port; every answer begins `delay` after its request, and all bodies together leave at no more
    /// than `link` bytes a second.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(delay: Duration, link: Option<u64>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { delay, link, state: Mutex::default() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // A client that leaves in the middle is nobody's fault.
                thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a node needs in its environment.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "perf".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "perf".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// What was served since the last call.
    pub fn take_served(&self) -> Vec<Served> {
        std::mem::take(&mut self.shared.state().served)
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let arrived = Instant::now();
        let (kind, key) = name(&request);
        thread::sleep(shared.delay);
        let reply = apply(&mut shared.state(), &request, &kind, &key);
        send(stream, shared, &reply, kind == "HEAD")?;
        let served = Served { kind, key, arrived, ended: Instant::now(), bytes: reply.body.len() };
        shared.state().served.push(served);
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(ToOwned::to_owned);
    let (method, target) = words.next().zip(words.next()).context("not a request line")?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |length| length.parse::<usize>())?;
    ensure!(length <= BODY_BYTES_MAX, "a body of {length} bytes");
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, target, headers, body }))
}

/// What a request is and what it is about.
fn name(request: &Request) -> (String, String) {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    if query.contains("list-type=2") {
        return ("LIST".to_owned(), value(query, "prefix").unwrap_or_default());
    }
    let path = decoded(path);
    let key = path.trim_start_matches('/').strip_prefix(NAME).unwrap_or(&path);
    (request.method.clone(), key.trim_start_matches('/').to_owned())
}

fn apply(state: &mut State, request: &Request, kind: &str, key: &str) -> Reply {
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    let current = state.objects.get(key);
    match kind {
        "PUT" => {
            let etag = current.map(|(_, etag)| etag.as_str());
            match (header("if-none-match"), header("if-match")) {
                (Some("*"), _) if etag.is_some() => return error(412, "PreconditionFailed"),
                (_, Some(_)) if etag.is_none() => return error(404, "NoSuchKey"),
                (_, Some(wanted)) if Some(wanted) != etag => return error(412, "PreconditionFailed"),
                _ => {}
            }
            state.writes += 1;
            let etag = format!("\"{}\"", state.writes);
            state.objects.insert(key.to_owned(), (request.body.as_slice().into(), etag.clone()));
            Reply { status: 200, headers: format!("etag: {etag}\r\n"), body: Arc::new([]) }
        }
        "DELETE" => {
            state.objects.remove(key);
            Reply { status: 204, headers: String::new(), body: Arc::new([]) }
        }
        "LIST" => list(state, request.target.split_once('?').map_or("", |(_, query)| query), key),
        _ => match current {
            None => error(404, "NoSuchKey"),
            Some((body, etag)) => {
                let headers = format!("etag: {etag}\r\nlast-modified: Sun, 29 Nov 2026 21:00:00 GMT\r\n");
                Reply { status: 200, headers, body: Arc::clone(body) }
            }
        },
    }
}

fn list(state: &State, query: &str, prefix: &str) -> Reply {
    let after =
        value(query, "continuation-token").or_else(|| value(query, "start-after")).unwrap_or_default();
    let page =
        value(query, "max-keys").and_then(|keys| keys.parse().ok()).unwrap_or(PAGE_KEYS).min(PAGE_KEYS);
    let from =
        if after.as_str() < prefix { Bound::Included(prefix) } else { Bound::Excluded(after.as_str()) };
    let beyond = state.objects.range::<str, _>((from, Bound::Unbounded));
    let mut found = beyond.take_while(|(key, _)| key.starts_with(prefix));
    let (mut xml, mut last) = (String::new(), "");
    for (key, (body, etag)) in found.by_ref().take(page) {
        let (etag, bytes) = (etag.replace('"', "&quot;"), body.len());
        xml += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-29T21:00:00.000Z</LastModified><ETag>{etag}</ETag>\
             <Size>{bytes}</Size></Contents>"
        );
        last = key;
    }
    if found.next().is_some() {
        xml +=
            &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>");
    }
    let body = format!("<ListBucketResult>{xml}</ListBucketResult>");
    Reply { status: 200, headers: String::new(), body: body.into_bytes().into() }
}

fn error(status: u16, code: &str) -> Reply {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message></Error>");
    let headers = "content-type: application/xml\r\n".to_owned();
    Reply { status, headers, body: body.into_bytes().into() }
}

fn send(mut stream: &TcpStream, shared: &Shared, reply: &Reply, head_only: bool) -> Result<()> {
    let length = match reply.status {
        204 => String::new(),
        _ => format!("content-length: {}\r\n", reply.body.len()),
    };
    stream.write_all(format!("HTTP/1.1 {} X\r\n{length}{}\r\n", reply.status, reply.headers).as_bytes())?;
    if head_only {
        return Ok(());
    }
    for chunk in reply.body.chunks(CHUNK_BYTES) {
        if let Some(rate) = shared.link {
            let now = Instant::now();
            let sent = {
                let mut state = shared.state();
                let begins = state.link_free.map_or(now, |free| free.max(now));
                let sent = begins + Duration::from_secs_f64(chunk.len() as f64 / rate as f64);
                state.link_free = Some(sent);
                sent
            };
            thread::sleep(sent.saturating_duration_since(now));
        }
        stream.write_all(chunk)?;
    }
    Ok(())
}

fn value(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(decoded)
}

/// Percent-encoding undone.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]).0,
            None => (bytes.push(*first), rest = tail).0,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Connection;

    #[test]
    fn objects_come_back_are_listed_and_every_answer_takes_its_time() {
        let delay = Duration::from_millis(30);
        let server = BucketServer::start(delay, Some(1 << 20)).unwrap();
        let mut client = Connection::open(server.address, Duration::from_secs(10)).unwrap();
        let began = Instant::now();
        assert_eq!(client.ask("PUT", "/bucket/a/x%3D1", &vec![7; 200 << 10]).unwrap().status, 200);
        assert!(began.elapsed() >= delay);
        let began = Instant::now();
        assert_eq!(client.ask("GET", "/bucket/a/x=1", b"").unwrap().body, vec![7; 200 << 10]);
        // 200 KiB at 1 MiB/s.
        assert!(began.elapsed() >= delay + Duration::from_millis(190), "{:?}", began.elapsed());
        assert_eq!(client.ask("GET", "/bucket/b", b"").unwrap().status, 404);
        let listed = client.ask("GET", "/bucket/?list-type=2&prefix=a%2F", b"").unwrap().text();
        assert!(listed.contains("<Key>a/x=1</Key>") && listed.contains("<Size>204800</Size>"), "{listed}");
        let kinds: Vec<_> =
            server.take_served().into_iter().map(|served| (served.kind, served.key)).collect();
        let expected = [("PUT", "a/x=1"), ("GET", "a/x=1"), ("GET", "b"), ("LIST", "a/")];
        assert_eq!(kinds, expected.map(|(kind, key)| (kind.to_owned(), key.to_owned())));
    }
}
