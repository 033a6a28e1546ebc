//! Taking one actor and giving it up.
//!
//! Every write is conditional on the very record it replaces, so the records of an actor form one line, and each
//! take in it has a generation above all before (R-OWN-2). A write without an answer is settled by reading the
//! record back and looking for its nonce (case L3). A release that does not land stays owed and is tried again in
//! the background.

mod release;

use super::{Owner, owner_by_heartbeat, owner_of};
use crate::{
    NodeId,
    clock::Moment,
    lease::{Identity, ValidLease},
    limits::{OWNER_WRITES_MAX, RELEASE_RETRY},
    records::{Hold, NodeRecord, Nonce, OwnerRecord, RecordError},
    store::{Condition, Found, Version, Wrote},
    view::View,
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Somebody asks for the actor here.
    Want {
        /// The record is to be read, whatever is remembered of it.
        fresh: bool,
    },
    /// Answer to [`Effect::Read`].
    Found(Found<OwnerRecord>),
    /// Answer to [`Effect::ReadHeartbeat`].
    Heartbeat(Found<NodeRecord>),
    /// Answer to [`Effect::Write`].
    Wrote(Wrote),
    /// The actor is closed and its last event uploaded: give it up.
    Release,
    /// This node's lease ran out and the actor was dropped. A request under way is forgotten: its answer must not be
    /// handed in any more.
    Lapsed,
    /// Time passed; due at [`Claim::wake`].
    Tick,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read the actor's record.
    Read,
    /// Read this node's heartbeat.
    ReadHeartbeat(NodeId),
    /// Write the actor's record.
    Write(OwnerRecord, Condition),
    /// The actor is ours: its events may run, as long as the lease holds.
    Taken {
        /// Of this hold.
        generation: u64,
    },
    /// It is not, and this is for everybody who asked.
    Denied(Denial),
    /// The record says that it was given up, or names somebody else.
    Released,
}

/// Why an actor was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Another node has it: never [`Owner::Nobody`], [`Owner::Ourselves`] or [`Owner::Unclear`].
    Owned(Owner),
    /// This node's lease is not valid.
    NoLease,
    /// This node takes no actor: it drains or stops.
    NotTaking,
    /// The bucket did not answer, or not clearly.
    BucketSilent,
    /// The record cannot be read; it is left as it is.
    Unreadable(RecordError),
}

/// What a step sees of its surroundings.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Moment,
    /// Who we are.
    pub identity: &'a Identity,
    /// The cluster.
    pub view: &'a View,
    /// Our lease, if it is valid at `now`.
    pub lease: Option<ValidLease>,
    /// Whether this node takes actors.
    pub taking: bool,
    /// Fresh at every step.
    pub nonce: Nonce,
}

/// One actor, as this node's bucket side sees it.
#[derive(Debug, Default)]
pub struct Claim {
    state: State,
    /// The record as last seen or written; a condition failing is what tells that it is out of date.
    known: Option<(Version, OwnerRecord)>,
    /// Somebody waits for the outcome.
    wanted: bool,
    /// A record may still name a hold that this process has given up; when to try to release it.
    owed: Option<Moment>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Away,
    /// A read of the record is under way.
    Reading,
    /// A read of its owner's heartbeat is.
    ReadingHeartbeat(Version, OwnerRecord),
    /// A take is being written.
    Taking(Take),
    /// Its outcome is being read back.
    Settling(Take),
    /// Ours, as long as the lease of this epoch holds.
    Held { version: Version, record: OwnerRecord, epoch: u64 },
    /// The release is being written.
    Releasing,
}

#[derive(Debug)]
struct Take {
    record: OwnerRecord,
    condition: Condition,
    /// Of the lease it was decided under.
    epoch: u64,
    writes: u32,
}

impl Claim {
    /// The generation of our hold, as long as `lease` is the one it was taken under.
    #[must_use]
    pub fn held(&self, lease: &ValidLease) -> Option<u64> {
        match &self.state {
            State::Held { record, epoch, .. } if *epoch == lease.epoch() => Some(record.generation),
            _ => None,
        }
    }

    /// Whether it was taken and neither given up nor lost since, whatever the lease says at this moment.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Nothing is held, wanted or owed, and nothing is under way: this value may be forgotten.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Away) && self.owed.is_none()
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn wake(&self) -> Option<Moment> {
        if matches!(self.state, State::Away) { self.owed } else { None }
    }

