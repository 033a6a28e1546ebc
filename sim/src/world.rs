//! What the shard offers its actors, with seeded delays and failures.

use std::{cell::RefCell, fs, future::Future, path::Path, rc::Rc, time::Duration};

use wasmkeep_actor::{
    Happening, Refusal, Started, World,
    alarm::{Book, Target},
};
use wasmkeep_protocol::ActorId;
use wasmkeep_storage::{Database, Offload, OpenError, Spare};

use crate::{
    event::SimEvent,
    files,
    flaw::Flaw,
    guest::{ModelGuest, SCRIPTED_PANIC},
    history::{ActorNumber, Record, Version},
    script::{InitPlan, micros},
    stage::{Stage, class_of},
};

/// Blocking work in virtual time: later, once, or dropped.
pub struct Jobs(pub Rc<Stage>);

impl Offload for Jobs {
    fn offload(&self, job: Box<dyn FnOnce() + Send>) {
        let stage = self.0.clone();
        self.0.executor.spawn(async move {
            stage.delay(stage.run.parameters.offload_delay_us_max).await;
            if !stage.strikes(stage.run.parameters.offload_drops) {
                job();
            }
        });
    }
}

/// The simulated shard around its actors.
pub struct SimWorld {
    stage: Rc<Stage>,
    jobs: Jobs,
    /// Databases that a broken variant never lets go.
    kept: RefCell<Vec<Rc<Database>>>,
}

impl SimWorld {
    /// The world of one life.
    pub fn new(stage: &Rc<Stage>) -> Rc<Self> {
        Rc::new(Self { stage: stage.clone(), jobs: Jobs(stage.clone()), kept: RefCell::default() })
    }

    fn number(&self, id: &ActorId) -> ActorNumber {
        self.stage.run.cast.iter().position(|known| known == id).expect("events go to the cast only")
    }

    fn current(&self, class: usize) -> Version {
        self.stage.run.versions.borrow()[class]
    }

    async fn delay(&self) {
        self.stage.delay(self.stage.run.parameters.world_delay_us_max).await;
    }

    fn make(&self, actor: ActorNumber, version: Version, database: &Rc<Database>) -> ModelGuest {
        let fails = if self.stage.run.faults.get() { self.stage.run.parameters.init_fails } else { 0 };
        let plan = InitPlan::draw(fails, &mut self.stage.run.dice.borrow_mut());
        let plan = (class_of(actor) == 0).then_some(plan);
        ModelGuest::new(&self.stage, actor, version, plan, database)
    }
}

impl World for SimWorld {
    type Guest = ModelGuest;

    fn now(&self) -> Duration {
        self.stage.executor.now()
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        let is_limit = duration == micros(self.stage.run.parameters.event_limit_us);
        let ignored = is_limit && self.stage.flawed(Flaw::IgnoresLimit);
        self.stage.executor.sleep(if ignored { duration * 1_000 } else { duration })
    }

    fn spawn(&self, _: &ActorId, task: impl Future<Output = ()> + 'static) {
        self.stage.executor.spawn_eagerly(task);
    }

    fn offload(&self) -> &dyn Offload {
        &self.jobs
    }

    async fn open(&self, id: &ActorId) -> Result<Database, Refusal> {
        let actor = self.number(id);
        self.delay().await;
        if self.stage.strikes(self.stage.run.parameters.open_fails) {
            return Err(Refusal::Storage("as scripted".into()));
        }
        let path = self.stage.path(actor);
        if self.stage.flawed(Flaw::LosesWal) {
            let _ = fs::remove_file(files::wal_of(&path));
        }
        if let Some(database) = self.place_a_spare(actor, &path)? {
            self.stage.record(Record::Opened { actor });
            return Ok(database);
        }
        match Database::open_on(&self.jobs, &path, &self.stage.config()).await {
            Ok(database) => {
                self.stage.record(Record::Opened { actor });
                Ok(database)
            }
            Err(error) => Err(self.not_opened(actor, &error)),
        }
    }

    async fn start(&self, id: &ActorId, database: &Rc<Database>) -> Result<Started<ModelGuest>, Refusal> {
        let actor = self.number(id);
        self.delay().await;
        let version = self.current(class_of(actor));
        self.delay().await;
        if self.stage.strikes(self.stage.run.parameters.start_fails) {
            if self.stage.run.dice.borrow_mut().chance(500) {
                std::panic::resume_unwind(Box::new(SCRIPTED_PANIC));
            }
            return Err(Refusal::Start("as scripted".into()));
        }
        if self.stage.flawed(Flaw::KeepsDatabase) {
            self.kept.borrow_mut().push(database.clone());
        }
        let guest = self.make(actor, version, database);
        let forgets = self.stage.flawed(Flaw::ForgetsInit);
        let suffix = if forgets { format!(".{}", self.stage.run.attempts.latest()) } else { String::new() };
        Ok(Started { guest, version: format!("{version}{suffix}") })
    }

