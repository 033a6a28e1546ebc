//! Outbound requests of guests: what carries them, and that none outlives the event that made it.
//!
//! Knows no address, no connection and no limit; whoever implements [`Outbound`] does.

use std::{future::Future, pin::Pin, pin::pin};

use futures::future::{Either, select};
use http::{Request, Response};
use tokio::sync::watch;
use wasmtime_wasi_http::Result as WasiResult;
pub use wasmtime_wasi_http::{
    Error as OutboundError, RequestOptions as OutboundOptions, WasiBody as OutboundBody,
};

use crate::headers;

/// A response whose body is on its way.
pub struct Answered {
    /// The head, and what the guest reads the body from.
    pub response: Response<OutboundBody>,
    /// Moves the body; done when all of it was handed over or the guest has let go of it.
    pub rest: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// An outbound request under way, up to the head of its response.
pub type Sending = Pin<Box<dyn Future<Output = Result<Answered, OutboundError>> + Send>>;

/// Carries the outbound requests of one instance.
pub trait Outbound: Send + Sync {
    /// Sends a request. What comes back, and the rest of the response, run on the thread of [`crate::Timers`];
    /// dropping one of them gives the request up and closes its connection.
    fn send(&self, request: Request<OutboundBody>, options: OutboundOptions) -> Sending;
}

/// The span of one event, as its outbound requests see it.
#[derive(Default)]
pub(crate) struct EventSpan(Option<watch::Sender<()>>);

impl EventSpan {
    /// The event is over: what it has under way ends.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    fn ended(&mut self) -> Ended {
        Ended(self.0.get_or_insert_default().subscribe())
    }
}

#[derive(Clone)]
struct Ended(watch::Receiver<()>);

impl Ended {
    async fn wait(mut self) {
        // Nothing is ever sent: a change is the end of the sender.
        while self.0.changed().await.is_ok() {}
    }
}

/// What wasmtime's hook gives back.
pub(crate) type Sent<T> = Box<dyn Future<Output = WasiResult<T>> + Send>;

/// Sends a guest's request within the span of its event.
pub(crate) fn send(
    outbound: &dyn Outbound,
    span: &mut EventSpan,
    mut request: Request<OutboundBody>,
    options: OutboundOptions,
) -> Sent<(Response<OutboundBody>, Sent<()>)> {
    headers::strip(request.headers_mut());
    let ended = span.ended();
    let sending = outbound.send(request, options);
    Box::new(async move {
        let Some(answered) = until(sending, ended.clone()).await else {
            return Err(OutboundError::ConnectionTerminated);
        };
        let Answered { mut response, rest } = answered?;
        headers::strip(response.headers_mut());
        let rest: Sent<()> = Box::new(async move {
            until(rest, ended).await;
            Ok(())
        });
        Ok((response, rest))
    })
}

/// The output of `work`, unless the event ends before.
async fn until<F: Future + Unpin>(work: F, ended: Ended) -> Option<F::Output> {
    match select(work, pin!(ended.wait())).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}
