//! The sockets of one actor as its code sees them.

use std::rc::Rc;

use wasmkeep_host::{Connection, Message, SocketGone};
use wasmkeep_protocol::ActorId;

use super::{
    frame::Frame,
    line::Input,
    registry::{Note, Socket, Sockets},
};
use crate::cluster::LeaseToken;

/// The sockets of one actor. It outlives none of its instances; the sockets do.
pub(crate) struct ActorSockets {
    sockets: Sockets,
    actor: ActorId,
    /// What the actor says leaves only on it, on a node with one (R-LEASE-2).
    lease: Option<LeaseToken>,
}

impl Sockets {
    /// Those of `actor`, for its code.
    pub(crate) fn of(&self, actor: &ActorId, lease: Option<LeaseToken>) -> ActorSockets {
        ActorSockets { sockets: self.clone(), actor: actor.clone(), lease }
    }
}

impl ActorSockets {
    /// Whether messages can be sent to it.
    pub(crate) fn is_open(&self, socket: u64) -> bool {
        self.sockets.find(&self.actor, socket).is_some_and(|socket| socket.line.borrow().is_open())
    }

    /// Whether the actor has let it in, and has it still.
    pub(crate) fn is_in(&self, socket: u64) -> bool {
        self.sockets.find(&self.actor, socket).is_some_and(|socket| socket.is_in())
    }

    /// Those that are open, or those with `tag`.
    pub(crate) fn open_ones(&self, tag: Option<&str>) -> Vec<u64> {
        let all = self.sockets.all(&self.actor).into_iter();
        all.filter(|socket| socket.answers_to(tag) && socket.line.borrow().is_open())
            .map(|socket| socket.id)
            .collect()
    }

    /// Queues one message for those of `to` that are still there; for how many.
    pub(crate) fn send_to(&self, to: &[u64], message: Message) -> u32 {
        let frame = frame(message);
        self.send_frame(to.iter().filter_map(|socket| self.sockets.find(&self.actor, *socket)), &frame)
    }

    fn may_say(&self) -> bool {
        self.lease.as_ref().is_none_or(LeaseToken::is_valid)
    }

    fn send_frame(&self, to: impl Iterator<Item = Rc<Socket>>, frame: &Frame) -> u32 {
        if !self.may_say() {
            return 0;
        }
        let mut count = 0;
        for socket in to {
            self.sockets.step(&socket, Input::Send(frame.clone()));
            count += u32::from(socket.line.borrow().is_open());
        }
        self.sockets.metrics().sent.inc_by(count.into());
        count
    }
}

fn frame(message: Message) -> Frame {
    match message {
        Message::Text(text) => Frame::text(text.into()),
        Message::Binary(bytes) => Frame::binary(bytes.into()),
    }
}

impl wasmkeep_host::Sockets for ActorSockets {
    fn open(&self, socket: u64, tags: Vec<String>, attachment: Vec<u8>) {
        self.sockets.open(&self.actor, socket, Note { tags: tags.into(), attachment });
    }

    fn connections(&self, tag: Option<&str>) -> Vec<Connection> {
        let of_tag = self.sockets.all(&self.actor).into_iter().filter(|socket| socket.answers_to(tag));
        of_tag
            .filter_map(|socket| {
                let note = socket.note.borrow();
                note.as_ref().map(|note| Connection {
                    id: socket.id,
                    tags: note.tags.to_vec(),
                    attachment: note.attachment.clone(),
                    opened_ms: socket.opened_ms,
                })
            })
            .collect()
    }

    fn send(&self, socket: u64, message: Message) -> Result<(), SocketGone> {
        let socket = self.sockets.find(&self.actor, socket).filter(|_| self.may_say()).ok_or(SocketGone)?;
        self.sockets.step(&socket, Input::Send(frame(message)));
        if !socket.line.borrow().is_open() {
            return Err(SocketGone);
        }
        self.sockets.metrics().sent.inc();
        Ok(())
    }

    fn broadcast(&self, tag: Option<&str>, message: Message) -> u32 {
        let all = self.sockets.all(&self.actor).into_iter();
        self.send_frame(all.filter(|socket| socket.answers_to(tag)), &frame(message))
    }

    fn set_attachment(&self, socket: u64, attachment: Vec<u8>) -> Result<(), SocketGone> {
        let socket = self.sockets.find(&self.actor, socket).ok_or(SocketGone)?;
        let mut note = socket.note.borrow_mut();
        note.as_mut().ok_or(SocketGone)?.attachment = attachment;
        Ok(())
    }

    fn close(&self, socket: u64, code: u16, reason: &str) -> Result<(), SocketGone> {
        let socket = self
            .sockets
            .find(&self.actor, socket)
            .filter(|socket| socket.is_in() && self.may_say())
            .ok_or(SocketGone)?;
        self.sockets.close(&socket, code, reason);
        Ok(())
    }
}
