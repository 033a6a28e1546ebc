use super::*;
use crate::records::{NodeState, Nonce, Presence, Process, Shape};

fn at(seconds: u64) -> Moment {
    Moment::after_boot(Duration::from_secs(seconds))
}

fn node(id: &str) -> NodeId {
    id.parse().unwrap()
}

fn record(state: NodeState, fingerprint: &str) -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(1),
        sequence: 1,
        nonce: Nonce::from_bits(1),
        state,
        written_at_ms: 0,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::new(Presence { fingerprint: Some(fingerprint.into()), ..Presence::default() }),
    }
}

/// A view of nodes that each wrote last at second 100.
fn view(nodes: &[(&str, Result<NodeRecord, RecordError>)]) -> View {
    let peers = nodes.iter().map(|(id, record)| {
        let record = record.clone().map(Arc::new);
        (node(id), Peer { version: Version::new("v"), record, written: at(100) })
    });
    View::new(&Timing::default(), peers.collect())
}

fn fenced(watched: u64) -> NodeState {
    NodeState::Fenced { watched: Duration::from_secs(watched), by: None }
}

// R-LEASE-4, R-LEASE-6, R-LEASE-7
#[test]
fn what_a_node_is_depends_on_its_state_and_only_a_live_one_on_its_age() {
    let view = view(&[
        ("live", Ok(record(NodeState::Live, ""))),
        ("operator", Ok(record(fenced(0), ""))),
        ("fenced", Ok(record(fenced(15), ""))),
        ("released", Ok(record(NodeState::Released, ""))),
        ("strange", Err(RecordError::Format(9))),
    ]);
    for (id, fresh, old) in [
        ("live", Standing::Live, Standing::Silent),
        ("operator", Standing::Ending, Standing::Ending),
        ("fenced", Standing::Gone, Standing::Gone),
        ("released", Standing::Gone, Standing::Gone),
        ("strange", Standing::Silent, Standing::Silent),
        ("nobody", Standing::Absent, Standing::Absent),
    ] {
        assert_eq!(view.standing(&node(id), at(101)), fresh, "{id}");
        assert_eq!(view.standing(&node(id), at(1000)), old, "{id}");
        let unknown = View::unknown(&Timing::default());
        assert_eq!(unknown.standing(&node(id), at(1)), Standing::Silent, "nothing was listed yet");
    }
}

// R-TLS-4
#[test]
fn a_peer_is_trusted_by_the_certificate_of_its_live_heartbeat_and_no_longer() {
    let view = view(&[
        ("a", Ok(record(NodeState::Live, "aa"))),
        ("b", Ok(record(fenced(0), "bb"))),
        ("c", Ok(record(NodeState::Released, "cc"))),
    ]);
    let trusted = |fingerprint, second| view.trusted(fingerprint, at(second)).map(NodeId::as_str);
    assert_eq!(trusted("aa", 109), Some("a"));
    assert_eq!(trusted("aa", 110), None, "its heartbeat expired, listing or not");
    for (id, fingerprint, second, trusted) in [
        ("a", "aa", 109, true),
        ("a", "aa", 110, false),
        ("a", "a0", 101, false),
        ("b", "bb", 101, false),
        ("c", "cc", 101, false),
        ("d", "dd", 101, false),
    ] {
        assert_eq!(view.trusts(&node(id), fingerprint, at(second)), trusted, "{id} {second}");
    }
    for fingerprint in ["bb", "cc", "dd", ""] {
        assert_eq!(trusted(fingerprint, 101), None, "{fingerprint}");
    }
    assert_eq!(view.live(at(109)).map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["a"]);
}
