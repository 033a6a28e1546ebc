//! A shard's front: takes connections in, runs each as a task, sends away those that belong elsewhere. Owns the
//! tasks; what a connection does is [`connection`](super::connection)'s.

use super::{
    Admission, Connections, Handover, Limits, RequestBody, ResponseBody, Stats, Ticket, connection,
    connections::Member,
    listening::Listening,
    moves::{Budget, MOVES_PER_SECOND},
    wire::{Came, Rules, Wire},
};
use crate::{
    lull::Away,
    runtime::Sleeper,
    stream::Stream,
    tls::{self, Session, TlsStream},
};
use futures::{
    FutureExt,
    future::{Either, select},
};
use glommio::net::TcpStream;
use http::{Request, Response};
use std::{
    cell::OnceCell,
    fmt,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd},
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Default of [`Config::rest_after`]: longer than the pauses of a client at work, and short enough that thousands
/// of kept connections cost some 16 KiB each only while they are used.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How long a connection that has begun when a listener ends may take until it is made. Longer than between machines of
/// one network.
const HANDSHAKES_WITHIN: Duration = Duration::from_millis(5);

/// Pause after a failed accept: out of descriptors, say, which only time cures.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Limits and timings of a front.
#[derive(Debug, Clone)]
pub struct Config {
    /// This shard.
    pub shard: usize,
    /// What one request may be.
    pub limits: Limits,
    /// Time without a request after which a connection gives its buffers back and keeps only its socket.
    pub rest_after: Duration,
    /// Life of a connection without a request.
    pub idle_timeout: Duration,
    /// Time for a whole head from its first byte. Over it: 408.
    pub head_timeout: Duration,
    /// Time between two pieces of a body that the handler waits for. Over it: 408.
    pub body_timeout: Duration,
    /// Time for the whole of a body that is read before its event ([`RequestBody::buffer`]). Over it: 408.
    pub buffer_timeout: Duration,
    /// Time between two pieces of an answer that the client takes. Over it the connection is cut.
    pub write_timeout: Duration,
    /// Connections this shard may move away a second, first requests not counted.
    pub moves_per_second: u32,
    /// Whether a request path (without the query) is an operator's: those are answered when clients have all the
    /// connections there may be.
    pub operators: fn(&str) -> bool,
}

impl Config {
    /// The limits documented in `wasmkeep_protocol::limits`, for `shard`.
    pub fn new(shard: usize) -> Config {
        use wasmkeep_protocol::limits::{
            BODY_BYTES_MAX, BODY_SILENCE_MAX, HEAD_BYTES_MAX, HEAD_TIMEOUT, HEADERS_MAX,
        };
        Config {
            shard,
            limits: Limits {
                head_bytes_max: HEAD_BYTES_MAX,
                headers_max: HEADERS_MAX,
                body_bytes_max: BODY_BYTES_MAX,
            },
            rest_after: REST_AFTER,
            idle_timeout: HEAD_TIMEOUT,
            head_timeout: HEAD_TIMEOUT,
            body_timeout: BODY_SILENCE_MAX,
            buffer_timeout: HEAD_TIMEOUT,
            write_timeout: HEAD_TIMEOUT,
            moves_per_second: MOVES_PER_SECOND,
            operators: |_| false,
        }
    }
}

/// A connection on its way into a front.
pub struct Inbound {
    socket: Socket,
    came: Came,
    ticket: Ticket,
}

enum Socket {
    Here(Stream),
    /// From another shard, with the TLS that was on it.
    Moved(OwnedFd, Option<Box<Session>>),
}

impl Inbound {
    /// A connection just accepted.
    pub fn accepted(stream: TcpStream, ticket: Ticket) -> Inbound {
        // An answer is one write; waiting for more to fill a packet would only delay it.
        let _ = stream.set_nodelay(true);
        Inbound::of(stream.into(), ticket)
    }

