//! The way of what comes in on a socket into its actor's mailbox: in order, one at a time for each socket, and
//! never lost because the mailbox is full.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use glommio::sync::Semaphore;
use wasmkeep_actor::Refusal;
use wasmkeep_host::{ActorEvent, AnswerReceiver, Message, SocketClose, SocketMessage, Unanswered};
use wasmkeep_protocol::{ActorId, close, limits::SOCKET_MAIL_BYTES_MAX};

use super::{line::Ending, registry::Sockets};

/// Events of one actor's sockets that are with the actor at one time, waiting or running. A fraction of its
/// mailbox, so that requests find room beside a crowd of sockets.
const TURNS: u64 = 64;

/// How soon a full mailbox, or an actor that cannot be woken now, is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// What a message costs beside its bytes while it waits.
const OVERHEAD_BYTES: usize = 64;

/// Places in an actor's mailbox for its sockets, given in the order of asking.
pub(super) struct Turns(Semaphore);

impl Turns {
    pub(super) fn new() -> Turns {
        Turns(Semaphore::new(TURNS))
    }
}

/// Something for the actor.
pub(super) enum Letter {
    Message(Message),
    /// The last one.
    Lost(Ending),
}

impl Letter {
    fn cost(&self) -> usize {
        OVERHEAD_BYTES
            + match self {
                Letter::Message(Message::Text(text)) => text.len(),
                Letter::Message(Message::Binary(bytes)) => bytes.len(),
                Letter::Lost(ending) => ending.reason.len(),
            }
    }
}

/// Letters of one socket. A clone is a handle on the same ones.
#[derive(Clone)]
pub(super) struct Mail(Rc<Inner>);

struct Inner {
    turns: Rc<Turns>,
    waiting: RefCell<VecDeque<Letter>>,
    bytes: Cell<usize>,
    /// A task carries the letters.
    carried: Cell<bool>,
}

/// What became of a letter.
enum Fate {
    Delivered,
    /// The actor cannot take it, and not because it is busy: the code and the reason the client is closed with.
    Undeliverable(u16, &'static str),
    /// The node stops.
    Stopping,
}

impl Mail {
    pub(super) fn new(turns: Rc<Turns>) -> Mail {
        Mail(Rc::new(Inner {
            turns,
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            carried: Cell::new(false),
        }))
    }

    /// As much waits as may.
    pub(super) fn is_full(&self) -> bool {
        self.0.bytes.get() >= SOCKET_MAIL_BYTES_MAX
    }

    /// Drops what waits.
    pub(super) fn clear(&self) {
        self.0.waiting.borrow_mut().clear();
        self.0.bytes.set(0);
    }

    /// Sends a letter behind those that wait; one for a hook that the actor does not have goes nowhere.
    pub(super) fn send(&self, sockets: &Sockets, actor: &Rc<ActorId>, socket: u64, letter: Letter) {
        let Some(hooks) = sockets.post().map(|post| post.hooks(actor)) else { return };
        let is_wanted = match letter {
            Letter::Message(_) => hooks.websocket_message,
            Letter::Lost(_) => hooks.websocket_close,
        };
        if !is_wanted {
            return;
        }
        self.0.bytes.set(self.0.bytes.get() + letter.cost());
        self.0.waiting.borrow_mut().push_back(letter);
        if !self.0.carried.replace(true) {
            let (mail, sockets, actor) = (self.clone(), sockets.clone(), Rc::clone(actor));
            glommio::spawn_local(async move {
                mail.carry(&sockets, &actor, socket).await;
                mail.0.carried.set(false);
            })
            .detach();
        }
    }

    async fn carry(&self, sockets: &Sockets, actor: &Rc<ActorId>, socket: u64) {
        loop {
            let Ok(_turn) = self.0.turns.0.acquire_permit(1).await else { return };
            while sockets.post().is_some_and(|post| !post.has_room(actor)) {
                sockets.sleeper().sleep(RETRY_AFTER).await;
            }
            let Some(letter) = self.take() else { return };
            if let Some(socket) = sockets.find(actor, socket) {
                // There is room again for what it reads.
                socket.wake();
            }
            let fate = match letter {
                Letter::Message(message) => deliver(sockets, actor, socket, message).await,
                Letter::Lost(ending) => tell(sockets, actor, socket, &ending).await,
            };
            match fate {
                Fate::Delivered => {}
                Fate::Stopping => self.clear(),
                Fate::Undeliverable(code, reason) => {
                    if let Some(socket) = sockets.find(actor, socket) {
                        sockets.close(&socket, code, reason);
                    }
                    self.clear();
                }
            }
        }
    }

    fn take(&self) -> Option<Letter> {
        let mut waiting = self.0.waiting.borrow_mut();
        let letter = waiting.pop_front();
        if waiting.is_empty() {
            *waiting = VecDeque::new();
        }
        self.0.bytes.set(self.0.bytes.get().saturating_sub(letter.as_ref().map_or(0, Letter::cost)));
        letter
    }
}

async fn deliver(sockets: &Sockets, actor: &ActorId, socket: u64, message: Message) -> Fate {
    let (event, answer) = SocketMessage::new(socket, message);
    match handed_over(sockets, actor, ActorEvent::SocketMessage(event), answer).await {
        // What failed has run: a trap closes no socket.
        Ok(()) | Err(Unanswered::Failed(_) | Unanswered::Mistake(_)) => Fate::Delivered,
        Err(Unanswered::Dropped | Unanswered::Refused(Refusal::Stopping)) => Fate::Stopping,
        Err(Unanswered::Refused(refusal)) => undeliverable(&refusal),
    }
}

fn undeliverable(refusal: &Refusal) -> Fate {
    match refusal {
        // The node gives the actor up: another one may have it by the time the client is back.
        Refusal::NotHeld(_) | Refusal::Unavailable(_) => {
            Fate::Undeliverable(close::RESTART, "the actor is elsewhere; connect again")
        }
        _ => Fate::Undeliverable(close::UNABLE, "the actor could not be started"),
    }
}

/// Tells the actor of a socket's end, for as long as that may yet work.
async fn tell(sockets: &Sockets, actor: &ActorId, socket: u64, ending: &Ending) -> Fate {
    loop {
        let (event, answer) = SocketClose::new(socket, ending.code, ending.reason.clone());
        match handed_over(sockets, actor, ActorEvent::SocketClose(event), answer).await {
            Ok(()) | Err(Unanswered::Failed(_) | Unanswered::Mistake(_)) => return Fate::Delivered,
            Err(Unanswered::Refused(Refusal::MailboxFull(_) | Refusal::NoRoom | Refusal::Storage(_))) => {
                sockets.sleeper().sleep(RETRY_AFTER).await;
            }
            Err(Unanswered::Dropped | Unanswered::Refused(Refusal::Stopping)) => return Fate::Stopping,
            Err(Unanswered::Refused(refusal)) => return undeliverable(&refusal),
        }
    }
}

async fn handed_over(
    sockets: &Sockets,
    actor: &ActorId,
    event: ActorEvent,
    answer: AnswerReceiver<()>,
) -> Result<(), Unanswered> {
    match sockets.post() {
        Some(post) => post.dispatch(actor, event),
        None => drop(event),
    }
    answer.await
}
