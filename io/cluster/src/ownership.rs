//! The actors a node holds: takes them, gives them up, and settles in the background what is owed (R-OWN).

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
};

use futures::{
    StreamExt,
    channel::{mpsc, oneshot},
    future::{LocalBoxFuture, maybe_done},
    stream::FuturesUnordered,
};
use wasmkeep_bucket::Bucket;
use wasmkeep_protocol::{
    ActorId, NodeId, Tenant,
    clock::Moment,
    lease::{Identity, Timing, ValidLease},
    object_keys,
    ownership::{Claim, Context, Denial, Effect, Input, Owner, owner_of},
    records::{Hold, NodeRecord, OwnerRecord},
    store::Found,
    view::View,
};
use wasmkeep_runtime::Runtime;

use crate::store::{key, nonce, now, read, write};

/// What the node knows of its cluster, asked whenever an actor is taken or given up.
pub trait LeaseView {
    /// The cluster as it was last listed.
    fn view(&self) -> Arc<View>;

    /// The node's own lease, if it is valid now.
    fn lease(&self) -> Option<ValidLease>;
}

/// The holds of one process.
#[derive(Debug)]
pub struct OwnershipManager<B, S, M> {
    bucket: B,
    runtime: S,
    lease_view: M,
    timing: Timing,
    identity: Identity,
    tenant: Tenant,
    taking: Cell<bool>,
    claims: RefCell<HashMap<ActorId, Entry>>,
    /// When which claim has something to do by itself.
    due: RefCell<BTreeSet<(Moment, ActorId)>>,
    inbox: RefCell<VecDeque<(ActorId, Input)>>,
    driver: RefCell<Option<Waker>>,
    when_empty: RefCell<Option<Waker>>,
    /// The last round given to an entry. It outlives them: an actor's next entry is not taken for its last one.
    rounds: Cell<u64>,
}

#[derive(Debug, Default)]
struct Entry {
    claim: Claim,
    waiting: Vec<Waiting>,
    /// What makes requests under way meaningless gives it another; an answer to one of an older round is dropped.
    round: u64,
    due: Option<Moment>,
    /// A release was asked for that is not carried out yet: the hold is over all the same.
    is_ending: bool,
}

/// Somebody who wants the actor.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<u64, Denial>>,
    /// Told whenever the record that takes it is about to be written.
    writing: mpsc::UnboundedSender<()>,
}

/// An answer from the bucket, to a request of the round.
struct Answer {
    actor: ActorId,
    round: u64,
    input: Input,
}

type Requests<'a> = FuturesUnordered<LocalBoxFuture<'a, Answer>>;

enum Event {
    Answer(Answer),
    Said(ActorId, Input),
    Time,
}

impl<B: Bucket, S: Runtime, M: LeaseView> OwnershipManager<B, S, M> {
    /// No actor is held. `bucket` is the way of durable commits.
    pub fn new(
        bucket: B,
        runtime: S,
        lease_view: M,
        timing: Timing,
        identity: Identity,
        tenant: Tenant,
    ) -> Self {
        Self {
            bucket,
            runtime,
            lease_view,
            timing,
            identity,
            tenant,
            taking: Cell::new(true),
            claims: RefCell::default(),
            due: RefCell::default(),
            inbox: RefCell::default(),
            driver: RefCell::default(),
            when_empty: RefCell::default(),
            rounds: Cell::new(0),
        }
    }

    /// Takes the actor; the generation of the hold. One that is held is told at once.
    ///
    /// # Errors
    /// [`Denial`].
    pub async fn take(&self, actor: &ActorId, fresh: bool) -> Result<u64, Denial> {
        self.take_and_look(actor, fresh, || std::future::ready(())).await.map(|(generation, ())| generation)
    }

    /// Takes the actor and looks at what its earlier owners left behind; the generation of the hold, and what `look`
    /// gave.
    ///
    /// It looks while the record is written, and sees everything that was ever acknowledged: when it begins, the
    /// record has been read and found to be nobody's any more, so its last owner acknowledges nothing, and the write
    /// lands only if that very record still stands, so nobody was owner in between. Each further write, on another
    /// record or under another lease, has it look again.
    ///
    /// # Errors
    /// [`Denial`].
    pub async fn take_and_look<L: Future>(
        &self,
        actor: &ActorId,
        fresh: bool,
        mut look: impl FnMut() -> L,
    ) -> Result<(u64, L::Output), Denial> {
        if let Some(generation) = self.generation(actor) {
            return Ok((generation, look().await));
        }
        let (answer, mut answered) = oneshot::channel();
        let (writing, mut writes) = mpsc::unbounded();
        let waiting = Waiting { answer, writing };
        self.entry(&mut self.claims.borrow_mut(), actor).waiting.push(waiting);
        self.say(actor.clone(), Input::Want { fresh });
        let mut looking = None;
        let taken = poll_fn(|cx| {
            while let Poll::Ready(Some(())) = writes.poll_next_unpin(cx) {
                looking = Some(Box::pin(maybe_done(look())));
            }
            if let Some(looking) = &mut looking {
                // Whether it is done is asked below.
                let _ = looking.as_mut().poll(cx);
            }
            Pin::new(&mut answered).poll(cx)
        });
        let generation = taken.await.unwrap_or(Err(Denial::NotTaking))?;
        // None for whoever came after the write.
        let mut looking = looking.unwrap_or_else(|| Box::pin(maybe_done(look())));
        looking.as_mut().await;
        let seen = looking.as_mut().take_output().expect("it has just ended");
        Ok((generation, seen))
    }

