//! Servers of a few lines, and a client to ask them with.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use wasmkeep_host::{
    Timers,
    outbound::{Answered, Outbound, OutboundBody, OutboundError, OutboundOptions},
};

use crate::{
    egress::{Egress, OutboundMetrics, OutboundRange, connect::Lookup},
    metrics::Metrics,
    runtime::OffloadPool,
};

/// How long anything may take that is expected to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A server on loopback; each connection is a thread that does what it was made with.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(super) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", serve)
    }

    pub(super) fn on(address: &str, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, serve) = (Arc::clone(&connections), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self { address, connections }
    }

    /// Answers each request of a connection with `answer`.
    pub(super) fn answering(answer: &'static str) -> Self {
        Self::start(move |mut stream| {
            while !head(&mut stream).is_empty() {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        })
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// A request's head as it came; empty at the end of the connection.
pub(super) fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1..) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Says when the client has closed the connection.
pub(super) fn tell_end(mut stream: TcpStream, gone: &mpsc::Sender<()>) {
    let mut rest = [0; 4096];
    while matches!(stream.read(&mut rest), Ok(1..)) {}
    let _ = gone.send(());
}

/// A client with a thread and metrics of its own.
pub(super) struct Client {
    timers: Timers,
    share: Arc<dyn Outbound>,
    egress: Arc<Egress>,
    metrics: Metrics,
}

impl Client {
    /// One that may reach `allowed` beside public addresses, which no test here asks for.
    pub(super) fn new(allowed: &[&str]) -> Self {
        Self::made(allowed, 1000, |allowed, max, metrics| Egress::new(allowed, max, metrics).unwrap())
    }

    pub(super) fn with_requests_max(requests_max: usize) -> Self {
        let make = |allowed: &[OutboundRange], max, metrics| Egress::new(allowed, max, metrics).unwrap();
        Self::made(&["127.0.0.0/8"], requests_max, make)
    }

    /// One for which every name has the addresses that `lookup` gives.
    pub(super) fn looking_up(
        allowed: &[&str],
        lookup: impl Fn() -> Option<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        let lookup: Lookup = Arc::new(move |_| match lookup() {
            Some(found) => Box::pin(std::future::ready(Ok(found))),
            None => Box::pin(std::future::pending()),
        });
        Self::made(allowed, 1000, move |allowed, max, metrics| {
            Egress::with_lookup(allowed, max, metrics, &lookup).unwrap()
        })
    }

    fn made(
        allowed: &[&str],
        requests_max: usize,
        make: impl FnOnce(&[OutboundRange], usize, OutboundMetrics) -> Arc<Egress>,
    ) -> Self {
        let metrics = Metrics::new(OffloadPool::start(1).unwrap(), Arc::default());
        let allowed: Vec<OutboundRange> = allowed.iter().map(|range| range.parse().unwrap()).collect();
        let egress = make(&allowed, requests_max, metrics.outbound.clone());
        Self { timers: Timers::start().unwrap(), share: egress.for_instance(), egress, metrics }
    }

    /// The share of another actor.
    pub(super) fn another(&self) -> Arc<dyn Outbound> {
        self.egress.for_instance()
    }

    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.timers.handle().block_on(work)
    }

    pub(super) async fn send(
        &self,
        request: Request<OutboundBody>,
        options: OutboundOptions,
    ) -> Result<Answered, OutboundError> {
        self.share.send(request, options).await
    }

    /// Asks and reads to the end.
    pub(super) fn ask(&self, request: Request<OutboundBody>) -> Result<(u16, Bytes), OutboundError> {
        self.ask_with(request, OutboundOptions::default())
    }

    pub(super) fn ask_with(
        &self,
        request: Request<OutboundBody>,
        options: OutboundOptions,
    ) -> Result<(u16, Bytes), OutboundError> {
        self.wait(async {
            let Answered { response, rest } = self.send(request, options).await?;
            let (parts, body) = response.into_parts();
            let (body, ()) = tokio::join!(body.collect(), rest);
            Ok((parts.status.as_u16(), body?.to_bytes()))
        })
    }

    pub(super) fn get(&self, url: &str) -> Result<(u16, Bytes), OutboundError> {
        self.ask(get(url))
    }

    /// How many requests ended with `outcome`.
    pub(super) fn counted(&self, outcome: &str) -> u64 {
        self.metric(&format!("wasmkeep_outbound_requests_total{{outcome=\"{outcome}\"}}"))
    }

    pub(super) fn open(&self) -> u64 {
        self.metric("wasmkeep_outbound_open")
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.encode();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

pub(super) fn get(url: &str) -> Request<OutboundBody> {
    Request::get(url).body(Empty::new().map_err(|never| match never {}).boxed_unsync()).unwrap()
}

pub(super) fn post(url: &str, body: impl Into<Bytes>) -> Request<OutboundBody> {
    Request::post(url).body(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()).unwrap()
}

pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "still not: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
