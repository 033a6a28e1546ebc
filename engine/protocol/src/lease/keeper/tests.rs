use std::time::Duration;

use expect_test::{Expect, expect};

use super::*;
use crate::{
    records::{Process, RecordError, Shape},
    store::Version,
};

mod shapes;
mod stops;

const WALL_AT_BOOT_MS: u64 = 1_000_000;

fn at(ms: u64) -> Now {
    Now { moment: Moment::after_boot(Duration::from_millis(ms)), wall_ms: WALL_AT_BOOT_MS + ms }
}

fn keeper() -> Keeper {
    let identity = Identity { node: "a".parse().unwrap(), process: Process::from_bits(0xa) };
    let presence = Presence { advertise: "http://a".into(), ..Presence::default() };
    Keeper::new(Timing::default(), identity, presence, at(0).moment)
}

/// A heartbeat of process `process`, written at `ms`, under the version `v<version>`.
fn record(process: u128, sequence: u64, ms: u64, state: NodeState) -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(process),
        sequence,
        nonce: Nonce::from_bits(99),
        state,
        written_at_ms: WALL_AT_BOOT_MS + ms,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::new(Presence { advertise: format!("http://{process:x}"), ..Presence::default() }),
    }
}

fn found(version: u64, record: NodeRecord) -> Input {
    Input::Read(Found::Object(Version::new(format!("v{version}")), Ok(record)))
}

fn live(process: u128, sequence: u64, version: u64) -> Input {
    found(version, record(process, sequence, 0, NodeState::Live))
}

fn fenced(watched_s: u64) -> NodeState {
    NodeState::Fenced { watched: Duration::from_secs(watched_s), by: Some("b".parse().unwrap()) }
}

fn written(version: u64) -> Input {
    Input::Wrote(Wrote::Written(Version::new(format!("v{version}"))))
}

const ABSENT: Input = Input::Read(Found::Absent);
const NO_ANSWER: Input = Input::Read(Found::Failed);
const UNKNOWN: Input = Input::Wrote(Wrote::Unknown);
const CONDITION_FAILED: Input = Input::Wrote(Wrote::ConditionFailed);
const FAILED: Input = Input::Wrote(Wrote::Failed);

