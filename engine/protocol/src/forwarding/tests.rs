use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::*;
use crate::{
    failover::End,
    lease::Timing,
    records::{NodeRecord, NodeState, Nonce, Presence, Process, RecordError, Shape},
    store::Version,
    view::{Peer, View},
};

fn at(ms: u64) -> Moment {
    Moment::after_boot(Duration::from_millis(ms))
}

fn node() -> NodeId {
    "b".parse().unwrap()
}

const HERE: Here<'_> = Here { keeps: true, heir: None };

fn ask(origin: Origin, bodiless: bool) -> Ask {
    Ask { origin, bodiless }
}

fn record(written_ms: u64) -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(1),
        sequence: written_ms,
        nonce: Nonce::from_bits(1),
        state: NodeState::Live,
        written_at_ms: written_ms,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::default(),
    }
}

/// A view in which node `b` wrote its lease at `written_ms`.
fn view(written_ms: u64) -> View {
    let record = Ok(Arc::new(record(written_ms)));
    let peer = Peer { version: Version::new("v"), record, written: at(written_ms) };
    View::new(&Timing::default(), BTreeMap::from([(node(), peer)]))
}

// R-FWD-1, R-WAIT-1
#[test]
fn only_what_cannot_write_and_comes_from_outside_is_kept_and_only_while_the_owner_is_or_seems_gone() {
    let get = ask(Origin::Outside, true);
    let others = [ask(Origin::Outside, false), ask(Origin::Call, true), ask(Origin::Call, false)];
    let trusting = Suspects::default();
    let mut suspects = Suspects::default();
    suspects.failed(&node(), at(0));
    let forward = Route::Forward(node());
    let keep = Route::Keep(node());
    let refuse = Route::Refuse(Refusal::NotReachable);

    let live = Denial::Owned(Owner::Live(node()));
    assert_eq!(route(get, &live, HERE, &trusting), forward);
    assert_eq!(route(get, &live, HERE, &suspects), keep);
    for ask in others {
        assert_eq!(route(ask, &live, HERE, &trusting), forward, "{ask:?}");
        assert_eq!(route(ask, &live, HERE, &suspects), forward, "{ask:?}");
    }
    for owner in [Owner::Silent(node()), Owner::Ending(node())] {
        let gone = Denial::Owned(owner);
        assert_eq!(route(get, &gone, HERE, &trusting), keep);
        for ask in others {
            assert_eq!(route(ask, &gone, HERE, &trusting), refuse, "{ask:?}");
        }
    }
}

// R-FWD-1, R-WAIT-1
#[test]
fn what_another_node_forwarded_goes_no_further_and_never_waits() {
    for bodiless in [true, false] {
        let forwarded = ask(Origin::Peer, bodiless);
        let suspects = Suspects::default();
        for (owner, refusal) in
            [(Owner::Live(node()), Refusal::Elsewhere), (Owner::Silent(node()), Refusal::NotReachable)]
        {
            let route = route(forwarded, &Denial::Owned(owner), HERE, &suspects);
            assert_eq!(route, Route::Refuse(refusal));
        }
    }
}

// R-WAIT-5
#[test]
fn a_node_that_keeps_nothing_answers_as_if_there_were_no_waits() {
    let get = ask(Origin::Outside, true);
    let here = Here { keeps: false, heir: None };
    let mut suspects = Suspects::default();
    suspects.failed(&node(), at(0));
    let silent = Denial::Owned(Owner::Silent(node()));
    assert_eq!(route(get, &Denial::Owned(Owner::Live(node())), here, &suspects), Route::Forward(node()));
    assert_eq!(route(get, &silent, here, &suspects), Route::Refuse(Refusal::NotReachable));
}