    fn of(stream: Stream, ticket: Ticket) -> Inbound {
        Inbound {
            socket: Socket::Here(stream),
            came: Came { bytes: Vec::new(), fresh: true, lulls: Away::default() },
            ticket,
        }
    }
}

impl From<Handover> for Inbound {
    fn from(moved: Handover) -> Inbound {
        let socket = Socket::Moved(moved.fd, moved.session);
        Inbound { socket, came: moved.came, ticket: moved.ticket }
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("fresh", &self.came.fresh).finish_non_exhaustive()
    }
}

/// A shard's front. `S` answers requests; its future is dropped when the client leaves.
pub struct Front<S> {
    rules: Rc<Rules>,
    pub(super) handler: Rc<S>,
    pub(super) connections: Connections,
    pub(super) sleeper: Sleeper,
    pub(super) stats: Arc<Stats>,
    admission: Admission,
    /// Where connections from other nodes are kept, if any come.
    watch: OnceCell<tls::Watch>,
}

/// The listener for other nodes.
pub(crate) struct NodesListener {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) identity: Arc<tls::Identity>,
    pub(crate) watch: tls::Watch,
    /// Its own places (R-TLS-2).
    pub(crate) admission: Admission,
}

impl<S> Front<S> {
    /// A front that answers with `handler`. `route` says which shard a request path (percent-encoded, without the
    /// query) belongs to, `None` where any shard will do; it is asked once per request and must be quick.
    pub fn new(
        config: Config,
        sleeper: Sleeper,
        admission: Admission,
        route: impl Fn(&str) -> Option<usize> + 'static,
        handler: S,
    ) -> Rc<Front<S>> {
        let connections = Connections::default();
        let stats = Arc::new(Stats::default());
        let stopping = connections.clone();
        let rules = Rc::new(Rules {
            budget: Budget::new(config.moves_per_second, Instant::now()),
            config,
            route: Box::new(route),
            stats: stats.clone(),
            stay: Box::new(move || stopping.is_stopping()),
        });
        let (handler, watch) = (Rc::new(handler), OnceCell::new());
        Rc::new(Front { rules, handler, connections, sleeper, stats, admission, watch })
    }

    /// This front's connections: count them, stop them, wait for their end.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// This front's counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Takes in connections of other nodes that come from other shards. Once, before any does.
    pub(crate) fn keep_nodes(&self, watch: tls::Watch) {
        let _ = self.watch.set(watch);
    }

    pub(super) fn config(&self) -> &Config {
        &self.rules.config
    }
}

