//! The output gate of an actor: what it says waits here until every write it could have seen is in the bucket, while
//! its next events already run.
//!
//! Owns the order of what waits, and which transaction each waits for: one that is at least as late as the last
//! commit before it was said. Does not own how commits reach the bucket, which is the [`Replica`]'s.
//!
//! Commits are read in the task of the actor alone: at the end of an event by the replica, and while an event runs
//! by [`Gated::run`], because a response that streams, a call or an outbound request cannot wait for the end of the
//! event that makes it.

mod guards;
mod queue;
#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
};
use wasmkeep_actor::Failure;
use wasmkeep_host::{HeldAnswer, Intercepted};
use wasmkeep_protocol::limits::{GATE_HELD_BYTES_MAX, GATE_HELD_MAX};
use wasmkeep_replica::Guest;
use wasmkeep_storage::Database;

pub(super) use self::guards::{GatedCalls, GatedOutbound, GatedSockets};
use self::{guards::HeldSocket, queue::Queue};
use super::replica::Replica;

/// Something an actor said.
enum Held {
    /// To whoever asked.
    Answer(HeldAnswer),
    /// To another actor or to the outside; what says it waits for this.
    Knock(oneshot::Sender<()>),
    /// To its sockets: so many bytes, and how they are sent.
    Message(usize, Box<dyn FnOnce()>),
}

impl Held {
    fn bytes(&self) -> usize {
        match self {
            Self::Answer(answer) => answer.bytes(),
            Self::Knock(_) => 0,
            Self::Message(bytes, _) => *bytes,
        }
    }
}

/// The gate of one actor, for as long as it is open.
pub(crate) struct Gate {
    queue: RefCell<Queue<Held>>,
    /// Everything committed up to the end of the last event leads to this.
    taken: Cell<u64>,
    /// An event runs, or has run and what it committed is not taken.
    in_event: Cell<bool>,
    is_closed: Cell<bool>,
    bytes: Cell<usize>,
    event: Cell<Option<Waker>>,
    keeper: Cell<Option<Waker>>,
    door: Door,
    knocks: RefCell<mpsc::UnboundedReceiver<oneshot::Sender<()>>>,
    /// What is on its way to each socket.
    sockets: RefCell<HashMap<u64, HeldSocket>>,
}

/// The way to a gate from any thread.
#[derive(Clone)]
pub(super) struct Door {
    knocks: mpsc::UnboundedSender<oneshot::Sender<()>>,
    /// Closed with everything in the bucket.
    settled: Arc<AtomicBool>,
}

impl Door {
    /// Whether what is said now may leave, once that is known. It is said before this returns.
    pub(super) fn knock(&self) -> impl Future<Output = bool> + Send + use<> {
        let (open, opened) = oneshot::channel();
        // One that nobody takes is dropped, and told so.
        let _ = self.knocks.unbounded_send(open);
        let settled = Arc::clone(&self.settled);
        async move { opened.await.is_ok() || settled.load(Ordering::Acquire) }
    }
}

