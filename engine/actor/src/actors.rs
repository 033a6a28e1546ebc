//! The actors of one shard, alive: takes events in, runs each actor's [`Lifecycle`], keeps the [`Roster`].
//!
//! One task per resident actor carries out what its lifecycle asks for; the task ends when the actor sleeps.
//! Everything stays on one thread.

mod turn;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    panic::AssertUnwindSafe,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use futures::FutureExt;
use wasmkeep_protocol::{ActorClass, ActorId};
use wasmkeep_storage::{Database, OpenError};

use crate::{
    Event, Guest, Refusal,
    lifecycle::{Action, Input, Lifecycle, NeedsInit, StorageFate},
    roster::{Room, Roster},
    world::{Happening, Limits, Started, World},
};

/// The file of an actor that dozes may be open elsewhere: a node that looks through its databases for alarms opens
/// each for a moment.
const LOCKED_PAUSE: Duration = Duration::from_millis(20);
const LOCKED_TRIES_MAX: u32 = 25;

/// Actors that still close while others have their places. With more of them a newcomer waits before it opens: else
/// openings outrun closings until none is left that could make room.
const LEAVING_MAX: usize = 16;
const LEAVING_PAUSE: Duration = Duration::from_millis(1);
const LEAVING_TRIES_MAX: u32 = 1000;

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
            Err(refusal) => {
                event.refuse(&refusal);
                self.world.not_admitted(id);
            }
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

    /// How many a sweep noted that have not been let [doze](Actors::doze) since.
    pub fn drowsy(&self) -> usize {
        self.drowsy.borrow().len()
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
            Action::Init => {
                let result = self.init(actor, body).await;
                if let Some(database) = &body.database
                    && self.is_damaged(&actor.id, database)
                {
                    actor.feed(Input::Lost(Refusal::Storage("its file was found damaged".into())));
                }
                Input::Initialised(result)
            }
            Action::Run(event) => {
                body.erased = false;
                let (end, fate) = if event.is_alarm() {
                    self.attempt(actor, body, event).await
                } else {
                    self.run(actor, body, event).await
                };
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
                self.note_alarm(&actor.id, None);
                body.erased = true;
                Input::Closed
            }
        }
    }

    async fn open(&self, actor: &Actor<W>, body: &mut Body<W>) -> Result<(), Refusal> {
        if std::mem::replace(&mut body.gave_place, false) {
            self.find_place().inspect_err(|_| self.world.not_admitted(&actor.id))?;
        }
        self.let_others_leave().await;
        actor.lost.set(false);
        body.database = Some(Rc::new(self.world.open(&actor.id).await?));
        Ok(())
    }

    /// Waits while too many residents are over the cap, for a second at most: one that does not end is not waited for.
    async fn let_others_leave(&self) {
        let cap = self.limits.resident_max.max(1) + LEAVING_MAX;
        for _ in 0..LEAVING_TRIES_MAX {
            if self.roster.borrow().resident_count() <= cap {
                return;
            }
            self.world.sleep(LEAVING_PAUSE).await;
        }
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
        let mut woken = database.wake(self.world.offload()).await;
        // Somebody looks at the file, which takes a moment.
        for _ in 0..LOCKED_TRIES_MAX {
            if !matches!(woken, Err(OpenError::Locked { .. })) {
                break;
            }
            self.world.sleep(LOCKED_PAUSE).await;
            woken = database.wake(self.world.offload()).await;
        }
        if let Err(error) = woken {
            self.world.observe(&actor.id, Happening::StorageTrouble(error.to_string()));
            return Err(Refusal::from(&error));
        }
        self.world.observe(&actor.id, Happening::Roused);
        Ok(())
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