impl<S, F> Front<S>
where
    S: Fn(Request<RequestBody>) -> F + 'static,
    F: Future<Output = Response<ResponseBody>> + 'static,
{
    /// Accepts connections until [`Connections::refuse`], each served by a task of its own. `send` takes a
    /// connection to another shard, which gives it to its own front with [`Front::spawn`]; what it returns is
    /// served here.
    pub async fn accept<M>(self: Rc<Self>, listener: std::net::TcpListener, send: M)
    where
        M: Fn(Handover) -> Result<(), Handover> + Clone + 'static,
    {
        let front = &self;
        let take = |stream| {
            let ticket = match front.admission.admit() {
                Some(ticket) => {
                    front.stats.count_accepted(1);
                    ticket
                }
                // Whose it is shows with its first request.
                None => match front.admission.admit_operator() {
                    Some(ticket) => ticket,
                    None => {
                        front.stats.count_over_limit(1);
                        return;
                    }
                },
            };
            front.clone().spawn(Inbound::accepted(stream, ticket), send.clone());
        };
        self.take_in(listener, take).await;
    }

    /// As [`Front::accept`], for connections of other nodes, each of which shows its certificate first.
    pub(crate) async fn accept_nodes<M>(self: Rc<Self>, nodes: NodesListener, send: M)
    where
        M: Fn(Handover) -> Result<(), Handover> + Clone + 'static,
    {
        let NodesListener { listener, identity, watch, admission } = nodes;
        let take = |stream: TcpStream| {
            let Some(ticket) = admission.admit() else {
                // What is not TLS says nothing to a node: it sees the connection end.
                self.stats.count_over_limit(1);
                return;
            };
            self.stats.count_accepted(1);
            let _ = stream.set_nodelay(true);
            let (front, identity, watch) = (self.clone(), identity.clone(), watch.clone());
            let (send, member) = (send.clone(), self.connections.enter());
            glommio::spawn_local(async move {
                // Boxed, so that what a handshake needs is gone after it.
                let arrived = Box::pin(tls::accept(&identity, &watch, stream, &front.sleeper)).await;
                if let Some(stream) = arrived {
                    front.spawn(Inbound::of(Stream::Tls(Box::new(stream)), ticket), send);
                }
                drop(member);
            })
            .detach();
        };
        self.take_in(listener, take).await;
    }

    /// Gives each connection to `take` until there are to be no more. Those the kernel has made by then are taken in:
    /// their first request may be written already.
    async fn take_in(&self, listener: std::net::TcpListener, take: impl Fn(TcpStream)) {
        let listening = Listening::from(listener);
        loop {
            let mut accept = pin!(listening.listener.accept());
            match select(accept.as_mut(), pin!(self.connections.refusing())).await {
                Either::Left((Ok(stream), _)) => take(stream),
                Either::Left((Err(error), _)) => {
                    self.stats.count_accept_error(1);
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.sleeper.sleep(ACCEPT_PAUSE).await;
                }
                Either::Right((_, in_ring)) => {
                    listening.let_nobody_begin();
                    self.sleeper.sleep(HANDSHAKES_WITHIN).await;
                    while let Some(Ok(stream)) = listening.listener.accept().now_or_never() {
                        take(stream);
                    }
                    listening.refuse_more();
                    // The ring may have taken one, which nobody else has; if not, the listener's end ends this.
                    if let Ok(stream) = in_ring.await {
                        take(stream);
                    }
                    return;
                }
            }
        }
    }

    /// Serves a connection in a task of its own.
    pub fn spawn<M>(self: Rc<Self>, inbound: Inbound, send: M)
    where
        M: Fn(Handover) -> Result<(), Handover> + 'static,
    {
        let stats = self.stats.clone();
        // From here on and not from its first turn: a stop waits for it.
        let member = self.connections.enter();
        let task = async move {
            let mut next = Some((inbound, member));
            while let Some((inbound, member)) = next.take() {
                if let Some(handover) = self.serve(inbound, member).await {
                    next = send(handover).err().map(|back| (back.into(), self.connections.enter()));
                }
            }
        };
        glommio::spawn_local(async move {
            // A panic must not unwind through the executor: it would end the shard's thread.
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                stats.count_panic(1);
                tracing::error!("a connection panicked and was cut");
            }
        })
        .detach();
    }

    /// Serves a connection until it ends, or until it belongs to another shard: then it is returned.
    async fn serve(self: &Rc<Self>, inbound: Inbound, member: Member) -> Option<Handover> {
        let Inbound { socket, came, ticket } = inbound;
        let stream = match socket {
            Socket::Here(stream) => stream,
            Socket::Moved(fd, session) => self.arrived(fd, session)?,
        };
        let wire = Wire::new(stream, came, self.rules.clone(), ticket.is_operators());
        connection::serve(self, wire, ticket, member).await
    }

    /// A connection from another shard; `None` when its other side is not trusted any more.
    fn arrived(&self, fd: OwnedFd, session: Option<Box<Session>>) -> Option<Stream> {
        // SAFETY: the descriptor was owned by the handover and is owned by the stream from here on.
        let stream = unsafe { TcpStream::from_raw_fd(fd.into_raw_fd()) };
        let Some(session) = session else { return Some(stream.into()) };
        let stream = TlsStream::arrived(self.watch.get()?, stream, session)?;
        Some(Stream::Tls(Box::new(stream)))
    }
}

impl<S> fmt::Debug for Front<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("connections", &self.connections.open()).finish_non_exhaustive()
    }
}
