//! A front on real executors and clients on plain sockets.

use futures::{FutureExt, future::LocalBoxFuture};
use http::{Request, Response, header};
use http_body_util::BodyExt;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use wasmkeep_node::{
    http::{Admission, Config, Front, Handover, Inbound, RequestBody, ResponseBody, Stats, reserve},
    runtime::{Hooks, Placement, Sleeper, mesh, start},
};

/// Nothing here takes this long; a wait that does has hung, and the test fails.
pub const HUNG: Duration = Duration::from_secs(30);

/// Bytes of a body that are read before its event, in `/buffered`.
pub const BUFFERED: usize = 100;

/// What the handler saw.
#[derive(Debug, Default)]
pub struct Seen {
    pub requests: Mutex<Vec<String>>,
    pub started: AtomicUsize,
    pub dropped: AtomicUsize,
    pub body_errors: Mutex<Vec<String>>,
}

pub struct Server {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    pub stats: Vec<Arc<Stats>>,
    pub admission: Admission,
    stop: flume::Sender<()>,
    leave: flume::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn placement(shards: usize) -> Placement {
    Placement { pin: false, ..Placement::of(shards, 2) }
}

impl Server {
    pub fn new(shards: usize) -> Server {
        Server::with(shards, 1000, |_| ())
    }

    pub fn with(shards: usize, connections_max: usize, adjust: fn(&mut Config)) -> Server {
        let bound = reserve("127.0.0.1:0".parse().unwrap()).unwrap().listen(shards).unwrap();
        let address = bound.address;
        let seen = Arc::new(Seen::default());
        let admission = Admission::new(connections_max);
        let (stop, stopped) = flume::bounded::<()>(0);
        let (leave, left) = flume::bounded::<()>(0);
        let seats: Vec<_> = bound.listeners.into_iter().zip(mesh::<Handover>(shards, 64)).map(Some).collect();
        let seats = Arc::new(Mutex::new(seats));
        let (report, reports) = flume::unbounded();
        let running = start(&placement(shards), Hooks::default(), {
            let (seen, admission) = (seen.clone(), admission.clone());
            move |context| {
                let (listener, endpoint) = seats.lock().unwrap()[context.index].take().unwrap();
                let (seen, admission, report) = (seen.clone(), admission.clone(), report.clone());
                let (stopped, left) = (stopped.clone(), left.clone());
                async move {
                    let mut config = Config::new(context.index);
                    adjust(&mut config);
                    let (shard, sleeper) = (context.index, context.sleeper.clone());
                    let handler =
                        move |request| handle(shard, request, seen.clone(), sleeper.clone()).boxed_local();
                    let front = Front::new(config, context.sleeper, admission, route, handler);
                    report.send((shard, front.stats().clone())).unwrap();
                    let endpoint = Rc::new(endpoint);
                    let send = {
                        let endpoint = endpoint.clone();
                        move |handover: Handover| {
                            endpoint.try_send(handover.shard, handover).map_err(|(handover, _)| handover)
                        }
                    };
                    glommio::spawn_local({
                        let (front, send) = (front.clone(), send.clone());
                        async move {
                            while let Some(handover) = endpoint.receive().await {
                                front.clone().spawn(Inbound::from(handover), send.clone());
                            }
                        }
                    })
                    .detach();
                    glommio::spawn_local(front.clone().accept(listener, send)).detach();
                    let _ = stopped.recv_async().await;
                    front.connections().stop();
                    let _ = left.recv_async().await;
                    front.connections().leave();
                    front.connections().drained().await;
                }
            }
        })
        .unwrap();
        let mut stats: Vec<_> = (0..shards).map(|_| reports.recv().unwrap()).collect();
        stats.sort_by_key(|(shard, _)| *shard);
        let thread = std::thread::spawn(move || {
            for result in running.join() {
                result.unwrap();
            }
        });
        let stats = stats.into_iter().map(|(_, stats)| stats).collect();
        Server { address, seen, stats, admission, stop, leave, thread: Some(thread) }
    }

    /// Asks the shards to stop without waiting for them.
    pub fn begin_stop(&mut self) {
        self.stop = flume::bounded(0).0;
    }

    /// Tells the connections that stayed open in the stop, without waiting for their end.
    pub fn begin_leave(&mut self) {
        self.begin_stop();
        self.leave = flume::bounded(0).0;
    }

    /// Waits until the shards ended.
    pub fn join(mut self) {
        self.begin_leave();
        self.thread.take().unwrap().join().unwrap();
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(HUNG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    /// Sends `bytes` on a connection of its own and returns all that comes back until it is closed.
    pub fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect();
        client.send(bytes);
        client.rest()
    }

    pub fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.begin_leave();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

/// Waits until `done`; hanging fails the test.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < HUNG, "hung: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => (),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes.extend(b"<reset>"),
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One head, up to its empty line.
    pub fn head(&mut self) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(
                self.0.read(&mut byte).unwrap(),
                1,
                "closed after {:?}",
                String::from_utf8_lossy(&bytes)
            );
            bytes.push(byte[0]);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// One answer with a content-length: its status and body.
    pub fn answer(&mut self) -> (u16, String) {
        let head = self.head();
        let length = header_of(&head, "content-length").unwrap_or("0").parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status_of(&head), String::from_utf8(body).unwrap())
    }

