use std::sync::Arc;

use super::*;
use crate::{
    lease::Timing,
    records::{NodeRecord, NodeState, Nonce, Presence, Process, Shape},
    store::Version,
    view::Peer,
};

fn at(ms: u64) -> Moment {
    Moment::after_boot(Duration::from_millis(ms))
}

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

fn actor(name: &str) -> ActorId {
    ActorId { class: "room".parse().unwrap(), name: name.parse().unwrap() }
}

/// A view in which node `b` is in this state and wrote last at `written_ms`, and `c` is live.
fn view(state: NodeState, written_ms: u64) -> View {
    view_of(state, written_ms, false)
}

fn view_of(state: NodeState, written_ms: u64, stopping: bool) -> View {
    let peers = [("b", state, written_ms, stopping), ("c", NodeState::Live, 1_000_000, false)];
    let peers = peers.map(|(id, state, written, stopping)| {
        let record = NodeRecord {
            process: Process::from_bits(1),
            sequence: 1,
            nonce: Nonce::from_bits(1),
            state,
            written_at_ms: 0,
            ttl: Duration::from_secs(10),
            shape: Shape::NONE,
            presence: Arc::new(Presence { stopping, ..Presence::default() }),
        };
        (node(id), Peer { version: Version::new("v"), record: Ok(Arc::new(record)), written: at(written) })
    });
    View::new(&Timing::default(), BTreeMap::from(peers))
}

fn silent() -> View {
    view(NodeState::Live, 0)
}

fn ending() -> View {
    view(NodeState::Fenced { watched: Duration::ZERO, by: None }, 0)
}

fn gone() -> View {
    view(NodeState::Fenced { watched: Duration::from_secs(15), by: None }, 0)
}

fn live(written_ms: u64) -> View {
    view(NodeState::Live, written_ms)
}

fn limits() -> Limits {
    Limits::new(Duration::from_secs(25), 10_000)
}

/// Waits with request 1 for the actor `x` of node `b`, kept at second 10.
fn waiting() -> Waits {
    let mut waits = Waits::new(limits());
    waits.keep(at(10_000), 1, &actor("x"), &node("b")).unwrap();
    waits
}

fn step(waits: &mut Waits, ms: u64, view: &View, input: WaitsInput) -> Vec<WaitsEffect> {
    waits.step(at(ms), view, &Suspects::default(), input)
}

fn ends(end: End) -> Vec<WaitsEffect> {
    vec![WaitsEffect::End(1, end)]
}

fn asks() -> Vec<WaitsEffect> {
    vec![WaitsEffect::Ask(actor("x"))]
}

// R-WAIT-2
#[test]
fn a_wait_ends_here_once_this_node_took_the_actor() {
    let mut waits = waiting();
    for view in [silent(), ending()] {
        assert_eq!(step(&mut waits, 12_000, &view, WaitsInput::Look), [], "nothing is asked");
    }
    assert_eq!(waits.wake(), Some(at(35_000)));
    // Free: asked for within a second, then about once a second until it is ours.
    assert_eq!(step(&mut waits, 15_000, &gone(), WaitsInput::Look), []);
    let due = waits.wake().unwrap();
    assert!(due >= at(15_000) && due < at(16_000));
    let asked = step(&mut waits, 16_000, &gone(), WaitsInput::Look);
    assert_eq!(asked, asks());
    assert_eq!(step(&mut waits, 16_100, &gone(), WaitsInput::Look), [], "one question at a time");
    let denied = WaitsInput::Denied(actor("x"), Denial::BucketSilent);
    assert_eq!(step(&mut waits, 16_200, &gone(), denied), []);
    assert_eq!(waits.wake(), Some(at(17_200)));
    assert_eq!(step(&mut waits, 17_200, &gone(), WaitsInput::Look), asks());
    assert_eq!(step(&mut waits, 17_300, &gone(), WaitsInput::Taken(actor("x"))), ends(End::Served));
    assert!(waits.is_empty() && waits.wake().is_none());
}

