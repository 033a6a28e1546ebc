//! One turn of an actor: an event, an attempt at its alarm, or `on-init`; and what it leaves behind.

use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use futures::{
    FutureExt,
    future::{Either, select},
};
use wasmkeep_protocol::{ActorId, alarm::Wake};
use wasmkeep_storage::Database;

use super::{Actor, Actors, Body, EventOf, Happening, World, panic_text};
use crate::{AlarmError, Event, Failure, Guest, InitError, Refusal, TurnEnd, lifecycle::StorageFate};

impl<W: World> Actors<W> {
    /// `on-init` inside one transaction of the host: what it wrote and the record that it ran commit together.
    pub(super) async fn init(&self, actor: &Actor<W>, body: &mut Body<W>) -> Result<(), InitError> {
        let (Some(database), Some(guest)) = (&body.database, &mut body.guest) else {
            return Err(InitError::Refused("the actor is not running".into()));
        };
        let refused = |error: wasmkeep_storage::Error| InitError::Refused(error.to_string());
        // At each of these steps another thread may be making a snapshot with the connection.
        database.home().await;
        database.begin_init().map_err(refused)?;
        let ran = self.within(actor, self.limits.event_wall_clock, guest.init()).await;
        let ran = ran.unwrap_or_else(|failure| Err(InitError::Poisoned(failure)));
        if let Err(InitError::Poisoned(failure)) = &ran {
            // Before the transaction is undone: the instance may hold cursors into it.
            body.guest = None;
            self.world.observe(&actor.id, Happening::Failed(failure));
        }
        database.home().await;
        let result = ran.and_then(|()| database.commit_init(&body.version).map_err(refused));
        if result.is_err() {
            database.abort_init().await;
        }
        self.note_touched_alarm(&actor.id, database).await;
        result
    }

    /// One event that is no alarm.
    pub(super) async fn run(
        &self,
        actor: &Actor<W>,
        body: &mut Body<W>,
        event: EventOf<W>,
    ) -> (TurnEnd, StorageFate) {
        let ticket = event.ticket();
        let (Some(database), Some(guest)) = (&body.database, &mut body.guest) else {
            let failure = Failure::Bug("the actor is not running".into());
            <EventOf<W> as Event>::fail(ticket, &failure);
            return (TurnEnd::Poisoned(failure), StorageFate::Reopen);
        };
        if let Err(refusal) = self.world.may_run(&actor.id) {
            event.refuse(&refusal);
            return (TurnEnd::Ready, StorageFate::Reopen);
        }
        let began = self.world.now();
        let own_limit = began + self.limits.event_wall_clock;
        let ends_at = event.deadline().map_or(own_limit, |deadline| deadline.min(own_limit));
        let Some(limit) = ends_at.checked_sub(began).filter(|limit| !limit.is_zero()) else {
            // It waited for as long as whoever sent it would. The guest is not entered.
            <EventOf<W> as Event>::fail(ticket, &Failure::TimeLimit(Duration::ZERO));
            return (TurnEnd::Ready, StorageFate::Keep);
        };
        guest.ends_at(ends_at);
        let end = self.within(actor, limit, guest.deliver(event)).await.unwrap_or_else(TurnEnd::Poisoned);
        if end != TurnEnd::Ready {
            body.guest = None;
        }
        if let TurnEnd::Poisoned(failure) = &end {
            self.world.observe(&actor.id, Happening::Failed(failure));
            <EventOf<W> as Event>::fail(ticket, failure);
        }
        let fate = self.settle(actor, database, |_| ()).await;
        if fate == StorageFate::Keep {
            self.note_touched_alarm(&actor.id, database).await;
        }
        self.observe_turn(actor, database, began);
        (end, fate)
    }