    /// Takes one input.
    pub fn step(&mut self, context: &Context<'_>, input: Input) -> Vec<Effect> {
        let effect = match input {
            Input::Want { fresh } => self.want(context, fresh),
            Input::Found(found) => self.found(context, found),
            Input::Heartbeat(found) => self.heartbeat(context, &found),
            Input::Wrote(outcome) => self.wrote(context, outcome),
            Input::Release => self.release(context),
            Input::Lapsed => self.lapsed(),
            Input::Tick => self.tick(context),
        };
        effect.into_iter().collect()
    }

    fn want(&mut self, context: &Context<'_>, fresh: bool) -> Option<Effect> {
        self.wanted = true;
        match &self.state {
            State::Held { record, epoch, .. } => {
                let generation = record.generation;
                if context.lease.is_some_and(|lease| lease.epoch() == *epoch) {
                    self.wanted = false;
                    return Some(Effect::Taken { generation });
                }
                // The lease lapsed and nobody said so here: that hold is over.
                self.state = State::Away;
                self.read()
            }
            State::Away => match self.known.clone() {
                Some((version, record)) if !fresh => self.decide(context, version, record),
                _ => self.read(),
            },
            // Its outcome is the answer.
            State::Reading
            | State::ReadingHeartbeat(..)
            | State::Taking(_)
            | State::Settling(_)
            | State::Releasing => None,
        }
    }

    fn read(&mut self) -> Option<Effect> {
        self.state = State::Reading;
        Some(Effect::Read)
    }

    fn found(&mut self, context: &Context<'_>, found: Found<OwnerRecord>) -> Option<Effect> {
        match std::mem::take(&mut self.state) {
            State::Reading => self.judge(context, found),
            State::Settling(take) => self.settle(context, take, found),
            other => {
                debug_assert!(false, "a record nobody asked for");
                self.state = other;
                None
            }
        }
    }

    /// What a record that was read means for whoever wants the actor, or for a release that is owed.
    fn judge(&mut self, context: &Context<'_>, found: Found<OwnerRecord>) -> Option<Effect> {
        self.known = None;
        match found {
            Found::Failed => self.fail(context, Denial::BucketSilent),
            Found::Object(_, Err(error)) => self.fail(context, Denial::Unreadable(error)),
            Found::Absent if self.wanted => self.take(context, None, Condition::Absent),
            Found::Absent => self.no_longer_owed(),
            Found::Object(version, Ok(record)) => {
                let ours = record.process == context.identity.process && record.hold == Hold::Held;
                if !ours {
                    self.owed = None;
                }
                self.known = Some((version.clone(), record.clone()));
                // A node that stops gives it up first, however often it is asked for meanwhile.
                if ours && (!self.wanted || !context.taking) {
                    self.write_release(context, version, &record)
                } else if self.wanted {
                    self.decide(context, version, record)
                } else {
                    self.no_longer_owed()
                }
            }
        }
    }

    fn decide(&mut self, context: &Context<'_>, version: Version, record: OwnerRecord) -> Option<Effect> {
        match owner_of(&record, &context.identity.node, context.view, context.now) {
            Owner::Unclear(node) => {
                self.state = State::ReadingHeartbeat(version, record);
                Some(Effect::ReadHeartbeat(node))
            }
            owner => self.take_from(context, owner, version, &record),
        }
    }

    fn heartbeat(&mut self, context: &Context<'_>, found: &Found<NodeRecord>) -> Option<Effect> {
        let State::ReadingHeartbeat(version, record) = std::mem::take(&mut self.state) else {
            debug_assert!(false, "a heartbeat nobody asked for");
            return None;
        };
        match owner_by_heartbeat(&record, found, context.view) {
            None => self.fail(context, Denial::BucketSilent),
            Some(owner) => self.take_from(context, owner, version, &record),
        }
    }

    fn take_from(
        &mut self,
        context: &Context<'_>,
        owner: Owner,
        version: Version,
        record: &OwnerRecord,
    ) -> Option<Effect> {
        match owner {
            Owner::Nobody | Owner::Ourselves => {
                self.take(context, Some(record), Condition::Unchanged(version))
            }
            owner => self.deny(Denial::Owned(owner)),
        }
    }

