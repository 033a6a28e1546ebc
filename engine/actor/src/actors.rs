//! The actors of one shard, alive: takes events in, runs each actor's [`Lifecycle`], keeps the [`Roster`].
//!
//! One task per resident actor carries out what its lifecycle asks for; the task ends when the actor sleeps.
//! Everything stays on one thread.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{Either, select},
};
use wasmkeep_protocol::{ActorClass, ActorId};
use wasmkeep_storage::{Database, Offload};

use crate::{
    Event, Failure, Guest, InitError, Refusal, TurnEnd,
    lifecycle::{Action, Input, Lifecycle, NeedsInit, StorageFate},
    roster::{Room, Roster},
};

/// What the actors of a shard need from whatever runs them.
pub trait World: 'static {
    /// What runs an actor's code.
    type Guest: Guest;

    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Ends after `duration`; may be late by the coarseness of the executor's timers.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// Runs the task of an actor on this thread; it may be polled before this returns.
    fn spawn(&self, id: &ActorId, task: impl Future<Output = ()> + 'static);

    /// Where blocking work goes.
    fn offload(&self) -> &dyn Offload;

    /// Opens the actor's database, creating it on first use. What it gives may still be under way: an instance is
    /// made meanwhile, and [`Database::opened`] is asked before anything runs.
    fn open(&self, id: &ActorId) -> impl Future<Output = Result<Database, Refusal>>;

    /// Makes an instance of a version of the class that is current at some moment until it is done.
    fn start(
        &self,
        id: &ActorId,
        database: &Rc<Database>,
    ) -> impl Future<Output = Result<Started<Self::Guest>, Refusal>>;

    /// Whether an event may run now: the node holds the actor.
    ///
    /// # Errors
    /// Why not; the event is refused and the database closed.
    fn may_run(&self, _id: &ActorId) -> Result<(), Refusal> {
        Ok(())
    }

    /// Sends what an event committed on its way to where it outlives this machine. Not told of an event that
    /// deleted its actor.
    ///
    /// # Errors
    /// Why the actor has to be given up; the database is closed.
    fn replicate(&self, _id: &ActorId, _database: &Rc<Database>) -> impl Future<Output = Result<(), String>> {
        std::future::ready(Ok(()))
    }

    /// Closes the database; `erasing` when [`World::erase`] follows.
    fn close(&self, _id: &ActorId, database: Database, _erasing: bool) -> impl Future<Output = ()> {
        database.close(self.offload())
    }

    /// Removes a deleted actor's files; its database is closed already.
    fn erase(&self, id: &ActorId) -> impl Future<Output = ()>;

    /// Told of everything worth counting or logging.
    fn observe(&self, id: &ActorId, happening: Happening<'_>);
}

/// A live instance, and what it was made of.
#[derive(Debug)]
pub struct Started<G> {
    /// The instance.
    pub guest: G,
    /// Of its code.
    pub version: String,
}

/// What an actor's life shows to the outside.
#[derive(Debug)]
pub enum Happening<'a> {
    /// It became resident, after this long.
    Woke(Duration),
    /// It went to sleep.
    Slept,
    /// Idle for a moment, it closed its database; its instance stays.
    Dozed,
    /// Its database is open again.
    Roused,
    /// An event ran.
    Turn {
        /// From its start to its end, waits included.
        elapsed: Duration,
        /// The part of it SQLite worked.
        sql: Duration,
    },
    /// An event failed; its instance was dropped.
    Failed(&'a Failure),
    /// An event ended with a transaction open, which was rolled back.
    RolledBack,
    /// Closing or erasing the database did not go well.
    StorageTrouble(String),
}

/// Limits of a shard's actors.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Waiting events per actor.
    pub mailbox_events_max: usize,
    /// Resident actors.
    pub resident_max: usize,
    /// Wall clock of one event.
    pub event_wall_clock: Duration,
    /// Idle time before an actor dozes: its database is closed, its instance stays.
    pub doze_after: Duration,
    /// Idle time before an actor hibernates.
    pub hibernate_after: Duration,
}

