//! The sockets of one actor as its code sees them.

use wasmkeep_host::{Connection, Message, SocketGone};
use wasmkeep_protocol::ActorId;

use super::{
    frame::Frame,
    line::Input,
    registry::{Note, Sockets},
};

/// The sockets of one actor. It outlives none of its instances; the sockets do.
pub(crate) struct ActorSockets {
    sockets: Sockets,
    actor: ActorId,
}

impl Sockets {
    /// Those of `actor`, for its code.
    pub(crate) fn of(&self, actor: &ActorId) -> ActorSockets {
        ActorSockets { sockets: self.clone(), actor: actor.clone() }
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
        let socket = self.sockets.find(&self.actor, socket).ok_or(SocketGone)?;
        self.sockets.step(&socket, Input::Send(frame(message)));
        if !socket.line.borrow().is_open() {
            return Err(SocketGone);
        }
        self.sockets.metrics().sent.inc();
        Ok(())
    }

    fn broadcast(&self, tag: Option<&str>, message: Message) -> u32 {
        let frame = frame(message);
        let mut count = 0;
        for socket in self.sockets.all(&self.actor).into_iter().filter(|socket| socket.answers_to(tag)) {
            self.sockets.step(&socket, Input::Send(frame.clone()));
            count += u32::from(socket.line.borrow().is_open());
        }
        self.sockets.metrics().sent.inc_by(count.into());
        count
    }

    fn set_attachment(&self, socket: u64, attachment: Vec<u8>) -> Result<(), SocketGone> {
        let socket = self.sockets.find(&self.actor, socket).ok_or(SocketGone)?;
        let mut note = socket.note.borrow_mut();
        note.as_mut().ok_or(SocketGone)?.attachment = attachment;
        Ok(())
    }

    fn close(&self, socket: u64, code: u16, reason: &str) -> Result<(), SocketGone> {
        let socket =
            self.sockets.find(&self.actor, socket).filter(|socket| socket.is_in()).ok_or(SocketGone)?;
        self.sockets.close(&socket, code, reason);
        Ok(())
    }
}