    async fn erase(&self, id: &ActorId) {
        let actor = self.number(id);
        self.delay().await;
        if self.stage.flawed(Flaw::SkipsErase) {
            self.stage.record(Record::Erased { actor });
            return;
        }
        let path = self.stage.path(actor);
        if self.stage.run.dice.borrow_mut().chance(500) {
            // The first half of a removal; a crash may come between the halves.
            let _ = fs::remove_file(&path);
            self.stage.acknowledged.borrow_mut().remove(&actor);
            self.stage.record(Record::Erased { actor });
            self.delay().await;
            self.remove(actor);
        } else {
            self.remove(actor);
            self.stage.acknowledged.borrow_mut().remove(&actor);
            self.stage.record(Record::Erased { actor });
        }
    }

    fn unix_ms(&self) -> u64 {
        self.stage.unix_ms()
    }

    fn alarms(&self) -> &Book {
        &self.stage.book
    }

    fn alarm_target(&self, id: &ActorId) -> Target {
        let actor = self.number(id);
        if !self.stage.path(actor).exists() {
            return Target::Gone;
        }
        self.stage.record(Record::AlarmSent { actor });
        Target::Ready
    }

    fn alarm_event(&self) -> (SimEvent, impl Future<Output = bool> + 'static) {
        let (event, answer) = SimEvent::alarm(&self.stage);
        (event, async move { answer.taken().await })
    }

    fn observe(&self, id: &ActorId, happening: Happening<'_>) {
        let actor = self.number(id);
        match happening {
            Happening::Slept => {
                self.stage.dozing.borrow_mut().remove(&actor);
                self.stage.record(Record::Slept { actor });
            }
            Happening::Dozed => {
                self.stage.dozing.borrow_mut().insert(actor);
                self.stage.record(Record::Dozed { actor });
                if self.stage.flawed(Flaw::LosesWalDozing) {
                    let _ = fs::remove_file(files::wal_of(&self.stage.path(actor)));
                }
            }
            Happening::Roused => {
                self.stage.dozing.borrow_mut().remove(&actor);
                self.stage.record(Record::Roused { actor });
            }
            Happening::StorageTrouble(text) => self.stage.record(Record::Trouble { actor, text }),
            Happening::Woke(_)
            | Happening::Turn { .. }
            | Happening::Alarm { .. }
            | Happening::Failed(_)
            | Happening::RolledBack => {}
        }
    }
}

impl SimWorld {
    /// The actor's database, if it is new and a database made ahead is at hand.
    fn place_a_spare(&self, actor: ActorNumber, path: &Path) -> Result<Option<Database>, Refusal> {
        let parameters = &self.stage.run.parameters;
        if !self.stage.run.dice.borrow_mut().chance(parameters.spares) {
            return Ok(None);
        }
        let made_at = self.stage.folder.join(format!("spares/{}.db", self.stage.run.spares.next()));
        let config = self.stage.config();
        let spare = Spare::make(&made_at, &config).map_err(|error| self.not_opened(actor, &error))?;
        if self.stage.strikes(parameters.spares_torn) && !path.exists() {
            // As a crash between the two renames leaves it: the WAL has moved and the database has not.
            drop(spare);
            let _ = fs::rename(files::wal_of(&made_at), files::wal_of(path));
            return Err(Refusal::Storage("as scripted".into()));
        }
        if self.stage.flawed(Flaw::PlacesOver) {
            let _ = fs::remove_file(path);
        }
        match spare.place(path, &config) {
            Ok(database) => Ok(Some(database)),
            Err(unplaced) => {
                let _ = unplaced.spare.discard();
                Ok(None)
            }
        }
    }

    fn not_opened(&self, actor: ActorNumber, error: &OpenError) -> Refusal {
        if !matches!(error, OpenError::GivenUp) {
            // The path holds the name of a scratch folder, which is not the same at each run.
            let text = error.to_string().replace(&*self.stage.folder.to_string_lossy(), "");
            self.stage.record(Record::Wrong { actor, text: format!("open: {text}") });
        }
        Refusal::Storage("it could not be opened".into())
    }

    fn remove(&self, actor: ActorNumber) {
        if let Err(error) = wasmkeep_storage::remove(&self.stage.path(actor)) {
            self.stage.record(Record::Wrong { actor, text: format!("removing the files: {error}") });
        }
    }
}
