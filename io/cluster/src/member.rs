//! One process as a member of its cluster: keeps its lease, watches the others, fences those that are gone.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
};

use futures::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use wasmkeep_bucket::{Bucket, Key};
use wasmkeep_protocol::{
    NodeId,
    clock::Moment,
    lease::{
        Effect, Exit, Identity, Input, Keeper, Notice, Timing, ValidLease, Watch, WatchEffect, WatchInput,
    },
    object_keys,
    records::{NodeRecord, Presence},
    store::{Condition, Found, Wrote},
    view::View,
};
use wasmkeep_runtime::Runtime;

use crate::{
    heartbeats,
    store::{key, nonce, now, read, read_and_say, write, write_and_say},
};

/// What a member tells the node it belongs to.
#[derive(Debug, Clone)]
pub enum Told {
    /// Actors may be taken and events run, as long as this holds. Told again at every renewal.
    Valid(ValidLease),
    /// The lease ran out: drop every actor at once and close their sockets with 1012 (R-LEASE-3).
    Lapsed,
    /// While stopping: the time for events in flight is over.
    EndEvents,
    /// The cluster as it is seen now.
    View(Arc<View>),
    /// Something people should know.
    Notice(Notice),
    /// A request for this process's own heartbeat failed.
    HeartbeatFailed(String),
}

/// One process's membership.
#[derive(Debug)]
pub struct Member<B, S> {
    bucket: B,
    runtime: S,
    timing: Timing,
    own_key: Key,
    keeper: RefCell<Keeper>,
    watch: RefCell<Watch>,
    /// Said from outside, not yet taken in.
    inbox: RefCell<VecDeque<Input>>,
    driver: RefCell<Option<Waker>>,
    /// Why the last request for the own heartbeat failed, until one lands.
    failed: RefCell<Option<String>>,
}

/// An answer from the bucket.
enum Answer {
    /// And why it came to nothing, if it did.
    Keeper(Input, Option<String>),
    Watch(WatchInput),
}

/// What a request comes to, when it comes to it.
type Requests<'a> = FuturesUnordered<LocalBoxFuture<'a, Answer>>;

/// What the driver waited for.
enum Event {
    Answer(Answer),
    Said(Input),
    Time,
}

impl<B: Bucket, S: Runtime> Member<B, S> {
    /// A process that starts now. `bucket` is the way that nothing else delays (R-BKT-2).
    pub fn new(bucket: B, runtime: S, timing: Timing, identity: Identity, presence: Presence) -> Self {
        let moment = now(&runtime).moment;
        Self {
            own_key: key(&object_keys::node(&identity.node)),
            keeper: RefCell::new(Keeper::new(timing, identity.clone(), presence, moment)),
            watch: RefCell::new(Watch::new(timing, identity, moment)),
            inbox: RefCell::default(),
            driver: RefCell::default(),
            failed: RefCell::default(),
            bucket,
            runtime,
            timing,
        }
    }

    /// The lease, if it is valid now.
    pub fn lease(&self) -> Option<ValidLease> {
        self.keeper.borrow().lease(now(&self.runtime).moment)
    }

    /// Asks for a clean stop (R-LEASE-6).
    pub fn stop(&self) {
        self.say(Input::Stop);
    }

    /// While stopping: no event runs and every actor is closed.
    pub fn actors_closed(&self) {
        self.say(Input::ActorsClosed);
    }

    /// While stopping: every ownership record is released.
    pub fn records_released(&self) {
        self.say(Input::RecordsReleased);
    }

    /// What the next heartbeat says about the node.
    pub fn set_presence(&self, presence: Presence) {
        self.keeper.borrow_mut().set_presence(presence);
    }

    fn say(&self, input: Input) {
        self.inbox.borrow_mut().push_back(input);
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    /// Lives the membership to its end: the start check, the lease, the watch. `tell` is called on the way.
    pub async fn run(&self, mut tell: impl FnMut(Told)) -> Exit {
        let mut requests = Requests::new();
        let mut event = Event::Time;
        loop {
            let (keeper, watch) = match event {
                Event::Answer(Answer::Keeper(input, failed)) => {
                    self.note(&input, failed, &mut tell);
                    (input, WatchInput::Tick)
                }
                Event::Said(input) => (input, WatchInput::Tick),
                Event::Answer(Answer::Watch(input)) => (Input::Tick, input),
                Event::Time => (Input::Tick, WatchInput::Tick),
            };
            if let Some(exit) = self.step_keeper(keeper, &mut requests, &mut tell) {
                return exit;
            }
            if let Some(exit) = self.step_watch(watch, &mut requests, &mut tell) {
                return exit;
            }
            event = self.next(&mut requests).await;
        }
    }

    /// Takes down what the last request for the own heartbeat came to, and says so once while it stays the same.
    fn note(&self, input: &Input, failed: Option<String>, tell: &mut impl FnMut(Told)) {
        let mut known = self.failed.borrow_mut();
        match failed {
            Some(reason) => {
                if self.lease().is_some() || known.as_ref() != Some(&reason) {
                    tracing::warn!("this node's heartbeat: {reason}");
                    tell(Told::HeartbeatFailed(reason.clone()));
                }
                *known = Some(reason);
            }
            None if matches!(input, Input::Wrote(Wrote::Written(_))) => *known = None,
            None => {}
        }
    }

    fn tell_of_lapse(&self) {
        let validity = self.timing.validity().as_secs();
        match &*self.failed.borrow() {
            Some(reason) => {
                tracing::warn!(
                    "the lease ran out, no heartbeat landed for {validity} s; the last one: {reason}"
                );
            }
            None => tracing::warn!("the lease ran out: this process did nothing for {validity} s"),
        }
    }

    fn step_keeper<'a>(
        &'a self,
        input: Input,
        requests: &mut Requests<'a>,
        tell: &mut impl FnMut(Told),
    ) -> Option<Exit> {
        let now = now(&self.runtime);
        let before = self.keeper.borrow().lease(now.moment);
        let effects = self.keeper.borrow_mut().step(now, nonce(&self.runtime), input);
        let ends = effects.iter().any(|effect| matches!(effect, Effect::Exit(_)));
        for effect in effects {
            match effect {
                Effect::Read => requests.push(Box::pin(self.read_own())),
                Effect::Write(record, condition) => {
                    requests.push(Box::pin(self.write_own(record, condition)));
                }
                Effect::Valid => self.tell_watch(WatchInput::Valid, requests, tell),
                Effect::Lapsed => {
                    if !ends {
                        self.tell_of_lapse();
                    }
                    tell(Told::Lapsed);
                    self.tell_watch(WatchInput::Lapsed, requests, tell);
                }
                Effect::EndEvents => tell(Told::EndEvents),
                Effect::Exit(exit) => return Some(exit),
            }
        }
        let version = self.keeper.borrow().version().cloned();
        if let Some(version) = version {
            self.tell_watch(WatchInput::Stands(version), requests, tell);
        }
        let lease = self.keeper.borrow().lease(now.moment);
        if let Some(lease) = lease.filter(|_| lease != before) {
            tell(Told::Valid(lease));
        }
        None
    }

