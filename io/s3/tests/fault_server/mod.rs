//! A small S3 server in the test's own process, over real sockets, that can be told to misbehave. Also used by the tests
//! of whole nodes.
//!
//! It applies conditions correctly, one request at a time, and answers in the form of S3. It refuses what some
//! compatible servers refuse (case S7): chunked uploads and trailing checksums.
#![allow(dead_code, reason = "each test uses its own part")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wasmkeep_s3::{S3Bucket, S3Limits};

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing: it is applied and answered.
    None,
    /// Not applied; this status and error code are the answer.
    Answer(u16, &'static str),
    /// Applied; this status and error code are the answer, without an ETag.
    ApplyAndAnswer(u16, &'static str),
    /// Applied, and the connection ends without an answer.
    ApplyAndCut,
    /// Not applied, and the connection ends without an answer.
    Cut,
    /// Applied and answered, so much later.
    Late(Duration),
    /// Applied, and never answered; the connection stays open.
    ApplyAndSilence,
    /// Not applied, and never answered; the connection stays open.
    Silence,
    /// Applied; the answer's body ends after so many bytes.
    CutBody(usize),
    /// Applied; the answer's body stops after so many bytes, and the connection stays open.
    StallBody(usize),
    /// This XML is the answer.
    Xml(String),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// Which conditions a server that keeps no promises ignores.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignored {
    /// `If-None-Match: *`
    pub creates: bool,
    /// `If-Match`
    pub replaces: bool,
}

/// Says what a request meets.
type Rule = Box<dyn FnMut(&Seen) -> Fault + Send>;

#[derive(Default)]
struct State {
    /// For requests that none of `faults` is left for.
    rule: Option<Rule>,
    objects: BTreeMap<String, (Vec<u8>, String)>,
    writes: u64,
    faults: VecDeque<Fault>,
    seen: Vec<Seen>,
    /// `404`, or Ceph's `412`, for If-Match on a missing key.
    missing_status: u16,
    ignored: Ignored,
    /// Its clock is far ahead of everybody's.
    is_ahead: bool,
}

/// When objects were written, in the two forms of S3.
const LONG_AGO: [&str; 2] = ["Sun, 29 Nov 2026 21:00:00 GMT", "2026-11-29T21:00:00.000Z"];

/// As [`LONG_AGO`], ahead of every clock.
const AHEAD: [&str; 2] = ["Sun, 29 Nov 2099 21:00:00 GMT", "2099-11-29T21:00:00.000Z"];

/// The server; it ends with the process.
pub struct FaultServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FaultServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { missing_status: 404, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    /// The next requests meet these faults, in order; later ones none.
    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().faults = faults.into_iter().collect();
    }

    /// From now on `rule` says what each request meets.
    pub fn rule(&self, rule: impl FnMut(&Seen) -> Fault + Send + 'static) {
        self.state.lock().unwrap().rule = Some(Box::new(rule));
    }

    /// Puts an object unless there is one. `key` begins with the bucket's prefix.
    pub fn create(&self, key: &str, body: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        state.writes += 1;
        let etag = format!("\"w{}-x\"", state.writes);
        state.objects.entry(key.to_owned()).or_insert((body, etag));
    }

    /// The keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }

    /// What a process that is to use it finds in its environment; the bucket is `s3://bucket`.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// From now on these conditions are accepted and ignored.
    pub fn ignore(&self, ignored: Ignored) {
        self.state.lock().unwrap().ignored = ignored;
    }

    /// From now on objects are dated far ahead, as a node sees them whose clock is behind.
    pub fn set_clock_ahead(&self) {
        self.state.lock().unwrap().is_ahead = true;
    }

    /// An object, as text; `None`: there is none.
    pub fn text(&self, key: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        state.objects.get(key).map(|(body, _)| String::from_utf8_lossy(body).into_owned())
    }

    /// Answers If-Match on a missing key with this status.
    pub fn missing_status(&self, status: u16) {
        self.state.lock().unwrap().missing_status = status;
    }

    /// All requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }

    /// Faults that no request met.
    pub fn faults_left(&self) -> usize {
        self.state.lock().unwrap().faults.len()
    }

    pub fn bucket(&self, request_limit: Duration) -> S3Bucket {
        let environment = self.environment().into_iter().map(|(name, value)| (name.to_owned(), value));
        let limits = S3Limits { request: request_limit, connect: Duration::from_secs(5) };
        S3Bucket::open("bucket", Some("prod/eu".parse().unwrap()), environment, limits).unwrap()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_request(&mut reader) {
        if answer(&stream, state, request).is_none() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { method, target, headers, body })
}

/// Answers one request; `None` when the connection is to end.
fn answer(mut stream: &TcpStream, shared: &Mutex<State>, request: Seen) -> Option<()> {
    let mut state = shared.lock().unwrap();
    state.seen.push(request.clone());
    let fault = match state.faults.pop_front() {
        Some(fault) => fault,
        None => state.rule.as_mut().map_or(Fault::None, |rule| rule(&request)),
    };
    let reply = match &fault {
        Fault::Answer(status, code) => error(*status, code),
        Fault::Cut => return None,
        Fault::Silence => {
            drop(state);
            std::thread::sleep(Duration::from_secs(3600));
            return None;
        }
        Fault::Late(by) => {
            drop(state);
            std::thread::sleep(*by);
            state = shared.lock().unwrap();
            apply(&mut state, &request)
        }
        Fault::Xml(xml) => Reply { status: 200, headers: String::new(), body: xml.clone().into_bytes() },
        _ => apply(&mut state, &request),
    };
    drop(state);
    let reply = match fault {
        Fault::ApplyAndAnswer(status, code) => error(status, code),
        Fault::ApplyAndCut => return None,
        Fault::ApplyAndSilence => {
            std::thread::sleep(Duration::from_secs(3600));
            return None;
        }
        _ => reply,
    };
    let head_only = request.method == "HEAD" || matches!(reply.status, 204 | 304);
    let length =
        if reply.status == 204 { String::new() } else { format!("content-length: {}\r\n", reply.body.len()) };
    write!(stream, "HTTP/1.1 {} X\r\n{length}{}\r\n", reply.status, reply.headers).ok()?;
    match fault {
        Fault::CutBody(bytes) => {
            stream.write_all(&reply.body[..bytes]).ok()?;
            None
        }
        Fault::StallBody(bytes) => {
            stream.write_all(&reply.body[..bytes]).ok()?;
            std::thread::sleep(Duration::from_secs(3600));
            None
        }
        _ if head_only => Some(()),
        _ => stream.write_all(&reply.body).ok(),
    }
}

struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

fn error(status: u16, code: &str) -> Reply {
    let body = match code {
        "" => String::new(),
        code => {
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>")
        }
    };
    Reply { status, headers: "content-type: application/xml\r\n".to_owned(), body: body.into_bytes() }
}

fn apply(state: &mut State, request: &Seen) -> Reply {
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let Some(key) = path.strip_prefix("/bucket").map(|key| key.trim_start_matches('/').to_owned()) else {
        return error(404, "NoSuchBucket");
    };
    let chunked = ["transfer-encoding", "x-amz-trailer", "x-amz-decoded-content-length", "content-encoding"];
    let hash = header("x-amz-content-sha256").unwrap_or("");
    if chunked.iter().any(|name| header(name).is_some()) || hash.len() != 64 {
        return error(400, "InvalidArgument");
    }
    if !header("authorization").unwrap_or("").starts_with("AWS4-HMAC-SHA256 Credential=test/") {
        return error(403, "AccessDenied");
    }
    let current = state.objects.get(&key).cloned();
    match request.method.as_str() {
        "PUT" => {
            let creates = header("if-none-match").filter(|_| !state.ignored.creates);
            let replaces = header("if-match").filter(|_| !state.ignored.replaces);
            match (creates, replaces, &current) {
                (Some("*"), _, Some(_)) => return error(412, "PreconditionFailed"),
                (_, Some(_), None) if state.missing_status == 404 => return error(404, "NoSuchKey"),
                (_, Some(_), None) => return error(412, "PreconditionFailed"),
                (_, Some(wanted), Some((_, etag))) if wanted != etag => {
                    return error(412, "PreconditionFailed");
                }
                _ => {}
            }
            state.writes += 1;
            let etag = format!("\"w{}-x\"", state.writes);
            state.objects.insert(key, (request.body.clone(), etag.clone()));
            Reply { status: 200, headers: format!("etag: {etag}\r\n"), body: Vec::new() }
        }
        "DELETE" => {
            state.objects.remove(&key);
            Reply { status: 204, headers: String::new(), body: Vec::new() }
        }
        _ if query.contains("list-type=2") => list(state, query),
        _ => match current {
            None => error(404, "NoSuchKey"),
            Some((body, etag)) => {
                let date = if state.is_ahead { AHEAD[0] } else { LONG_AGO[0] };
                let headers = format!("etag: {etag}\r\nlast-modified: {date}\r\n");
                Reply { status: 200, headers, body }
            }
        },
    }
}

fn list(state: &State, query: &str) -> Reply {
    let value = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        found.map(|text| text.replace("%2F", "/"))
    };
    let prefix = value("prefix").unwrap_or_default();
    let after = value("continuation-token").or_else(|| value("start-after")).unwrap_or_default();
    let keys = state.objects.keys().filter(|key| key.starts_with(&prefix) && **key > after);
    let page: usize = value("max-keys").map_or(1000, |keys| keys.parse().unwrap());
    let (mut xml, mut listed) = (String::new(), Vec::new());
    for key in keys {
        if listed.len() == page {
            xml += &format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>",
                listed[page - 1]
            );
            break;
        }
        let (body, etag) = &state.objects[key];
        let etag = etag.replace('"', "&quot;");
        let date = if state.is_ahead { AHEAD[1] } else { LONG_AGO[1] };
        xml += &format!(
            "<Contents><Key>{key}</Key><LastModified>{date}</LastModified><ETag>{etag}</ETag><Size>{}</Size></Contents>",
            body.len()
        );
        listed.push(key.clone());
    }
    Reply {
        status: 200,
        headers: String::new(),
        body: format!("<ListBucketResult>{xml}</ListBucketResult>").into_bytes(),
    }
}