fn shown(effect: &Effect) -> String {
    match effect {
        Effect::Write(record, condition) => {
            let condition = match condition {
                Condition::Absent => "absent".into(),
                Condition::Unchanged(version) => format!("still {}", version.as_str()),
            };
            let state = format!("{:?}", record.state).to_lowercase();
            format!("write {state} {} if {condition}", record.sequence)
        }
        Effect::Exit(exit) => format!("exit: {exit}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Runs a keeper through inputs at their times, in milliseconds, and compares what it did, a line an input.
#[track_caller]
fn check(mut keeper: Keeper, inputs: impl IntoIterator<Item = (u64, Input)>, expected: &Expect) {
    let mut lines = String::new();
    for (ms, input) in inputs {
        let effects = keeper.step(at(ms), Nonce::from_bits(ms.into()), input);
        let words: Vec<String> = effects.iter().map(shown).collect();
        let wake =
            keeper.wake().map_or_else(|| "never".into(), |wake| format!("{:?}", wake.since(at(0).moment)));
        lines.push_str(&format!("{ms}: {} (wake {wake})\n", words.join(", ")));
    }
    expected.assert_eq(&lines);
}

/// A keeper whose first write began at 15,000 and landed as `v1`.
fn running() -> Keeper {
    let mut keeper = keeper();
    let steps =
        [(0, Input::Tick), (0, ABSENT), (15_000, Input::Tick), (15_000, ABSENT), (15_010, written(1))];
    let effects: Vec<Effect> =
        steps.into_iter().flat_map(|(ms, input)| keeper.step(at(ms), Nonce::from_bits(1), input)).collect();
    assert_eq!(effects.last(), Some(&Effect::Valid));
    keeper
}

// R-LEASE-8
#[test]
fn a_first_start_reads_every_half_period_for_fifteen_seconds_before_it_writes() {
    let reads = (0..11).flat_map(|n| [(n * 1500, Input::Tick), (n * 1500, ABSENT)]);
    check(
        keeper(),
        reads.chain([(15_010, written(1))]),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            1500: read (wake never)
            1500:  (wake 3s)
            3000: read (wake never)
            3000:  (wake 4.5s)
            4500: read (wake never)
            4500:  (wake 6s)
            6000: read (wake never)
            6000:  (wake 7.5s)
            7500: read (wake never)
            7500:  (wake 9s)
            9000: read (wake never)
            9000:  (wake 10.5s)
            10500: read (wake never)
            10500:  (wake 12s)
            12000: read (wake never)
            12000:  (wake 13.5s)
            13500: read (wake never)
            13500:  (wake 15s)
            15000: read (wake never)
            15000: write live 1 if absent (wake never)
            15010: valid (wake 18s)
        "#]],
    );
}

// R-LEASE-8
#[test]
fn a_restart_waits_for_the_previous_process_and_is_refused_when_it_shows_itself() {
    let reads = [(0, Input::Tick), (0, live(0xb, 7, 1)), (1500, Input::Tick), (1500, live(0xb, 8, 2))];
    check(
        keeper(),
        reads,
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            1500: read (wake never)
            1500: exit: another process is running with this node id at http://b: stop it first, or start this node with another --node-id (wake never)
        "#]],
    );
    // Unchanged for fifteen seconds: its first write replaces exactly that object.
    let reads = [(0, Input::Tick), (0, live(0xb, 7, 1)), (14_990, Input::Tick), (14_990, live(0xb, 7, 1))];
    let ends = [(16_490, Input::Tick), (16_500, live(0xb, 7, 1)), (16_600, written(2))];
    check(
        keeper(),
        reads.into_iter().chain(ends),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            14990: read (wake never)
            14990:  (wake 16.49s)
            16490: read (wake never)
            16500: write live 1 if still v1 (wake never)
            16600: valid (wake 19.5s)
        "#]],
    );
}

// R-LEASE-8: "about 1.5 s when that has already passed"
#[test]
fn after_a_clean_stop_or_a_watched_fence_a_start_waits_until_the_last_live_write_is_old() {
    for state in [NodeState::Released, fenced(15)] {
        let mut keeper = keeper();
        let then = |now: u64, age: u64| {
            let mut record = record(0xb, 7, 0, state.clone());
            record.written_at_ms = at(now).wall_ms - age;
            found(1, record)
        };
        let mut pass = |ms, input| keeper.step(at(ms), Nonce::from_bits(1), input);
        pass(0, Input::Tick);
        assert_eq!(pass(0, then(0, 13_000)), [], "{state:?}: one read shows nothing about now");
        pass(1500, Input::Tick);
        assert_eq!(pass(1500, then(1500, 14_500)), [], "{state:?}: too young");
        pass(3000, Input::Tick);
        assert!(matches!(pass(3000, then(3000, 16_000))[..], [Effect::Write(..)]), "{state:?}");
    }
    // A fence that nobody watched, an operator's, says nothing: the fifteen seconds are this process's own.
    let old = |ms| found(1, NodeRecord { written_at_ms: 0, ..record(0xb, 7, ms, fenced(0)) });
    let steps =
        [(0, Input::Tick), (0, old(0)), (14_900, Input::Tick), (14_900, old(0)), (16_400, Input::Tick)];
    check(
        keeper(),
        steps.into_iter().chain([(16_400, old(0))]),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            14900: read (wake never)
            14900:  (wake 16.4s)
            16400: read (wake never)
            16400: write live 1 if still v1 (wake never)
        "#]],
    );
}

// R-LEASE-8
#[test]
fn a_fence_or_a_release_during_the_check_is_no_running_process_and_a_silent_bucket_is_waited_for() {
    let late = |ms| found(2, record(0xb, 7, ms, fenced(15)));
    check(
        keeper(),
        [
            (0, Input::Tick),
            (0, live(0xb, 7, 1)),
            (1500, Input::Tick),
            (4200, NO_ANSWER),
            (5200, Input::Tick),
            (5200, late(0)),
            (6700, Input::Tick),
            (6700, late(0)),
            (15_100, Input::Tick),
            (15_100, late(0)),
        ],
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            1500: read (wake never)
            4200:  (wake 5.2s)
            5200: read (wake never)
            5200:  (wake 6.7s)
            6700: read (wake never)
            6700:  (wake 8.2s)
            15100: read (wake never)
            15100: write live 1 if still v2 (wake never)
        "#]],
    );
}

// R-LEASE-8
#[test]
fn of_two_starts_at_once_the_one_whose_first_write_fails_is_refused() {
    let steps =
        [(0, Input::Tick), (0, ABSENT), (15_000, Input::Tick), (15_000, ABSENT), (15_050, CONDITION_FAILED)];
    check(
        keeper(),
        steps.into_iter().chain([(15_100, live(0xb, 1, 1)), (15_200, Input::Tick)]),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            15000: read (wake never)
            15000: write live 1 if absent (wake never)
            15050: read (wake never)
            15100: exit: another process is running with this node id at http://b: stop it first, or start this node with another --node-id (wake never)
            15200:  (wake never)
        "#]],
    );
}

// case L3
#[test]
fn a_first_write_whose_reply_was_lost_is_settled_like_any_other() {
    let steps = [(0, Input::Tick), (0, ABSENT), (15_000, Input::Tick), (15_000, ABSENT), (17_700, UNKNOWN)];
    check(
        keeper(),
        steps.into_iter().chain([(17_800, ABSENT), (20_500, UNKNOWN), (20_600, live(0xa, 1, 1))]),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            15000: read (wake never)
            15000: write live 1 if absent (wake never)
            17700: read (wake never)
            17800: write live 2 if absent (wake never)
            20500: read (wake never)
            20600: valid, write live 3 if still v1 (wake 23s)
        "#]],
    );
}

// R-LEASE-1, R-LEASE-2
#[test]
fn a_heartbeat_every_period_keeps_the_lease_and_each_is_conditional_on_the_last() {
    check(
        running(),
        [
            (17_999, Input::Tick),
            (18_000, Input::Tick),
            (18_030, written(2)),
            (21_000, Input::Tick),
            (23_600, written(3)),
            (24_000, Input::Tick),
        ],
        &expect![[r#"
            17999:  (wake 18s)
            18000: write live 2 if still v1 (wake 23s)
            18030:  (wake 21s)
            21000: write live 3 if still v2 (wake 26s)
            23600:  (wake 24s)
            24000: write live 4 if still v3 (wake 29s)
        "#]],
    );
}

// R-LEASE-2, R-LEASE-3; case L10
#[test]
fn the_lease_ends_eight_seconds_after_the_last_write_that_landed_began_and_not_before() {
    check(
        running(),
        [
            (18_000, Input::Tick),
            (18_100, FAILED),
            (19_100, Input::Tick),
            (19_200, FAILED),
            (20_200, Input::Tick),
            (22_900, UNKNOWN),
            (22_999, Input::Tick),
            (23_000, Input::Tick),
            (25_600, NO_ANSWER),
            (26_600, Input::Tick),
            (26_700, live(0xa, 1, 1)),
            (26_800, written(2)),
        ],
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            18100:  (wake 19.1s)
            19100: write live 3 if still v1 (wake 23s)
            19200:  (wake 20.2s)
            20200: write live 4 if still v1 (wake 23s)
            22900: read (wake 23s)
            22999:  (wake 23s)
            23000: lapsed (wake never)
            25600:  (wake 26.6s)
            26600: read (wake never)
            26700: write live 5 if still v1 (wake never)
            26800: valid (wake 29.7s)
        "#]],
    );
}

// case L3
#[test]
fn a_heartbeat_whose_reply_was_lost_is_read_back_and_counts_from_when_it_began() {
    check(
        running(),
        [(18_000, Input::Tick), (20_700, UNKNOWN), (20_800, live(0xa, 2, 2)), (21_000, Input::Tick)],
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            20700: read (wake 23s)
            20800:  (wake 21s)
            21000: write live 3 if still v2 (wake 26s)
        "#]],
    );
}

// case L4
#[test]
fn a_condition_that_our_own_resend_broke_does_not_end_the_process() {
    check(
        running(),
        [(18_000, Input::Tick), (18_100, CONDITION_FAILED), (18_150, live(0xa, 2, 2)), (21_000, Input::Tick)],
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            18100: read (wake 23s)
            18150:  (wake 21s)
            21000: write live 3 if still v2 (wake 26s)
        "#]],
    );
    // A write believed lost lands after the next was sent: the later one fails, the earlier one counts.
    check(
        running(),
        [
            (18_000, Input::Tick),
            (20_700, UNKNOWN),
            (20_750, live(0xa, 1, 1)),
            (20_800, CONDITION_FAILED),
            (20_850, live(0xa, 2, 2)),
        ],
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            20700: read (wake 23s)
            20750: write live 3 if still v1 (wake 23s)
            20800: read (wake 23s)
            20850:  (wake 21s)
        "#]],
    );
}

// R-LEASE-1, R-LEASE-7; cases L4, S2
#[test]
fn another_writer_in_our_place_ends_the_process_at_its_next_write() {
    let ends = [
        (live(0xb, 1, 2), "another process took this node id over at http://b"),
        (found(2, record(0xa, 1, 0, fenced(15))), "this node was fenced by node b"),
        (
            found(2, record(0xf, 0, 0, NodeState::Fenced { watched: Duration::ZERO, by: None })),
            "this node was fenced by an operator",
        ),
        (ABSENT, "this node's heartbeat was deleted from the bucket"),
        (
            Input::Read(Found::Object(Version::new("v2"), Err(RecordError::Format(2)))),
            "this node's heartbeat was overwritten: it has format 2, and this version reads format 1",
        ),
    ];
    for (found, expected) in ends {
        let mut keeper = running();
        let mut step = |ms, input| keeper.step(at(ms), Nonce::from_bits(1), input);
        step(18_000, Input::Tick);
        assert_eq!(step(18_050, CONDITION_FAILED), [Effect::Read], "{expected}");
        let effects = step(18_100, found);
        let [Effect::Lapsed, Effect::Exit(exit)] = &effects[..] else { panic!("{expected}: {effects:?}") };
        assert_eq!(exit.to_string(), expected);
        assert_eq!(keeper.lease(at(18_100).moment), None);
        assert_eq!(keeper.wake(), None);
    }
}

// R-LEASE-7, R-LEASE-8
#[test]
fn a_first_write_without_an_answer_for_fifteen_seconds_is_not_believed_unless_what_it_replaces_still_stands()
{
    let lost = [(0, Input::Tick), (0, ABSENT), (15_000, Input::Tick), (15_000, ABSENT), (17_700, UNKNOWN)];
    for found in [ABSENT, live(0xa, 1, 1), live(0xb, 1, 1)] {
        let mut keeper = keeper();
        for (ms, input) in lost.clone() {
            keeper.step(at(ms), Nonce::from_bits(1), input);
        }
        let effects = keeper.step(at(30_000), Nonce::from_bits(1), found.clone());
        assert_eq!(effects, [Effect::Exit(Exit::Unsettled)], "{found:?}");
    }
    let before = || live(0xb, 7, 1);
    let lost =
        [(0, Input::Tick), (0, before()), (15_000, Input::Tick), (15_000, before()), (17_700, UNKNOWN)];
    check(
        keeper(),
        lost.into_iter().chain([(40_000, before()), (40_100, written(2))]),
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            15000: read (wake never)
            15000: write live 1 if still v1 (wake never)
            17700: read (wake never)
            40000: write live 2 if still v1 (wake never)
            40100: valid (wake 43s)
        "#]],
    );
}

// R-LEASE-7
#[test]
fn a_first_write_that_comes_back_after_a_deletion_is_not_believed() {
    check(
        running(),
        [(18_000, Input::Tick), (18_100, written(2)), (19_000, Input::Sighted), (19_100, live(0xa, 1, 3))],
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            18100:  (wake 21s)
            19000: read (wake 26s)
            19100: lapsed, exit: this node's heartbeat was deleted from the bucket (wake never)
        "#]],
    );
    check(
        running(),
        [(17_000, Input::Sighted), (17_100, live(0xa, 1, 3))],
        &expect![[r#"
            17000: read (wake 23s)
            17100: lapsed, exit: this node's heartbeat was deleted from the bucket (wake never)
        "#]],
    );
}

#[test]
fn a_listing_that_shows_somebody_else_makes_the_keeper_look_at_once() {
    check(
        running(),
        [(16_000, Input::Sighted), (16_100, live(0xa, 1, 1)), (16_200, Input::Sighted), (16_300, ABSENT)],
        &expect![[r#"
            16000: read (wake 23s)
            16100:  (wake 18s)
            16200: read (wake 23s)
            16300: lapsed, exit: this node's heartbeat was deleted from the bucket (wake never)
        "#]],
    );
}

// case L6
#[test]
fn a_sleep_of_the_machine_ends_the_lease_before_the_answer_that_waited_is_believed() {
    let mut keeper = running();
    keeper.step(at(18_000), Nonce::from_bits(1), Input::Tick);
    assert!(keeper.lease(at(18_000).moment).is_some());
    assert_eq!(keeper.lease(at(78_000).moment), None, "asked before any input arrives");
    let effects = keeper.step(at(78_000), Nonce::from_bits(1), written(2));
    assert!(matches!(effects[..], [Effect::Lapsed, Effect::Write(..)]), "{effects:?}");
    assert_eq!(keeper.lease(at(78_000).moment), None);
    // A new hold of the lease has a new epoch.
    assert_eq!(keeper.step(at(78_100), Nonce::from_bits(1), written(3)), [Effect::Valid]);
    assert_eq!(keeper.lease(at(78_100).moment).map(|lease| lease.epoch()), Some(2));
}
