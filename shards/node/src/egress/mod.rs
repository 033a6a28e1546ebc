//! Outbound HTTP of actors: one client for the node, and for each instance its share of it.
//!
//! Everything here runs on the Tokio thread of [`wasmkeep_host::Timers`]; a shard only hands requests over and
//! reads bodies. It owns which addresses may be reached, how many requests may be open and what each became. It
//! follows no redirect, keeps no cookie and uses no proxy: the guest decides what to ask next, and is checked
//! again.

mod addresses;
mod body;
mod connect;
mod failure;
mod metrics;
mod target;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Request};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use wasmkeep_host::outbound::{Answered, Outbound, OutboundBody, OutboundError, OutboundOptions, Sending};
use wasmkeep_protocol::limits::{
    HEAD_BYTES_MAX, OUTBOUND_CONNECT, OUTBOUND_IDLE, OUTBOUND_IDLE_PER_HOST_MAX,
    OUTBOUND_REQUESTS_PER_ACTOR_MAX,
};

pub use self::addresses::OutboundRange;
pub(crate) use self::addresses::is_public;
pub(crate) use self::metrics::OutboundMetrics;
use self::{
    body::Moved,
    connect::{CONNECT_LIMIT, CheckedResolver, ConnectLimit, Lookup, system_lookup},
    metrics::Outcome,
};

/// The node's client.
pub(crate) struct Egress {
    client: reqwest::Client,
    allowed: Arc<[OutboundRange]>,
    slots: Arc<Semaphore>,
    metrics: OutboundMetrics,
}

impl Egress {
    /// A client that reaches public addresses and `allowed` ones, for at most `requests_max` requests at a time.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub(crate) fn new(
        allowed: &[OutboundRange],
        requests_max: usize,
        metrics: OutboundMetrics,
    ) -> Result<Arc<Self>, reqwest::Error> {
        Self::with_lookup(allowed, requests_max, metrics, &system_lookup())
    }

    fn with_lookup(
        allowed: &[OutboundRange],
        requests_max: usize,
        metrics: OutboundMetrics,
        lookup: &Lookup,
    ) -> Result<Arc<Self>, reqwest::Error> {
        let allowed: Arc<[OutboundRange]> = allowed.into();
        let client = client(&allowed, lookup)?;
        Ok(Arc::new(Self { client, allowed, slots: Arc::new(Semaphore::new(requests_max)), metrics }))
    }

    /// What carries the requests of one instance.
    pub(crate) fn for_instance(self: &Arc<Self>) -> Arc<dyn Outbound> {
        let slots = Arc::new(Semaphore::new(OUTBOUND_REQUESTS_PER_ACTOR_MAX));
        Arc::new(Share { egress: Arc::clone(self), slots })
    }

    /// Asks and answers with the head; the body is still to come.
    async fn exchange(
        &self,
        request: Request<OutboundBody>,
        options: OutboundOptions,
    ) -> Result<http::Response<reqwest::Body>, OutboundError> {
        let request = target::request(request, &self.allowed)?;
        let connect = options.connect_timeout.map_or(OUTBOUND_CONNECT, |limit| limit.min(OUTBOUND_CONNECT));
        let head = CONNECT_LIMIT.scope(connect, self.client.execute(request));
        let response = match options.first_byte_timeout {
            None => head.await,
            // The connection has its own time.
            Some(limit) => timeout(connect.saturating_add(limit), head)
                .await
                .map_err(|_| OutboundError::ConnectionReadTimeout)?,
        };
        let response = http::Response::from(response.map_err(|error| failure::request_error(&error))?);
        let head_bytes = head_bytes(response.headers());
        if head_bytes > HEAD_BYTES_MAX {
            let size = u32::try_from(head_bytes).ok();
            return Err(OutboundError::HttpResponseHeaderSectionSize(size));
        }
        Ok(response)
    }
}

fn client(allowed: &Arc<[OutboundRange]>, lookup: &Lookup) -> Result<reqwest::Client, reqwest::Error> {
    // Whoever installed a provider first is right; without one the client cannot speak TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only()
            .tcp_nodelay(true)
            .pool_idle_timeout(OUTBOUND_IDLE)
            .pool_max_idle_per_host(OUTBOUND_IDLE_PER_HOST_MAX)
            .dns_resolver(CheckedResolver { lookup: Arc::clone(lookup), allowed: Arc::clone(allowed) })
            .connector_layer(ConnectLimit)
    };
    builder().build().or_else(|error| {
        // A machine without certificates has no https, and still has http.
        let client = builder().tls_certs_only([]).build()?;
        tracing::warn!("outbound https will fail: no root certificates were found ({error})");
        Ok(client)
    })
}

/// Bytes of the header lines.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// One instance's share of the client.
struct Share {
    egress: Arc<Egress>,
    slots: Arc<Semaphore>,
}

impl Outbound for Share {
    fn send(&self, request: Request<OutboundBody>, options: OutboundOptions) -> Sending {
        let (egress, own) = (Arc::clone(&self.egress), Arc::clone(&self.slots));
        Box::pin(async move {
            // On the thread on which requests end, and in its turn: those that the actor let go of before this
            // one have given their places back.
            let places = (own.try_acquire_owned(), Arc::clone(&egress.slots).try_acquire_owned());
            let (Ok(own), Ok(nodes)) = places else {
                egress.metrics.ended(Outcome::OverLimit);
                return Err(OutboundError::ConnectionLimitReached);
            };
            let open = Open::new(egress.metrics.clone(), [own, nodes]);
            match egress.exchange(request, options).await {
                Ok(response) => Ok(answered(response, options.between_bytes_timeout, open)),
                Err(error) => {
                    open.end(failure::outcome(&error));
                    Err(error)
                }
            }
        })
    }
}

fn answered(
    response: http::Response<reqwest::Body>,
    between_bytes: Option<Duration>,
    open: Open,
) -> Answered {
    let (parts, body) = response.into_parts();
    let (mover, body) = body::received(body, between_bytes);
    let rest = async move {
        match mover.run().await {
            Moved::Whole => open.end(Outcome::Answered),
            Moved::Broken => open.end(Outcome::Broken),
            Moved::GivenUp => open.end(Outcome::GivenUp),
        }
    };
    Answered { response: http::Response::from_parts(parts, body), rest: Box::pin(rest) }
}

/// A request under way: its places, and its count when it ends. One that is dropped was given up by its guest.
struct Open {
    metrics: OutboundMetrics,
    outcome: Outcome,
    _slots: [OwnedSemaphorePermit; 2],
}

impl Open {
    fn new(metrics: OutboundMetrics, slots: [OwnedSemaphorePermit; 2]) -> Self {
        metrics.open.inc();
        Self { metrics, outcome: Outcome::GivenUp, _slots: slots }
    }

    fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.open.dec();
        self.metrics.ended(self.outcome);
    }
}
