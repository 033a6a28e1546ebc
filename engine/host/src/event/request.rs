//! One HTTP request for an actor.

use std::time::Duration;

use wasmkeep_protocol::call_chain::CallChain;

use super::{
    RequestBody,
    answer::{self, AnswerReceiver, AnswerSender},
};

/// A request for an actor, and the one chance to answer it.
#[derive(Debug)]
pub struct HttpEvent {
    pub(crate) request: http::Request<RequestBody>,
    pub(crate) chain: CallChain,
    pub(crate) deadline: Option<Duration>,
    pub(crate) answer: AnswerSender,
}

impl HttpEvent {
    /// Pairs a request with the receiver of its answer. Dropping the receiver, or the body of the response it
    /// gave, says that the client is gone.
    #[must_use]
    pub fn new(request: http::Request<RequestBody>) -> (Self, AnswerReceiver) {
        let (answer, receiver) = answer::channel();
        (Self { request, chain: CallChain::default(), deadline: None, answer }, receiver)
    }

    /// Makes it a call: who waits for it, and by when, on the clock of the actors' world. Only for a chain the node
    /// has verified (R-CALL-2): `context.caller` will tell its last actor.
    #[must_use]
    pub fn called(mut self, chain: CallChain, deadline: Duration) -> Self {
        self.chain = chain;
        self.deadline = Some(deadline);
        self
    }

    /// The request as it will be delivered.
    #[must_use]
    pub fn request(&self) -> &http::Request<RequestBody> {
        &self.request
    }
}
