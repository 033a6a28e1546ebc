//! By which shapes heartbeats tell others what changed.

use super::*;

/// The shape of the next write of a keeper, counted from none, and the write's answer as the next version.
fn beat(keeper: &mut Keeper, now: Now, version: u64) -> u32 {
    let effects = keeper.step(now, Nonce::from_bits(version.into()), Input::Tick);
    let shape = effects.iter().find_map(|effect| match effect {
        Effect::Write(record, _) => Some(record.shape),
        _ => None,
    });
    keeper.step(now, Nonce::from_bits(0), written(version));
    let shape = shape.unwrap();
    (0..16).find(|changes| (0..*changes).fold(Shape::NONE, |shape, _| shape.next()) == shape).unwrap()
}

// R-LEASE-1, R-LEASE-9
#[test]
fn a_heartbeat_gets_another_shape_with_whatever_others_have_to_read() {
    let mut keeper = running();
    assert_eq!(beat(&mut keeper, at(18_000), 2), 1, "the first one replaced nothing and had none");
    assert_eq!(beat(&mut keeper, at(21_000), 3), 1);
    keeper.set_presence(Presence { advertise: "http://elsewhere".into(), ..Presence::default() });
    assert_eq!(beat(&mut keeper, at(24_000), 4), 2, "it says something else");
    assert_eq!(beat(&mut keeper, at(27_000), 5), 2);
    let set = |ms, by: i64| Now { wall_ms: at(ms).wall_ms.saturating_add_signed(by), ..at(ms) };
    assert_eq!(beat(&mut keeper, set(30_000, 1000), 6), 2, "its clock was set by what it may be off");
    assert_eq!(beat(&mut keeper, set(33_000, 2001), 7), 3, "and by more");
    assert_eq!(beat(&mut keeper, set(36_000, 2001), 8), 3);
    assert_eq!(beat(&mut keeper, at(39_000), 9), 4, "and back");
    assert_eq!(beat(&mut keeper, at(47_001), 10), 5, "its lease had run out");
    assert_eq!(beat(&mut keeper, at(50_001), 11), 5);
    let effects = keeper.step(at(50_100), Nonce::from_bits(0), Input::Stop);
    let stopping = (0..6).fold(Shape::NONE, |shape, _| shape.next());
    assert!(matches!(&effects[..], [Effect::Write(record, _)] if record.shape == stopping), "{effects:?}");
    for input in [written(12), Input::ActorsClosed] {
        keeper.step(at(50_150), Nonce::from_bits(0), input);
    }
    let effects = keeper.step(at(50_200), Nonce::from_bits(0), Input::RecordsReleased);
    let released = stopping.next();
    assert!(
        matches!(&effects[..], [.., Effect::Write(record, _)] if record.shape == released),
        "{effects:?}"
    );
}

// R-LEASE-8
#[test]
fn a_new_process_writes_another_shape_than_the_one_before_it() {
    let mut keeper = keeper();
    let shape = Shape::NONE.next().next();
    let before = || found(7, NodeRecord { shape, ..record(0xb, 3, 0, NodeState::Live) });
    for ms in (0..=15_000).step_by(1500) {
        keeper.step(at(ms), Nonce::from_bits(1), Input::Tick);
        let effects = keeper.step(at(ms), Nonce::from_bits(1), before());
        match &effects[..] {
            [] => assert!(ms < 15_000),
            [Effect::Write(record, _)] => assert_eq!((ms, record.shape), (15_000, shape.next())),
            other => panic!("{other:?}"),
        }
    }
}
