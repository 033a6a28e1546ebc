//! A clean stop: what it says, and its bounds.

use super::*;
use crate::lease::keeper::stop::stop_max;

// R-LEASE-6
#[test]
fn a_clean_stop_renews_until_the_actors_and_their_records_are_released_and_then_says_so() {
    check(
        running(),
        [
            (16_000, Input::Stop),
            (16_050, written(2)),
            (19_000, Input::Tick),
            (19_050, written(3)),
            (19_100, Input::ActorsClosed),
            (20_000, Input::RecordsReleased),
            (20_050, UNKNOWN),
            (20_100, live(0xa, 3, 3)),
            (20_150, FAILED),
            (21_150, Input::Tick),
            (21_200, CONDITION_FAILED),
            (21_250, found(4, record(0xa, 3, 0, NodeState::Released))),
        ],
        &expect![[r#"
            16000: write live 2 if still v1 (wake 23s)
            16050:  (wake 19s)
            19000: write live 3 if still v2 (wake 24s)
            19050:  (wake 22s)
            19100:  (wake 22s)
            20000: lapsed, write released 3 if still v3 (wake 44.7s)
            20050: read (wake 44.7s)
            20100: write released 3 if still v3 (wake 44.7s)
            20150:  (wake 21.15s)
            21150: write released 3 if still v3 (wake 44.7s)
            21200: read (wake 44.7s)
            21250: exit: stopped (wake never)
        "#]],
    );
}

// R-LEASE-6, R-WAIT-4
#[test]
fn that_it_stops_is_said_at_once_and_until_it_stands() {
    /// Whether the write says so.
    fn says(effects: &[Effect]) -> Option<bool> {
        effects.iter().find_map(|effect| match effect {
            Effect::Write(record, _) => Some(record.presence.stopping),
            _ => None,
        })
    }
    let mut keeper = running();
    let mut step = |ms, input| says(&keeper.step(at(ms), Nonce::from_bits(1), input));
    assert_eq!(step(18_000, Input::Tick), Some(false));
    assert_eq!(step(18_010, Input::Stop), None, "a write is under way");
    assert_eq!(step(18_020, written(2)), Some(true), "which said nothing of it");
    assert_eq!(step(18_030, FAILED), None);
    assert_eq!(step(19_030, Input::Tick), Some(true));
    assert_eq!(step(19_040, written(3)), None, "the next comes in its time");
    assert_eq!(step(22_030, Input::Tick), Some(true));
}

// R-LEASE-6
#[test]
fn a_release_that_meets_a_heartbeat_under_way_follows_its_answer_at_once() {
    let closed = [(18_000, Input::Stop), (18_000, Input::ActorsClosed), (18_010, Input::RecordsReleased)];
    check(
        running(),
        closed.into_iter().chain([(18_030, written(2)), (18_060, written(3))]),
        &expect![[r#"
            18000: write live 2 if still v1 (wake 23s)
            18000:  (wake 23s)
            18010:  (wake 23s)
            18030: lapsed, write released 2 if still v2 (wake 46.7s)
            18060: exit: stopped (wake never)
        "#]],
    );
}

// R-LEASE-6
#[test]
fn a_clean_stop_ends_within_its_bounds_whatever_hangs() {
    assert!(stop_max(&Timing::default()) <= Duration::from_secs(29));
    // Events that do not end are ended; records that cannot be released are freed by the heartbeat.
    let mut keeper = running();
    let mut step = |ms, input| keeper.step(at(ms), Nonce::from_bits(1), input);
    step(16_000, Input::Stop);
    for (ms, version) in [(16_000, 2), (19_000, 3), (22_000, 4), (25_000, 5)] {
        step(ms, Input::Tick);
        step(ms + 100, written(version));
    }
    assert_eq!(step(26_000, Input::Tick), [Effect::EndEvents]);
    assert_eq!(step(26_100, Input::ActorsClosed), []);
    assert!(
        matches!(&step(42_000, Input::Tick)[..], [Effect::Lapsed, Effect::Write(record, _)] if record.state == NodeState::Released)
    );
    assert_eq!(step(44_700, Input::Tick), [Effect::Exit(Exit::Stopped { released: false })]);
    // Before the first write there is nothing to give up.
    check(
        super::tests::keeper(),
        [(0, Input::Tick), (0, ABSENT), (100, Input::Stop)],
        &expect![[r#"
            0: read (wake never)
            0:  (wake 1.5s)
            100: exit: stopped (wake never)
        "#]],
    );
}
