//! Other nodes, as one shard reaches them: connections kept open per shard, one request at a time on each; one of its
//! own for a request that may become a WebSocket.
//!
//! Owns what was written and what was not: a request goes out once, and is sent again only when the connection it was
//! given to turned out to be closed before anything of it was written (R-FWD-2). Which node a request belongs to is
//! `protocol`'s to say, what its answer means the shard's.

mod answer;
mod body;
mod connection;
mod io;
mod target;

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{Error, ErrorKind},
    net::{SocketAddr, ToSocketAddrs},
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use futures::channel::oneshot;
use glommio::net::TcpStream;
use http::{Request, Response};
use hyper::body::Incoming;
use wasmkeep_protocol::{
    forwarding::{Again, Remedy, Trouble, remedy},
    limits::{FORWARD_ANSWER, FORWARD_CONNECT},
};

pub(crate) use self::{answer::AnswerBody, body::PeerBody, target::Target};
use self::{connection::Connection, target::Place};
use crate::{
    runtime::{OffloadPool, Sleeper},
    stream::Stream,
    tls::{self, Identity, Refused},
};

/// Connections to one node that a shard keeps open while nothing uses them.
const IDLE_MAX: usize = 32;

/// What became of a request that got no answer. `came_back`: nothing of it was written. `is_fresh`: it was the first on
/// its connection. `refused`: whether the other node refused this one's certificate.
fn trouble(came_back: bool, is_fresh: bool, refused: &Refused, place: &Place) -> Trouble {
    match (came_back, is_fresh) {
        _ if refused.get() => Trouble::Untrusted,
        (true, true) if place.is_encrypted() => Trouble::Untrusted,
        // Ended by a listener that nobody accepted it from.
        (true, true) => Trouble::NotOpened,
        (true, false) => Trouble::ClosedUnused,
        (false, _) => Trouble::Lost,
    }
}

/// A connection to another node that has left HTTP.
pub(crate) struct Joint {
    pub(crate) stream: Stream,
    /// What the node has sent behind its answer.
    pub(crate) unread: Bytes,
}

/// The connection of a request that asked for an upgrade; it leaves HTTP once its answer is a 101.
pub(crate) struct Joining(oneshot::Receiver<Joint>);

impl Joining {
    /// `None`: it broke.
    pub(crate) async fn joint(self) -> Option<Joint> {
        self.0.await.ok()
    }
}

/// Connections that nothing uses. Clones are handles on the same ones.
#[derive(Clone, Default)]
struct Idle(Rc<RefCell<HashMap<Place, Vec<Connection>>>>);

impl Idle {
    fn take(&self, place: &Place) -> Option<Connection> {
        self.0.borrow_mut().get_mut(place)?.pop()
    }

    /// Keeps a connection whose answer has been read to its end; one on which the request still goes out is closed.
    fn keep(&self, place: Place, connection: Connection) {
        connection.rest();
        if connection.is_ready() {
            let mut idle = self.0.borrow_mut();
            let connections = idle.entry(place).or_default();
            if connections.len() < IDLE_MAX {
                connections.push(connection);
            }
        }
    }

    /// Whether there is one that the other node has left open so far.
    fn has_open(&self, place: &Place) -> bool {
        let mut idle = self.0.borrow_mut();
        let Some(connections) = idle.get_mut(place) else { return false };
        while let Some(last) = connections.last_mut() {
            if last.is_open() {
                return true;
            }
            connections.pop();
        }
        false
    }

    /// Lets go of what ended meanwhile: its place may never be asked for again.
    fn forget_closed(&self) {
        self.0.borrow_mut().retain(|_, connections| {
            connections.retain_mut(Connection::is_open);
            !connections.is_empty()
        });
    }
}

/// What came of reaching for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// A connection is open.
    Open,
    /// None could be opened.
    NotOpened,
    /// One was, and the node ended it, as one does that refuses a certificate.
    Closed,
}

/// The connections of one shard to other nodes.
pub(crate) struct Peers {
    idle: Idle,
    addresses: RefCell<HashMap<String, SocketAddr>>,
    offload: Rc<OffloadPool>,
    sleeper: Sleeper,
    /// On a node with a cluster listener.
    tls: Option<(Arc<Identity>, tls::Watch)>,
    /// Whether the other nodes have had the time to see this node's certificate.
    is_known: Box<dyn Fn() -> bool>,
}

impl Peers {
    pub(crate) fn new(
        offload: Rc<OffloadPool>,
        sleeper: Sleeper,
        tls: Option<(Arc<Identity>, tls::Watch)>,
        is_known: impl Fn() -> bool + 'static,
    ) -> Self {
        let is_known = Box::new(is_known);
        Self { idle: Idle::default(), addresses: RefCell::default(), offload, sleeper, tls, is_known }
    }

    /// Nobody is asked who may not know this node's certificate: refusing it, a node would read nothing either, and say
    /// so later (R-TLS-5).
    fn check_is_known(&self, place: &Place) -> Result<(), Remedy> {
        if place.is_encrypted() && !(self.is_known)() { Err(remedy(Trouble::Unknown)) } else { Ok(()) }
    }

