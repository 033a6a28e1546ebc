//! One life of the shard: clients send, leave and burst, the operator deploys and sweeps, and then it is
//! stopped or killed.

use std::{
    cell::Cell,
    hash::{BuildHasher, Hasher},
    rc::Rc,
};

use wasmkeep_actor::{Actors, Limits, alarm::keep};

use crate::{
    dice::Dice,
    event::{SimEvent, Slot},
    files,
    flaw::Flaw,
    history::{ActorNumber, Record, Stillness},
    script::{self, Step, micros},
    stage::{CLASSES, Stage},
    world::SimWorld,
};

/// Polls after which a shard that does not come to rest counts as stuck. The longest honest rest, a full
/// mailbox of endless statements for each of many actors, takes a tenth of it.
const POLLS_MAX: u64 = 300_000;

/// How the driver left a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Stopped, everything at rest.
    Stopped,
    /// In the middle of things.
    Running,
}

/// A life under way.
pub struct Life {
    stage: Rc<Stage>,
    actors: Rc<Actors<SimWorld>>,
    clients: Vec<Rc<Slot>>,
    dice: Dice,
    kill: Option<KillAt>,
}

/// A kill a few polls behind a change of an alarm.
#[derive(Debug, Clone, Copy)]
struct KillAt {
    /// Counted over the life.
    alarm_change: u64,
    polls_later: u64,
}

impl Life {
    /// Begins a life on `stage`.
    pub fn new(stage: &Rc<Stage>, dice: Dice) -> Self {
        let parameters = &stage.run.parameters;
        let extra = |flaw, more| if stage.flawed(flaw) { more } else { 0 };
        let limits = Limits {
            mailbox_events_max: parameters.mailbox_events_max as usize + extra(Flaw::OverfillsMailbox, 4),
            resident_max: parameters.resident_max as usize + extra(Flaw::OverfillsShard, 1),
            event_wall_clock: micros(parameters.event_limit_us),
            doze_after: micros(parameters.doze_after_us),
            hibernate_after: micros(parameters.hibernate_after_us),
        };
        stage.record(Record::LifeBegan);
        for (actor, id) in stage.run.cast.iter().enumerate() {
            let wake = stage.book.wake(id).map(|wake| wake.at_ms);
            stage.record(Record::AlarmKnown { actor, wake });
        }
        let world = SimWorld::new(stage);
        let actors = Actors::new(world.clone(), limits);
        stage.is_keeping.set(true);
        let (kept, keeper) = (actors.clone(), stage.clone());
        stage.executor.spawn(async move {
            keep(world, kept).await;
            keeper.is_keeping.set(false);
        });
        Self { stage: stage.clone(), actors, clients: Vec::new(), dice, kill: None }
    }

    /// Lives until it is stopped, or left running to be killed. `last`: with faults off at its end.
    pub fn run(mut self, last: bool) -> Left {
        let is_shown_by_kills = self.stage.run.flaw.is_some_and(Flaw::is_shown_by_kills);
        let chance = |chance| if is_shown_by_kills { 1_000 } else { chance };
        let (actions, crashes) =
            (self.stage.run.parameters.actions, chance(self.stage.run.parameters.crashes));
        let kill_at = if !last && self.dice.chance(crashes) { self.dice.below(actions) } else { u64::MAX };
        // Half of the kills come close behind a change of an alarm, where its index and its database part.
        let kill = (kill_at != u64::MAX && self.dice.chance(chance(500))).then(|| KillAt {
            alarm_change: self.dice.within(1..=if is_shown_by_kills { 2 } else { 12 }),
            polls_later: self.dice.below(8),
        });
        self.kill = kill;
        for action in 0..actions {
            self.act();
            self.poll_some();
            if (action == kill_at && kill.is_none()) || self.is_killed() {
                return Left::Running;
            }
            if self.stage.run.history.violation().is_some() {
                return Left::Running;
            }
        }
        if last {
            self.end_well();
        } else {
            self.stop();
        }
        Left::Stopped
    }

