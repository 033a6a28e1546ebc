use std::{collections::BTreeMap, sync::Arc, time::Duration};

use expect_test::{Expect, expect};

use super::*;
use crate::{
    clock::Now,
    lease::{Keeper, Timing},
    records::{NodeState, Presence, Process, Shape},
    view::Peer,
};

fn at(ms: u64) -> Moment {
    Moment::after_boot(Duration::from_millis(ms))
}

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

/// A lease that is valid from 100 s to 108 s, in its first epoch.
fn lease() -> ValidLease {
    let now = Now { moment: at(100_000), wall_ms: 0 };
    let identity = Identity { node: node("a"), process: Process::from_bits(0xa) };
    let mut keeper = Keeper::new(Timing::default(), identity, Presence::default(), at(0));
    let mut step = |now, input| keeper.step(now, Nonce::from_bits(1), input);
    step(Now { moment: at(0), ..now }, crate::lease::Input::Tick);
    step(Now { moment: at(0), ..now }, crate::lease::Input::Read(Found::Absent));
    step(now, crate::lease::Input::Tick);
    step(now, crate::lease::Input::Read(Found::Absent));
    step(now, crate::lease::Input::Wrote(Wrote::Written(Version::new("n"))));
    keeper.lease(now.moment).unwrap()
}

fn heartbeat(process: u128, state: NodeState) -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(process),
        sequence: 1,
        nonce: Nonce::from_bits(0),
        state,
        written_at_ms: 0,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::default(),
    }
}

fn fenced(watched_s: u64) -> NodeState {
    NodeState::Fenced { watched: Duration::from_secs(watched_s), by: None }
}

/// What the nodes `live`, `silent`, `ending`, `fenced` and `released`, each process 1, are to this one at 100 s.
fn view() -> View {
    let peers = [
        ("live", NodeState::Live, 100_000),
        ("silent", NodeState::Live, 80_000),
        ("ending", fenced(0), 100_000),
        ("fenced", fenced(15), 80_000),
        ("released", NodeState::Released, 100_000),
    ];
    let peers = peers.map(|(id, state, written)| {
        let record = Ok(Arc::new(heartbeat(1, state)));
        (node(id), Peer { version: Version::new("h"), record, written: at(written) })
    });
    View::new(&Timing::default(), BTreeMap::from(peers))
}

fn record(owner: &str, process: u128, generation: u64, hold: Hold) -> OwnerRecord {
    OwnerRecord {
        node: node(owner),
        process: Process::from_bits(process),
        generation,
        hold,
        nonce: Nonce::from_bits(u128::from(generation) + 5000),
    }
}

fn found(version: &str, record: OwnerRecord) -> Input {
    Input::Found(Found::Object(Version::new(version), Ok(record)))
}

fn held_by(owner: &str, generation: u64) -> Input {
    found("v1", record(owner, 1, generation, Hold::Held))
}

fn written(version: &str) -> Input {
    Input::Wrote(Wrote::Written(Version::new(version)))
}

const WANT: Input = Input::Want { fresh: false };
const ABSENT: Input = Input::Found(Found::Absent);
const NO_ANSWER: Input = Input::Found(Found::Failed);
const UNKNOWN: Input = Input::Wrote(Wrote::Unknown);
const CONDITION_FAILED: Input = Input::Wrote(Wrote::ConditionFailed);
const FAILED: Input = Input::Wrote(Wrote::Failed);

/// Node `a`, process `a`, and its claim to one actor.
struct Bench {
    claim: Claim,
    lease: Option<ValidLease>,
    taking: bool,
    view: View,
    steps: u64,
}

impl Bench {
    fn new() -> Self {
        Self { claim: Claim::default(), lease: Some(lease()), taking: true, view: view(), steps: 0 }
    }

    /// The nonce of the n-th step is n.
    fn step(&mut self, ms: u64, input: Input) -> Vec<Effect> {
        self.steps += 1;
        let identity = Identity { node: node("a"), process: Process::from_bits(0xa) };
        let context = Context {
            now: at(ms),
            identity: &identity,
            view: &self.view,
            lease: self.lease,
            taking: self.taking,
            nonce: Nonce::from_bits(self.steps.into()),
        };
        self.claim.step(&context, input)
    }

