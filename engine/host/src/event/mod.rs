//! What arrives for an actor, on its way there, and its answer on the way back. Both ends may live on different
//! threads: a connection may belong to another shard than the actor.

mod answer;
mod body;
mod held;
mod hook;
mod request;

pub use answer::{AnswerReceiver, AnswerSender, HttpAnswer, Mistake, Unanswered};
#[cfg(test)]
pub(crate) use body::ReaderGone;
pub(crate) use body::{BodyWriter, Revocation, response_pipe};
pub use body::{Cut, RequestBody, RequestBodyError, ResponseBody};
pub use held::{HeldAnswer, Intercepted};
pub use hook::{AlarmEvent, OpenAnswer, SocketClose, SocketMessage, SocketOpen};
pub use request::HttpEvent;
use std::time::Duration;

use wasmkeep_actor::{Event, Failure, Refusal};

/// One event of an actor.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are requests; a box would cost each of them"
)]
pub enum ActorEvent {
    /// A request from outside or from another actor.
    Http(HttpEvent),
    /// The alarm may be due.
    Alarm(AlarmEvent),
    /// A client asks for a WebSocket.
    SocketOpen(SocketOpen),
    /// A whole message came in on a WebSocket.
    SocketMessage(SocketMessage),
    /// A WebSocket is gone.
    SocketClose(SocketClose),
}

/// The way to answer an [`ActorEvent`] that its turn did not answer.
#[derive(Debug)]
pub enum Ticket {
    /// Of a request.
    Http(AnswerSender),
    /// Of an alarm.
    Alarm(AnswerSender<()>),
    /// Of a socket that would open.
    SocketOpen(AnswerSender<OpenAnswer>),
    /// Of a socket's message or end.
    Socket(AnswerSender<()>),
}

impl Ticket {
    fn refuse(&self, why: Unanswered) {
        match self {
            Self::Http(answer) => answer.send(Err(why)),
            Self::Alarm(answer) => answer.send(Err(why)),
            Self::SocketOpen(answer) => answer.send(Err(why)),
            Self::Socket(answer) => answer.send(Err(why)),
        };
    }
}

impl Event for ActorEvent {
    type Ticket = Ticket;

    fn ticket(&self) -> Ticket {
        match self {
            Self::Http(event) => Ticket::Http(event.answer.clone()),
            Self::Alarm(event) => Ticket::Alarm(event.answer.clone()),
            Self::SocketOpen(event) => Ticket::SocketOpen(event.answer.clone()),
            Self::SocketMessage(event) => Ticket::Socket(event.answer.clone()),
            Self::SocketClose(event) => Ticket::Socket(event.answer.clone()),
        }
    }

    fn fail(ticket: Ticket, failure: &Failure) {
        ticket.refuse(Unanswered::Failed(failure.clone()));
    }

    fn refuse(self, refusal: &Refusal) {
        self.ticket().refuse(Unanswered::Refused(refusal.clone()));
    }

    /// What came in on a socket is delivered whatever became of the socket since.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Http(event) => event.answer.is_abandoned(),
            Self::SocketOpen(event) => event.answer.is_abandoned(),
            Self::Alarm(_) | Self::SocketMessage(_) | Self::SocketClose(_) => false,
        }
    }

    fn is_alarm(&self) -> bool {
        matches!(self, Self::Alarm(_))
    }

    fn done(ticket: Ticket) {
        if let Ticket::Alarm(answer) = ticket {
            answer.send(Ok(()));
        }
    }

    fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Http(event) => event.deadline,
            _ => None,
        }
    }
}

impl From<HttpEvent> for ActorEvent {
    fn from(event: HttpEvent) -> Self {
        Self::Http(event)
    }
}

#[cfg(test)]
mod tests;
