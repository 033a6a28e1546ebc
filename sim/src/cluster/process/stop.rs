//! A clean stop.

use wasmkeep_protocol::{ActorId, clock::Now, failover::WaitsInput, lease, ownership::Input as ClaimInput};

use super::Process;
use crate::cluster::{flaw::Flaw, record::Record};

/// How far a clean stop is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    closed: bool,
    released: bool,
}

impl Process {
    pub(super) fn stop(&mut self, now: Now) {
        if self.stop.is_some() {
            return;
        }
        self.record(Record::StopAsked { pid: self.pid });
        self.stop = Some(Progress::default());
        self.keep(now, lease::Input::Stop);
        self.wait(now, WaitsInput::Stop);
        if self.flaw == Some(Flaw::ReleasesEarly) {
            let actors: Vec<ActorId> = self.residents.keys().cloned().collect();
            for actor in actors {
                self.claim(now, &actor, ClaimInput::Release);
            }
        }
    }

    /// Events had their time.
    pub(super) fn end_events(&mut self, now: Now) {
        let actors: Vec<ActorId> = self.residents.keys().cloned().collect();
        self.drop_residents();
        for actor in actors {
            self.claim(now, &actor, ClaimInput::Release);
        }
    }

    /// Tells the keeper when nothing runs and when nothing is held any more.
    pub(super) fn progress_stop(&mut self, now: Now) {
        if self.stop.is_none() || self.ended {
            return;
        }
        let idle: Vec<ActorId> = self
            .residents
            .iter()
            .filter(|(_, resident)| resident.is_idle())
            .map(|(actor, _)| actor.clone())
            .collect();
        for actor in idle {
            self.give_up(&actor);
        }
        let closed = self.residents.is_empty();
        let released = closed && self.claims.values().all(|claimed| claimed.claim.is_idle());
        let Some(progress) = &mut self.stop else { return };
        let (say_closed, say_released) = (closed && !progress.closed, released && !progress.released);
        progress.closed |= say_closed;
        progress.released |= say_released;
        if say_closed {
            self.keep(now, lease::Input::ActorsClosed);
        }
        if say_released {
            self.keep(now, lease::Input::RecordsReleased);
        }
    }
}