    fn act(&mut self) {
        let parameters = &self.stage.run.parameters;
        let (abandons, bursts, deploys) = (parameters.abandons, parameters.bursts, parameters.deploys);
        let (sweeps, quiets, clock_sets) = (parameters.sweeps, parameters.quiets, parameters.clock_sets);
        let most = parameters.mailbox_events_max + 4;
        if self.stage.flawed(Flaw::UsesEntropy) {
            let chance = std::hash::RandomState::new().build_hasher().finish();
            self.stage.executor.advance(micros(chance % 100));
        }
        let send = 1_000 - abandons - bursts - deploys - sweeps - quiets - clock_sets;
        match self.dice.weighted(&[send, abandons, bursts, deploys, sweeps, quiets, clock_sets]) {
            0 => {
                let actor = self.someone();
                self.send(actor, None);
            }
            1 => self.abandon(),
            2 => {
                let actor = self.someone();
                for _ in 0..self.dice.within(2..=most) {
                    self.send(actor, None);
                }
            }
            3 => self.deploy(),
            4 => {
                let parameters = &self.stage.run.parameters;
                let long = *self.dice.pick(&[parameters.doze_after_us, parameters.hibernate_after_us]);
                let idle = self.dice.below(long * 2);
                self.stage.executor.advance(micros(idle));
                self.sweep();
            }
            5 => self.crowd(),
            _ => self.set_clock(),
        }
    }

    /// As a shard does it, without the pauses.
    fn sweep(&self) {
        self.actors.sweep();
        while self.actors.doze(1) {}
    }

    /// The operator, or a time service, sets the wall clock.
    fn set_clock(&mut self) {
        let by_ms: i64 = *self.dice.pick(&[-3_600_000, -20_000, -500, 500, 20_000, 3_600_000]);
        let wall_ms = &self.stage.run.wall_ms;
        wall_ms.set(wall_ms.get().saturating_add_signed(by_ms));
        self.stage.record(Record::ClockSet { by_ms });
    }

    /// Runs the executor for none, a few or many polls.
    fn poll_some(&mut self) {
        let most = *self.dice.pick(&[0, 0, 3, 20, 200]);
        for _ in 0..self.dice.below(most + 1) {
            if self.is_killed() || !self.stage.executor.step() {
                return;
            }
            if let Some(kill) = &mut self.kill
                && self.stage.alarm_changes.latest() >= kill.alarm_change
            {
                kill.polls_later = kill.polls_later.saturating_sub(1);
            }
        }
    }

    /// Whether the moment of a kill has come.
    fn is_killed(&self) -> bool {
        self.kill.is_some_and(|kill| {
            kill.polls_later == 0 && self.stage.alarm_changes.latest() >= kill.alarm_change
        })
    }

    fn someone(&mut self) -> ActorNumber {
        let (actors, hot) = (self.stage.run.cast.len(), self.stage.run.parameters.hot);
        if self.dice.chance(hot) { self.dice.index(actors.min(2)) } else { self.dice.index(actors) }
    }

    fn event(&mut self, actor: ActorNumber, script: Option<Vec<Step>>) -> SimEvent {
        let parameters = &self.stage.run.parameters;
        let script = script.unwrap_or_else(|| {
            if self.stage.run.faults.get() {
                script::draw(parameters, &mut self.dice)
            } else {
                script::draw_benign(&mut self.dice)
            }
        });
        let event = self.stage.run.events.next();
        self.stage.record(Record::Sent { event, actor });
        let event = SimEvent::new(&self.stage, event, actor, script);
        self.clients.push(event.slot());
        event
    }

    fn send(&mut self, actor: ActorNumber, script: Option<Vec<Step>>) {
        let id = self.stage.run.cast[actor].clone();
        let event = self.event(actor, script);
        if self.stage.flawed(Flaw::SwallowsEvents) && self.dice.chance(100) {
            return;
        }
        if self.stage.flawed(Flaw::SwapsArrivals) {
            let second = self.event(actor, None);
            self.actors.dispatch(&id, second);
        }
        self.actors.dispatch(&id, event);
    }

    fn abandon(&mut self) {
        if !self.clients.is_empty() {
            let client = self.dice.index(self.clients.len());
            self.clients.swap_remove(client).abandon();
        }
    }

