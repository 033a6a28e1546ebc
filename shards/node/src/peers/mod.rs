//! Other nodes, as one shard reaches them: connections kept open per shard, one request at a time on each; one of its
//! own for a request that may become a WebSocket.
//!
//! Owns what was written and what was not: a request goes out once, and is sent again only when the connection it was
//! given to turned out to be closed before anything of it was written (R-FWD-2). Which node a request belongs to is
//! `protocol`'s to say, what its answer means the shard's.

mod body;
mod io;

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{Error, ErrorKind},
    net::{SocketAddr, ToSocketAddrs},
    rc::Rc,
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

pub(crate) use self::body::PeerBody;
use self::io::PeerIo;
use crate::runtime::{OffloadPool, Sleeper};

/// Connections to one node that a shard keeps open while nothing uses them.
const IDLE_MAX: usize = 32;

type Connection = SendRequest<PeerBody>;
type Driver = http1::Connection<PeerIo, PeerBody>;

/// A connection to another node that has left HTTP.
pub(crate) struct Joint {
    pub(crate) stream: TcpStream,
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
    idle: Rc<RefCell<HashMap<SocketAddr, Vec<Connection>>>>,
    addresses: RefCell<HashMap<String, SocketAddr>>,
    offload: Rc<OffloadPool>,
    sleeper: Sleeper,
}

impl Peers {
    pub(crate) fn new(offload: Rc<OffloadPool>, sleeper: Sleeper) -> Self {
        Self { idle: Rc::default(), addresses: RefCell::default(), offload, sleeper }
    }

    /// Whether a connection to the node at `url` is open, or can be opened now; it is kept for the next request.
    pub(crate) async fn reach(&self, url: &str) -> bool {
        let Some(address) = self.address(url).await else { return false };
        let connection = match self.take_idle(address) {
            Some(connection) => connection,
            None => match self.open(address).await {
                Ok(connection) => connection,
                Err(_) => return false,
            },
        };
        self.idle.borrow_mut().entry(address).or_default().push(connection);
        true
    }

    /// Sends a request to the node at `url` (`http://HOST:PORT`) and gives the head of its answer.
    ///
    /// # Errors
    /// What to do about it.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: Request<PeerBody>,
    ) -> Result<Response<Incoming>, Remedy> {
        let mut request = request;
        let address = self.address(url).await.ok_or_else(|| remedy(Trouble::NotOpened))?;
        loop {
            let (mut connection, is_fresh) = match self.take_idle(address) {
                Some(connection) => (connection, false),
                None => (self.open(address).await.map_err(|_| remedy(Trouble::NotOpened))?, true),
            };
            let answer = self.sleeper.timeout(FORWARD_ANSWER, connection.try_send_request(request)).await;
            request = match answer {
                Ok(Ok(answer)) => {
                    self.keep(address, connection);
                    return Ok(answer);
                }
                Ok(Err(mut unsent)) => match unsent.take_message() {
                    // Nothing of it was written.
                    Some(back) if !is_fresh && remedy(Trouble::ClosedUnused).again == Again::SameNode => back,
                    _ => return Err(remedy(Trouble::Lost)),
                },
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
        url: &str,
        request: Request<PeerBody>,
    ) -> Result<(Response<Incoming>, Joining), Remedy> {
        let not_opened = || remedy(Trouble::NotOpened);
        let address = self.address(url).await.ok_or_else(not_opened)?;
        let (mut connection, driver) = self.connect(address).await.map_err(|_| not_opened())?;
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
        match self.sleeper.timeout(FORWARD_ANSWER, connection.send_request(request)).await {
            Ok(Ok(answer)) => Ok((answer, Joining(joining))),
            Ok(Err(_)) => Err(remedy(Trouble::Lost)),
            Err(_) => Err(remedy(Trouble::Silent)),
        }
    }

    fn take_idle(&self, address: SocketAddr) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let connections = idle.get_mut(&address)?;
        while let Some(connection) = connections.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection once its answer has been read to its end.
    fn keep(&self, address: SocketAddr, mut connection: Connection) {
        let idle = Rc::clone(&self.idle);
        glommio::spawn_local(async move {
            if connection.ready().await.is_ok() {
                let mut idle = idle.borrow_mut();
                let connections = idle.entry(address).or_default();
                if connections.len() < IDLE_MAX {
                    connections.push(connection);
                }
            }
        })
        .detach();
    }

    async fn open(&self, address: SocketAddr) -> Result<Connection, Error> {
        let (connection, driver) = self.connect(address).await?;
        glommio::spawn_local(async move {
            // Whoever waits for an answer on it learns of its end.
            let _ = driver.await;
        })
        .detach();
        Ok(connection)
    }

    async fn connect(&self, address: SocketAddr) -> Result<(Connection, Driver), Error> {
        let opening = async {
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            handshake(PeerIo::new(stream)).await.map_err(failed)
        };
        let opened = self.sleeper.timeout(FORWARD_CONNECT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut)));
        if opened.is_err() {
            // Its name may lead elsewhere by now.
            self.addresses.borrow_mut().retain(|_, known| *known != address);
        }
        opened
    }

    /// Where `url` leads; a name is looked up once, off the shard.
    async fn address(&self, url: &str) -> Option<SocketAddr> {
        if let Some(known) = self.addresses.borrow().get(url) {
            return Some(*known);
        }
        let host = url.strip_prefix("http://")?.to_owned();
        let found = match host.parse() {
            Ok(address) => address,
            Err(_) => self.offload.run(move || host.to_socket_addrs().ok()?.next()).await.ok()??,
        };
        self.addresses.borrow_mut().insert(url.to_owned(), found);
        Some(found)
    }
}

/// Its text: glommio's own errors are not for other threads.
fn failed(error: impl std::fmt::Display) -> Error {
    Error::other(error.to_string())
}