    /// The node that has the actor, or had it last, by its record as `bucket`, any way to it, has it now; nothing is
    /// taken. `None`: nobody ever had it, or the bucket does not say.
    pub async fn last_holder(&self, bucket: &B, actor: &ActorId) -> Option<NodeId> {
        let key = key(&object_keys::owner(&self.tenant, actor));
        match read(bucket, &self.runtime, self.timing.timeout, &key, OwnerRecord::decode).await {
            Found::Object(_, Ok(record)) => Some(record.node),
            Found::Object(_, Err(_)) | Found::Absent | Found::Failed => None,
        }
    }

    /// Whether the actor's record, as `bucket`, any way to it, has it now, names another node that may still have it;
    /// nothing is taken. `None`: the bucket does not say.
    pub async fn is_others(&self, bucket: &B, actor: &ActorId) -> Option<bool> {
        let key = key(&object_keys::owner(&self.tenant, actor));
        match read(bucket, &self.runtime, self.timing.timeout, &key, OwnerRecord::decode).await {
            Found::Failed => None,
            Found::Absent => Some(false),
            // Whoever takes it says what is wrong with it.
            Found::Object(_, Err(_)) => Some(true),
            Found::Object(_, Ok(record)) => {
                let moment = now(&self.runtime).moment;
                let owner = owner_of(&record, &self.identity.node, &self.lease_view.view(), moment);
                Some(!matches!(owner, Owner::Nobody | Owner::Ourselves))
            }
        }
    }

    /// The generation of the hold, while it stands: its lease is valid and the actor was not given up.
    pub fn generation(&self, actor: &ActorId) -> Option<u64> {
        let lease = self.lease_view.lease()?;
        self.claims.borrow().get(actor).filter(|entry| !entry.is_ending)?.claim.held(&lease)
    }

    /// Whether the actor was taken and neither given up nor lost since, whatever the lease says at this moment.
    pub fn holds(&self, actor: &ActorId) -> bool {
        self.claims.borrow().get(actor).is_some_and(|entry| !entry.is_ending && entry.claim.holds())
    }

    /// Gives the actor up: it is closed, and its last event uploaded. The hold is over from here on; that the record
    /// says so is tried again until it lands.
    pub fn release(&self, actor: &ActorId) {
        if let Some(entry) = self.claims.borrow_mut().get_mut(actor) {
            entry.is_ending = true;
            self.say(actor.clone(), Input::Release);
        }
    }

    /// Gives every actor up.
    pub fn release_all(&self) {
        for actor in self.claimed() {
            self.release(&actor);
        }
    }

    /// The node's lease ran out: nothing is held any more.
    pub fn lapsed(&self) {
        for actor in self.claimed() {
            self.say(actor, Input::Lapsed);
        }
    }

    /// In an order that does not depend on chance.
    fn claimed(&self) -> Vec<ActorId> {
        let mut actors: Vec<ActorId> = self.claims.borrow().keys().cloned().collect();
        actors.sort_unstable();
        actors
    }

    /// Takes no more actors.
    pub fn stop_taking(&self) {
        self.taking.set(false);
    }

