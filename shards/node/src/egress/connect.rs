//! The way to a connection: names become addresses that may be reached, and a connection that takes too long
//! is given up.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;
use wasmkeep_protocol::limits::OUTBOUND_CONNECT;

use super::addresses::{OutboundRange, may_connect};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no connection; found again in the source of the client's error.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// The name has addresses and an actor may reach none of them.
    Prohibited,
    /// The name has no address, or nobody told.
    Lookup(io::Error),
    /// It took longer than it may.
    TooLong,
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prohibited => f.write_str("the name has no address that may be reached"),
            Self::Lookup(error) => write!(f, "the name was not found: {error}"),
            Self::TooLong => f.write_str("the connection took too long"),
        }
    }
}

impl std::error::Error for NoConnection {}

/// Looks a name up.
pub(super) type Lookup =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> + Send + Sync>;

/// The system's resolver, on the blocking threads of the runtime.
pub(super) fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// Gives the client only addresses that may be reached. It connects to one of these and looks nothing up by
/// itself, so what was checked is what is connected to, whatever the name's next answer is.
pub(super) struct CheckedResolver {
    pub(super) lookup: Lookup,
    pub(super) allowed: Arc<[OutboundRange]>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.lookup)(name.as_str().to_owned());
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let found = found.await.map_err(NoConnection::Lookup)?;
            let reachable = reachable(&found, &allowed)?;
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}

fn reachable(found: &[IpAddr], allowed: &[OutboundRange]) -> Result<Vec<SocketAddr>, NoConnection> {
    if found.is_empty() {
        return Err(NoConnection::Lookup(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
    }
    let reachable: Vec<_> = found.iter().filter(|address| may_connect(**address, allowed)).collect();
    if reachable.is_empty() {
        return Err(NoConnection::Prohibited);
    }
    // Port 0: the client puts the URL's.
    Ok(reachable.into_iter().map(|address| SocketAddr::new(*address, 0)).collect())
}

tokio::task_local! {
    /// How long the request that runs may wait for its connection.
    pub(super) static CONNECT_LIMIT: Duration;
}

/// Limits the time to connect, name lookup and TLS included, for each request by itself.
#[derive(Clone)]
pub(super) struct ConnectLimit;

impl<S> Layer<S> for ConnectLimit {
    type Service = Limited<S>;

    fn layer(&self, connector: S) -> Limited<S> {
        Limited(connector)
    }
}

#[derive(Clone)]
pub(super) struct Limited<S>(S);

impl<S, R> Service<R> for Limited<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let limit = CONNECT_LIMIT.try_with(|limit| *limit).unwrap_or(OUTBOUND_CONNECT);
        let connecting = self.0.call(request);
        Box::pin(async move { timeout(limit, connecting).await.map_err(|_| NoConnection::TooLong)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// None tried: all are prohibited.
    #[track_caller]
    fn check(found: &[&str], allowed: &[OutboundRange], tried: &[&str]) {
        match reachable(&addresses(found), allowed) {
            Ok(got) => {
                let got: Vec<IpAddr> = got.iter().map(SocketAddr::ip).collect();
                assert_eq!(got, addresses(tried));
            }
            Err(NoConnection::Prohibited) => assert!(tried.is_empty()),
            Err(other) => panic!("{other}"),
        }
    }

    // case H9
    #[test]
    fn of_a_names_addresses_only_those_that_may_be_reached_are_tried() {
        let loopback = ["127.0.0.0/8".parse().unwrap()];
        check(&["8.8.8.8", "127.0.0.1", "2606:4700::1111"], &[], &["8.8.8.8", "2606:4700::1111"]);
        check(&["::ffff:10.0.0.1", "1.1.1.1"], &[], &["1.1.1.1"]);
        check(&["127.0.0.1", "::1"], &[], &[]);
        check(&["127.0.0.1", "::1"], &loopback, &["127.0.0.1"]);
        check(&["169.254.169.254", "127.0.0.1"], &loopback, &["127.0.0.1"]);
        check(&["10.0.0.1"], &loopback, &[]);
        assert!(matches!(reachable(&[], &[]), Err(NoConnection::Lookup(_))));
    }
}
