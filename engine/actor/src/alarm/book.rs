//! The alarms of a shard and their index, kept in step.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    task::{Poll, Waker},
};

use wasmkeep_protocol::{
    ActorId,
    alarm::{Entry, Wake},
};

use super::schedule::Schedule;

/// Where the index is kept, so that a node that starts knows its alarms without asking every actor.
pub trait Journal {
    /// Adds `entry`. `schedule` is what the index says without it, for a journal that wants to begin anew.
    ///
    /// # Errors
    /// Then the index says what it said before.
    fn add(&mut self, entry: &Entry, schedule: &Schedule) -> io::Result<()>;
}

/// Keeps nothing: for actors whose alarms need not survive.
impl Journal for () {
    fn add(&mut self, _: &Entry, _: &Schedule) -> io::Result<()> {
        Ok(())
    }
}

/// The alarms of one shard.
pub struct Book {
    schedule: RefCell<Schedule>,
    journal: RefCell<Box<dyn Journal>>,
    /// Whoever keeps the alarms, asleep until the next is due.
    keeper: Cell<Option<Waker>>,
    stopped: Cell<bool>,
}

impl Book {
    /// The alarms the index holds, and where it is kept from now on.
    pub fn new(journal: impl Journal + 'static, known: impl IntoIterator<Item = (ActorId, Wake)>) -> Self {
        let mut schedule = Schedule::default();
        for (id, wake) in known {
            schedule.load(id, wake);
        }
        Self {
            schedule: RefCell::new(schedule),
            journal: RefCell::new(Box::new(journal)),
            keeper: Cell::new(None),
            stopped: Cell::new(false),
        }
    }

    /// To be called *before* the database of `id` may say `wake`. The index must not be the later one, whatever
    /// ends the process between the two.
    ///
    /// # Errors
    /// The index cannot be written; then the database must not say so either.
    pub fn announce(&self, id: &ActorId, wake: Wake) -> io::Result<()> {
        let mut schedule = self.schedule.borrow_mut();
        if schedule.is_news(id, wake) {
            let entry = Entry { id: id.clone(), wake: Some(wake) };
            self.journal.borrow_mut().add(&entry, &schedule)?;
            schedule.put(id, wake, true);
            drop(schedule);
            self.wake_keeper();
        }
        Ok(())
    }

    /// What the database of `id` says, now that whatever wrote it has committed or rolled back.
    ///
    /// # Errors
    /// The index cannot be written. It goes on saying something earlier, which costs a look after a restart.
    pub fn settled(&self, id: &ActorId, wake: Option<Wake>) -> io::Result<()> {
        let mut schedule = self.schedule.borrow_mut();
        let written = if schedule.indexed(id) == wake {
            Ok(())
        } else {
            self.journal.borrow_mut().add(&Entry { id: id.clone(), wake }, &schedule)
        };
        match wake {
            Some(wake) => schedule.put(id, wake, written.is_ok()),
            None => schedule.remove(id),
        }
        drop(schedule);
        self.wake_keeper();
        written
    }

    /// Another node keeps the alarm of `id`.
    pub fn forget(&self, id: &ActorId) {
        // An index that goes on saying something costs a look after a restart.
        let _ = self.settled(id, None);
    }

    /// When the alarm of `id` wants attention, as far as the book knows.
    pub fn wake(&self, id: &ActorId) -> Option<Wake> {
        self.schedule.borrow().wake(id)
    }

    /// Alarms pending or under way.
    pub fn len(&self) -> usize {
        self.schedule.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No alarm goes to its actor any more.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.wake_keeper();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    pub(super) fn schedule(&self) -> std::cell::RefMut<'_, Schedule> {
        self.schedule.borrow_mut()
    }

    /// Ends when the book was written in, or stopped, since this was last polled.
    pub(super) async fn changed(&self) {
        let mut asked = false;
        poll_fn(|context| {
            // The waker is taken by whoever changes something.
            let before = self.keeper.replace(Some(context.waker().clone()));
            if asked && before.is_none() {
                return Poll::Ready(());
            }
            asked = true;
            Poll::Pending
        })
        .await;
    }

    fn wake_keeper(&self) {
        if let Some(waker) = self.keeper.take() {
            waker.wake();
        }
    }
}
