//! A register each of whose values is written once: by the zones of Gibbons and Korach.
//!
//! A value's zone reaches from the first answer to a call that wrote or read it to the last beginning of one. If the
//! answer comes first, the register had that value all the time between; otherwise it had it at some instant between.

use std::collections::BTreeMap;

/// One call that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// When it was made.
    pub began: u64,
    /// When it was answered.
    pub answered: u64,
    /// It wrote the value, and did not only read it.
    pub writes: bool,
    /// What it wrote or read. 0 is there from the beginning.
    pub value: u64,
}

#[derive(Debug, Clone, Copy)]
struct Zone {
    written: Option<u64>,
    first_answer: u64,
    last_beginning: u64,
}

impl Zone {
    fn is_held_throughout(&self) -> bool {
        self.first_answer < self.last_beginning
    }
}

/// Whether an order explains what the calls were told.
pub fn explains(touches: &[Touch]) -> bool {
    let Some(zones) = zones(touches) else { return false };
    let (mut held, passing): (Vec<Zone>, Vec<Zone>) = zones.into_iter().partition(Zone::is_held_throughout);
    held.sort_by_key(|zone| zone.first_answer);
    let overlap = held.windows(2).any(|pair| pair[1].first_answer < pair[0].last_beginning);
    let is_swallowed = |zone: &Zone| {
        held.iter().any(|around| {
            around.first_answer < zone.last_beginning && zone.first_answer < around.last_beginning
        })
    };
    !overlap && !passing.iter().any(is_swallowed)
}

/// One zone a value; `None` when something was read that nobody had begun to write.
fn zones(touches: &[Touch]) -> Option<Vec<Zone>> {
    let initial = Zone { written: Some(0), first_answer: 0, last_beginning: 0 };
    let mut zones = BTreeMap::from([(0, initial)]);
    for touch in touches {
        let zone = zones.entry(touch.value).or_insert(Zone {
            written: None,
            first_answer: touch.answered,
            last_beginning: touch.began,
        });
        zone.first_answer = zone.first_answer.min(touch.answered);
        zone.last_beginning = zone.last_beginning.max(touch.began);
        if touch.writes {
            zone.written = Some(touch.began);
        }
    }
    let is_sound = |zone: &Zone| zone.written.is_some_and(|written| written <= zone.first_answer);
    zones.values().all(is_sound).then(|| zones.into_values().collect())
}
