//! What the length of a heartbeat says, so that a listing of the heartbeats is enough to follow them.
//!
//! A listing shows a version and a length. Another version says that a heartbeat was written. Whether more changed
//! than its date is in the length: blanks at the end make it say the record's [`Shape`] and when it was written.
//! Owns that arithmetic; when a record gets another shape is the writers' to know, when a length is believed the
//! watch's.

use crate::limits::CLOCK_SKEW;

/// Lengths that mean different things. A heartbeat has a few hundred bytes more than none and fewer than this in
/// blanks.
const LENGTHS: u64 = SHAPES * TICKS;

/// Shapes, [`Shape::NONE`] included. A change goes unnoticed only if exactly fifteen happen between two listings that
/// are at most [`listing_gap_max`](crate::lease::Timing::listing_gap_max) apart, and every other one is a write that
/// comes a heartbeat after the one before.
const SHAPES: u64 = 16;

/// Dates that can be told apart.
const TICKS: u64 = 64;

/// How precisely a length tells a date, in milliseconds.
const TICK_MS: u64 = 500;

/// How far the date of a renewal may lie before the one it follows: a wall clock may be set back by what nobody is
/// warned about.
const BACK_MS: u64 = 2 * CLOCK_SKEW.as_millis() as u64;

/// Stands for all that a heartbeat says except when it was written: whoever changes anything else writes the next
/// shape. Writes are conditional on what they replace, so the shapes of a heartbeat follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape(u8);

impl Shape {
    /// Of a heartbeat that replaced nothing known, and of one whose length does not fit it: read at every change.
    pub const NONE: Self = Self(0);

    /// The shape of whatever replaces a heartbeat of this one and says something else.
    #[must_use]
    pub fn next(self) -> Self {
        Self(if u64::from(self.0) + 1 < SHAPES { self.0 + 1 } else { 1 })
    }

    /// The number in a record's text.
    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// The shape a record of `length` bytes claims to have, if its length says the same.
    pub(super) fn claimed(number: u8, length: usize, written_at_ms: u64) -> Self {
        let said = u64::from(number) * TICKS + tick(written_at_ms);
        if length as u64 % LENGTHS == said { Self(number) } else { Self::NONE }
    }

    /// The least length from `length` on that says this shape and date.
    pub(super) fn length(self, length: usize, written_at_ms: u64) -> usize {
        let said = u64::from(self.0) * TICKS + tick(written_at_ms);
        let blanks = (said + LENGTHS - length as u64 % LENGTHS) % LENGTHS;
        length + blanks as usize
    }

    /// When a heartbeat of `length` bytes was written that replaced one of this shape, dated `before_ms`, by
    /// renewing it: exact to half a second and never late. `None`: it says something else, and has to be read.
    #[must_use]
    pub fn renewal(self, before_ms: u64, length: u64) -> Option<u64> {
        let said = length % LENGTHS;
        if self == Self::NONE || said / TICKS != u64::from(self.0) {
            return None;
        }
        let earliest = before_ms.saturating_sub(BACK_MS) / TICK_MS;
        let ticks = (said % TICKS + TICKS - earliest % TICKS) % TICKS;
        Some((earliest + ticks).saturating_mul(TICK_MS))
    }
}

fn tick(written_at_ms: u64) -> u64 {
    written_at_ms / TICK_MS % TICKS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_follow_one_another_and_none_follows_none() {
        let mut shape = Shape::NONE;
        let followed: Vec<u8> = (0..17)
            .map(|_| {
                shape = shape.next();
                shape.number()
            })
            .collect();
        assert_eq!(followed, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1, 2]);
    }

    proptest! {
        #[test]
        fn a_length_says_the_shape_it_was_made_for(number in 0..16_u8, raw in 0..2_000_usize, ms in 0..u64::MAX) {
            let shape = Shape(number);
            let length = shape.length(raw, ms);
            prop_assert!(length >= raw && length < raw + LENGTHS as usize);
            prop_assert_eq!(Shape::claimed(number, length, ms), shape);
            prop_assert_eq!(Shape::claimed(number, length + 1, ms), Shape::NONE);
        }

        /// A heartbeat is followed by its renewal within some ten seconds, give or take what a clock may be set by.
        #[test]
        fn a_renewal_is_dated_by_its_length_to_half_a_second(
            number in 1..16_u8, before in 0..u64::MAX / 2, later in -1_500..29_000_i64, raw in 0..2_000_usize,
        ) {
            let written = before.saturating_add_signed(later);
            let length = Shape(number).length(raw, written) as u64;
            let dated = Shape(number).renewal(before, length);
            prop_assert!(dated.is_some_and(|dated| dated <= written && written - dated < TICK_MS), "{dated:?}");
            prop_assert_eq!(Shape(number).next().renewal(before, length), None);
            prop_assert_eq!(Shape::NONE.renewal(before, length), None);
        }
    }
}
