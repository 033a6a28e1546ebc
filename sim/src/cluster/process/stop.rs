//! A clean stop.

use wasmkeep_protocol::{ActorId, clock::Now, failover::WaitsInput};

use super::{Out, Process};
use crate::cluster::{flaw::Flaw, record::Record};

/// How far a clean stop is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    closed: bool,
}

impl Process {
    pub(super) fn stop(&mut self, now: Now) {
        if self.stop.is_some() {
            return;
        }
        self.record(Record::StopAsked { pid: self.pid });
        self.stop = Some(Progress::default());
        self.out.push(Out::StopTaking);
        self.wait(now, WaitsInput::Stop);
        if self.flaw == Some(Flaw::ReleasesEarly) {
            self.out.push(Out::ActorsClosed);
        }
    }

    /// Events had their time.
    pub(super) fn end_events(&mut self) {
        self.lose_all();
    }

    /// Closes what is at rest, and tells the service when nothing is open any more.
    pub(super) fn progress_stop(&mut self) {
        if self.stop.is_none() || self.ended {
            return;
        }
        let idle = self.residents.iter().filter(|(_, resident)| resident.is_idle());
        let idle: Vec<ActorId> = idle.map(|(actor, _)| actor.clone()).collect();
        for actor in idle {
            self.give_up(&actor);
        }
        let closed = self.residents.is_empty();
        let Some(progress) = &mut self.stop else { return };
        if closed && !std::mem::replace(&mut progress.closed, closed) {
            self.out.push(Out::ActorsClosed);
        }
    }
}
