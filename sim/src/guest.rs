//! A model actor: in place of wasm it runs a script of real SQL on its real database.
//!
//! What it writes can be told apart row by row, so that the checkers know which commits a database holds.

mod alarm;
mod data;
mod turn;

use std::rc::Rc;

use wasmkeep_actor::{AlarmError, Failure, Guest, InitError, TurnEnd};
use wasmkeep_storage::{Database, Value};

pub use data::read;

use crate::{
    event::SimEvent,
    flaw::Flaw,
    history::{ActorNumber, Attempt, Record, Version},
    script::{InitPlan, micros},
    stage::Stage,
    world::Jobs,
};

/// What a scripted panic says; any other panic is a bug.
pub const SCRIPTED_PANIC: &str = "a scripted panic";

/// One live instance.
pub struct ModelGuest {
    stage: Rc<Stage>,
    jobs: Jobs,
    actor: ActorNumber,
    version: Version,
    has_init: bool,
    plan: InitPlan,
    database: Rc<Database>,
    /// Its tables are known to be there.
    has_tables: bool,
}

impl ModelGuest {
    /// An instance of `version`.
    pub fn new(
        stage: &Rc<Stage>,
        actor: ActorNumber,
        version: Version,
        plan: Option<InitPlan>,
        database: &Rc<Database>,
    ) -> Self {
        stage.record(Record::InstanceMade { actor, version });
        stage.instances.set(stage.instances.get() + 1);
        Self {
            stage: stage.clone(),
            jobs: Jobs(stage.clone()),
            actor,
            version,
            has_init: plan.is_some(),
            plan: plan.unwrap_or(InitPlan::Succeed),
            database: database.clone(),
            has_tables: false,
        }
    }

    fn wrong(&self, text: impl Into<String>) {
        self.stage.record(Record::Wrong { actor: self.actor, text: text.into() });
    }
}

impl Drop for ModelGuest {
    fn drop(&mut self) {
        self.stage.instances.set(self.stage.instances.get() - 1);
        self.stage.record(Record::InstanceGone { actor: self.actor });
    }
}

/// Records the end of an `on-init`, also when it is dropped on the way.
struct InitEnd {
    stage: Rc<Stage>,
    actor: ActorNumber,
    version: Version,
    attempt: Attempt,
    ok: bool,
}

impl Drop for InitEnd {
    fn drop(&mut self) {
        let Self { actor, version, attempt, ok, .. } = *self;
        self.stage.record(Record::InitEnded { actor, version, attempt, ok });
    }
}

impl Guest for ModelGuest {
    type Event = SimEvent;

    fn has_init(&self) -> bool {
        self.has_init && !self.stage.flawed(Flaw::SkipsInit)
    }

    async fn init(&mut self) -> Result<(), InitError> {
        let attempt = self.stage.run.attempts.next();
        let (actor, version) = (self.actor, self.version);
        self.stage.record(Record::InitBegan { actor, version, attempt });
        let mut end = InitEnd { stage: self.stage.clone(), actor, version, attempt, ok: false };
        self.init_writes(attempt).await?;
        // An instance fails once: one that always does, with an alarm pending, would never come to rest.
        let plan = std::mem::replace(&mut self.plan, InitPlan::Succeed);
        let plan = if self.stage.run.faults.get() { plan } else { InitPlan::Succeed };
        match plan {
            InitPlan::Refuse if self.stage.flawed(Flaw::HidesInitFailure) => return Ok(()),
            InitPlan::Succeed => {}
            InitPlan::Refuse => return Err(InitError::Refused("as scripted".into())),
            InitPlan::Trap => return Err(InitError::Poisoned(Failure::Trap("as scripted".into()))),
            InitPlan::Panic => std::panic::resume_unwind(Box::new(SCRIPTED_PANIC)),
            InitPlan::Sleep => {
                self.stage.executor.sleep(micros(self.stage.run.parameters.event_limit_us * 100)).await;
                self.wrong("an on-init went on past its limit");
            }
            InitPlan::LoseTransaction => {
                let raised = self.database.exec("INSERT INTO guard VALUES('rollback')", Vec::new()).await;
                if raised.is_ok() || self.database.in_transaction() {
                    self.wrong("RAISE(ROLLBACK) left the transaction of on-init open");
                }
                if self.database.exec("INSERT INTO guard VALUES('none')", Vec::new()).await.is_ok() {
                    self.wrong("a statement of on-init ran outside its transaction");
                }
            }
        }
        end.ok = true;
        Ok(())
    }

    async fn alarm(&mut self, due_ms: u64, attempt: u32) -> Result<(), AlarmError> {
        self.attempt(due_ms, attempt).await
    }

    async fn deliver(&mut self, event: SimEvent) -> TurnEnd {
        turn::take(self, event).await
    }
}

impl ModelGuest {
    async fn init_writes(&self, attempt: Attempt) -> Result<(), InitError> {
        let refused = |error: wasmkeep_storage::Error| InitError::Refused(error.to_string());
        for sql in ["BEGIN", "COMMIT", "ROLLBACK"] {
            if self.database.exec(sql, Vec::new()).await.is_ok() {
                self.wrong(format!("{sql} was taken in on-init"));
            }
        }
        data::make_tables(&self.database, false).await.map_err(refused)?;
        let params = vec![Value::Integer(self.version as i64), Value::Integer(attempt as i64)];
        self.database.exec("SAVEPOINT s", Vec::new()).await.map_err(refused)?;
        self.database.exec("INSERT INTO inits VALUES(?, ?)", params).await.map_err(refused)?;
        self.database.exec("RELEASE s", Vec::new()).await.map_err(refused)?;
        if self.database.exec_durable(&self.jobs, "DELETE FROM ops", Vec::new()).await.is_ok() {
            self.wrong("exec-durable was taken in on-init");
        }
        Ok(())
    }
}