    /// The keeper's own word to the watch, which answers with nothing that ends the membership.
    fn tell_watch<'a>(&'a self, input: WatchInput, requests: &mut Requests<'a>, tell: &mut impl FnMut(Told)) {
        for effect in self.watch_effects(input) {
            self.carry_out(effect, requests, tell);
        }
    }

    fn step_watch<'a>(
        &'a self,
        input: WatchInput,
        requests: &mut Requests<'a>,
        tell: &mut impl FnMut(Told),
    ) -> Option<Exit> {
        let mut sighted = false;
        for effect in self.watch_effects(input) {
            sighted |= effect == WatchEffect::OwnHeartbeatChanged;
            self.carry_out(effect, requests, tell);
        }
        if sighted { self.step_keeper(Input::Sighted, requests, tell) } else { None }
    }

    fn watch_effects(&self, input: WatchInput) -> Vec<WatchEffect> {
        self.watch.borrow_mut().step(now(&self.runtime), &mut || nonce(&self.runtime), input)
    }

    fn carry_out<'a>(
        &'a self,
        effect: WatchEffect,
        requests: &mut Requests<'a>,
        tell: &mut impl FnMut(Told),
    ) {
        match effect {
            WatchEffect::List => requests.push(Box::pin(self.list())),
            WatchEffect::Read(node) => requests.push(Box::pin(self.read_other(node))),
            WatchEffect::Fence(node, record, condition) => {
                requests.push(Box::pin(self.fence(node, record, condition)));
            }
            WatchEffect::ViewChanged => tell(Told::View(self.watch.borrow().view())),
            WatchEffect::Notice(notice) => tell(Told::Notice(notice)),
            WatchEffect::OwnHeartbeatChanged => {}
        }
    }

    async fn read_own(&self) -> Answer {
        let (limit, key) = (self.timing.timeout, &self.own_key);
        let (found, failed) = read_and_say(&self.bucket, &self.runtime, limit, key, NodeRecord::decode).await;
        Answer::Keeper(Input::Read(found), failed)
    }

    async fn read_other(&self, node: NodeId) -> Answer {
        let found = self.read(&key(&object_keys::node(&node))).await;
        Answer::Watch(WatchInput::Read(node, found))
    }

    async fn write_own(&self, record: NodeRecord, condition: Condition) -> Answer {
        let (limit, key, body) = (self.timing.timeout, &self.own_key, record.encode());
        let (wrote, failed) = write_and_say(&self.bucket, &self.runtime, limit, key, body, &condition).await;
        Answer::Keeper(Input::Wrote(wrote), failed)
    }

    async fn fence(&self, node: NodeId, record: NodeRecord, condition: Condition) -> Answer {
        let wrote = self.write(&key(&object_keys::node(&node)), &record, &condition).await;
        Answer::Watch(WatchInput::Fenced(node, wrote))
    }

    async fn list(&self) -> Answer {
        let listed = heartbeats::list(&self.bucket, &self.runtime, self.timing.timeout).await;
        Answer::Watch(WatchInput::Listed(listed))
    }

    async fn read(&self, key: &Key) -> Found<NodeRecord> {
        read(&self.bucket, &self.runtime, self.timing.timeout, key, NodeRecord::decode).await
    }

    async fn write(&self, key: &Key, record: &NodeRecord, condition: &Condition) -> Wrote {
        let (limit, body) = (self.timing.timeout, record.encode());
        write(&self.bucket, &self.runtime, limit, key, body, condition).await
    }

    /// The next thing that happens.
    async fn next(&self, requests: &mut Requests<'_>) -> Event {
        let moment = now(&self.runtime);
        let keeper = self.keeper.borrow().wake();
        let wake = keeper.into_iter().chain(self.watch.borrow().wake(moment)).min();
        let mut time: Option<Pin<Box<dyn Future<Output = ()> + '_>>> =
            wake.map(|wake| Box::pin(self.until(wake)) as _);
        poll_fn(|cx| {
            if let Some(said) = self.inbox.borrow_mut().pop_front() {
                return Poll::Ready(Event::Said(said));
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

#[cfg(test)]
mod tests;