// R-WAIT-2
#[test]
fn a_wait_ends_when_another_request_took_the_actor_here_whatever_is_known_of_its_owner() {
    for view in [silent(), ending(), live(9_000)] {
        let mut waits = waiting();
        let mut suspects = Suspects::default();
        suspects.failed(&node("b"), at(10_000));
        assert_eq!(waits.step(at(10_000), &view, &suspects, WaitsInput::Look), []);
        let other = waits.step(at(10_100), &view, &suspects, WaitsInput::Taken(actor("y")));
        assert_eq!(other, []);
        let taken = waits.step(at(10_100), &view, &suspects, WaitsInput::Taken(actor("x")));
        assert_eq!(taken, ends(End::Served));
    }
}

// R-WAIT-2
#[test]
fn a_wait_ends_at_another_node_that_took_the_actor_first() {
    let mut waits = waiting();
    step(&mut waits, 15_000, &gone(), WaitsInput::Look);
    step(&mut waits, 16_000, &gone(), WaitsInput::Look);
    let denied = WaitsInput::Denied(actor("x"), Denial::Owned(Owner::Live(node("c"))));
    assert_eq!(step(&mut waits, 16_100, &gone(), denied), ends(End::Sent(node("c"))));
    // If that one is silent by now, the wait goes on for it.
    let mut waits = waiting();
    step(&mut waits, 15_000, &gone(), WaitsInput::Look);
    step(&mut waits, 16_000, &gone(), WaitsInput::Look);
    let denied = WaitsInput::Denied(actor("x"), Denial::Owned(Owner::Silent(node("d"))));
    assert_eq!(step(&mut waits, 16_100, &gone(), denied), []);
    assert_eq!(step(&mut waits, 18_000, &gone(), WaitsInput::Look), []);
}

// R-WAIT-2, R-WAIT-4
#[test]
fn a_wait_ends_at_the_owner_that_proves_alive() {
    let mut waits = waiting();
    assert_eq!(step(&mut waits, 12_000, &live(11_500), WaitsInput::Look), ends(End::OwnerAlive(node("b"))));
    // In view and suspected: its record is read about once a second, and it is not taken for alive.
    let mut waits = waiting();
    let mut suspects = Suspects::default();
    suspects.failed(&node("b"), at(10_000));
    let mut step = |ms, view: &View, suspects: &Suspects, input| waits.step(at(ms), view, suspects, input);
    assert_eq!(step(10_000, &live(9_000), &suspects, WaitsInput::Look), []);
    for second in 11..14 {
        assert_eq!(step(second * 1000, &live(9_000), &suspects, WaitsInput::Look), asks());
        let denied = WaitsInput::Denied(actor("x"), Denial::Owned(Owner::Live(node("b"))));
        assert_eq!(step(second * 1000, &live(9_000), &suspects, denied), []);
    }
    suspects.look(&live(13_000), Timing::default().skew, at(13_500));
    let alive = step(13_500, &live(13_000), &suspects, WaitsInput::Look);
    assert_eq!(alive, ends(End::OwnerAlive(node("b"))));
}

// R-WAIT-4, R-LEASE-6
#[test]
fn a_node_that_stops_is_suspected_until_its_actor_is_free_however_often_it_renews() {
    let (skew, stopping) = (Timing::default().skew, |ms| view_of(NodeState::Live, ms, true));
    let mut failed = Suspects::default();
    failed.failed(&node("b"), at(10_000));
    let mut trusted = Suspects::default();
    trusted.failed(&node("b"), at(1_000));
    trusted.look(&live(9_000), skew, at(9_000));
    for mut suspects in [failed, trusted, Suspects::default()] {
        let mut waits = waiting();
        for ms in (11_000..21_000).step_by(1000) {
            // Its record is read about once a second.
            let view = stopping(ms / 3000 * 3000);
            suspects.look(&view, skew, at(ms));
            assert!(suspects.suspects(&node("b")));
            let asked = waits.step(at(ms), &view, &suspects, WaitsInput::Look);
            assert_eq!(asked.is_empty(), ms == 11_000);
            let denied = WaitsInput::Denied(actor("x"), Denial::Owned(Owner::Live(node("b"))));
            assert_eq!(waits.step(at(ms), &view, &suspects, denied), []);
        }
        // Should it fall silent on the way, what it has given up is still to be had.
        let view = stopping(9_000);
        suspects.look(&view, skew, at(21_000));
        assert_eq!(waits.step(at(21_000), &view, &suspects, WaitsInput::Look), asks());
        // Its next process says nothing of the kind, and has to prove itself as any other.
        suspects.look(&live(22_900), skew, at(23_000));
        assert!(suspects.suspects(&node("b")));
        suspects.look(&live(24_000), skew, at(24_000));
        assert!(!suspects.suspects(&node("b")));
    }
}

