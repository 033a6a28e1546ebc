//! One HTTP request for an actor.

use std::sync::Arc;

use super::{
    RequestBody,
    answer::{self, AnswerReceiver, AnswerSender},
};

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
