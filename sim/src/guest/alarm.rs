//! The model actor's alarm: how it is set, and what an attempt does.

use wasmkeep_actor::{AlarmError, Failure};
use wasmkeep_storage::Error;

use super::{ModelGuest, SCRIPTED_PANIC};
use crate::{
    flaw::Flaw,
    history::Record,
    script::{AlarmPlan, micros},
};

impl ModelGuest {
    /// Sets the alarm, as the import that ships does: the index first.
    pub(super) async fn set_alarm(&self, wait_ms: u64) -> Result<u64, Error> {
        let (stage, id) = (&self.stage, &self.stage.run.cast[self.actor]);
        let due_ms = stage.true_unix_ms() + wait_ms;
        let is_later = stage.book.wake(id).is_some_and(|wake| wake.at_ms < due_ms);
        // The kill that shows this flaw comes behind a change it is about.
        if is_later || !stage.flawed(Flaw::SettlesEarly) {
            stage.alarm_changes.next();
        }
        if stage.flawed(Flaw::SettlesEarly) {
            let wake = wasmkeep_protocol::alarm::Wake { at_ms: due_ms, is_retry: false };
            let _ = stage.book.settled(id, Some(wake));
            stage.executor.sleep(micros(500)).await;
        }
        self.database.set_alarm(due_ms, |wake| {
            if stage.flawed(Flaw::AnnouncesLate) {
                return Ok(());
            }
            stage.book.announce(id, wake).map_err(|error| Error::Refused(error.to_string()))
        })?;
        Ok(due_ms)
    }

    /// Sets the alarm by itself, and records that it stands.
    pub(super) async fn set_alarm_alone(&self, wait_ms: u64, in_attempt: bool) -> Result<(), Error> {
        let actor = self.actor;
        let due_ms = self.set_alarm(wait_ms).await?;
        self.stage.record(Record::AlarmSet { actor, due_ms: Some(due_ms), in_attempt });
        Ok(())
    }

    pub(super) async fn attempt(&self, due_ms: u64, number: u32) -> Result<(), AlarmError> {
        let (stage, actor) = (&self.stage, self.actor);
        let fails = if stage.run.faults.get() { stage.run.parameters.alarm_fails } else { 0 };
        let plan = AlarmPlan::draw(fails, &mut stage.run.dice.borrow_mut());
        let now_ms = stage.true_unix_ms();
        if !stage.flawed(Flaw::SettlesEarly) {
            stage.alarm_changes.next();
        }
        stage.record(Record::AlarmBegan { actor, due_ms, number, now_ms });
        let mut end = AttemptEnd { guest: self, ok: false };
        if self.database.in_transaction() {
            self.wrong("an attempt at an alarm began inside a transaction");
        }
        stage.delay(stage.run.parameters.world_delay_us_max).await;
        let ended = self.carry_out(plan, number).await;
        end.ok = ended.is_ok();
        if stage.flawed(Flaw::HidesAlarmFailure) && matches!(ended, Err(AlarmError::Refused(_))) {
            return Ok(());
        }
        ended
    }

    async fn carry_out(&self, plan: AlarmPlan, number: u32) -> Result<(), AlarmError> {
        let refused = |error: Error| AlarmError::Refused(error.to_string());
        let (stage, actor) = (&self.stage, self.actor);
        // Something each time: what an attempt that is repeated does not set again stays.
        let wait_ms = u64::from(number) * 40;
        match plan {
            AlarmPlan::Succeed => Ok(()),
            // Not for ever: a run must come to rest.
            AlarmPlan::SetNext if !stage.run.faults.get() => Ok(()),
            AlarmPlan::SetNext => self.set_alarm_alone(wait_ms, true).await.map_err(refused),
            AlarmPlan::SetAndRefuse => {
                self.set_alarm_alone(wait_ms, true).await.map_err(refused)?;
                Err(AlarmError::Refused("as scripted".into()))
            }
            AlarmPlan::Refuse => Err(AlarmError::Refused("as scripted".into())),
            AlarmPlan::LeaveOpen => {
                self.database.exec("BEGIN", Vec::new()).await.map_err(refused)?;
                self.set_alarm(wait_ms).await.map_err(refused)?;
                Ok(())
            }
            AlarmPlan::DeleteSelf => {
                stage.record(Record::DeleteAsked { actor });
                self.database.delete_self();
                Err(AlarmError::Refused("as scripted".into()))
            }
            AlarmPlan::Trap => Err(AlarmError::Poisoned(Failure::Trap("as scripted".into()))),
            AlarmPlan::Panic => std::panic::resume_unwind(Box::new(SCRIPTED_PANIC)),
            AlarmPlan::Sleep => {
                stage.executor.sleep(micros(stage.run.parameters.event_limit_us * 100)).await;
                self.wrong("an attempt at an alarm went on past its limit");
                Ok(())
            }
        }
    }
}

/// Records the end of an attempt, also when it is dropped on the way.
struct AttemptEnd<'a> {
    guest: &'a ModelGuest,
    ok: bool,
}

impl Drop for AttemptEnd<'_> {
    fn drop(&mut self) {
        self.guest.stage.record(Record::AlarmEnded { actor: self.guest.actor, ok: self.ok });
    }
}
