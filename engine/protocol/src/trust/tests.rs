use std::time::Duration;

use super::*;
use crate::records::Presence;

fn at(ms: u64) -> Moment {
    Moment::after_boot(Duration::from_millis(ms))
}

// R-TLS-1
#[test]
fn a_fingerprint_is_the_sha_256_of_the_certificate() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(Fingerprint::of(b""), Fingerprint::published(empty));
    assert_ne!(Fingerprint::of(b"a"), Fingerprint::published(empty));
}

// R-TLS-3
#[test]
fn a_node_with_a_cluster_listener_is_reached_there_or_not_at_all() {
    let (plain, tls) =
        (Reach::Plain { url: "http://p" }, Reach::Encrypted { url: "https://c", fingerprint: "f" });
    let (unused, unnamed) = (Reach::Never(Unused::Plain), Reach::Never(Unused::Unnamed));
    let (accept, refuse) = (Plaintext::Accept, Plaintext::Refuse);
    for (encrypts, plaintext, listener, fingerprint, expected) in [
        (true, refuse, true, true, &tls),
        (true, accept, true, true, &tls),
        (true, refuse, false, false, &unused),
        (true, accept, false, false, &plain),
        // A fingerprint without an address says nothing.
        (true, refuse, false, true, &unused),
        (true, accept, false, true, &plain),
        (true, refuse, true, false, &unnamed),
        (true, accept, true, false, &unnamed),
        // Without a listener a node speaks plain to everybody: it has no certificate.
        (false, accept, true, true, &plain),
        (false, accept, true, false, &plain),
        (false, accept, false, false, &plain),
        (false, refuse, true, true, &unused),
    ] {
        let presence = Presence {
            advertise: "http://p".into(),
            cluster_advertise: listener.then(|| "https://c".into()),
            fingerprint: fingerprint.then(|| "f".into()),
            ..Presence::default()
        };
        let policy = Policy { encrypts, plaintext };
        assert_eq!(&reach(policy, &presence), expected, "{policy:?} {listener} {fingerprint}");
    }
}

// R-TLS-3
#[test]
fn who_refuses_plain_http_believes_nodes_on_the_cluster_port_alone() {
    let (accept, refuse) = (Plaintext::Accept, Plaintext::Refuse);
    for (plaintext, door, believed) in [
        (refuse, Door::Nodes, true),
        (refuse, Door::Clients, false),
        (accept, Door::Nodes, true),
        (accept, Door::Clients, true),
    ] {
        assert_eq!(Policy { encrypts: true, plaintext }.believes(door), believed, "{plaintext:?} {door:?}");
    }
}

// R-TLS-2
#[test]
fn a_node_is_ready_once_its_fingerprint_was_there_for_two_listings() {
    let timing = Timing::default();
    assert!(!is_known(at(1_000), at(6_999), &timing));
    assert!(is_known(at(1_000), at(7_000), &timing));
}

// R-TLS-5, case H8
#[test]
fn what_was_refused_is_sent_again_once_a_heartbeat_landed_and_two_periods_passed() {
    use Step::{GiveUp, Send, Wait};
    // Refused at 10 s. Looked at at these moments, with the last heartbeat that had landed by then.
    for (looks, step) in [
        (&[(10_000, Some(9_000))][..], Wait(at(16_000))),
        (&[(10_000, None)], Wait(at(16_000))),
        (&[(10_000, Some(9_000)), (12_100, Some(12_000))], Wait(at(18_000))),
        // Later heartbeats do not put it off.
        (&[(12_100, Some(12_000)), (15_100, Some(15_000))], Wait(at(18_000))),
        (&[(12_100, Some(12_000)), (18_000, Some(17_900))], Send),
        // The latest heartbeat that counts: 12 s in all.
        (&[(16_000, Some(16_000))], Wait(at(22_000))),
        (&[(16_000, Some(16_000)), (22_000, Some(19_000))], Send),
        // None landed within two periods.
        (&[(16_000, Some(9_000))], Wait(at(16_000))),
        (&[(16_001, Some(9_000))], GiveUp),
        (&[(16_500, Some(16_400))], GiveUp),
    ] {
        let mut resend = Resend::new(Timing::default(), at(10_000));
        let steps: Vec<_> = looks.iter().map(|(now, landed)| resend.step(at(*now), landed.map(at))).collect();
        assert_eq!(steps.last(), Some(&step), "{looks:?}");
    }
}

// R-TLS-5
#[test]
fn what_waits_for_a_new_certificate_is_sent_once_every_peer_has_had_the_time_to_list_it() {
    let timing = Timing::default();
    let mut resend = Resend::unknown(timing, at(10_000));
    for (now, step) in
        [(10_001, Step::Wait(at(16_000))), (15_999, Step::Wait(at(16_000))), (16_000, Step::Send)]
    {
        // Later heartbeats change nothing.
        assert_eq!(resend.step(at(now), Some(at(now - 1))), step, "{now}");
        assert_eq!(step == Step::Send, is_known(at(10_000), at(now), &timing));
    }
}