    /// Whether a connection to a node is open, or can be opened now; it is kept for the next request.
    pub(crate) async fn reach(&self, target: &Target) -> Reached {
        let Some(place) = self.place(target).await else { return Reached::NotOpened };
        if self.idle.has_open(&place) {
            return Reached::Open;
        }
        let Ok(mut connection) = self.connect(&place).await else { return Reached::NotOpened };
        let reached = if connection.is_open() { Reached::Open } else { Reached::Closed };
        self.idle.keep(place, connection);
        reached
    }

    /// Sends a request to a node and gives the head of its answer.
    ///
    /// # Errors
    /// What to do about it.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<PeerBody>,
    ) -> Result<Response<AnswerBody>, Remedy> {
        let mut request = request;
        let place = self.place(target).await.ok_or_else(|| remedy(Trouble::NotOpened))?;
        self.check_is_known(&place)?;
        loop {
            let (mut connection, is_fresh) = match self.idle.take(&place) {
                Some(connection) => (connection, false),
                None => (self.connect(&place).await.map_err(|_| remedy(Trouble::NotOpened))?, true),
            };
            request = match self.sleeper.timeout(FORWARD_ANSWER, connection.send(request)).await {
                Ok(Ok(answer)) => return Ok(AnswerBody::of(answer, place, connection, &self.idle)),
                Ok(Err(mut unsent)) => {
                    let back = unsent.take_message();
                    let remedy = remedy(trouble(back.is_some(), is_fresh, &connection.refused, &place));
                    match back {
                        Some(back) if remedy.again == Again::SameNode => back,
                        _ => return Err(remedy),
                    }
                }
                Err(_) => return Err(remedy(Trouble::Silent)),
            };
        }
    }

    /// As [`Peers::send`], on a connection of its own, which may leave HTTP.
    ///
    /// # Errors
    /// What to do about it.
    pub(crate) async fn send_to_join(
        &self,
        target: &Target,
        request: Request<PeerBody>,
    ) -> Result<(Response<Incoming>, Joining), Remedy> {
        let not_opened = || remedy(Trouble::NotOpened);
        let place = self.place(target).await.ok_or_else(not_opened)?;
        self.check_is_known(&place)?;
        let connection = self.connect(&place).await.map_err(|_| not_opened())?;
        let (mut requests, driver, refused) = connection.into_parts().ok_or_else(not_opened)?;
        let (join, joining) = oneshot::channel();
        glommio::spawn_local(async move {
            // Ends with the connection, or with a 101.
            if let Ok(parts) = driver.without_shutdown().await {
                let Some(stream) = parts.io.into_stream() else { return };
                // Nobody waits for it when the answer was no 101.
                let _ = join.send(Joint { stream, unread: parts.read_buf });
            }
        })
        .detach();
        let sent = requests.try_send_request(request);
        match self.sleeper.timeout(FORWARD_ANSWER, sent).await {
            Ok(Ok(answer)) => Ok((answer, Joining(joining))),
            Ok(Err(mut unsent)) => {
                Err(remedy(trouble(unsent.take_message().is_some(), true, &refused, &place)))
            }
            Err(_) => Err(remedy(Trouble::Silent)),
        }
    }

    async fn connect(&self, place: &Place) -> Result<Connection, Error> {
        self.idle.forget_closed();
        let opening = async {
            let stream = TcpStream::connect(place.address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let (stream, refused) = self.encrypt(place, stream).await?;
            Connection::new(stream, refused).await.map_err(failed)
        };
        let opened = self.sleeper.timeout(FORWARD_CONNECT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut)));
        if opened.is_err() {
            // Its name may lead elsewhere by now.
            self.addresses.borrow_mut().retain(|_, known| *known != place.address);
        }
        opened
    }

    /// Puts TLS around the connection, where the node has a cluster listener.
    async fn encrypt(&self, place: &Place, stream: TcpStream) -> Result<(Stream, Refused), Error> {
        let Some((node, fingerprint)) = &place.certificate else {
            return Ok((stream.into(), Refused::default()));
        };
        let (identity, watch) = self.tls.as_ref().ok_or(ErrorKind::Unsupported)?;
        let stream = tls::connect(identity, watch, stream, node, fingerprint).await?;
        let refused = stream.refused();
        Ok((Stream::Tls(Box::new(stream)), refused))
    }

    /// Where a target is; a name is looked up once, off the shard.
    async fn place(&self, target: &Target) -> Option<Place> {
        let certificate = target.certificate.clone();
        if let Some(&address) = self.addresses.borrow().get(&target.url) {
            return Some(Place { address, certificate });
        }
        let host = target.host()?.to_owned();
        let address = match host.parse() {
            Ok(address) => address,
            Err(_) => self.offload.run(move || host.to_socket_addrs().ok()?.next()).await.ok()??,
        };
        self.addresses.borrow_mut().insert(target.url.clone(), address);
        Some(Place { address, certificate })
    }
}

/// Its text: glommio's own errors are not for other threads.
fn failed(error: impl std::fmt::Display) -> Error {
    Error::other(error.to_string())
}