impl Gate {
    /// Of an actor whose state, up to transaction `landed`, is in the bucket.
    pub(super) fn new(landed: u64) -> Rc<Self> {
        let (sender, knocks) = mpsc::unbounded();
        Rc::new(Self {
            queue: RefCell::new(Queue::new(landed)),
            taken: Cell::new(landed),
            in_event: Cell::new(false),
            is_closed: Cell::new(false),
            bytes: Cell::new(0),
            event: Cell::new(None),
            keeper: Cell::new(None),
            door: Door { knocks: sender, settled: Arc::default() },
            knocks: RefCell::new(knocks),
            sockets: RefCell::default(),
        })
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    fn hold(&self, held: Held) {
        if self.is_closed.get() {
            return self.end(held, self.door.settled.load(Ordering::Acquire));
        }
        self.bytes.set(self.bytes.get() + held.bytes());
        self.queue.borrow_mut().push(held);
        if self.in_event.get() {
            wake(&self.event);
        } else {
            self.mark(usize::MAX, self.taken.get());
        }
    }

    /// The first `count` that have no transaction wait for `txid`.
    fn mark(&self, count: usize, txid: u64) {
        self.queue.borrow_mut().mark(count, txid);
        self.open();
        wake(&self.keeper);
    }

    fn land(&self, txid: u64) {
        self.queue.borrow_mut().land(txid);
        self.open();
    }

    fn open(&self) {
        let due = self.queue.borrow_mut().open();
        if due.is_empty() {
            return;
        }
        for held in due {
            self.bytes.set(self.bytes.get() - held.bytes());
            self.end(held, true);
        }
        wake(&self.event);
    }

    /// What becomes of one that waited.
    fn end(&self, held: Held, may_leave: bool) {
        match held {
            Held::Answer(answer) if may_leave => {
                let door = self.door();
                answer.release(|body| body.gated(move || Box::pin(door.knock())));
            }
            Held::Answer(answer) => answer.fail(&Failure::Lost),
            Held::Knock(open) if may_leave => drop(open.send(())),
            Held::Message(_, send) if may_leave => send(),
            Held::Knock(_) | Held::Message(..) => {}
        }
    }

    /// An event, and what it committed leads to `txid`.
    pub(super) fn event_ended(&self, txid: u64) {
        self.taken.set(txid);
        self.in_event.set(false);
        self.mark(usize::MAX, txid);
    }

    /// The actor is closed; `all_landed` says whether all it wrote is in the bucket. What waits leaves, or is lost.
    pub(super) fn close(&self, all_landed: bool) {
        if self.is_closed.replace(true) {
            return;
        }
        self.door.settled.store(all_landed, Ordering::Release);
        self.knocks.borrow_mut().close();
        let mut held = self.queue.borrow_mut().drain();
        while let Ok(open) = self.knocks.borrow_mut().try_recv() {
            held.push(Held::Knock(open));
        }
        for held in held {
            self.end(held, all_landed);
        }
        wake(&self.keeper);
        wake(&self.event);
    }

    fn is_full(&self) -> bool {
        self.bytes.get() >= GATE_HELD_BYTES_MAX || self.queue.borrow().len() >= GATE_HELD_MAX
    }

    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.is_full() || self.is_closed.get() {
            return Poll::Ready(());
        }
        self.event.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn take_knocks(&self, cx: &mut Context<'_>) {
        loop {
            let next = self.knocks.borrow_mut().poll_next_unpin(cx);
            match next {
                Poll::Ready(Some(open)) => self.hold(Held::Knock(open)),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }
}

fn wake(waker: &Cell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Opens a gate as transactions land, until it is closed. `landed` waits for a transaction and tells the last one that
/// is in the bucket.
pub(super) async fn keep<W, E>(gate: Rc<Gate>, landed: impl Fn(u64) -> W)
where
    W: Future<Output = Result<u64, E>>,
{
    let mut waiting: Option<Pin<Box<W>>> = None;
    poll_fn(|cx| {
        loop {
            gate.take_knocks(cx);
            if gate.is_closed.get() {
                return Poll::Ready(());
            }
            gate.keeper.set(Some(cx.waker().clone()));
            if waiting.is_none() {
                waiting = gate.queue.borrow().next().map(|txid| Box::pin(landed(txid)));
            }
            let Some(wait) = &mut waiting else { return Poll::Pending };
            let Poll::Ready(outcome) = wait.as_mut().poll(cx) else { return Poll::Pending };
            waiting = None;
            match outcome {
                Ok(txid) => gate.land(txid),
                Err(_) => gate.close(false),
            }
        }
    })
    .await;
}

/// Why commits could not be taken while an event runs.
enum Stuck {
    /// A statement runs. It ends.
    Busy,
    /// As long as the event's transaction is open, or for good.
    Refused,
}

/// An actor's gate and database, for its instance.
pub(super) struct Gated {
    gate: Rc<Gate>,
    replica: Rc<Replica>,
    database: Rc<Database>,
}

impl Gated {
    /// `None` for an actor without a gate.
    pub(super) fn new(replica: Option<Rc<Replica>>, database: &Rc<Database>) -> Option<Self> {
        let replica = replica?;
        let gate = Rc::clone(replica.gate()?);
        Some(Self { gate, replica, database: Rc::clone(database) })
    }

    /// Runs an event whose answer is held, and takes what it commits as soon as something waits for that.
    pub(super) async fn run<T>(&self, event: impl Future<Output = T>, answer: Option<Intercepted>) -> T {
        poll_fn(|cx| self.gate.poll_room(cx)).await;
        self.gate.in_event.set(true);
        if self.replica.needs_whole() {
            // Later it could have to wait for a transaction of the event. What fails here fails again at its end.
            let _ = self.replica.hand_over(&self.database, Guest::Idle).await;
        }
        run(&self.gate, event, answer, || self.hand_over()).await
    }

    async fn hand_over(&self) -> Result<u64, Stuck> {
        self.replica.hand_over(&self.database, Guest::Running).await.map_err(|_| {
            match self.database.is_busy() {
                true => Stuck::Busy,
                false => Stuck::Refused,
            }
        })
    }
}

async fn run<T, H>(
    gate: &Gate,
    event: impl Future<Output = T>,
    mut answer: Option<Intercepted>,
    hand_over: impl Fn() -> H,
) -> T
where
    H: Future<Output = Result<u64, Stuck>>,
{
    let mut event = pin!(event);
    // What is under way, and how many things wait for it.
    let mut taking: Option<(usize, Pin<Box<H>>)> = None;
    let mut end = Poll::Pending;
    poll_fn(|cx| {
        if end.is_pending() {
            end = event.as_mut().poll(cx);
        }
        if let Some(intercepted) = &mut answer
            && let Poll::Ready(held) = Pin::new(intercepted).poll(cx)
        {
            answer = None;
            gate.hold(Held::Answer(held));
        }
        gate.event.set(Some(cx.waker().clone()));
        loop {
            let waiting = gate.queue.borrow().unmarked();
            // What waits when the event ends is taken with all of it.
            if taking.is_none() && waiting > 0 && end.is_pending() {
                taking = Some((waiting, Box::pin(hand_over())));
            }
            // Half-way it must not be dropped: the commit would be missing from the history.
            let Some((count, work)) = &mut taking else { return mem::replace(&mut end, Poll::Pending) };
            let Poll::Ready(outcome) = work.as_mut().poll(cx) else { return Poll::Pending };
            let count = mem::take(count);
            taking = None;
            match outcome {
                Ok(txid) => gate.mark(count, txid),
                // The end of the statement brings this task back here.
                Err(Stuck::Busy) => return mem::replace(&mut end, Poll::Pending),
                // The event would wait for itself.
                Err(Stuck::Refused) => {
                    let stuck = |held: &Held| matches!(held, Held::Knock(_));
                    drop(gate.queue.borrow_mut().take_unmarked(stuck));
                    return mem::replace(&mut end, Poll::Pending);
                }
            }
        }
    })
    .await
}
