use super::*;
use crate::dice::Dice;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Set(u64),
    Get,
}

struct Register;

impl Model for Register {
    type State = u64;
    type Operation = Asked;
    type Answer = u64;

    fn step(state: &u64, operation: Asked) -> (u64, u64) {
        match operation {
            Asked::Set(value) => (value, value),
            Asked::Get => (*state, *state),
        }
    }
}

#[derive(Debug)]
struct Counter;

impl Model for Counter {
    type State = u64;
    /// Adds one, or only looks.
    type Operation = bool;
    type Answer = u64;

    fn step(state: &u64, adds: bool) -> (u64, u64) {
        let after = state + u64::from(adds);
        (after, after)
    }
}

/// When it was made, what was asked, and when it was answered with what.
type Row<T> = (u64, T, Option<(u64, u64)>);

fn call<M: Model>(began: u64, operation: M::Operation, answered: Option<(u64, M::Answer)>) -> Call<M> {
    Call { began, operation, answered }
}

fn register(calls: &[Row<Asked>]) -> Verdict {
    let calls: Vec<Call<Register>> = calls.iter().map(|(at, asked, told)| call(*at, *asked, *told)).collect();
    judge(&calls, 100_000)
}

fn counter(calls: &[Row<bool>]) -> Verdict {
    let calls: Vec<Call<Counter>> = calls.iter().map(|(at, adds, told)| call(*at, *adds, *told)).collect();
    judge(&calls, 100_000)
}

#[test]
fn a_register_is_read_as_it_was_last_written() {
    use Asked::{Get, Set};
    for (calls, verdict) in [
        (&[][..], Verdict::Linearizable),
        (&[(1, Set(7), Some((2, 7))), (3, Get, Some((4, 7)))], Verdict::Linearizable),
        // What was overwritten is not read any more.
        (&[(1, Set(7), Some((2, 7))), (3, Get, Some((4, 0)))], Verdict::NotLinearizable),
        // While it is being written, either is read.
        (&[(1, Set(7), Some((9, 7))), (3, Get, Some((4, 0))), (5, Get, Some((6, 7)))], Verdict::Linearizable),
        // But not the old one after the new one.
        (
            &[(1, Set(7), Some((9, 7))), (3, Get, Some((4, 7))), (5, Get, Some((6, 0)))],
            Verdict::NotLinearizable,
        ),
        // A write nobody was told of may come late, or never.
        (&[(1, Set(7), None), (3, Get, Some((4, 0))), (5, Get, Some((6, 7)))], Verdict::Linearizable),
        (&[(1, Set(7), None), (3, Get, Some((4, 0))), (5, Get, Some((6, 0)))], Verdict::Linearizable),
        // It does not come twice.
        (
            &[
                (1, Set(7), None),
                (2, Get, Some((3, 7))),
                (4, Set(8), Some((5, 8))),
                (6, Get, Some((7, 8))),
                (8, Get, Some((9, 7))),
            ],
            Verdict::NotLinearizable,
        ),
        // Nor before it was asked for.
        (&[(1, Get, Some((2, 7))), (3, Set(7), None)], Verdict::NotLinearizable),
    ] {
        assert_eq!(register(calls), verdict, "{calls:?}");
    }
}

#[test]
fn a_counter_counts_each_addition_once() {
    for (calls, verdict) in [
        (&[(1, true, Some((2, 1))), (3, true, Some((4, 2)))][..], Verdict::Linearizable),
        (&[(1, true, Some((9, 2))), (3, true, Some((4, 1)))], Verdict::Linearizable),
        // Lost, or counted for two.
        (&[(1, true, Some((2, 1))), (3, true, Some((4, 1)))], Verdict::NotLinearizable),
        (&[(1, true, Some((2, 1))), (3, true, Some((4, 3)))], Verdict::NotLinearizable),
        // Of two without an answer one, both or none may count.
        (&[(1, true, None), (2, true, None), (3, false, Some((4, 0)))], Verdict::Linearizable),
        (&[(1, true, None), (2, true, None), (3, false, Some((4, 2)))], Verdict::Linearizable),
        (&[(1, true, None), (2, true, None), (3, false, Some((4, 3)))], Verdict::NotLinearizable),
        // What was read is not unread.
        (&[(1, true, None), (2, false, Some((3, 1))), (4, false, Some((5, 0)))], Verdict::NotLinearizable),
    ] {
        assert_eq!(counter(calls), verdict, "{calls:?}");
    }
}

#[test]
fn a_long_history_with_many_unknown_ends_is_decided() {
    let mut calls: Vec<Call<Counter>> = Vec::new();
    let mut count = 0;
    for at in (0..3_000).step_by(3) {
        let is_lost = at % 30 == 0;
        // Every second of those without an answer counts.
        count += u64::from(!is_lost || at % 60 == 0);
        calls.push(call(at, true, (!is_lost).then_some((at + 1, count))));
    }
    assert_eq!(judge(&calls, 100_000), Verdict::Linearizable);
    calls.push(call(5_000, false, Some((5_001, count + 100))));
    assert_eq!(judge(&calls, 100_000), Verdict::NotLinearizable);
}

#[test]
fn a_search_that_takes_too_long_is_not_decided() {
    let calls: Vec<Call<Counter>> = (0..200).map(|at| call(at, true, Some((at + 1, at)))).collect();
    assert_eq!(judge(&calls, 1), Verdict::Undecided);
}

#[test]
fn the_zones_of_a_register_say_what_the_search_says() {
    let mut dice = Dice::new(1);
    let mut linearizable = 0;
    for round in 0..3_000 {
        let (mut calls, mut touches): (Vec<Call<Register>>, _) = (Vec::new(), Vec::new());
        let writes_max = dice.within(1..=4);
        for number in 0..dice.within(1..=8) {
            let began = dice.within(1..=20);
            let answered = began + dice.within(1..=12);
            let writes = number < writes_max;
            // A few values are read that nobody writes.
            let value = if writes { number + 1 } else { dice.below(writes_max + 2) };
            let operation = if writes { Asked::Set(value) } else { Asked::Get };
            calls.push(call(began, operation, Some((answered, value))));
            touches.push(Touch { began, answered, writes, value });
        }
        let verdict = judge(&calls, 100_000);
        assert_ne!(verdict, Verdict::Undecided);
        assert_eq!(explains(&touches), verdict == Verdict::Linearizable, "round {round}: {touches:?}");
        linearizable += u32::from(verdict == Verdict::Linearizable);
    }
    assert!((500..2_500).contains(&linearizable), "{linearizable} of the histories are linearizable");
}