type EventOf<W> = <<W as World>::Guest as Guest>::Event;

/// The actors of one shard.
pub struct Actors<W: World> {
    world: Rc<W>,
    limits: Limits,
    roster: RefCell<Roster<Rc<Actor<W>>>>,
    /// Idle for long enough to doze, the longest last.
    drowsy: RefCell<VecDeque<Rc<Actor<W>>>>,
    /// Up to which time of last use actors were among them.
    drowsy_until: Cell<Option<Duration>>,
    stopping: Cell<bool>,
    when_empty: Cell<Option<Waker>>,
}

struct Actor<W: World> {
    id: ActorId,
    lifecycle: RefCell<Lifecycle<EventOf<W>>>,
    todo: Cell<Option<Action<EventOf<W>>>>,
    waker: Cell<Option<Waker>>,
    /// The node lost it: what runs is cut.
    lost: Cell<bool>,
    lost_waker: Cell<Option<Waker>>,
}

/// What a resident actor holds.
struct Body<W: World> {
    database: Option<Rc<Database>>,
    guest: Option<W::Guest>,
    /// Of the code the instance was made from.
    version: String,
    /// Its place was given up when it closed: to open again it has to find one.
    gave_place: bool,
    /// Its data were removed, and no event has run since.
    erased: bool,
}

impl<W: World> Default for Body<W> {
    fn default() -> Self {
        Self { database: None, guest: None, version: String::new(), gave_place: false, erased: false }
    }
}

impl<W: World> Actors<W> {
    /// No actor yet.
    pub fn new(world: Rc<W>, limits: Limits) -> Rc<Self> {
        Rc::new(Self {
            world,
            limits,
            roster: RefCell::new(Roster::new(limits.resident_max)),
            drowsy: RefCell::default(),
            drowsy_until: Cell::new(None),
            stopping: Cell::new(false),
            when_empty: Cell::new(None),
        })
    }

    /// Hands an event to its actor, waking it when it sleeps. The event answers for itself, also when it is
    /// refused.
    pub fn dispatch(self: &Rc<Self>, id: &ActorId, event: EventOf<W>) {
        let now = self.world.now();
        let resident = self.roster.borrow_mut().touch(id, now).cloned();
        if let Some(actor) = resident {
            return actor.feed(Input::Arrive(event));
        }
        match self.admit(id, now) {
            Ok(actor) => {
                // Before its task exists: an executor may run a new task at once, and it would find nothing to
                // do and end.
                actor.feed(Input::Arrive(event));
                let actors = self.clone();
                self.world.spawn(id, async move { actors.live(actor).await });
            }
            Err(refusal) => event.refuse(&refusal),
        }
    }

    /// Whether an event handed over now would find a place: in its actor's mailbox, or among the resident actors
    /// if it sleeps. A sender that cannot give an event up asks this first.
    pub fn has_room(&self, id: &ActorId) -> bool {
        let roster = self.roster.borrow();
        match roster.get(id) {
            Some(actor) => actor.lifecycle.borrow().waiting() < self.limits.mailbox_events_max,
            None => !matches!(roster.room(|actor| actor.lifecycle.borrow().is_idle()), Room::None),
        }
    }

    /// Puts every actor to rest that has been idle for the configured time, and notes those that may
    /// [doze](Actors::doze).
    pub fn sweep(&self) {
        let now = self.world.now();
        if let Some(until) = now.checked_sub(self.limits.doze_after) {
            let since = self.drowsy_until.replace(Some(until));
            self.drowsy.borrow_mut().extend(self.roster.borrow().used_between(since, until).cloned());
        }
        let Some(before) = now.checked_sub(self.limits.hibernate_after) else { return };
        for actor in self.roster.borrow().unused_since(before) {
            if actor.lifecycle.borrow().is_idle() {
                actor.feed(Input::Rest);
            }
        }
    }

