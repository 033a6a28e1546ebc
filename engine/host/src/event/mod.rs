//! One HTTP request on its way to an actor, and its answer on the way back. Both ends may live on different
//! threads: a connection may belong to another shard than the actor.

mod answer;
mod body;

use std::sync::Arc;

pub use answer::{AnswerReceiver, AnswerSender, Mistake, Unanswered};
#[cfg(test)]
pub(crate) use body::ReaderGone;
pub(crate) use body::{BodyWriter, Revocation, response_pipe};
pub use body::{Cut, RequestBody, RequestBodyError, ResponseBody};
use wasmkeep_actor::{Event, Failure, Refusal};

/// A request for an actor, and the one chance to answer it.
#[derive(Debug)]
pub struct HttpEvent {
    pub(crate) request: http::Request<RequestBody>,
    pub(crate) caller: Option<Arc<(String, String)>>,
    pub(crate) answer: AnswerSender,
}

impl HttpEvent {
    /// Pairs a request with the receiver of its answer. Dropping the receiver, or the body of the response it
    /// gave, says that the client is gone.
    #[must_use]
    pub fn new(request: http::Request<RequestBody>) -> (Self, AnswerReceiver) {
        let (answer, receiver) = answer::channel();
        (Self { request, caller: None, answer }, receiver)
    }

    /// Names the actor that called, class and name, as `context.caller` will tell it. Only for a caller the
    /// node has verified (R-CALL-2).
    #[must_use]
    pub fn called_by(mut self, class: String, name: String) -> Self {
        self.caller = Some(Arc::new((class, name)));
        self
    }

    /// The request as it will be delivered.
    #[must_use]
    pub fn request(&self) -> &http::Request<RequestBody> {
        &self.request
    }
}

impl Event for HttpEvent {
    type Ticket = AnswerSender;

    fn ticket(&self) -> AnswerSender {
        self.answer.clone()
    }

    fn fail(ticket: AnswerSender, failure: &Failure) {
        ticket.send(Err(Unanswered::Failed(failure.clone())));
    }

    fn refuse(self, refusal: &Refusal) {
        self.answer.send(Err(Unanswered::Refused(refusal.clone())));
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_abandoned()
    }
}

#[cfg(test)]
mod tests;
