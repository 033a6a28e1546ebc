//! Counting connections: how many the node admits, which ones a shard has, and their orderly end. Owns the
//! counts and the stop signal; not the connections themselves.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use wasmkeep_protocol::limits::OPERATOR_CONNECTIONS_MAX;

/// The node's limit on client connections (R-FLAG-2), shared by its shards. Beyond it operators have
/// [`OPERATOR_CONNECTIONS_MAX`] places of their own, so that a full node still says how it is.
#[derive(Debug, Clone)]
pub struct Admission {
    clients: Arc<Counts>,
    operators: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    open: AtomicUsize,
    max: usize,
    are_operators: bool,
}

impl Counts {
    fn new(max: usize, are_operators: bool) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), max, are_operators })
    }

    fn take(self: &Arc<Self>) -> Option<Ticket> {
        if self.open.fetch_add(1, Ordering::Relaxed) < self.max {
            return Some(Ticket(Arc::clone(self)));
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Admission {
    /// Admits up to `max` connections at a time.
    pub fn new(max: usize) -> Admission {
        Admission { clients: Counts::new(max, false), operators: Counts::new(OPERATOR_CONNECTIONS_MAX, true) }
    }

    /// A place for one more connection, if there is one.
    pub fn admit(&self) -> Option<Ticket> {
        self.clients.take()
    }

    /// A place for a connection that serves one request of an operator, if there is one.
    pub(super) fn admit_operator(&self) -> Option<Ticket> {
        self.operators.take()
    }

    /// Connections open now on all shards, operators' places not counted.
    pub fn open(&self) -> usize {
        self.clients.open.load(Ordering::Relaxed)
    }
}

/// A connection's place; it goes with the connection from shard to shard and is free again when dropped.
#[derive(Debug)]
pub struct Ticket(Arc<Counts>);

impl Ticket {
    /// Whether the place is an operator's.
    pub(super) fn is_operators(&self) -> bool {
        self.0.are_operators
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of one shard. Clones are handles on the same set.
#[derive(Debug, Clone, Default)]
pub struct Connections(Rc<Set>);

/// How far the end of a shard's connections has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Default)]
pub(super) enum Stage {
    #[default]
    Open,
    /// Listeners take in no more.
    Refusing,
    /// Each ends with its next answer, and at once if no request can be on its way.
    Stopping,
    /// Nothing is served any more: each ends.
    Leaving,
}

/// How a connection ends on which no request is under way and no byte of one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// Without a word: who uses it finds it closed between two requests, as at any time.
    Silent,
    /// With an answer to the request that may just be on its way: that nothing became of it.
    Spoken,
}

impl Stage {
    /// Whether and how a connection ends now that is idle in this way. `lingers`: a request may be on its way.
    pub(super) fn parts(self, lingers: bool) -> Option<Parting> {
        match self {
            Self::Open | Self::Refusing => None,
            Self::Stopping | Self::Leaving if !lingers => Some(Parting::Silent),
            Self::Stopping => None,
            Self::Leaving => Some(Parting::Spoken),
        }
    }
}

#[derive(Debug, Default)]
struct Set {
    stage: Cell<Stage>,
    open: Cell<usize>,
    /// Requests whose answer has not begun.
    unanswered: Cell<usize>,
    /// One place per connection and per waiter; `None` where it has not been polled yet.
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

impl Connections {
    /// Connections of this shard that are open.
    pub fn open(&self) -> usize {
        self.0.open.get()
    }

    /// Takes no more in from listeners; [`Front::accept`](super::Front::accept) ends.
    pub fn refuse(&self) {
        self.come_to(Stage::Refusing);
    }

    /// As [`Connections::refuse`], and asks every connection to end: idle ones at once, the others after the request
    /// in flight. Those of other nodes, and those that have carried no request yet, stay: one that is on its way would
    /// be lost, and could not be sent again.
    pub fn stop(&self) {
        self.come_to(Stage::Stopping);
    }

    /// As [`Connections::stop`], and nothing is served any more: those that stayed are told so, as an answer to what
    /// may be on its way.
    pub fn leave(&self) {
        self.come_to(Stage::Leaving);
    }

    /// Whether [`Connections::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.0.stage.get() >= Stage::Stopping
    }

    fn come_to(&self, stage: Stage) {
        self.0.stage.set(stage);
        self.wake_all();
    }

    /// Ends when [`Connections::refuse`] was called.
    pub async fn refusing(&self) {
        let mut place = Place::new(self);
        poll_fn(|cx| if self.0.stage.get() >= Stage::Refusing { Poll::Ready(()) } else { place.wait(cx) })
            .await;
    }

    /// Ends when no request waits for its answer to begin.
    pub async fn answered(&self) {
        let mut place = Place::new(self);
        poll_fn(|cx| if self.0.unanswered.get() == 0 { Poll::Ready(()) } else { place.wait(cx) }).await;
    }

    /// Ends when no connection is open.
    pub async fn drained(&self) {
        let mut place = Place::new(self);
        poll_fn(|cx| if self.open() == 0 { Poll::Ready(()) } else { place.wait(cx) }).await;
    }

    /// Counts a connection until the guard is dropped.
    pub(super) fn enter(&self) -> Member {
        self.0.open.set(self.0.open.get() + 1);
        Member { place: Place::new(self) }
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn ask(&self) -> Unanswered {
        self.0.unanswered.set(self.0.unanswered.get() + 1);
        Unanswered(self.clone())
    }

    fn wake_all(&self) {
        let wakers: Vec<Waker> = self.0.wakers.borrow_mut().iter_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A counted connection.
#[derive(Debug)]
pub(super) struct Member {
    place: Place,
}

impl Member {
    /// How far the end of the connections has come; `cx` is woken when it comes further.
    pub(super) fn stage(&mut self, cx: &mut Context<'_>) -> Stage {
        let _ = self.place.wait(cx);
        self.place.set.0.stage.get()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let set = &self.place.set;
        set.0.open.set(set.0.open.get() - 1);
        if set.is_stopping() && set.open() == 0 {
            set.wake_all();
        }
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Unanswered(Connections);

impl Drop for Unanswered {
    fn drop(&mut self) {
        let set = &self.0;
        set.0.unanswered.set(set.0.unanswered.get() - 1);
        if set.is_stopping() && set.0.unanswered.get() == 0 {
            set.wake_all();
        }
    }
}

#[derive(Debug)]
struct Place {
    set: Connections,
    index: usize,
}

impl Place {
    fn new(set: &Connections) -> Place {
        let free = set.0.free.borrow_mut().pop();
        let index = free.unwrap_or_else(|| {
            let mut wakers = set.0.wakers.borrow_mut();
            wakers.push(None);
            wakers.len() - 1
        });
        Place { set: set.clone(), index }
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let place = &mut self.set.0.wakers.borrow_mut()[self.index];
        match place {
            Some(waker) if waker.will_wake(cx.waker()) => (),
            _ => *place = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let waker = self.set.0.wakers.borrow_mut()[self.index].take();
        self.set.0.free.borrow_mut().push(self.index);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_ticket_is_dropped() {
        let admission = Admission::new(2);
        let first = admission.admit().unwrap();
        let _second = admission.admit().unwrap();
        assert!(admission.admit().is_none());
        assert_eq!(admission.open(), 2);
        drop(first);
        assert!(admission.admit().is_some());
    }

    // R-FLAG-2
    #[test]
    fn operators_have_places_of_their_own_beyond_those_of_clients() {
        let admission = Admission::new(1);
        let client = admission.admit().unwrap();
        let operators: Vec<_> = std::iter::from_fn(|| admission.admit_operator()).collect();
        assert_eq!(operators.len(), OPERATOR_CONNECTIONS_MAX);
        assert!(!client.is_operators() && operators.iter().all(Ticket::is_operators));
        assert_eq!(admission.open(), 1);
        drop(operators);
        assert!(admission.admit().is_none() && admission.admit_operator().is_some());
    }

    // R-LEASE-6
    #[test]
    fn who_may_have_a_request_on_its_way_is_kept_until_the_end_and_answered() {
        for (stage, lingering, idle) in [
            (Stage::Open, None, None),
            (Stage::Refusing, None, None),
            (Stage::Stopping, None, Some(Parting::Silent)),
            (Stage::Leaving, Some(Parting::Spoken), Some(Parting::Silent)),
        ] {
            assert_eq!((stage.parts(true), stage.parts(false)), (lingering, idle), "{stage:?}");
        }
    }

    #[test]
    fn listeners_end_first_members_see_a_stop_and_drained_waits_for_the_last() {
        let connections = Connections::default();
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, two) = (connections.enter(), connections.enter());
        assert_eq!(one.stage(&mut cx), Stage::Open);
        let mut drained = std::pin::pin!(connections.drained());
        let mut refusing = std::pin::pin!(connections.refusing());
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        assert!(refusing.as_mut().poll(&mut cx).is_pending());
        connections.refuse();
        assert!(refusing.as_mut().poll(&mut cx).is_ready());
        assert_eq!(one.stage(&mut cx), Stage::Refusing);
        let request = connections.ask();
        let mut answered = std::pin::pin!(connections.answered());
        connections.stop();
        assert_eq!(one.stage(&mut cx), Stage::Stopping);
        assert!(answered.as_mut().poll(&mut cx).is_pending());
        drop(request);
        assert!(answered.as_mut().poll(&mut cx).is_ready());
        connections.leave();
        assert_eq!(one.stage(&mut cx), Stage::Leaving);
        drop(one);
        assert!(drained.as_mut().poll(&mut cx).is_pending());
        drop(two);
        assert!(drained.as_mut().poll(&mut cx).is_ready());
    }
}