// R-WAIT-2
#[test]
fn a_wait_ends_when_its_time_is_up_this_node_stops_or_its_lease_runs_out() {
    let mut waits = waiting();
    assert_eq!(step(&mut waits, 34_999, &silent(), WaitsInput::Look), []);
    assert_eq!(step(&mut waits, 35_000, &silent(), WaitsInput::Look), ends(End::TimedOut));
    for (input, end) in [(WaitsInput::Stop, End::Stopping), (WaitsInput::Lapsed, End::LeaseLapsed)] {
        let mut waits = waiting();
        assert_eq!(step(&mut waits, 12_000, &silent(), input), ends(end));
        assert_eq!(waits.keep(at(12_000), 2, &actor("x"), &node("b")), Err(NotKept::Off));
    }
    let mut waits = waiting();
    step(&mut waits, 12_000, &silent(), WaitsInput::Lapsed);
    step(&mut waits, 13_000, &silent(), WaitsInput::Valid);
    assert_eq!(waits.keep(at(13_000), 2, &actor("x"), &node("b")), Ok(()));
}

// R-WAIT-2
#[test]
fn a_request_whose_client_left_is_dropped_and_the_others_wait_on() {
    let mut waits = waiting();
    waits.keep(at(11_000), 2, &actor("x"), &node("b")).unwrap();
    assert_eq!(step(&mut waits, 12_000, &silent(), WaitsInput::Left(1)), ends(End::Dropped));
    assert_eq!(step(&mut waits, 12_000, &silent(), WaitsInput::Left(1)), []);
    assert_eq!(waits.len(), 1);
    assert_eq!(step(&mut waits, 36_000, &silent(), WaitsInput::Look), [WaitsEffect::End(2, End::TimedOut)]);
}

// R-WAIT-3
#[test]
fn a_node_keeps_a_quarter_of_its_connections_and_sixty_four_requests_an_actor() {
    let mut waits = Waits::new(limits());
    for kept in 0..2500 {
        waits.keep(at(0), kept, &actor(&format!("a{}", kept / 64)), &node("b")).unwrap();
    }
    assert_eq!(waits.keep(at(0), 2500, &actor("other"), &node("b")), Err(NotKept::OverCap));
    step(&mut waits, 12_000, &silent(), WaitsInput::Left(2499));
    assert_eq!(
        waits.keep(at(0), 2501, &actor("a0"), &node("b")),
        Err(NotKept::OverCap),
        "64 are kept for it"
    );
    assert_eq!(waits.keep(at(0), 2502, &actor("other"), &node("b")), Ok(()));
    // A quarter that comes to zero keeps none.
    let mut waits = Waits::new(Limits::new(Duration::from_secs(25), 3));
    assert_eq!(waits.keep(at(0), 1, &actor("x"), &node("b")), Err(NotKept::OverCap));
    // Turned off.
    let mut waits = Waits::new(Limits::new(Duration::ZERO, 10_000));
    assert_eq!(waits.keep(at(0), 1, &actor("x"), &node("b")), Err(NotKept::Off));
}

// R-WAIT-3
#[test]
fn the_actors_of_a_dead_node_are_asked_for_over_a_second() {
    let mut waits = Waits::new(limits());
    for kept in 0..1000 {
        waits.keep(at(0), kept, &actor(&format!("a{kept}")), &node("b")).unwrap();
    }
    let mut most = 0;
    let mut asked = 0;
    for ms in (1000..=2000).step_by(100) {
        let now = step(&mut waits, ms, &gone(), WaitsInput::Look).len();
        most = most.max(now);
        asked += now;
    }
    assert_eq!(asked, 1000);
    assert!(most < 200, "{most} in a tenth of a second");
}

// R-WAIT-5
#[test]
fn each_end_has_a_label_of_its_own() {
    let ends = [
        End::Served,
        End::Sent(node("c")),
        End::OwnerAlive(node("b")),
        End::TimedOut,
        End::Stopping,
        End::LeaseLapsed,
        End::Dropped,
    ];
    let labels: BTreeSet<&str> = ends.iter().map(End::label).collect();
    assert_eq!(labels.len(), ends.len());
}
