//! `wasmkeep:actor/websockets`.

use crate::{
    bindings::websockets::{Connection, Error, Host, Message},
    sockets::{SocketGone, Sockets, check_attachment, check_close, check_message},
    state::ActorState,
};

impl ActorState {
    fn sockets(&self) -> Result<&dyn Sockets, Error> {
        self.note_asked();
        self.sockets.as_ref().map(|sockets| &***sockets).ok_or(Error::Unsupported)
    }
}

impl From<SocketGone> for Error {
    fn from(SocketGone: SocketGone) -> Self {
        Self::Gone
    }
}

impl Host for ActorState {
    fn connections(&mut self, tag: Option<String>) -> wasmtime::Result<Result<Vec<Connection>, Error>> {
        Ok(self.sockets().map(|sockets| sockets.connections(tag.as_deref())))
    }

    fn send(&mut self, socket: u64, message: Message) -> wasmtime::Result<Result<(), Error>> {
        Ok(self.sockets().and_then(|sockets| {
            check_message(&message).map_err(Error::Refused)?;
            Ok(sockets.send(socket, message)?)
        }))
    }

    fn broadcast(&mut self, tag: Option<String>, message: Message) -> wasmtime::Result<Result<u32, Error>> {
        Ok(self.sockets().and_then(|sockets| {
            check_message(&message).map_err(Error::Refused)?;
            Ok(sockets.broadcast(tag.as_deref(), message))
        }))
    }

    fn set_attachment(&mut self, socket: u64, attachment: Vec<u8>) -> wasmtime::Result<Result<(), Error>> {
        Ok(self.sockets().and_then(|sockets| {
            check_attachment(&attachment).map_err(Error::Refused)?;
            Ok(sockets.set_attachment(socket, attachment)?)
        }))
    }

    fn close(&mut self, socket: u64, code: u16, reason: String) -> wasmtime::Result<Result<(), Error>> {
        Ok(self.sockets().and_then(|sockets| {
            check_close(code, &reason).map_err(Error::Refused)?;
            Ok(sockets.close(socket, code, &reason)?)
        }))
    }
}
