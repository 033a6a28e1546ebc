use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    lease::Timing,
    records::{NodeRecord, NodeState, Nonce, Presence, Process, Shape},
    store::Version,
    view::Peer,
};

const LIFE_S: u64 = 10;

fn at(s: u64) -> Moment {
    Moment::after_boot(Duration::from_secs(s))
}

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

fn actor(name: &str) -> ActorId {
    ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() }
}

/// A view in which `b` and `c` renew their leases and `d` is fenced.
fn view() -> View {
    let record = |state| {
        Arc::new(NodeRecord {
            process: Process::from_bits(1),
            sequence: 1,
            nonce: Nonce::from_bits(1),
            state,
            written_at_ms: 0,
            ttl: Duration::from_secs(10),
            shape: Shape::NONE,
            presence: Arc::new(Presence::default()),
        })
    };
    let fenced = NodeState::Fenced { watched: Duration::ZERO, by: None };
    let peers = [("b", NodeState::Live), ("c", NodeState::Live), ("d", fenced)].map(|(id, state)| {
        // Far ahead, so that age plays no part.
        (node(id), Peer { version: Version::new("v"), record: Ok(record(state)), written: at(1_000_000) })
    });
    View::new(&Timing::default(), BTreeMap::from(peers))
}

fn hints() -> Hints {
    Hints::new(NonZeroUsize::new(2).unwrap(), Duration::from_secs(LIFE_S))
}

fn find(hints: &mut Hints, name: &str, now_s: u64) -> Option<NodeId> {
    hints.find(&actor(name), &view(), &Suspects::default(), at(now_s))
}

/// What happens to a hint for the actor `x`, and when.
enum Event {
    Learn(&'static str),
    Heard(&'static str, Heard),
    Use,
}

// R-FWD-1
#[test]
fn a_hint_lives_by_what_proves_it_and_dies_by_what_disproves_it() {
    use Event::{Heard as Told, Learn, Use};
    type Case = (&'static str, &'static [(u64, Event)], u64, Option<&'static str>);
    let table: &[Case] = &[
        ("nothing learned", &[], 0, None),
        ("learned", &[(0, Learn("b"))], 9, Some("b")),
        ("too old", &[(0, Learn("b"))], 10, None),
        ("proved by an answer", &[(0, Learn("b")), (9, Told("b", Heard::Served))], 18, Some("b")),
        ("that is too old again", &[(0, Learn("b")), (9, Told("b", Heard::Served))], 19, None),
        ("use proves nothing", &[(0, Learn("b")), (4, Use), (8, Use), (9, Use)], 10, None),
        ("nor does a 503", &[(0, Learn("b")), (9, Told("b", Heard::Unavailable))], 10, None),
        (
            "which disproves nothing either",
            &[(0, Learn("b")), (8, Told("b", Heard::Unavailable))],
            9,
            Some("b"),
        ),
        ("not served", &[(0, Learn("b")), (1, Told("b", Heard::NotServed))], 2, None),
        ("of another node", &[(0, Learn("b")), (1, Told("c", Heard::NotServed))], 2, Some("b")),
        ("nor proved by it", &[(0, Learn("b")), (9, Told("c", Heard::Served))], 10, None),
        ("nothing is learned from an answer", &[(0, Told("b", Heard::Served))], 1, None),
        ("learned anew", &[(0, Learn("b")), (5, Learn("c"))], 14, Some("c")),
        ("a fenced node", &[(0, Learn("d"))], 1, None),
        ("a node without a heartbeat", &[(0, Learn("z"))], 1, None),
    ];
    for (what, events, now_s, expected) in table {
        let mut hints = hints();
        for (s, event) in *events {
            match event {
                Learn(id) => hints.learn(&actor("x"), &node(id), at(*s)),
                Told(id, heard) => hints.heard(&actor("x"), &node(id), *heard, at(*s)),
                Use => assert!(find(&mut hints, "x", *s).is_some(), "{what}"),
            }
        }
        assert_eq!(find(&mut hints, "x", *now_s), expected.map(node), "{what}");
    }
}

// R-FWD-1, R-WAIT-4
#[test]
fn a_suspected_node_is_not_hinted_at_and_its_hint_does_not_come_back() {
    let mut hints = hints();
    hints.learn(&actor("x"), &node("b"), at(0));
    let mut suspects = Suspects::default();
    suspects.failed(&node("b"), at(1));
    assert_eq!(hints.find(&actor("x"), &view(), &suspects, at(1)), None);
    assert_eq!(find(&mut hints, "x", 1), None);
}

// R-FWD-1
#[test]
fn the_least_recently_used_hint_makes_room() {
    let mut hints = hints();
    for name in ["x", "y"] {
        hints.learn(&actor(name), &node("b"), at(0));
    }
    assert!(find(&mut hints, "x", 1).is_some());
    hints.learn(&actor("z"), &node("b"), at(1));
    assert_eq!(find(&mut hints, "y", 1), None);
    assert!(find(&mut hints, "x", 1).is_some() && find(&mut hints, "z", 1).is_some());
}

// R-FWD-1
#[test]
fn an_answer_says_what_it_says() {
    for (status, elsewhere, heard) in [
        (200, false, Heard::Served),
        (500, false, Heard::Served),
        (404, false, Heard::Served),
        (101, false, Heard::Served),
        (503, false, Heard::Unavailable),
        (503, true, Heard::NotServed),
        (200, true, Heard::NotServed),
    ] {
        assert_eq!(Heard::of_answer(status, elsewhere), heard, "{status} {elsewhere}");
    }
}