    pub fn get(&mut self, path: &str) -> (u16, String) {
        self.send(get(path));
        self.answer()
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub fn status_of(head: &str) -> u16 {
    head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or("0").parse().unwrap()
}

pub fn header_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// `/shard/<n>/...` belongs to shard n, everything else to any.
fn route(path: &str) -> Option<usize> {
    path.strip_prefix("/shard/")?.split('/').next()?.parse().ok()
}

struct CountDrop(Arc<Seen>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

async fn handle(
    shard: usize,
    request: Request<RequestBody>,
    seen: Arc<Seen>,
    sleeper: Sleeper,
) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    seen.requests.lock().unwrap().push(format!("{} {path}", parts.method));
    match path.as_str() {
        "/echo" => echo(body, &seen).await,
        "/buffered" => buffered(body, &seen).await,
        "/busy" => {
            // hyper reads ahead of it meanwhile.
            sleeper.sleep(Duration::from_millis(300)).await;
            echo(body, &seen).await
        }
        // Asks for more than comes, gives up and works on.
        "/gives-up" => {
            let mut body = body;
            let ask = async { while body.frame().await.is_some() {} };
            let asked = sleeper.timeout(Duration::from_millis(100), ask).await;
            assert!(asked.is_err(), "the body was longer than what came");
            drop(body);
            sleeper.sleep(Duration::from_millis(500)).await;
            text("gave up")
        }
        // As an actor has it whose client's connection ends: its event goes on.
        "/detached" => {
            let waiting = glommio::spawn_local(async move {
                sleeper.sleep(Duration::from_millis(300)).await;
                let _ = echo(body, &seen).await;
                seen.started.fetch_add(1, SeqCst);
            });
            waiting.detach();
            std::future::pending().await
        }
        "/host" => text(parts.headers[header::HOST].to_str().unwrap()),
        "/slow" => {
            sleeper.sleep(Duration::from_millis(100)).await;
            text("slow")
        }
        "/hang" => hang(body, false, seen).await,
        "/read-and-hang" => hang(body, true, seen).await,
        "/stream" => Response::new(ResponseBody::stream(Pieces::new(3, None, seen))),
        "/endless" => Response::new(ResponseBody::stream(Pieces::new(usize::MAX, None, seen))),
        "/broken" => Response::new(ResponseBody::stream(Pieces::new(3, Some("it broke"), seen))),
        "/too-long" => declared(3, ResponseBody::full("12345")),
        "/too-short" => declared(8, ResponseBody::full("12345")),
        "/missing" => declared(8, ResponseBody::empty()),
        "/panic" => panic!("a handler's bug"),
        "/nothing" => {
            let mut response = Response::new(ResponseBody::empty());
            *response.status_mut() = http::StatusCode::NO_CONTENT;
            response
        }
        _ => text(&format!("shard {shard}")),
    }
}

fn text(body: &str) -> Response<ResponseBody> {
    Response::new(ResponseBody::full(body.to_owned()))
}

fn declared(length: u64, body: ResponseBody) -> Response<ResponseBody> {
    Response::builder().header(header::CONTENT_LENGTH, length).body(body).unwrap()
}

/// Buffers up to [`BUFFERED`] bytes, as an event's body is, and only then counts as started.
async fn buffered(mut body: RequestBody, seen: &Seen) -> Response<ResponseBody> {
    if let Err(error) = body.buffer(BUFFERED).await {
        seen.body_errors.lock().unwrap().push(error.to_string());
        return text("never");
    }
    seen.started.fetch_add(1, SeqCst);
    let length = http_body::Body::size_hint(&body).exact();
    let mut pieces = Vec::new();
    while let Some(Ok(piece)) = body.chunk().await {
        pieces.push(piece.len());
    }
    text(&format!("{length:?} {pieces:?}"))
}

async fn echo(mut body: RequestBody, seen: &Seen) -> Response<ResponseBody> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.chunk().await {
        match chunk {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(error) => {
                seen.body_errors.lock().unwrap().push(error.to_string());
                return text("the handler does not mind");
            }
        }
    }
    Response::new(ResponseBody::full(bytes))
}

fn hang(
    mut body: RequestBody,
    read: bool,
    seen: Arc<Seen>,
) -> LocalBoxFuture<'static, Response<ResponseBody>> {
    async move {
        let _count = CountDrop(seen.clone());
        seen.started.fetch_add(1, SeqCst);
        while read && body.chunk().await.is_some() {}
        std::future::pending::<()>().await;
        drop(body);
        text("never")
    }
    .boxed_local()
}

/// A body in pieces of 4 KiB, which counts when it is dropped.
struct Pieces {
    left: usize,
    error: Option<&'static str>,
    _count: CountDrop,
}

impl Pieces {
    fn new(left: usize, error: Option<&'static str>, seen: Arc<Seen>) -> Pieces {
        seen.started.fetch_add(1, SeqCst);
        Pieces { left, error, _count: CountDrop(seen) }
    }
}

impl http_body::Body for Pieces {
    type Data = bytes::Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, &'static str>>> {
        if self.left == 0 {
            return std::task::Poll::Ready(self.error.take().map(Err));
        }
        self.left -= 1;
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(bytes::Bytes::from_static(&[b'x'; 4096])))))
    }
}
