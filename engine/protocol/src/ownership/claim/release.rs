//! Giving an actor up. What does not land stays owed and is tried again in the background (R-OWN-2).

use super::{Claim, Context, Effect, State};
use crate::{
    limits::RELEASE_RETRY,
    records::{Hold, OwnerRecord},
    store::{Condition, Version, Wrote},
};

impl Claim {
    pub(super) fn release(&mut self, context: &Context<'_>) -> Option<Effect> {
        match std::mem::take(&mut self.state) {
            State::Held { version, record, .. } => self.write_release(context, version, &record),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub(super) fn write_release(
        &mut self,
        context: &Context<'_>,
        version: Version,
        record: &OwnerRecord,
    ) -> Option<Effect> {
        // Whatever comes of it, the hold is over from here.
        self.owed = Some(context.now + RELEASE_RETRY);
        self.state = State::Releasing;
        let released = OwnerRecord { hold: Hold::Released, nonce: context.nonce, ..record.clone() };
        self.known = Some((version.clone(), released.clone()));
        Some(Effect::Write(released, Condition::Unchanged(version)))
    }

    pub(super) fn wrote_release(&mut self, context: &Context<'_>, outcome: &Wrote) -> Option<Effect> {
        let written = self.known.take();
        match outcome {
            Wrote::Written(version) => {
                self.known = written.map(|(_, record)| (version.clone(), record));
                self.owed = None;
                // Somebody asked meanwhile: taken again, on what we have just written.
                if self.wanted { self.want(context, false) } else { Some(Effect::Released) }
            }
            // Reading tells whether it landed; for who wants the actor, and for the release.
            Wrote::ConditionFailed | Wrote::Unknown => self.read(),
            Wrote::Failed if self.wanted => self.read(),
            Wrote::Failed => None,
        }
    }

    pub(super) fn tick(&mut self, context: &Context<'_>) -> Option<Effect> {
        let due = self.wake().is_some_and(|due| context.now >= due);
        if due { self.read() } else { None }
    }

    pub(super) fn no_longer_owed(&mut self) -> Option<Effect> {
        self.owed = None;
        Some(Effect::Released)
    }
}
