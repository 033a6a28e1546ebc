//! An answer that stops on its way until somebody lets it go on.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use wasmkeep_actor::Failure;

use super::{
    ActorEvent, ResponseBody,
    answer::{self, AnswerReceiver, AnswerSender, HttpAnswer, Unanswered},
    hook::OpenAnswer,
};

/// Resolves to the answer of an event that was [intercepted](ActorEvent::intercept).
#[derive(Debug)]
pub struct Intercepted(Ends);

#[derive(Debug)]
enum Ends {
    Http(AnswerSender, AnswerReceiver),
    SocketOpen(AnswerSender<OpenAnswer>, AnswerReceiver<OpenAnswer>),
}

/// An answer, and whoever waits for it. Dropped, it is never given.
#[derive(Debug)]
pub struct HeldAnswer(Stopped);

#[derive(Debug)]
enum Stopped {
    Http(AnswerSender, Result<HttpAnswer, Unanswered>),
    SocketOpen(AnswerSender<OpenAnswer>, Result<OpenAnswer, Unanswered>),
}

impl ActorEvent {
    /// Puts an answer of its own in the place of the event's, when the answer goes to a client. Those that only tell
    /// the node how far it is are left alone.
    #[must_use]
    pub fn intercept(mut self) -> (Self, Option<Intercepted>) {
        let ends = match &mut self {
            Self::Http(event) => {
                let (inner, receiver) = answer::channel();
                Ends::Http(std::mem::replace(&mut event.answer, inner), receiver)
            }
            Self::SocketOpen(event) => {
                let (inner, receiver) = answer::channel();
                Ends::SocketOpen(std::mem::replace(&mut event.answer, inner), receiver)
            }
            Self::Alarm(_) | Self::SocketMessage(_) | Self::SocketClose(_) => return (self, None),
        };
        (self, Some(Intercepted(ends)))
    }
}

impl Future for Intercepted {
    type Output = HeldAnswer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<HeldAnswer> {
        let stopped = match &mut self.0 {
            Ends::Http(outer, inner) => {
                Pin::new(inner).poll(cx).map(|answer| Stopped::Http(outer.clone(), answer))
            }
            Ends::SocketOpen(outer, inner) => {
                Pin::new(inner).poll(cx).map(|answer| Stopped::SocketOpen(outer.clone(), answer))
            }
        };
        stopped.map(HeldAnswer)
    }
}

impl HeldAnswer {
    /// Bytes of its body that are here already.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Stopped::Http(_, Ok(response)) => response.body().as_whole().map_or(0, |body| body.len()),
            _ => 0,
        }
    }

    /// Gives the answer, with what `body` makes of its body.
    pub fn release(self, body: impl FnOnce(ResponseBody) -> ResponseBody) {
        match self.0 {
            Stopped::Http(outer, answer) => outer.send(answer.map(|response| response.map(body))),
            Stopped::SocketOpen(outer, answer) => outer.send(answer),
        };
    }

    /// Says that the event failed in its place.
    pub fn fail(self, failure: &Failure) {
        let why = Unanswered::Failed(failure.clone());
        match self.0 {
            Stopped::Http(outer, _) => outer.send(Err(why)),
            Stopped::SocketOpen(outer, _) => outer.send(Err(why)),
        };
    }
}
