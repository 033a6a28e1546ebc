//! The sockets of one shard, by actor. Owns which sockets an actor has and what it noted on them; the state of a
//! connection is its [`Line`]'s.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::{Duration, Instant, SystemTime},
};

use wasmkeep_host::{ActorEvent, Hooks};
use wasmkeep_protocol::ActorId;

use super::{
    line::{Ending, Input, Line, Rules},
    mail::{Letter, Mail, Turns},
};
use crate::{metrics::SocketMetrics, runtime::Sleeper};

/// Bits of a socket's id below its time: ids follow the clock, so that a node that was started again gives none
/// of its earlier ones, and stay below 2^53, which JavaScript counts exactly.
const ID_TIME_SHIFT: u32 = 10;

/// The way to the actors of the shard.
pub(crate) trait Post {
    /// Whether an event would find a place.
    fn has_room(&self, actor: &ActorId) -> bool;

    /// Hands an event over.
    fn dispatch(&self, actor: &ActorId, event: ActorEvent);

    /// The hooks of the actor's class.
    fn hooks(&self, actor: &ActorId) -> Hooks;
}

/// The sockets of a shard. Clones are handles on the same ones.
#[derive(Clone)]
pub(crate) struct Sockets(Rc<Inner>);

struct Inner {
    rules: Rules,
    sleeper: Sleeper,
    metrics: SocketMetrics,
    post: OnceCell<Box<dyn Post>>,
    rooms: RefCell<HashMap<Rc<ActorId>, Rc<Room>>>,
    last_id: Cell<u64>,
    /// Connections that have not ended, those being opened included.
    held: Cell<usize>,
    when_none: Cell<Option<Waker>>,
}

/// An actor with sockets.
struct Room {
    actor: Rc<ActorId>,
    /// In the order in which they were opened.
    sockets: RefCell<BTreeMap<u64, Rc<Socket>>>,
    turns: Rc<Turns>,
}

/// One socket.
pub(super) struct Socket {
    pub(super) id: u64,
    pub(super) actor: Rc<ActorId>,
    pub(super) opened_ms: u64,
    /// What the actor noted; `None` until its hook has let the socket in.
    pub(super) note: RefCell<Option<Note>>,
    pub(super) line: RefCell<Line>,
    pub(super) mail: Mail,
    /// Of the connection's task.
    pub(super) waker: Cell<Option<Waker>>,
}

/// An actor's note on a socket.
pub(super) struct Note {
    pub(super) tags: Box<[String]>,
    pub(super) attachment: Vec<u8>,
}

/// Keeps a socket among its actor's; dropping it says that the connection is gone.
pub(crate) struct Hold {
    pub(super) sockets: Sockets,
    pub(super) socket: Rc<Socket>,
}

impl Sockets {
    /// None yet.
    pub(crate) fn new(rules: Rules, sleeper: Sleeper, metrics: SocketMetrics) -> Self {
        Self(Rc::new(Inner {
            rules,
            sleeper,
            metrics,
            post: OnceCell::new(),
            rooms: RefCell::default(),
            last_id: Cell::new(0),
            held: Cell::new(0),
            when_none: Cell::new(None),
        }))
    }

    /// Says how actors are reached; once, before the first socket.
    pub(crate) fn connect(&self, post: Box<dyn Post>) {
        let first = self.0.post.set(post).is_ok();
        debug_assert!(first);
    }

    /// A socket that its actor's hook has yet to let in.
    pub(crate) fn reserve(&self, actor: &ActorId) -> Hold {
        let opened_ms = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        let id = (self.0.last_id.get() + 1).max(opened_ms << ID_TIME_SHIFT);
        self.0.last_id.set(id);
        let room = self.room_or_new(actor);
        let socket = Rc::new(Socket {
            id,
            actor: Rc::clone(&room.actor),
            opened_ms,
            note: RefCell::new(None),
            line: RefCell::new(Line::new(self.0.rules, Instant::now())),
            mail: Mail::new(Rc::clone(&room.turns)),
            waker: Cell::new(None),
        });
        room.sockets.borrow_mut().insert(id, Rc::clone(&socket));
        self.0.held.set(self.0.held.get() + 1);
        Hold { sockets: self.clone(), socket }
    }

    /// Says how long a whole round of the owner sweep takes now; how long the one before took.
    pub(crate) fn note_sweep(&self, whole: Duration) -> Duration {
        let before = self.0.metrics.sweep.set(i64::try_from(whole.as_secs()).unwrap_or(i64::MAX));
        Duration::from_secs(u64::try_from(before).unwrap_or(0))
    }

    /// Closes every socket; no hook is told.
    pub(crate) fn close_all(&self, code: u16, reason: &str) {
        let rooms: Vec<Rc<Room>> = self.0.rooms.borrow().values().cloned().collect();
        for room in rooms {
            self.close_actor(&room.actor, code, reason);
        }
    }

    /// Closes the sockets that an actor has let in; its hook is not told. One whose hook has yet to run is opened
    /// by whoever runs it, or refused.
    pub(crate) fn close_actor(&self, actor: &ActorId, code: u16, reason: &str) {
        for socket in self.all(actor).into_iter().filter(|socket| socket.is_in()) {
            self.close(&socket, code, reason);
        }
    }

