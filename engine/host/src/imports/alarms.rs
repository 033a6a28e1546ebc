//! `wasmkeep:actor/alarms`: the actor's alarm, kept in its database and in the shard's book.

use std::rc::Rc;

use send_wrapper::SendWrapper;
use wasmkeep_actor::alarm::Book;
use wasmkeep_protocol::{ActorId, alarm::DUE_MS_MAX};
use wasmkeep_storage::{self as db, Database};

use crate::{
    bindings::alarms::{Error, Host},
    state::ActorState,
};

impl Host for ActorState {
    async fn set(&mut self, due_ms: u64) -> wasmtime::Result<Result<(), Error>> {
        if !self.has_on_alarm {
            return Ok(Err(refused("this component has no on-alarm hook")));
        }
        if due_ms > DUE_MS_MAX {
            return Ok(Err(refused("the time is over 2^63-1 ms")));
        }
        let (database, book, id) = match self.alarm() {
            Ok(parts) => parts,
            Err(error) => return Ok(Err(error)),
        };
        let set = SendWrapper::new(async move {
            database.home().await;
            database.set_alarm(due_ms, |wake| {
                book.announce(&id, wake)
                    .map_err(|error| Error::Storage(format!("the index of alarms: {error}")))
            })
        });
        Ok(set.await)
    }

    async fn get(&mut self) -> wasmtime::Result<Result<Option<u64>, Error>> {
        let database = match self.alarm() {
            Ok((database, ..)) => database,
            Err(error) => return Ok(Err(error)),
        };
        let get = SendWrapper::new(async move {
            database.home().await;
            database.pending_alarm()
        });
        Ok(get.await.map_err(Error::from))
    }

    async fn clear(&mut self) -> wasmtime::Result<Result<(), Error>> {
        let database = match self.alarm() {
            Ok((database, ..)) => database,
            Err(error) => return Ok(Err(error)),
        };
        let clear = SendWrapper::new(async move {
            database.home().await;
            database.clear_alarm()
        });
        Ok(clear.await.map_err(Error::from))
    }
}

impl ActorState {
    fn alarm(&self) -> Result<(Rc<Database>, Rc<Book>, ActorId), Error> {
        self.note_asked();
        let (Some(database), Some(book)) = (&self.database, &self.alarms) else {
            return Err(Error::Unsupported);
        };
        let id = self.identity.actor_id().ok_or(Error::Unsupported)?;
        Ok((Rc::clone(database), Rc::clone(book), id))
    }
}

fn refused(sentence: &str) -> Error {
    Error::Refused(sentence.to_owned())
}

impl From<db::Error> for Error {
    fn from(error: db::Error) -> Self {
        Self::Storage(error.to_string())
    }
}