// R-LEASE-6
#[test]
fn a_node_that_stops_sends_what_it_does_not_take_to_its_heir_and_back_what_another_sent() {
    let heir = node();
    let here = Here { keeps: false, heir: Some(&heir) };
    for bodiless in [true, false] {
        for (origin, expected) in [
            (Origin::Outside, Route::Forward(node())),
            (Origin::Call, Route::Forward(node())),
            (Origin::Peer, Route::Refuse(Refusal::NotTaking)),
        ] {
            let route = |here| route(ask(origin, bodiless), &Denial::NotTaking, here, &Suspects::default());
            assert_eq!(route(here), expected, "{origin:?}");
            assert_eq!(route(HERE), Route::Refuse(Refusal::NotTaking), "{origin:?}");
        }
    }
}

// R-LEASE-6
#[test]
fn an_heir_is_live_not_suspected_of_the_same_app_and_the_same_for_every_request() {
    let me = "a".parse().unwrap();
    let actor = |n: u32| ActorId { class: "room".parse().unwrap(), name: n.to_string().parse().unwrap() };
    let peer = |written_ms, app: Option<&str>, stopping| {
        let presence = Presence { app: app.map(Into::into), stopping, ..Presence::default() };
        let record = NodeRecord { presence: Arc::new(presence), ..record(written_ms) };
        Peer { version: Version::new("v"), record: Ok(Arc::new(record)), written: at(written_ms) }
    };
    let view = |peers: &[(&str, Peer)]| {
        let peers = peers.iter().map(|(id, peer)| (id.parse().unwrap(), peer.clone()));
        View::new(&Timing::default(), peers.collect())
    };
    let (ours, theirs, old, other) = (
        peer(9_000, None, false),
        peer(9_000, None, true),
        peer(0, None, false),
        peer(9_000, Some("t/app"), false),
    );
    let mut suspects = Suspects::default();
    suspects.failed(&node(), at(9_500));
    for (peers, heirs, suspects) in [
        (vec![("a", ours.clone())], vec![], &Suspects::default()),
        (
            vec![("a", ours.clone()), ("b", ours.clone()), ("c", ours.clone())],
            vec!["b", "c"],
            &Suspects::default(),
        ),
        (vec![("a", ours.clone()), ("b", ours.clone()), ("c", ours.clone())], vec!["c"], &suspects),
        (vec![("a", theirs.clone()), ("b", old), ("c", other), ("d", ours.clone())], vec!["d"], &suspects),
    ] {
        let view = view(&peers);
        let heir = |n| heir(&actor(n), &me, &view, suspects, at(10_500)).map(ToString::to_string);
        let chosen: BTreeSet<String> = (0..64).filter_map(heir).collect();
        assert_eq!(Vec::from_iter(&chosen), heirs);
        assert!((0..64).all(|n| heir(n) == heir(n)));
    }
}

#[test]
fn every_other_denial_is_refused_at_once_with_its_own_words() {
    for (denial, status, words) in [
        (Denial::NoLease, 503, "this node cannot reach the cluster's bucket; retry"),
        (Denial::NotTaking, 503, "this node takes no actors; retry"),
        (Denial::BucketSilent, 503, "the cluster's bucket did not answer; retry"),
        (Denial::Unreadable(RecordError::Format(2)), 500, "the actor's ownership record cannot be read"),
    ] {
        let route = route(ask(Origin::Outside, true), &denial, HERE, &Suspects::default());
        let Route::Refuse(refusal) = route else { panic!("{denial:?}: {route:?}") };
        assert_eq!((refusal.status(), refusal.to_string().as_str()), (status, words));
    }
}

