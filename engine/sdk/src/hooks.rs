//! What an actor implements, and how the exports of a component reach it.

#[cfg(feature = "websockets")]
pub(crate) mod websocket;

use std::marker::PhantomData;

use crate::{
    Error, Request, Response, Result,
    bindings::{alarm, http::exports::wasi::http::incoming_handler, http::wasi::http::types as wasi, init},
};

/// Answers HTTP requests.
pub trait Handle {
    /// Answers one request. An error becomes a response by [`Error`]'s rules.
    ///
    /// # Errors
    /// Whatever keeps the actor from answering.
    fn handle(request: Request) -> Result<Response>;
}

/// Prepares the database: the `on-init` hook.
pub trait Init {
    /// Runs once for each deployed version, before any other event of it, inside one transaction of the
    /// platform: everything it writes is kept if it returns `Ok`, and nothing otherwise.
    ///
    /// # Errors
    /// An error is logged, the event that waited is answered 500, and the next event tries again.
    fn init() -> Result<()>;
}

/// Takes the alarm: the `on-alarm` hook.
pub trait Alarm {
    /// Runs at least once for each alarm that came due at `due_ms`, milliseconds since the Unix epoch.
    /// `attempt` is 1 the first time.
    ///
    /// # Errors
    /// An error is logged, and the alarm is tried again later.
    fn alarm(due_ms: u64, attempt: u32) -> Result<()>;
}

/// Answers one request of `wasi:http/incoming-handler` with `H`: what [`actor!`](crate::actor) exports.
pub fn serve<H: Handle>(request: wasi::IncomingRequest, out: wasi::ResponseOutparam) {
    H::handle(Request::new(request)).unwrap_or_else(Error::into_response).send(out);
}

/// The exports of a component, each carried out by `A`.
pub struct Exports<A>(PhantomData<A>);

impl<A: Handle> incoming_handler::Guest for Exports<A> {
    fn handle(request: wasi::IncomingRequest, out: wasi::ResponseOutparam) {
        serve::<A>(request, out);
    }
}

impl<A: Init> init::Guest for Exports<A> {
    fn on_init() -> std::result::Result<(), String> {
        A::init().map_err(|error| error.to_string())
    }
}

impl<A: Alarm> alarm::Guest for Exports<A> {
    fn on_alarm(due_ms: u64, attempt: u32) -> std::result::Result<(), String> {
        A::alarm(due_ms, attempt).map_err(|error| error.to_string())
    }
}