    fn take(
        &mut self,
        context: &Context<'_>,
        before: Option<&OwnerRecord>,
        condition: Condition,
    ) -> Option<Effect> {
        if !context.taking {
            return self.deny(Denial::NotTaking);
        }
        let Some(lease) = context.lease else { return self.deny(Denial::NoLease) };
        let record = OwnerRecord {
            node: context.identity.node.clone(),
            process: context.identity.process,
            generation: before.map_or(0, |before| before.generation) + 1,
            hold: Hold::Held,
            nonce: context.nonce,
        };
        self.write_take(Take { record, condition, epoch: lease.epoch(), writes: 0 })
    }

    fn write_take(&mut self, take: Take) -> Option<Effect> {
        let effect = Effect::Write(take.record.clone(), take.condition.clone());
        self.state = State::Taking(Take { writes: take.writes + 1, ..take });
        Some(effect)
    }

    fn wrote(&mut self, context: &Context<'_>, outcome: Wrote) -> Option<Effect> {
        match (std::mem::take(&mut self.state), outcome) {
            (State::Taking(take), Wrote::Written(version)) => self.taken(context, take, version),
            (State::Taking(take), Wrote::ConditionFailed | Wrote::Unknown) => {
                self.state = State::Settling(take);
                Some(Effect::Read)
            }
            (State::Taking(_), Wrote::Failed) => {
                self.known = None;
                self.fail(context, Denial::BucketSilent)
            }
            (State::Releasing, outcome) => self.wrote_release(context, &outcome),
            (other, _) => {
                debug_assert!(false, "an answer to no write");
                self.state = other;
                None
            }
        }
    }

    fn taken(&mut self, context: &Context<'_>, take: Take, version: Version) -> Option<Effect> {
        let Take { record, epoch, .. } = take;
        self.known = Some((version.clone(), record.clone()));
        if context.lease.is_none_or(|lease| lease.epoch() != epoch) {
            // Taken under a lease that has lapsed since: taken again, at a new generation (R-LEASE-3).
            return self.decide(context, version, record);
        }
        if !context.taking {
            // The node began to stop meanwhile and closes actors, this one among them: given up in the background.
            self.owed = Some(context.now);
            return self.deny(Denial::NotTaking);
        }
        let generation = record.generation;
        self.state = State::Held { version, record, epoch };
        self.owed = None;
        self.wanted = false;
        Some(Effect::Taken { generation })
    }

    /// What was read back after a take without a clear answer.
    fn settle(&mut self, context: &Context<'_>, take: Take, found: Found<OwnerRecord>) -> Option<Effect> {
        if let Found::Object(version, Ok(record)) = &found
            && record.nonce == take.record.nonce
        {
            return self.taken(context, take, version.clone());
        }
        if found.condition().as_ref() != Some(&take.condition) {
            // Somebody got in first, or the bucket is silent.
            return self.judge(context, found);
        }
        // What we meant to replace still stands: the same write again, for should both land, they are one.
        if take.writes < OWNER_WRITES_MAX {
            return self.write_take(take);
        }
        self.known = None;
        self.fail(context, Denial::BucketSilent)
    }

    fn lapsed(&mut self) -> Option<Effect> {
        match std::mem::take(&mut self.state) {
            State::Away => {}
            State::Held { version, record, .. } => self.known = Some((version, record)),
            State::Reading
            | State::ReadingHeartbeat(..)
            | State::Taking(_)
            | State::Settling(_)
            | State::Releasing => self.known = None,
        }
        self.deny(Denial::NoLease)
    }

    /// Nobody gets the actor here, since the bucket does not say enough. A release that is owed is tried again later.
    fn fail(&mut self, context: &Context<'_>, denial: Denial) -> Option<Effect> {
        if self.owed.is_some() {
            self.owed = Some(context.now + RELEASE_RETRY);
        }
        self.deny(denial)
    }

    /// Nobody gets the actor here. Requests do not put off a release that is owed.
    fn deny(&mut self, denial: Denial) -> Option<Effect> {
        self.state = State::Away;
        std::mem::take(&mut self.wanted).then_some(Effect::Denied(denial))
    }
}

#[cfg(test)]
mod tests;
