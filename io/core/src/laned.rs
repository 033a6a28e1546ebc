//! A bucket as one lane sees it: each request waits for its turn at the gate, then goes out as it is.

use std::{cell::RefCell, collections::HashMap, ops::Range, rc::Rc};

use bytes::Bytes;
use futures::channel::oneshot;
use wasmkeep_bucket::{
    Bucket, Failure, Key, ListQuery, Meta, Object, Outcome, Page, Precondition, ReadError,
};

use crate::{
    gate::{Gate, Ticket},
    lane::Lane,
};

/// A bucket whose requests go in the order of their lanes. Cheap to clone.
#[derive(Debug)]
pub struct Laned<B> {
    bucket: Rc<B>,
    turns: Rc<Turns>,
    lane: Lane,
}

impl<B> Clone for Laned<B> {
    fn clone(&self) -> Self {
        Self { bucket: Rc::clone(&self.bucket), turns: Rc::clone(&self.turns), lane: self.lane }
    }
}

impl<B> Laned<B> {
    /// Its housekeeping lane; [`Laned::on`] gives the others, which share its gate.
    #[must_use]
    pub fn new(bucket: B) -> Self {
        Self { bucket: Rc::new(bucket), turns: Rc::default(), lane: Lane::Housekeeping }
    }

    /// The same bucket by another lane.
    #[must_use]
    pub fn on(&self, lane: Lane) -> Self {
        Self { lane, ..self.clone() }
    }

    /// Requests of `lane` that wait, and that are under way.
    #[must_use]
    pub fn load(&self, lane: Lane) -> (usize, usize) {
        self.turns.gate.borrow().load(lane)
    }

    async fn turn(&self) -> Turn {
        Turns::take(&self.turns, self.lane).await
    }
}

#[derive(Debug, Default)]
struct Turns {
    gate: RefCell<Gate>,
    waiting: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
}

impl Turns {
    async fn take(turns: &Rc<Self>, lane: Lane) -> Turn {
        let (ticket, admitted) = turns.gate.borrow_mut().ask(lane);
        if !admitted.contains(&ticket) {
            let (call, called) = oneshot::channel();
            turns.waiting.borrow_mut().insert(ticket, call);
            let mut wait = Wait { turns: Rc::clone(turns), lane, ticket, over: false };
            // Never an error: `wait` keeps the turns, and with them the sending end.
            let _ = called.await;
            wait.over = true;
        }
        Turn { turns: Rc::clone(turns), lane }
    }

    fn end(&self, lane: Lane) {
        let admitted = self.gate.borrow_mut().end(lane);
        for ticket in admitted {
            let call = self.waiting.borrow_mut().remove(&ticket);
            if let Some(call) = call {
                // Whoever is not there any more has taken its ticket back.
                let _ = call.send(());
            }
        }
    }
}

/// A request that waits for its turn. Dropping it gives the turn up, also one that was just given.
struct Wait {
    turns: Rc<Turns>,
    lane: Lane,
    ticket: Ticket,
    over: bool,
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let waited = self.turns.waiting.borrow_mut().remove(&self.ticket).is_some();
        if waited {
            self.turns.gate.borrow_mut().forget(self.lane, self.ticket);
        } else {
            self.turns.end(self.lane);
        }
    }
}

/// A request under way. Dropping it lets the next one go.
#[derive(Debug)]
struct Turn {
    turns: Rc<Turns>,
    lane: Lane,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.end(self.lane);
    }
}

impl<B: Bucket> Bucket for Laned<B> {
    /// The turn lasts until the body has been read or dropped.
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let turn = self.turn().await;
        let object = self.bucket.get(key, range).await?;
        Ok(Object { body: object.body.holding(turn), ..object })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        let _turn = self.turn().await;
        self.bucket.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let _turn = self.turn().await;
        self.bucket.put(key, body, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let _turn = self.turn().await;
        self.bucket.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let _turn = self.turn().await;
        self.bucket.list(query).await
    }
}

#[cfg(test)]
mod tests;