    /// No actor has any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.rooms.borrow().is_empty()
    }

    /// The actors that have some.
    pub(crate) fn actors(&self) -> Vec<Rc<ActorId>> {
        self.0.rooms.borrow().keys().cloned().collect()
    }

    /// Ends when no connection is left.
    pub(crate) async fn none_left(&self) {
        poll_fn(|context| {
            if self.0.held.get() == 0 {
                return Poll::Ready(());
            }
            self.0.when_none.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    pub(super) fn rules(&self) -> Rules {
        self.0.rules
    }

    pub(super) fn sleeper(&self) -> &Sleeper {
        &self.0.sleeper
    }

    pub(super) fn metrics(&self) -> &SocketMetrics {
        &self.0.metrics
    }

    pub(super) fn post(&self) -> Option<&dyn Post> {
        self.0.post.get().map(|post| &**post)
    }

    /// An actor's sockets, those its hook has not let in yet included.
    pub(super) fn all(&self, actor: &ActorId) -> Vec<Rc<Socket>> {
        let rooms = self.0.rooms.borrow();
        rooms.get(actor).map_or_else(Vec::new, |room| room.sockets.borrow().values().cloned().collect())
    }

    pub(super) fn find(&self, actor: &ActorId, id: u64) -> Option<Rc<Socket>> {
        self.0.rooms.borrow().get(actor)?.sockets.borrow().get(&id).cloned()
    }

    /// Lets a socket in; one whose client has left meanwhile is told to its hook at once.
    pub(super) fn open(&self, actor: &ActorId, id: u64, note: Note) {
        match self.find(actor, id) {
            Some(socket) => {
                *socket.note.borrow_mut() = Some(note);
                self.0.metrics.open.inc();
            }
            None => {
                let turns = Rc::clone(&self.room_or_new(actor).turns);
                let mail = Mail::new(turns);
                mail.send(self, &Rc::new(actor.clone()), id, Letter::Lost(Ending::lost()));
                self.forget_room_if_empty(actor);
            }
        }
    }

    /// Closes a socket behind what is queued for it; it is the actor's no more, and its hook is not told.
    pub(super) fn close(&self, socket: &Rc<Socket>, code: u16, reason: &str) {
        self.step(socket, Input::Close { code, reason: reason.to_owned() });
        self.0.metrics.closed(code);
        socket.mail.clear();
        self.forget(socket);
    }

    /// Feeds a socket's line and tells the actor when it has lost the socket by it.
    pub(super) fn step(&self, socket: &Rc<Socket>, input: Input) {
        let ending = socket.line.borrow_mut().step(Instant::now(), input);
        socket.wake();
        let Some(ending) = ending else { return };
        if socket.line.borrow().was_slow() {
            self.0.metrics.slow.inc();
        }
        let was_in = socket.is_in();
        self.forget(socket);
        if was_in {
            self.0.metrics.closed(ending.code);
            socket.mail.send(self, &socket.actor, socket.id, Letter::Lost(ending));
        }
    }

    /// Takes a socket from its actor.
    fn forget(&self, socket: &Socket) {
        let room = self.0.rooms.borrow().get(&socket.actor).cloned();
        let Some(room) = room else { return };
        if room.sockets.borrow_mut().remove(&socket.id).is_some() && socket.is_in() {
            self.0.metrics.open.dec();
        }
        self.forget_room_if_empty(&socket.actor);
    }

    fn forget_room_if_empty(&self, actor: &ActorId) {
        let mut rooms = self.0.rooms.borrow_mut();
        if rooms.get(actor).is_some_and(|room| room.sockets.borrow().is_empty()) {
            rooms.remove(actor);
            if rooms.is_empty() {
                // Whatever a crowd made it grow to.
                *rooms = HashMap::new();
            }
        }
    }

    fn room_or_new(&self, actor: &ActorId) -> Rc<Room> {
        if let Some(room) = self.0.rooms.borrow().get(actor) {
            return Rc::clone(room);
        }
        let actor = Rc::new(actor.clone());
        let turns = Rc::new(Turns::new());
        let room = Rc::new(Room { actor: Rc::clone(&actor), sockets: RefCell::default(), turns });
        self.0.rooms.borrow_mut().insert(actor, Rc::clone(&room));
        room
    }
}

impl Socket {
    /// Its actor has let it in.
    pub(super) fn is_in(&self) -> bool {
        self.note.borrow().is_some()
    }

    /// Whether it is one of those that `tag` asks for: let in, and with that tag if there is one.
    pub(super) fn answers_to(&self, tag: Option<&str>) -> bool {
        let note = self.note.borrow();
        note.as_ref().is_some_and(|note| tag.is_none_or(|tag| note.tags.iter().any(|own| own == tag)))
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Hold {
    /// As its actor knows it.
    pub(crate) fn id(&self) -> u64 {
        self.socket.id
    }

    pub(super) fn step(&self, input: Input) {
        self.sockets.step(&self.socket, input);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.step(Input::Lost);
        // One that was never let in has nobody to tell.
        self.sockets.forget(&self.socket);
        let inner = &self.sockets.0;
        inner.held.set(inner.held.get() - 1);
        if inner.held.get() == 0
            && let Some(waker) = inner.when_none.take()
        {
            waker.wake();
        }
    }
}
