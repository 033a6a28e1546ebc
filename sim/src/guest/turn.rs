//! One turn of the model actor: carries a script out, step by step.

use std::{ops::ControlFlow, rc::Rc};

use wasmkeep_actor::{Failure, TurnEnd};
use wasmkeep_storage::{Changes, Error, Value};

use super::{ModelGuest, SCRIPTED_PANIC, data};
use crate::{
    event::{SimEvent, Slot},
    flaw::Flaw,
    history::{Record, Unit},
    script::{Kind, Step, micros},
    stage::{QUOTA_BYTES, Stage},
};

/// A statement without end.
const ENDLESS: &str =
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
const COUNT: &str =
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT ?) SELECT count(*) FROM r";
const INSERT: &str = "INSERT INTO ops VALUES(?, ?, ?, zeroblob(?))";
const BULK: &str = "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r LIMIT ?) \
    INSERT INTO ops SELECT ?, n, ?, NULL FROM r";

/// Records the end of a turn, also when it is dropped on the way.
struct TurnOver(Rc<Stage>, Rc<Slot>);

impl Drop for TurnOver {
    fn drop(&mut self) {
        self.0.record(Record::Ended { event: self.1.event, actor: self.1.actor });
    }
}

/// Why a script ends before its last step.
enum Stop {
    /// The turn ends so.
    End(TurnEnd),
    /// The database takes nothing more.
    Storage,
}

type Flow = ControlFlow<Stop>;

const ON: Flow = ControlFlow::Continue(());

/// Takes one event to its end.
pub async fn take(guest: &mut ModelGuest, event: SimEvent) -> TurnEnd {
    let (slot, script) = event.take();
    let stage = guest.stage.clone();
    let _over = TurnOver(stage.clone(), slot.clone());
    let (actor, version, has_init) = (guest.actor, guest.version, guest.has_init);
    stage.record(Record::Began { event: slot.event, actor, version, has_init });
    if guest.database.in_transaction() {
        guest.wrong("an event began inside a transaction");
    }
    if !guest.has_tables {
        match data::make_tables(&guest.database, true).await {
            Ok(()) => guest.has_tables = true,
            Err(error) => guest.wrong(format!("the tables could not be made: {error}")),
        }
    }
    let mut turn = Turn { guest, slot, cursors: Vec::new() };
    for step in script {
        if let ControlFlow::Break(stop) = turn.step(&step).await {
            if let Stop::End(end) = stop {
                return end;
            }
            break;
        }
    }
    turn.finish().await
}

struct Turn<'a> {
    guest: &'a ModelGuest,
    slot: Rc<Slot>,
    cursors: Vec<wasmkeep_storage::Cursor>,
}