    /// An attempt at the actor's alarm, if it is due: what the book says may be early.
    pub(super) async fn attempt(
        &self,
        actor: &Actor<W>,
        body: &mut Body<W>,
        event: EventOf<W>,
    ) -> (TurnEnd, StorageFate) {
        let (Some(database), Some(guest)) = (&body.database, &mut body.guest) else {
            event.refuse(&Refusal::Start("the actor is not running".into()));
            return (TurnEnd::Ready, StorageFate::Reopen);
        };
        if let Err(refusal) = self.world.may_run(&actor.id) {
            event.refuse(&refusal);
            return (TurnEnd::Ready, StorageFate::Reopen);
        }
        let began = self.world.now();
        database.home().await;
        let attempt = match database.begin_alarm(self.world.unix_ms()) {
            Ok(Some(attempt)) => attempt,
            Ok(None) => {
                self.note_touched_alarm(&actor.id, database).await;
                <EventOf<W> as Event>::done(event.ticket());
                return (TurnEnd::Ready, StorageFate::Keep);
            }
            Err(error) => {
                self.trouble(&actor.id, format!("the alarm: {error}"));
                event.refuse(&Refusal::Storage(error.to_string()));
                let is_damaged = self.is_damaged(&actor.id, database);
                return (TurnEnd::Ready, if is_damaged { StorageFate::Reopen } else { StorageFate::Keep });
            }
        };
        let limit = self.limits.event_wall_clock;
        guest.ends_at(began + limit);
        let ran = self.within(actor, limit, guest.alarm(attempt.due_ms, attempt.number)).await;
        let ran = ran.unwrap_or_else(|failure| Err(AlarmError::Poisoned(failure)));
        let end = match &ran {
            Err(AlarmError::Poisoned(failure)) => {
                body.guest = None;
                self.world.observe(&actor.id, Happening::Failed(failure));
                TurnEnd::Poisoned(failure.clone())
            }
            _ => TurnEnd::Ready,
        };
        let end_alarm = |database: &Database| {
            if let Err(error) = database.end_alarm(self.world.unix_ms(), ran.is_ok()) {
                self.trouble(&actor.id, format!("the alarm: {error}"));
            }
        };
        let fate = self.settle(actor, database, end_alarm).await;
        match fate {
            StorageFate::Keep => self.note_touched_alarm(&actor.id, database).await,
            // What was written down when it began stands, or something later.
            StorageFate::Reopen => {
                self.note_alarm(&actor.id, Some(Wake { at_ms: attempt.retry_ms, is_retry: true }));
            }
            StorageFate::Erase => {}
        }
        self.world.observe(&actor.id, Happening::Alarm { attempt: attempt.number, ended: &ran });
        self.observe_turn(actor, database, began);
        <EventOf<W> as Event>::done(event.ticket());
        (end, fate)
    }

    fn observe_turn(&self, actor: &Actor<W>, database: &Database, began: Duration) {
        let elapsed = self.world.now().saturating_sub(began);
        self.world.observe(&actor.id, Happening::Turn { elapsed, sql: database.take_sql_time() });
    }

    /// Brings the book in step with the database, now that no transaction is open.
    async fn note_touched_alarm(&self, id: &ActorId, database: &Database) {
        if !database.take_alarm_touched() {
            return;
        }
        database.home().await;
        match database.alarm() {
            Ok(alarm) => self.note_alarm(id, alarm.wake()),
            // The book is not later than the database, so the alarm is looked at again.
            Err(error) => self.trouble(id, format!("the alarm: {error}")),
        }
    }

    pub(crate) fn note_alarm(&self, id: &ActorId, wake: Option<Wake>) {
        if let Err(error) = self.world.alarms().settled(id, wake) {
            self.trouble(id, format!("the index of alarms: {error}"));
        }
    }

    /// Whether the database's file was found damaged, which is told: the actor is to be closed.
    pub(super) fn is_damaged(&self, id: &ActorId, database: &Database) -> bool {
        let is_damaged = database.is_damaged();
        if is_damaged {
            self.trouble(
                id,
                format!("the database file {:?} was found damaged while it was used", database.path()),
            );
        }
        is_damaged
    }

    fn trouble(&self, id: &ActorId, what: String) {
        self.world.observe(id, Happening::StorageTrouble(what));
    }

    /// What an event leaves behind in the database. `note` adds what the platform has to say of it, to be replicated
    /// with the rest.
    async fn settle(
        &self,
        actor: &Actor<W>,
        database: &Rc<Database>,
        note: impl FnOnce(&Database),
    ) -> StorageFate {
        let event = database.end_event().await;
        if event.rolled_back {
            self.world.observe(&actor.id, Happening::RolledBack);
        }
        if event.delete {
            return StorageFate::Erase;
        }
        if database.is_poisoned() {
            return StorageFate::Reopen;
        }
        note(database);
        if let Err(why) = self.world.replicate(&actor.id, database).await {
            self.world.observe(&actor.id, Happening::StorageTrouble(format!("replication: {why}")));
            return StorageFate::Reopen;
        }
        if self.is_damaged(&actor.id, database) {
            return StorageFate::Reopen;
        }
        if database.checkpoint_due()
            && let Err(error) = database.checkpoint(self.world.offload()).await
        {
            self.world.observe(&actor.id, Happening::StorageTrouble(format!("checkpoint: {error}")));
            return StorageFate::Reopen;
        }
        StorageFate::Keep
    }

    /// Ends `work` at its limit, or when the node loses the actor, and turns a panic of the host into a failure of
    /// this one event.
    async fn within<T>(
        &self,
        actor: &Actor<W>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let work = pin!(AssertUnwindSafe(work).catch_unwind());
        let mut over = pin!(self.world.sleep(limit));
        let end = poll_fn(|context| {
            if actor.lost.get() {
                return Poll::Ready(Failure::Lost);
            }
            actor.lost_waker.set(Some(context.waker().clone()));
            over.as_mut().poll(context).map(|()| Failure::TimeLimit(limit))
        });
        match select(work, end).await {
            Either::Left((Ok(done), _)) => Ok(done),
            Either::Left((Err(panic), _)) => Err(Failure::Bug(panic_text(&*panic))),
            Either::Right((failure, _)) => Err(failure),
        }
    }
}