    /// Runs inputs at 100 s and compares what was done, a line an input.
    #[track_caller]
    fn check(&mut self, inputs: impl IntoIterator<Item = Input>, expected: &Expect) {
        let mut lines = String::new();
        for input in inputs {
            let effects = self.step(100_000, input);
            lines.push_str(&effects.iter().map(shown).collect::<Vec<_>>().join(", "));
            lines.push('\n');
        }
        expected.assert_eq(&lines);
    }
}

fn shown(effect: &Effect) -> String {
    match effect {
        Effect::Write(record, condition) => {
            let condition = match condition {
                Condition::Absent => "absent",
                Condition::Unchanged(version) => &format!("still {}", version.as_str()),
            };
            format!("write {} {:?} {} if {condition}", record.node, record.hold, record.generation)
                .to_lowercase()
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

/// The first steps of a hold at generation 1, written as `v1`.
fn taken() -> [Input; 3] {
    [WANT, ABSENT, written("v1")]
}

// R-OWN-1, R-OWN-2
#[test]
fn an_actor_is_taken_at_a_generation_above_every_one_before_and_released_under_its_own() {
    Bench::new().check(
        taken().into_iter().chain([
            Input::Release,
            written("v2"),
            WANT,
            written("v3"),
            Input::Release,
            written("v4"),
        ]),
        &expect![[r#"
            read
            write a held 1 if absent
            taken { generation: 1 }
            write a released 1 if still v1
            released
            write a held 2 if still v2
            taken { generation: 2 }
            write a released 2 if still v3
            released
        "#]],
    );
    Bench::new().check(
        [WANT, found("v1", record("silent", 9, 41, Hold::Released)), written("v2")],
        &expect![[r#"
            read
            write a held 42 if still v1
            taken { generation: 42 }
        "#]],
    );
}

// R-OWN-1, R-OWN-3, R-LEASE-4, R-LEASE-6, R-LEASE-7
#[test]
fn whose_an_actor_is_decides_whether_it_is_taken() {
    for (owner, process, hold, expected) in [
        ("live", 1, Hold::Held, Denial::Owned(Owner::Live(node("live")))),
        ("silent", 1, Hold::Held, Denial::Owned(Owner::Silent(node("silent")))),
        ("nobody", 1, Hold::Held, Denial::Owned(Owner::Silent(node("nobody")))),
        ("ending", 1, Hold::Held, Denial::Owned(Owner::Ending(node("ending")))),
        // Another process of a live node: it takes back what its earlier one held.
        ("live", 9, Hold::Held, Denial::Owned(Owner::Live(node("live")))),
    ] {
        let mut bench = Bench::new();
        bench.step(100_000, WANT);
        let effects = bench.step(100_000, found("v1", record(owner, process, 3, hold)));
        assert_eq!(effects, [Effect::Denied(expected)], "{owner} {process}");
        assert!(bench.claim.is_idle());
    }
    for (owner, process, hold) in [
        ("live", 1, Hold::Released),
        ("fenced", 1, Hold::Held),
        ("released", 1, Hold::Held),
        ("a", 0xb, Hold::Held),
        ("a", 0xa, Hold::Held),
    ] {
        let mut bench = Bench::new();
        bench.step(100_000, WANT);
        let effects = bench.step(100_000, found("v1", record(owner, process, 3, hold)));
        assert!(
            matches!(&effects[..], [Effect::Write(take, _)] if take.generation == 4),
            "{owner}: {effects:?}"
        );
    }
}

#[test]
fn a_view_of_another_process_frees_nothing_before_the_heartbeat_was_read_after_the_record() {
    // The record names process 9 of a node whose view shows process 1 as released: which came first?
    let unclear = || found("v1", record("released", 9, 3, Hold::Held));
    let read =
        |process, state| Input::Heartbeat(Found::Object(Version::new("h2"), Ok(heartbeat(process, state))));
    for (answer, expected) in [
        (read(9, NodeState::Live), Some(Denial::Owned(Owner::Live(node("released"))))),
        (read(9, fenced(0)), Some(Denial::Owned(Owner::Ending(node("released"))))),
        (Input::Heartbeat(Found::Absent), Some(Denial::Owned(Owner::Silent(node("released"))))),
        (Input::Heartbeat(Found::Failed), Some(Denial::BucketSilent)),
        (read(1, NodeState::Released), None),
        (read(9, NodeState::Released), None),
        (read(9, fenced(15)), None),
    ] {
        let mut bench = Bench::new();
        bench.step(100_000, WANT);
        assert_eq!(bench.step(100_000, unclear()), [Effect::ReadHeartbeat(node("released"))]);
        let effects = bench.step(100_000, answer.clone());
        match expected {
            Some(denial) => assert_eq!(effects, [Effect::Denied(denial)], "{answer:?}"),
            None => assert!(matches!(effects[..], [Effect::Write(..)]), "{answer:?}: {effects:?}"),
        }
    }
}

// case L3
#[test]
fn a_take_without_an_answer_is_settled_by_its_nonce() {
    // The write of the second step carries nonce 2.
    let ours = || {
        let record = OwnerRecord { nonce: Nonce::from_bits(2), ..record("a", 0xa, 1, Hold::Held) };
        found("v1", record)
    };
    for answer in [UNKNOWN, CONDITION_FAILED] {
        Bench::new().check(
            [WANT, ABSENT, answer, ours()],
            &expect![[r"
                read
                write a held 1 if absent
                read
                taken { generation: 1 }
            "]],
        );
    }
    Bench::new().check(
        [WANT, ABSENT, UNKNOWN, ABSENT, UNKNOWN, ABSENT, UNKNOWN, ABSENT],
        &expect![[r#"
            read
            write a held 1 if absent
            read
            write a held 1 if absent
            read
            write a held 1 if absent
            read
            denied(bucketsilent)
        "#]],
    );
}

// case L11
#[test]
fn of_two_nodes_that_take_at_once_the_loser_learns_who_won() {
    Bench::new().check(
        [WANT, ABSENT, CONDITION_FAILED, held_by("live", 1)],
        &expect![[r#"
            read
            write a held 1 if absent
            read
            denied(owned(live("live")))
        "#]],
    );
    Bench::new().check(
        [
            WANT,
            held_by("fenced", 7),
            CONDITION_FAILED,
            found("v2", record("silent", 1, 8, Hold::Released)),
            written("v3"),
        ],
        &expect![[r#"
            read
            write a held 8 if still v1
            read
            write a held 9 if still v2
            taken { generation: 9 }
        "#]],
    );
}

#[test]
fn a_bucket_without_an_answer_and_a_damaged_record_refuse_whoever_asked() {
    let damaged = Input::Found(Found::Object(Version::new("v1"), Err(RecordError::Format(2))));
    for (inputs, expected) in [
        (vec![WANT, NO_ANSWER], Denial::BucketSilent),
        (vec![WANT, ABSENT, FAILED], Denial::BucketSilent),
        (vec![WANT, ABSENT, UNKNOWN, NO_ANSWER], Denial::BucketSilent),
        (vec![WANT, damaged], Denial::Unreadable(RecordError::Format(2))),
    ] {
        let mut bench = Bench::new();
        let effects: Vec<Effect> = inputs.into_iter().flat_map(|input| bench.step(100_000, input)).collect();
        assert_eq!(effects.last(), Some(&Effect::Denied(expected)));
        assert_eq!(bench.step(100_000, WANT), [Effect::Read], "the next one asks anew");
    }
}

// R-LEASE-2
#[test]
fn without_a_lease_or_while_draining_nothing_is_taken() {
    let mut bench = Bench { lease: None, ..Bench::new() };
    bench.check(
        [WANT, ABSENT, WANT, held_by("live", 1)],
        &expect![[r#"
            read
            denied(nolease)
            read
            denied(owned(live("live")))
        "#]],
    );
    let mut bench = Bench { taking: false, ..Bench::new() };
    bench.check(
        [WANT, ABSENT, WANT, held_by("a", 1)],
        &expect![[r#"
            read
            denied(nottaking)
            read
            denied(nottaking)
        "#]],
    );
}

// R-LEASE-6
#[test]
fn a_take_that_lands_after_the_node_began_to_stop_is_given_up_again() {
    let mut bench = Bench::new();
    bench.step(100_000, WANT);
    bench.step(100_000, ABSENT);
    bench.taking = false;
    assert_eq!(bench.step(100_100, written("v1")), [Effect::Denied(Denial::NotTaking)]);
    assert!(!bench.claim.is_idle());
    // At once, and however often it is asked for meanwhile.
    let owed = bench.claim.wake();
    assert_eq!(bench.step(100_100, WANT), [Effect::Denied(Denial::NotTaking)]);
    assert_eq!(bench.claim.wake(), owed);
    assert_eq!(bench.step(100_100, Input::Tick), [Effect::Read]);
    assert_eq!(bench.step(100_150, WANT), [], "the release comes first");
    bench.check(
        [found("v1", record("a", 0xa, 1, Hold::Held)), written("v2")],
        &expect![[r#"
            write a released 1 if still v1
            denied(nottaking)
        "#]],
    );
    assert!(bench.claim.is_idle());
}

// R-LEASE-3
#[test]
fn a_hold_ends_with_its_lease_and_is_taken_again_at_a_new_generation() {
    let mut bench = Bench::new();
    for input in taken() {
        bench.step(100_000, input);
    }
    assert_eq!(bench.claim.held(&lease()), Some(1));
    assert_eq!(bench.step(108_000, Input::Lapsed), []);
    assert_eq!(bench.claim.held(&lease()), None);
    bench.check(
        [WANT, written("v2")],
        &expect![[r#"
            write a held 2 if still v1
            taken { generation: 2 }
        "#]],
    );
    // A take under way when the lease ran out: whether it landed shows at the next attempt.
    let mut bench = Bench::new();
    bench.check(
        [WANT, ABSENT, Input::Lapsed, WANT, held_by("a", 1), written("v2")],
        &expect![[r#"
            read
            write a held 1 if absent
            denied(nolease)
            read
            write a held 2 if still v1
            taken { generation: 2 }
        "#]],
    );
}

// R-OWN-2
#[test]
fn a_release_that_fails_is_tried_again_in_the_background_until_it_lands() {
    let mut bench = Bench::new();
    let ours = |version| found(version, record("a", 0xa, 1, Hold::Held));
    bench.check(
        taken().into_iter().chain([Input::Release, FAILED]),
        &expect![[r#"
            read
            write a held 1 if absent
            taken { generation: 1 }
            write a released 1 if still v1

        "#]],
    );
    assert!(!bench.claim.is_idle());
    assert_eq!(bench.claim.wake(), Some(at(101_000)));
    assert_eq!(bench.step(100_999, Input::Tick), []);
    assert_eq!(bench.step(101_000, Input::Tick), [Effect::Read]);
    assert_eq!(bench.step(101_100, NO_ANSWER), []);
    assert_eq!(bench.step(102_100, Input::Tick), [Effect::Read]);
    bench.check(
        [ours("v1"), UNKNOWN, ours("v1"), written("v2")],
        &expect![[r#"
            write a released 1 if still v1
            read
            write a released 1 if still v1
            released
        "#]],
    );
    assert!(bench.claim.is_idle());
    // Whoever asks meanwhile gets the actor at a new generation, and nothing is owed any more.
    let mut bench = Bench::new();
    bench.check(
        taken().into_iter().chain([Input::Release, WANT, UNKNOWN, ours("v1"), written("v2")]),
        &expect![[r#"
            read
            write a held 1 if absent
            taken { generation: 1 }
            write a released 1 if still v1

            read
            write a held 2 if still v1
            taken { generation: 2 }
        "#]],
    );
    assert!(bench.claim.held(&lease()) == Some(2) && bench.claim.wake().is_none());
    // Another node took it: the release had landed.
    let mut bench = Bench::new();
    bench.check(
        taken().into_iter().chain([Input::Release, UNKNOWN, held_by("live", 2)]),
        &expect![[r#"
            read
            write a held 1 if absent
            taken { generation: 1 }
            write a released 1 if still v1
            read
            released
        "#]],
    );
    assert!(bench.claim.is_idle());
}

#[test]
fn what_is_remembered_of_a_record_saves_a_read_and_is_checked_by_the_condition() {
    let mut bench = Bench::new();
    bench.check(
        [WANT, held_by("live", 3), WANT, Input::Want { fresh: true }, held_by("live", 3)],
        &expect![[r#"
            read
            denied(owned(live("live")))
            denied(owned(live("live")))
            read
            denied(owned(live("live")))
        "#]],
    );
}