impl Turn<'_> {
    async fn step(&mut self, step: &Step) -> Flow {
        let (kind, amount) = match step {
            Step::Answer => return self.answer(),
            Step::Do(kind, amount) => (*kind, *amount),
        };
        match kind {
            Kind::Insert => self.insert(false).await,
            Kind::InsertDurable => self.insert(true).await,
            Kind::Commit => self.transaction(amount, false).await,
            Kind::CommitDurable => self.transaction(amount, true).await,
            Kind::Rollback => self.rolled_back(amount).await,
            Kind::LeftOpen => self.left_open("BEGIN", amount).await,
            Kind::LeftOpenSavepoint => self.left_open("SAVEPOINT s", amount).await,
            Kind::RaiseRollback => self.raise_rollback(amount).await,
            Kind::RaiseAbort => self.raise_abort().await,
            Kind::Constraint => self.constraint().await,
            Kind::Bulk => self.bulk(amount).await,
            Kind::Count => self.count(amount).await,
            Kind::Endless => self.endless().await,
            Kind::Cursor => self.cursor().await,
            Kind::Fill => self.fill().await,
            Kind::Read => self.read().await,
            Kind::DeleteSelf => {
                self.guest.stage.record(Record::DeleteAsked { actor: self.guest.actor });
                self.guest.database.delete_self();
                ON
            }
            Kind::SetAlarm => self.set_alarm(amount).await,
            Kind::SetAlarmCommit => self.set_alarm_within(amount, true).await,
            Kind::SetAlarmRollback => self.set_alarm_within(amount, false).await,
            Kind::ClearAlarm => self.clear_alarm().await,
            Kind::Sleep => {
                self.guest.stage.executor.sleep(micros(amount)).await;
                ON
            }
            Kind::SleepPastLimit => {
                self.guest.stage.executor.sleep(micros(amount)).await;
                self.guest.wrong("an event went on past its limit");
                ON
            }
            Kind::Trap => end(TurnEnd::Poisoned(Failure::Trap("as scripted".into()))),
            Kind::Panic => std::panic::resume_unwind(Box::new(SCRIPTED_PANIC)),
        }
    }

    fn answer(&self) -> Flow {
        if !self.slot.is_answered() {
            self.slot.answer();
        }
        ON
    }

    async fn finish(self) -> TurnEnd {
        if self.guest.stage.flawed(Flaw::CommitsLeftovers) && self.guest.database.in_transaction() {
            let _ = self.exec("COMMIT", Vec::new()).await;
        }
        let _ = self.answer();
        TurnEnd::Ready
    }

    async fn exec(&self, sql: &str, params: Vec<Value>) -> Result<Changes, Error> {
        self.guest.database.exec(sql, params).await
    }

    async fn exec_as(&self, durable: bool, sql: &str, params: Vec<Value>) -> Result<Changes, Error> {
        if durable {
            self.guest.database.exec_durable(&self.guest.jobs, sql, params).await
        } else {
            self.exec(sql, params).await
        }
    }

    /// Goes on after what must succeed, unless the database takes nothing more.
    fn must<T>(&self, what: &str, result: Result<T, Error>) -> Flow {
        match result {
            Ok(_) => ON,
            Err(Error::NotDurable(_)) => ControlFlow::Break(Stop::Storage),
            Err(error) => {
                self.guest.wrong(format!("{what}: {error}"));
                ON
            }
        }
    }

    /// Goes on after what must fail.
    fn must_not<T>(&self, what: &str, result: Result<T, Error>) -> Flow {
        match result {
            Err(Error::NotDurable(_)) => ControlFlow::Break(Stop::Storage),
            Err(_) => ON,
            Ok(_) => {
                self.guest.wrong(format!("{what} was taken"));
                ON
            }
        }
    }

    fn row(&self, unit: Unit, part: u64) -> Vec<Value> {
        let bytes = self.guest.stage.run.parameters.row_bytes;
        let owner = self.guest.stage.run.cast[self.guest.actor].to_string();
        let integer = |number: u64| Value::Integer(number as i64);
        vec![integer(unit), integer(part), Value::Text(owner), integer(bytes)]
    }

    /// Runs the statement that commits `unit`, and records whether it did.
    async fn commit(&self, unit: Unit, parts: u64, durable: bool, sql: &str, params: Vec<Value>) -> Flow {
        let (stage, actor) = (&self.guest.stage, self.guest.actor);
        stage.record(Record::Committing { actor, unit, parts });
        if stage.flawed(Flaw::AnswersEarly) {
            stage.record(Record::Committed { actor, unit });
            let _ = self.answer();
            stage.executor.sleep(micros(500)).await;
            return self.must(sql, self.exec_as(durable, sql, params).await);
        }
        let was_poisoned = self.guest.database.is_poisoned();
        let result = self.exec_as(durable, sql, params).await;
        match &result {
            Ok(_) => stage.record(Record::Committed { actor, unit }),
            // It stands here all the same, or does not: whoever looks next will know.
            Err(Error::NotDurable(_)) if durable && !was_poisoned => {}
            Err(_) => stage.record(Record::NotCommitted { actor, unit }),
        }
        self.must(sql, result)
    }

    /// Writes rows of a unit in the open transaction.
    async fn write(&self, unit: Unit, parts: u64) -> Flow {
        for part in 0..parts {
            self.must("insert", self.exec(INSERT, self.row(unit, part)).await)?;
        }
        ON
    }

    fn unit(&self) -> Unit {
        self.guest.stage.run.units.next()
    }

    /// Ends a transaction that an earlier step left open, so that the steps mix in any order.
    async fn outside(&self) -> Flow {
        if self.guest.database.in_transaction() {
            self.must("ROLLBACK", self.exec("ROLLBACK", Vec::new()).await)?;
        }
        ON
    }

    async fn insert(&self, durable: bool) -> Flow {
        self.outside().await?;
        let unit = self.unit();
        self.commit(unit, 1, durable, INSERT, self.row(unit, 0)).await
    }

    async fn transaction(&self, parts: u64, durable: bool) -> Flow {
        self.outside().await?;
        let unit = self.unit();
        self.must("BEGIN", self.exec("BEGIN", Vec::new()).await)?;
        self.write(unit, parts).await?;
        if durable {
            let early = self.exec_as(true, INSERT, self.row(unit, parts)).await;
            self.must_not("exec-durable of an insert in a transaction", early)?;
        }
        self.commit(unit, parts, durable, "COMMIT", Vec::new()).await
    }

    async fn rolled_back(&self, parts: u64) -> Flow {
        self.left_open("BEGIN", parts).await?;
        self.outside().await
    }

    async fn left_open(&self, opening: &str, parts: u64) -> Flow {
        self.outside().await?;
        self.must(opening, self.exec(opening, Vec::new()).await)?;
        self.write(self.unit(), parts).await?;
        if opening.starts_with("SAVEPOINT") {
            self.must("ROLLBACK TO", self.exec("ROLLBACK TO s", Vec::new()).await)?;
            self.write(self.unit(), 1).await?;
        }
        ON
    }

    // case Q3
    async fn raise_rollback(&self, parts: u64) -> Flow {
        self.outside().await?;
        self.must("BEGIN", self.exec("BEGIN", Vec::new()).await)?;
        self.write(self.unit(), parts).await?;
        let raised = self.exec("INSERT INTO guard VALUES('rollback')", Vec::new()).await;
        self.must_not("an insert that raises ROLLBACK", raised)?;
        if self.guest.database.in_transaction() {
            self.guest.wrong("RAISE(ROLLBACK) left the transaction open");
        }
        let unit = self.unit();
        self.commit(unit, 1, false, INSERT, self.row(unit, 0)).await?;
        self.must_not("COMMIT after RAISE(ROLLBACK)", self.exec("COMMIT", Vec::new()).await)
    }

    async fn raise_abort(&self) -> Flow {
        self.outside().await?;
        let unit = self.unit();
        self.must("BEGIN", self.exec("BEGIN", Vec::new()).await)?;
        self.write(unit, 1).await?;
        let raised = self.exec("INSERT INTO guard VALUES('abort')", Vec::new()).await;
        self.must_not("an insert that raises ABORT", raised)?;
        self.commit(unit, 1, false, "COMMIT", Vec::new()).await
    }

    async fn set_alarm(&self, wait_ms: u64) -> Flow {
        self.outside().await?;
        self.must("setting the alarm", self.guest.set_alarm_alone(wait_ms, false).await)
    }

    // case A2
    async fn set_alarm_within(&self, wait_ms: u64, commits: bool) -> Flow {
        self.outside().await?;
        self.must("BEGIN", self.exec("BEGIN", Vec::new()).await)?;
        let (stage, actor) = (&self.guest.stage, self.guest.actor);
        let due_ms = match self.guest.set_alarm(wait_ms).await {
            Ok(due_ms) => due_ms,
            error => return self.must("setting the alarm", error),
        };
        // A while in which the index and the database differ.
        self.count(1_000).await?;
        if !commits {
            return self.must("ROLLBACK", self.exec("ROLLBACK", Vec::new()).await);
        }
        stage.record(Record::AlarmSetting { actor, due_ms: Some(due_ms) });
        let committed = self.exec("COMMIT", Vec::new()).await;
        stage.record(match committed {
            Ok(_) => Record::AlarmSet { actor, due_ms: Some(due_ms), in_attempt: false },
            Err(_) => Record::AlarmNotSet { actor },
        });
        self.must("COMMIT", committed)
    }

    async fn clear_alarm(&self) -> Flow {
        self.outside().await?;
        let cleared = self.guest.database.clear_alarm();
        if cleared.is_ok() {
            let actor = self.guest.actor;
            self.guest.stage.record(Record::AlarmSet { actor, due_ms: None, in_attempt: false });
        }
        self.must("clearing the alarm", cleared)
    }

    async fn constraint(&self) -> Flow {
        self.outside().await?;
        self.must_not("a second 1", self.exec("INSERT INTO one VALUES(1)", Vec::new()).await)?;
        // The first row is good and the second is not: nothing of the statement stands.
        self.must_not("a 2", self.exec("INSERT INTO one VALUES(1), (2)", Vec::new()).await)
    }

    async fn bulk(&self, parts: u64) -> Flow {
        self.outside().await?;
        let unit = self.unit();
        let owner = self.guest.stage.run.cast[self.guest.actor].to_string();
        let params = vec![Value::Integer(parts as i64), Value::Integer(unit as i64), Value::Text(owner)];
        self.commit(unit, parts, false, BULK, params).await
    }

    async fn count(&self, rounds: u64) -> Flow {
        let counted = self.guest.database.query(COUNT, vec![Value::Integer(rounds as i64)]).await;
        if let Ok(counted) = &counted
            && counted.rows != [[Value::Integer(rounds as i64)]]
        {
            self.guest.wrong("a suspended query counted wrong");
        }
        self.must("count", counted)
    }

    // case Q6
    async fn endless(&self) -> Flow {
        let counted = self.guest.database.query(ENDLESS, Vec::new()).await;
        self.must_not("a query without end", counted)
    }

    async fn cursor(&mut self) -> Flow {
        let cursor = self.guest.database.open_cursor("SELECT unit FROM ops", Vec::new()).await;
        match cursor {
            Ok(cursor) => {
                let rows = cursor.next(1).await;
                self.cursors.push(cursor);
                self.must("cursor", rows)
            }
            error => self.must("cursor", error),
        }
    }

    // case Q4
    async fn fill(&self) -> Flow {
        self.outside().await?;
        let size = Value::Integer((QUOTA_BYTES + 4096) as i64);
        let filled = self.exec("INSERT INTO ballast VALUES(zeroblob(?))", vec![size]).await;
        if let Err(error) = &filled
            && !matches!(error, Error::Full | Error::NotDurable(_))
        {
            self.guest.wrong(format!("over the quota: {error}"));
        }
        self.must_not("a value over the quota", filled)
    }

    async fn read(&self) -> Flow {
        self.outside().await?;
        let found = data::read(&self.guest.database).await;
        if let Ok(found) = &found {
            self.guest.stage.record(Record::Seen { actor: self.guest.actor, found: found.clone() });
        }
        self.must("read", found)
    }
}

fn end(end: TurnEnd) -> Flow {
    ControlFlow::Break(Stop::End(end))
}