    /// Ends when nothing is held and nothing is owed.
    pub async fn all_released(&self) {
        poll_fn(|cx| {
            if self.claims.borrow().is_empty() && self.inbox.borrow().is_empty() {
                return Poll::Ready(());
            }
            *self.when_empty.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn next_round(&self) -> u64 {
        self.rounds.set(self.rounds.get() + 1);
        self.rounds.get()
    }

    fn entry<'a>(&self, claims: &'a mut HashMap<ActorId, Entry>, actor: &ActorId) -> &'a mut Entry {
        claims.entry(actor.clone()).or_insert_with(|| Entry { round: self.next_round(), ..Entry::default() })
    }

    fn say(&self, actor: ActorId, input: Input) {
        self.inbox.borrow_mut().push_back((actor, input));
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    /// Carries out what was asked for. Never ends.
    pub async fn run(&self) {
        let mut requests = Requests::new();
        loop {
            match self.next(&mut requests).await {
                Event::Said(actor, input) => self.step(&actor, input, &mut requests),
                Event::Answer(Answer { actor, round, input }) => {
                    let current = self.claims.borrow().get(&actor).is_some_and(|entry| entry.round == round);
                    if current {
                        self.step(&actor, input, &mut requests);
                    }
                }
                Event::Time => {
                    for actor in self.overdue() {
                        self.step(&actor, Input::Tick, &mut requests);
                    }
                }
            }
        }
    }

    fn step<'a>(&'a self, actor: &ActorId, input: Input, requests: &mut Requests<'a>) {
        let context_view = self.lease_view.view();
        let mut claims = self.claims.borrow_mut();
        let entry = self.entry(&mut claims, actor);
        match input {
            Input::Lapsed => entry.round = self.next_round(),
            Input::Release => entry.is_ending = false,
            _ => {}
        }
        let context = Context {
            now: now(&self.runtime).moment,
            identity: &self.identity,
            view: &context_view,
            lease: self.lease_view.lease(),
            taking: self.taking.get(),
            nonce: nonce(&self.runtime),
        };
        for effect in entry.claim.step(&context, input) {
            match effect {
                Effect::Read => requests.push(Box::pin(self.read(actor.clone(), entry.round))),
                Effect::ReadHeartbeat(node) => {
                    requests.push(Box::pin(self.read_heartbeat(actor.clone(), entry.round, node)));
                }
                Effect::Write(record, condition) => {
                    if record.hold == Hold::Held {
                        entry.tell_of_write();
                    }
                    requests.push(Box::pin(self.write(actor.clone(), entry.round, record, condition)));
                }
                Effect::Taken { generation } => entry.answer(&Ok(generation)),
                Effect::Denied(denial) => entry.answer(&Err(denial)),
                Effect::Released => {}
            }
        }
        let due = entry.claim.wake();
        let before = std::mem::replace(&mut entry.due, due);
        if entry.claim.is_idle() && entry.waiting.is_empty() {
            claims.remove(actor);
        }
        let nothing_left = claims.is_empty();
        drop(claims);
        self.remember(actor, before, due);
        if nothing_left && let Some(waiting) = self.when_empty.borrow_mut().take() {
            waiting.wake();
        }
    }

    fn remember(&self, actor: &ActorId, before: Option<Moment>, due: Option<Moment>) {
        if before == due {
            return;
        }
        let mut line = self.due.borrow_mut();
        if let Some(before) = before {
            line.remove(&(before, actor.clone()));
        }
        if let Some(due) = due {
            line.insert((due, actor.clone()));
        }
    }

    fn overdue(&self) -> Vec<ActorId> {
        let moment = now(&self.runtime).moment;
        let line = self.due.borrow();
        line.iter().take_while(|(due, _)| *due <= moment).map(|(_, actor)| actor.clone()).collect()
    }

    async fn read(&self, actor: ActorId, round: u64) -> Answer {
        let key = key(&object_keys::owner(&self.tenant, &actor));
        let limit = self.timing.timeout;
        let found = read(&self.bucket, &self.runtime, limit, &key, OwnerRecord::decode).await;
        Answer { actor, round, input: Input::Found(found) }
    }

    async fn read_heartbeat(&self, actor: ActorId, round: u64, node: NodeId) -> Answer {
        let key = key(&object_keys::node(&node));
        let limit = self.timing.timeout;
        let found = read(&self.bucket, &self.runtime, limit, &key, NodeRecord::decode).await;
        Answer { actor, round, input: Input::Heartbeat(found) }
    }

    async fn write(
        &self,
        actor: ActorId,
        round: u64,
        record: OwnerRecord,
        condition: wasmkeep_protocol::store::Condition,
    ) -> Answer {
        let key = key(&object_keys::owner(&self.tenant, &actor));
        let (limit, body) = (self.timing.timeout, record.encode());
        let wrote = write(&self.bucket, &self.runtime, limit, &key, body, &condition).await;
        Answer { actor, round, input: Input::Wrote(wrote) }
    }

    async fn next(&self, requests: &mut Requests<'_>) -> Event {
        let wake = self.due.borrow().first().map(|(due, _)| *due);
        let mut time: Option<Pin<Box<dyn Future<Output = ()> + '_>>> =
            wake.map(|wake| Box::pin(self.until(wake)) as _);
        poll_fn(|cx| {
            if let Some((actor, input)) = self.inbox.borrow_mut().pop_front() {
                return Poll::Ready(Event::Said(actor, input));
            }
            if let Poll::Ready(Some(answer)) = requests.poll_next_unpin(cx) {
                return Poll::Ready(Event::Answer(answer));
            }
            if let Some(time) = &mut time
                && time.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Event::Time);
            }
            *self.driver.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    async fn until(&self, moment: Moment) {
        let left = moment.since(now(&self.runtime).moment);
        self.runtime.sleep(left).await;
    }
}

impl Entry {
    fn tell_of_write(&self) {
        for waiting in &self.waiting {
            // Whoever left looks at nothing.
            let _ = waiting.writing.unbounded_send(());
        }
    }

    /// The same for everybody who asked.
    fn answer(&mut self, outcome: &Result<u64, Denial>) {
        for waiting in self.waiting.drain(..) {
            // Whoever left needs no answer.
            let _ = waiting.answer.send(outcome.clone());
        }
    }
}

#[cfg(test)]
mod tests;
