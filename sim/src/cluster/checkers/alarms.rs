//! An alarm that was set durably fires, whatever becomes of the node that had it, and not before it is due (R-ALM-1). One
//! that was set after it takes its place.

use std::collections::BTreeMap;

use super::Checker;
use crate::cluster::{
    assumptions::{Assumption, SKEW_MS},
    record::{ActorNumber, Record, RequestNumber},
    time::{SECOND, Time, wall_ms},
};

/// See the module. Says nothing once a wall clock is further off than is assumed: alarms are kept by them.
#[derive(Debug, Default)]
pub struct Alarms {
    actors: BTreeMap<ActorNumber, Actor>,
    is_wild: bool,
}

#[derive(Debug, Default)]
struct Actor {
    /// What was set, in order, and when it is due.
    set: Vec<(RequestNumber, u64)>,
    /// The latest of them that was acknowledged and has not fired.
    owed: Option<usize>,
}

impl Actor {
    fn place(&self, request: RequestNumber) -> Option<usize> {
        self.set.iter().position(|(set, _)| *set == request)
    }
}

impl Alarms {
    fn fired(&mut self, time: Time, actor: ActorNumber, request: RequestNumber) -> Result<(), String> {
        let known = self.actors.entry(actor).or_default();
        let Some(place) = known.place(request) else {
            return Err(format!("the alarm of actor {actor} fired for request {request}, which set none"));
        };
        let (_, due_ms) = known.set[place];
        // The clock that set it and the one that ran it.
        if wall_ms(time) + 2 * SKEW_MS < due_ms {
            return Err(format!("the alarm of actor {actor} ran {} ms early", due_ms - wall_ms(time)));
        }
        // One set later took its place.
        known.owed = known.owed.filter(|owed| place < *owed);
        Ok(())
    }
}

impl Checker for Alarms {
    fn name(&self) -> &'static str {
        "alarms"
    }

    fn rests_on(&self) -> &'static [Assumption] {
        &[Assumption::BootClocks, Assumption::WallClocks]
    }

    fn see(&mut self, time: Time, record: &Record) -> Result<(), String> {
        match record {
            Record::Started { skew_ms, .. } | Record::ClockSet { skew_ms, .. } => {
                self.is_wild |= skew_ms.unsigned_abs() > SKEW_MS;
            }
            Record::Reminded { actor, request, due_ms } => {
                self.actors.entry(*actor).or_default().set.push((*request, *due_ms));
            }
            Record::Durable { actor, request } => {
                let known = self.actors.entry(*actor).or_default();
                known.owed = known.place(*request).or(known.owed);
            }
            Record::Fired { actor, request } if !self.is_wild => {
                return self.fired(time, *actor, *request);
            }
            // From here on actors are asked for, and one that is asked for sees to its alarm.
            Record::MustServe | Record::Over if !self.is_wild => {
                let owed =
                    self.actors.iter().find_map(|(actor, known)| Some((actor, known.set[known.owed?])));
                if let Some((actor, (request, due_ms))) = owed {
                    let late = wall_ms(time).saturating_sub(due_ms) / 1_000;
                    return Err(format!(
                        "the alarm that request {request} set for actor {actor} has not fired {late} s after it \
                         was due, at {} s",
                        time / SECOND
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
