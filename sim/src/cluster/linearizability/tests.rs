use super::{
    counter,
    register::{self, Touch},
    search::{Call, Model, Verdict, judge},
};
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

fn search_register(calls: &[Row<Asked>]) -> Verdict {
    let calls: Vec<Call<Register>> = calls.iter().map(|(at, asked, told)| call(*at, *asked, *told)).collect();
    judge(&calls, 100_000)
}

fn search_counter(calls: &[Row<bool>]) -> Verdict {
    let calls: Vec<Call<Counter>> = calls.iter().map(|(at, adds, told)| call(*at, *adds, *told)).collect();
    judge(&calls, 100_000)
}

/// What is said of the same calls at once.
fn decide(calls: &[Row<bool>]) -> bool {
    let calls = calls.iter().map(|(began, adds, answered)| counter::Call {
        began: *began,
        adds: *adds,
        answered: *answered,
    });
    counter::explains(&calls.collect::<Vec<_>>())
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
        assert_eq!(search_register(calls), verdict, "{calls:?}");
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
        assert_eq!(search_counter(calls), verdict, "{calls:?}");
        assert_eq!(decide(calls), verdict == Verdict::Linearizable, "{calls:?}");
    }
}

#[test]
fn a_long_history_with_many_unknown_ends_is_decided() {
    let mut calls: Vec<Row<bool>> = Vec::new();
    let mut count = 0;
    for at in (0..3_000).step_by(3) {
        let is_lost = at % 30 == 0;
        // Every second of those without an answer counts.
        count += u64::from(!is_lost || at % 60 == 0);
        calls.push((at, true, (!is_lost).then_some((at + 1, count))));
    }
    for (told, verdict) in [(count, Verdict::Linearizable), (count + 100, Verdict::NotLinearizable)] {
        calls.push((5_000, false, Some((5_001, told))));
        assert_eq!(search_counter(&calls), verdict);
        assert_eq!(decide(&calls), verdict == Verdict::Linearizable);
    }
}

/// Looks that all go on at once see the counter in an order that only the last of them rules out.
#[test]
fn a_history_that_the_search_gives_up_is_decided() {
    let mut calls: Vec<Row<bool>> = Vec::new();
    for value in 1..=40 {
        calls.push((value, true, Some((1_000, value))));
        calls.push((value, false, Some((1_000, value))));
    }
    // Five more, of which nobody was told, and one too many of which somebody was.
    calls.extend((0..5).map(|at| (100 + at, true, None)));
    calls.push((200, false, Some((1_000, 45))));
    assert!(decide(&calls));
    calls.push((1_001, false, Some((1_002, 44))));
    assert_eq!(search_counter(&calls), Verdict::Undecided);
    assert!(!decide(&calls));
}

#[test]
fn what_is_decided_of_a_counter_at_once_is_what_the_search_says() {
    let mut dice = Dice::new(2);
    let mut linearizable = 0;
    for round in 0..10_000 {
        let mut calls: Vec<Row<bool>> = Vec::new();
        // An order that happened; a few answers are not those of it.
        let (mut count, mut at) = (0, 1);
        for _ in 0..dice.within(1..=9) {
            at += dice.below(4);
            let adds = dice.chance(600);
            let happens = !adds || dice.chance(900);
            count += u64::from(adds && happens);
            let told = if dice.chance(80) { dice.below(count + 2) } else { count };
            let answered = (!adds || happens && dice.chance(700)).then(|| (at + dice.below(6), told));
            calls.push((at.saturating_sub(dice.below(6)), adds, answered));
        }
        let verdict = search_counter(&calls);
        assert_ne!(verdict, Verdict::Undecided);
        assert_eq!(decide(&calls), verdict == Verdict::Linearizable, "round {round}: {calls:?}");
        linearizable += u32::from(verdict == Verdict::Linearizable);
    }
    assert!((3_000..9_000).contains(&linearizable), "{linearizable} of the histories are linearizable");
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
        assert_eq!(
            register::explains(&touches),
            verdict == Verdict::Linearizable,
            "round {round}: {touches:?}"
        );
        linearizable += u32::from(verdict == Verdict::Linearizable);
    }
    assert!((500..2_500).contains(&linearizable), "{linearizable} of the histories are linearizable");
}
