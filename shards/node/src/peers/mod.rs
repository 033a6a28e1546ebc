//! Other nodes, as one shard reaches them: connections kept open per shard, one request at a time on each; one of its
//! own for a request that may become a WebSocket.
//!
//! Owns what was written and what was not: a request goes out once, and is sent again only when the connection it was
//! given to turned out to be closed before anything of it was written (R-FWD-2). Which node a request belongs to is
//! `protocol`'s to say, what its answer means the shard's.

mod body;
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
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest, handshake},
};
use wasmkeep_protocol::{
    forwarding::{Again, Remedy, Trouble, remedy},
    limits::{FORWARD_ANSWER, FORWARD_CONNECT},
};

pub(crate) use self::{body::PeerBody, target::Target};
use self::{io::PeerIo, target::Place};
use crate::{
    runtime::{OffloadPool, Sleeper},
    stream::Stream,
    tls::{self, Identity, Refused},
};

/// Connections to one node that a shard keeps open while nothing uses them.
const IDLE_MAX: usize = 32;

type Driver = http1::Connection<PeerIo, PeerBody>;

/// A connection to another node.
struct Connection {
    requests: SendRequest<PeerBody>,
    refused: Refused,
}

impl Connection {
    /// What became of a request that got no answer on it. `came_back`: nothing of it was written.
    fn trouble(&self, came_back: bool, is_fresh: bool, place: &Place) -> Trouble {
        match (came_back, is_fresh) {
            _ if self.refused.get() => Trouble::Untrusted,
            (true, true) if place.is_encrypted() => Trouble::Untrusted,
            // Ended by a listener that nobody accepted it from.
            (true, true) => Trouble::NotOpened,
            (true, false) => Trouble::ClosedUnused,
            (false, _) => Trouble::Lost,
        }
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

/// The connections of one shard to other nodes.
pub(crate) struct Peers {
    idle: Rc<RefCell<HashMap<Place, Vec<Connection>>>>,
    addresses: RefCell<HashMap<String, SocketAddr>>,
    offload: Rc<OffloadPool>,
    sleeper: Sleeper,
    /// On a node with a cluster listener.
    tls: Option<(Arc<Identity>, tls::Watch)>,
}

impl Peers {
    pub(crate) fn new(
        offload: Rc<OffloadPool>,
        sleeper: Sleeper,
        tls: Option<(Arc<Identity>, tls::Watch)>,
    ) -> Self {
        Self { idle: Rc::default(), addresses: RefCell::default(), offload, sleeper, tls }
    }

    /// Whether a connection to a node is open, or can be opened now; it is kept for the next request.
    pub(crate) async fn reach(&self, target: &Target) -> bool {
        let Some(place) = self.place(target).await else { return false };
        let connection = match self.take_idle(&place) {
            Some(connection) => connection,
            None => match self.open(&place).await {
                Ok(connection) => connection,
                Err(_) => return false,
            },
        };
        self.idle.borrow_mut().entry(place).or_default().push(connection);
        true
    }

    /// Sends a request to a node and gives the head of its answer.
    ///
    /// # Errors
    /// What to do about it.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<PeerBody>,
    ) -> Result<Response<Incoming>, Remedy> {
        let mut request = request;
        let place = self.place(target).await.ok_or_else(|| remedy(Trouble::NotOpened))?;
        loop {
            let (mut connection, is_fresh) = match self.take_idle(&place) {
                Some(connection) => (connection, false),
                None => (self.open(&place).await.map_err(|_| remedy(Trouble::NotOpened))?, true),
            };
            let sent = connection.requests.try_send_request(request);
            request = match self.sleeper.timeout(FORWARD_ANSWER, sent).await {
                Ok(Ok(answer)) => {
                    self.keep(place, connection);
                    return Ok(answer);
                }
                Ok(Err(mut unsent)) => {
                    let back = unsent.take_message();
                    let remedy = remedy(connection.trouble(back.is_some(), is_fresh, &place));
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
        let (mut connection, driver) = self.connect(&place).await.map_err(|_| not_opened())?;
        let (join, joining) = oneshot::channel();
        glommio::spawn_local(async move {
            // Ends with the connection, or with a 101.
            if let Ok(parts) = driver.without_shutdown().await {
                let joint = Joint { stream: parts.io.into_stream(), unread: parts.read_buf };
                // Nobody waits for it when the answer was no 101.
                let _ = join.send(joint);
            }
        })
        .detach();
        let sent = connection.requests.try_send_request(request);
        match self.sleeper.timeout(FORWARD_ANSWER, sent).await {
            Ok(Ok(answer)) => Ok((answer, Joining(joining))),
            Ok(Err(mut unsent)) => {
                Err(remedy(connection.trouble(unsent.take_message().is_some(), true, &place)))
            }
            Err(_) => Err(remedy(Trouble::Silent)),
        }
    }

    fn take_idle(&self, place: &Place) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let connections = idle.get_mut(place)?;
        while let Some(connection) = connections.pop() {
            if connection.requests.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection once its answer has been read to its end.
    fn keep(&self, place: Place, mut connection: Connection) {
        let idle = Rc::clone(&self.idle);
        glommio::spawn_local(async move {
            if connection.requests.ready().await.is_ok() {
                let mut idle = idle.borrow_mut();
                let connections = idle.entry(place).or_default();
                if connections.len() < IDLE_MAX {
                    connections.push(connection);
                }
            }
        })
        .detach();
    }

    async fn open(&self, place: &Place) -> Result<Connection, Error> {
        let (connection, driver) = self.connect(place).await?;
        glommio::spawn_local(async move {
            // Whoever waits for an answer on it learns of its end.
            let _ = driver.await;
        })
        .detach();
        Ok(connection)
    }

    async fn connect(&self, place: &Place) -> Result<(Connection, Driver), Error> {
        self.forget_closed();
        let opening = async {
            let stream = TcpStream::connect(place.address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let (stream, refused) = self.encrypt(place, stream).await?;
            let (requests, driver) = handshake(PeerIo::new(stream)).await.map_err(failed)?;
            Ok((Connection { requests, refused }, driver))
        };
        let opened = self.sleeper.timeout(FORWARD_CONNECT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut)));
        if opened.is_err() {
            // Its name may lead elsewhere by now.
            self.addresses.borrow_mut().retain(|_, known| *known != place.address);
        }
        opened
    }

    /// Lets go of what ended while nothing used it: its place may never be asked for again.
    fn forget_closed(&self) {
        self.idle.borrow_mut().retain(|_, connections| {
            connections.retain(|connection| !connection.requests.is_closed());
            !connections.is_empty()
        });
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