    /// Lets the next `most` actors doze that a sweep noted and that are idle still; whether there are more. Not all
    /// at once: an event that arrives for one of them waits for those before it to be closed, and so does an actor
    /// that wakes.
    pub fn doze(&self, most: usize) -> bool {
        let mut drowsy = self.drowsy.borrow_mut();
        let next = most.min(drowsy.len());
        for actor in drowsy.drain(..next) {
            if actor.lifecycle.borrow().is_idle() {
                actor.feed(Input::Doze);
            }
        }
        !drowsy.is_empty()
    }

    /// A class has a new version: each of its actors runs it from its next event on. The one under way ends on the
    /// instance it began on; the database stays open.
    pub fn renew(&self, class: &ActorClass) {
        for actor in self.roster.borrow().resident().filter(|actor| actor.id.class == *class) {
            actor.feed(Input::Renew);
        }
    }

    /// Takes nothing new; events that wait still run. See [`Actors::stopped`] and [`Actors::give_up`].
    pub fn stop(&self) {
        self.stopping.set(true);
        self.feed_all(|| Input::Stop);
    }

    /// Refuses what still waits; events that run are left to end.
    pub fn give_up(&self) {
        self.stopping.set(true);
        self.feed_all(|| Input::GiveUp);
    }

    /// The node lost this actor, or every actor: what runs is cut, what waits refused, the database closed. The
    /// next event opens it anew.
    pub fn lose(&self, id: Option<&ActorId>, refusal: &Refusal) {
        for actor in self.roster.borrow().resident() {
            if id.is_none_or(|id| *id == actor.id) {
                actor.lost.set(true);
                if let Some(waker) = actor.lost_waker.take() {
                    waker.wake();
                }
                actor.feed(Input::Lost(refusal.clone()));
            }
        }
    }

    /// Whether the actor is in memory.
    pub fn is_resident(&self, id: &ActorId) -> bool {
        self.roster.borrow().get(id).is_some()
    }