// R-FWD-2, R-FWD-3, R-TLS-5
#[test]
fn a_request_is_sent_again_only_if_it_surely_did_not_run() {
    for (trouble, again, suspect, status, words) in [
        (Trouble::Elsewhere, Again::ReadRecord, false, 503, "the actor is on another node; retry"),
        (Trouble::NotOpened, Again::No, true, 503, "the actor's node did not answer; retry"),
        (Trouble::ClosedUnused, Again::SameNode, false, 503, "the actor's node did not answer; retry"),
        (Trouble::Lost, Again::No, false, 503, "the actor's node did not answer; retry"),
        (
            Trouble::Untrusted,
            Again::Later,
            false,
            503,
            "the actor's node refused this node's certificate; retry",
        ),
        (
            Trouble::Unknown,
            Again::Later,
            false,
            503,
            "this node's certificate may be new to the actor's node; retry",
        ),
        (Trouble::Silent, Again::No, false, 504, "the actor's node did not answer in time"),
    ] {
        let remedy = remedy(trouble);
        assert_eq!((remedy.again, remedy.suspect), (again, suspect), "{trouble:?}");
        assert_eq!((remedy.refusal.status(), remedy.refusal.to_string().as_str()), (status, words));
    }
}

// R-WAIT-4
#[test]
fn a_suspected_node_proves_alive_by_a_lease_write_two_seconds_after_the_failure() {
    let skew = Timing::default().skew;
    let mut suspects = Suspects::default();
    suspects.failed(&node(), at(10_000));
    // A later failure does not move the first one.
    suspects.failed(&node(), at(11_000));
    for written in [9_000, 10_000, 12_000] {
        suspects.look(&view(written), skew, at(13_000));
        assert!(suspects.suspects(&node()), "written at {written}");
    }
    suspects.look(&view(12_001), skew, at(14_000));
    assert!(!suspects.suspects(&node()));
    // Then it is left alone for ten seconds.
    suspects.failed(&node(), at(23_999));
    assert!(!suspects.suspects(&node()));
    suspects.failed(&node(), at(24_000));
    assert!(suspects.suspects(&node()));
    // A node whose heartbeat is gone is not suspected: it is not there at all.
    suspects.look(&View::new(&Timing::default(), BTreeMap::new()), skew, at(25_000));
    assert!(!suspects.suspects(&node()));
}

// R-FWD-4
#[test]
fn a_node_that_failed_to_take_an_event_is_passed_over_for_ten_seconds() {
    let mut skipped = Skipped::default();
    assert!(!skipped.skips(&node(), at(0)));
    skipped.failed(node(), at(0));
    assert!(skipped.skips(&node(), at(9_999)));
    assert!(!skipped.skips(&node(), at(10_000)));
}

/// How a client learns that nobody serves its request.
enum Refused {
    By(Refusal),
    AfterWait(End),
}

// R-FWD-2, R-FWD-3, R-WAIT-2, R-TLS-5
#[test]
fn the_sentences_of_the_specification_are_said_word_for_word() {
    use Refused::{AfterWait, By};
    let (not_answered, not_reachable) =
        ("the actor's node did not answer; retry", "the actor's node is not reachable; retry");
    for (refused, status, sentence) in [
        (By(remedy(Trouble::NotOpened).refusal), 503, not_answered),
        (By(remedy(Trouble::ClosedUnused).refusal), 503, not_answered),
        (By(remedy(Trouble::Lost).refusal), 503, not_answered),
        (By(remedy(Trouble::Silent).refusal), 504, "the actor's node did not answer in time"),
        (By(remedy(Trouble::Untrusted).refusal), 503, "refused this node's certificate"),
        (AfterWait(End::TimedOut), 503, not_reachable),
        (AfterWait(End::Stopping), 503, not_reachable),
        (AfterWait(End::LeaseLapsed), 503, not_reachable),
    ] {
        let refusal = match refused {
            By(refusal) => refusal,
            AfterWait(end) => end.refusal().unwrap(),
        };
        assert_eq!(refusal.status(), status, "{refusal}");
        assert!(refusal.to_string().contains(sentence), "{refusal}");
    }
    for end in [End::Served, End::Sent(node()), End::OwnerAlive(node()), End::Dropped] {
        assert_eq!(end.refusal(), None, "{end:?}");
    }
}