    fn deploy(&mut self) {
        let mut versions = self.stage.run.versions.borrow_mut();
        let class = self.dice.index(versions.len());
        versions[class] += 1;
        let version = versions[class];
        drop(versions);
        self.stage.record(Record::Deployed { class, version });
        if !self.stage.flawed(Flaw::RunsOldCode) {
            self.actors.renew(&CLASSES[class].parse().expect("class names are valid"));
        }
    }

    /// Lets everything come to rest; says whether it did.
    fn settle(&mut self) -> bool {
        if !self.stage.executor.drain(POLLS_MAX) {
            self.stage.record(Record::Restless { waiting: self.actors.waiting() });
            return false;
        }
        self.clients.clear();
        self.still();
        true
    }

    /// Records that nothing moves; the actors that are resident.
    fn still(&self) -> Vec<ActorNumber> {
        let open = files::open_below(&self.stage.folder);
        let cast = 0..self.stage.run.cast.len();
        let files: Vec<_> = cast.filter(|actor| open.contains(&self.stage.path(*actor))).collect();
        self.stage.record(Record::Still(Stillness {
            resident: self.actors.counts().0,
            waiting: self.actors.waiting(),
            instances: self.stage.instances.get(),
            files: files.clone(),
            tasks: self.stage.executor.task_count() - usize::from(self.stage.is_keeping.get()),
        }));
        let mut resident: Vec<_> =
            files.into_iter().chain(self.stage.dozing.borrow().iter().copied()).collect();
        resident.sort_unstable();
        resident
    }

    /// Lets everything come to rest, then wakes an actor for which another must give way, if there is one.
    fn crowd(&mut self) {
        if !self.settle() {
            return;
        }
        let resident = self.still();
        let asleep: Vec<_> =
            (0..self.stage.run.cast.len()).filter(|actor| !resident.contains(actor)).collect();
        if resident.len() as u64 != self.stage.run.parameters.resident_max || asleep.is_empty() {
            return;
        }
        let actor = *self.dice.pick(&asleep);
        self.stage.record(Record::Crowding { actor });
        if self.stage.flawed(Flaw::TouchesNobody) {
            // A use that nobody sent: whoever it touches is no longer the one to go.
            for touched in &resident {
                let ghost = SimEvent::ghost(&self.stage, *touched);
                self.actors.dispatch(&self.stage.run.cast[*touched], ghost);
            }
        }
        self.send(actor, Some(script::draw_benign(&mut self.dice.clone())));
        self.settle();
    }

    /// A stop like a node's: what waits may run, then is given up.
    fn stop(&mut self) {
        self.stage.book.stop();
        self.actors.stop();
        self.poll_some();
        let actor = self.someone();
        self.send(actor, None);
        if self.dice.chance(500) {
            self.poll_some();
            self.actors.give_up();
        }
        self.finish();
    }

    /// Waits until every actor has gone to rest after a stop.
    fn finish(&mut self) {
        let stopped = Rc::new(Cell::new(false));
        let (actors, done) = (self.actors.clone(), stopped.clone());
        self.stage.executor.spawn(async move {
            actors.stopped().await;
            done.set(true);
        });
        self.settle();
        if !stopped.get() {
            self.stage.record(Record::Restless { waiting: self.actors.waiting() });
        }
    }

    /// The end of a run: faults end, every actor answers, sleeps, answers again, and all is put away.
    fn end_well(&mut self) {
        if !self.settle() {
            return;
        }
        self.stage.run.faults.set(false);
        self.stage.executor.calm();
        self.stage.record(Record::FaultsOff);
        let parameters = &self.stage.run.parameters;
        let (doze_us, hibernate_us) = (parameters.doze_after_us, parameters.hibernate_after_us);
        for idle_us in [doze_us, hibernate_us, hibernate_us] {
            for actor in 0..self.stage.run.cast.len() {
                self.send(actor, None);
                // One at a time: more could not all find room.
                if !self.settle() {
                    return;
                }
            }
            self.stage.executor.advance(micros(idle_us + 1));
            self.sweep();
            if !self.settle() {
                return;
            }
            if idle_us < hibernate_us {
                continue;
            }
            let resident = self.actors.counts().0;
            if resident > 0 {
                self.stage.run.history.violate("residency", format!("{resident} actors outlived a sweep"));
            }
        }
        self.stage.book.stop();
        self.actors.stop();
        self.finish();
    }
}