    /// Ends when no actor is resident.
    pub async fn stopped(&self) {
        poll_fn(|context| {
            if self.roster.borrow().resident_count() == 0 {
                return Poll::Ready(());
            }
            self.when_empty.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Resident and sleeping actors known to this shard.
    pub fn counts(&self) -> (usize, usize) {
        let roster = self.roster.borrow();
        (roster.resident_count(), roster.asleep_count())
    }

    /// Events waiting over all actors.
    pub fn waiting(&self) -> usize {
        self.roster.borrow().resident().map(|actor| actor.lifecycle.borrow().waiting()).sum()
    }

    fn feed_all(&self, input: impl Fn() -> Input<EventOf<W>>) {
        for actor in self.roster.borrow().resident() {
            actor.feed(input());
        }
    }

    /// A place for an actor that sleeps.
    fn admit(&self, id: &ActorId, now: Duration) -> Result<Rc<Actor<W>>, Refusal> {
        if self.stopping.get() {
            return Err(Refusal::Stopping);
        }
        let room = self.roster.borrow().room(|actor: &Rc<Actor<W>>| actor.lifecycle.borrow().is_idle());
        match room {
            Room::Free => {}
            Room::AfterEvicting(oldest) => oldest.feed(Input::Rest),
            Room::None => return Err(Refusal::NoRoom),
        }
        let actor = Rc::new(Actor {
            id: id.clone(),
            lifecycle: RefCell::new(Lifecycle::new(self.limits.mailbox_events_max)),
            todo: Cell::new(None),
            waker: Cell::new(None),
            lost: Cell::new(false),
            lost_waker: Cell::new(None),
        });
        self.roster.borrow_mut().woke(id.clone(), actor.clone(), now);
        Ok(actor)
    }

    /// An actor's whole waking life. What carries an action out is large and boxed: most actors wait for the next
    /// one, and would hold its place all the while.
    async fn live(self: Rc<Self>, actor: Rc<Actor<W>>) {
        let mut body = Body::default();
        while let Some(action) = actor.next_action().await {
            let input = Box::pin(self.carry_out(&actor, &mut body, action)).await;
            actor.feed(input);
        }
        // No await between the last look at the lifecycle and this: an event that comes now finds no actor
        // of this name and wakes a new one.
        let mut roster = self.roster.borrow_mut();
        if body.erased {
            roster.erased(&actor.id)
        } else {
            roster.slept(&actor.id)
        }
        if roster.resident_count() == 0
            && let Some(waker) = self.when_empty.take()
        {
            waker.wake();
        }
    }

    async fn carry_out(
        &self,
        actor: &Actor<W>,
        body: &mut Body<W>,
        action: Action<EventOf<W>>,
    ) -> Input<EventOf<W>> {
        match action {
            Action::Open => Input::Opened(self.open(actor, body).await),
            Action::Start => Input::Started(self.start(actor, body).await),
            Action::Init => Input::Initialised(self.init(actor, body).await),
            Action::Run(event) => {
                body.erased = false;
                let (end, fate) = self.run(actor, body, event).await;
                Input::Ended(end, fate)
            }
            Action::Doze => self.put_away(actor, body).await,
            Action::Wake => Input::Woken(self.wake(actor, body).await),
            Action::Close => {
                self.close(actor, body, false).await;
                Input::Closed
            }
            Action::Erase => {
                self.close(actor, body, true).await;
                self.world.erase(&actor.id).await;
                body.erased = true;
                Input::Closed
            }
        }
    }

    async fn open(&self, actor: &Actor<W>, body: &mut Body<W>) -> Result<(), Refusal> {
        if std::mem::replace(&mut body.gave_place, false) {
            self.find_place()?;
        }
        actor.lost.set(false);
        body.database = Some(Rc::new(self.world.open(&actor.id).await?));
        Ok(())
    }

    /// A place for an actor that an event reached while it closed: another may have been let in for it. Without
    /// this every such race would leave one resident more than the cap for good.
    fn find_place(&self) -> Result<(), Refusal> {
        let roster = self.roster.borrow();
        if roster.resident_count() <= self.limits.resident_max.max(1) {
            return Ok(());
        }
        if let Room::AfterEvicting(oldest) = roster.room(|actor| actor.lifecycle.borrow().is_idle()) {
            oldest.feed(Input::Rest);
            return Ok(());
        }
        let staying = roster.resident().filter(|actor| !actor.lifecycle.borrow().is_leaving()).count();
        if staying <= self.limits.resident_max.max(1) { Ok(()) } else { Err(Refusal::NoRoom) }
    }

    async fn start(&self, actor: &Actor<W>, body: &mut Body<W>) -> Result<NeedsInit, Refusal> {
        let began = self.world.now();
        body.guest = None;
        let Some(database) = &body.database else {
            return Err(Refusal::Start("its database is not open".into()));
        };
        let start = AssertUnwindSafe(self.world.start(&actor.id, database)).catch_unwind().await;
        let Started { guest, version } =
            start.unwrap_or_else(|panic| Err(Refusal::Start(panic_text(&*panic))))?;
        body.version = version;
        if let Err(error) = database.opened().await {
            self.world.observe(&actor.id, Happening::StorageTrouble(error.to_string()));
            return Err(Refusal::from(&error));
        }
        let needs = if guest.has_init() {
            let done = database.init_version().map_err(|error| Refusal::Storage(error.to_string()))?;
            if done.as_deref() == Some(&*body.version) { NeedsInit::No } else { NeedsInit::Yes }
        } else {
            NeedsInit::No
        };
        body.guest = Some(guest);
        self.world.observe(&actor.id, Happening::Woke(self.world.now().saturating_sub(began)));
        Ok(needs)
    }

    /// `on-init` inside one transaction of the host: what it wrote and the record that it ran commit together.
    async fn init(&self, actor: &Actor<W>, body: &mut Body<W>) -> Result<(), InitError> {
        let (Some(database), Some(guest)) = (&body.database, &mut body.guest) else {
            return Err(InitError::Refused("the actor is not running".into()));
        };
        let refused = |error: wasmkeep_storage::Error| InitError::Refused(error.to_string());
        database.begin_init().map_err(refused)?;
        let ran = self.within(actor, self.limits.event_wall_clock, guest.init()).await;
        let ran = ran.unwrap_or_else(|failure| Err(InitError::Poisoned(failure)));
        if let Err(InitError::Poisoned(failure)) = &ran {
            // Before the transaction is undone: the instance may hold cursors into it.
            body.guest = None;
            self.world.observe(&actor.id, Happening::Failed(failure));
        }
        let result = ran.and_then(|()| database.commit_init(&body.version).map_err(refused));
        if result.is_err() {
            database.abort_init();
        }
        result
    }

    async fn run(&self, actor: &Actor<W>, body: &mut Body<W>, event: EventOf<W>) -> (TurnEnd, StorageFate) {
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
        if let TurnEnd::Poisoned(failure) = &end {
            body.guest = None;
            self.world.observe(&actor.id, Happening::Failed(failure));
            <EventOf<W> as Event>::fail(ticket, failure);
        }
        let fate = self.settle(actor, database).await;
        let elapsed = self.world.now().saturating_sub(began);
        self.world.observe(&actor.id, Happening::Turn { elapsed, sql: database.take_sql_time() });
        (end, fate)
    }

    /// What an event leaves behind in the database.
    async fn settle(&self, actor: &Actor<W>, database: &Rc<Database>) -> StorageFate {
        let event = database.end_event();
        if event.rolled_back {
            self.world.observe(&actor.id, Happening::RolledBack);
        }
        if event.delete {
            return StorageFate::Erase;
        }
        if database.is_poisoned() {
            return StorageFate::Reopen;
        }
        if let Err(why) = self.world.replicate(&actor.id, database).await {
            self.world.observe(&actor.id, Happening::StorageTrouble(format!("replication: {why}")));
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

    async fn put_away(&self, actor: &Actor<W>, body: &mut Body<W>) -> Input<EventOf<W>> {
        if let Some(guest) = &mut body.guest {
            guest.doze();
        }
        let Some(database) = &body.database else { return Input::Dozed(false, StorageFate::Reopen) };
        let closed = database.doze(self.world.offload()).await;
        if closed {
            self.world.observe(&actor.id, Happening::Dozed);
        }
        let fate = if database.is_poisoned() { StorageFate::Reopen } else { StorageFate::Keep };
        Input::Dozed(closed, fate)
    }

    async fn wake(&self, actor: &Actor<W>, body: &Body<W>) -> Result<(), Refusal> {
        let Some(database) = &body.database else {
            return Err(Refusal::Storage("it is not there".into()));
        };
        if let Err(error) = database.wake(self.world.offload()).await {
            self.world.observe(&actor.id, Happening::StorageTrouble(error.to_string()));
            return Err(Refusal::from(&error));
        }
        self.world.observe(&actor.id, Happening::Roused);
        Ok(())
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

    async fn close(&self, actor: &Actor<W>, body: &mut Body<W>, erasing: bool) {
        // The instance first: it holds the database too.
        body.guest = None;
        body.gave_place = true;
        if let Some(database) = body.database.take() {
            match Rc::try_unwrap(database) {
                Ok(database) => self.world.close(&actor.id, database, erasing).await,
                Err(_) => self.world.observe(
                    &actor.id,
                    Happening::StorageTrouble("something still holds the database of a closed actor".into()),
                ),
            }
        }
        self.world.observe(&actor.id, Happening::Slept);
    }
}

impl<W: World> Actor<W> {
    fn feed(&self, input: Input<EventOf<W>>) {
        let effects = self.lifecycle.borrow_mut().step(input);
        for (event, refusal) in effects.refused {
            event.refuse(&refusal);
        }
        if let Some(action) = effects.next {
            self.todo.set(Some(action));
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The action handed out last; `None` once the actor sleeps.
    async fn next_action(&self) -> Option<Action<EventOf<W>>> {
        poll_fn(|context| {
            if let Some(action) = self.todo.take() {
                return Poll::Ready(Some(action));
            }
            if self.lifecycle.borrow().is_asleep() {
                return Poll::Ready(None);
            }
            self.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

/// What a caught panic says, for a [`Failure::Bug`].
#[must_use]
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
