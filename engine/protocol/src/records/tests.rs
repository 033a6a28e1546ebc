use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;

fn node_record() -> NodeRecord {
    NodeRecord {
        process: Process::from_bits(1),
        sequence: 7,
        nonce: Nonce::from_bits(2),
        state: NodeState::Live,
        written_at_ms: 1_700_000_000_000,
        ttl: Duration::from_secs(10),
        shape: Shape::NONE,
        presence: Arc::new(Presence { advertise: "http://10.0.0.1:8080".into(), ..Presence::default() }),
    }
}

fn owner_record() -> OwnerRecord {
    OwnerRecord {
        node: "a".parse().unwrap(),
        process: Process::from_bits(1),
        generation: 5,
        hold: Hold::Held,
        nonce: Nonce::from_bits(2),
    }
}

// R-LEASE-1
#[test]
fn a_heartbeat_is_written_in_this_text() {
    let fenced =
        node_record().fence(Duration::from_millis(15_001), Some("b".parse().unwrap()), Nonce::from_bits(3));
    assert_eq!(
        String::from_utf8(fenced.encode()).unwrap().trim_end(),
        concat!(
            r#"{"format":1,"process":"00000000000000000000000000000001","sequence":7,"#,
            r#""nonce":"00000000000000000000000000000003","state":"fenced","watched_ms":15001,"fenced_by":"b","#,
            r#""written_at_ms":1700000000000,"ttl_ms":10000,"shape":1,"node":{"advertise":"http://10.0.0.1:8080","#,
            r#""cluster_advertise":null,"fingerprint":null,"version":"","app":null}}"#,
        )
    );
}

// R-LEASE-1
#[test]
fn the_length_of_a_heartbeat_says_its_shape_and_its_date() {
    let first = NodeRecord { shape: Shape::NONE.next(), ..node_record() };
    let length = |record: &NodeRecord| record.encode().len() as u64;
    let later =
        |ms| NodeRecord { written_at_ms: first.written_at_ms + ms, sequence: 1_000_000, ..first.clone() };
    for ms in [1000, 3000, 3400, 25_000] {
        assert_eq!(
            first.shape.renewal(first.written_at_ms, length(&later(ms))),
            Some(first.written_at_ms + ms / 500 * 500)
        );
        let fence = later(ms).fence(Duration::from_secs(15), None, Nonce::from_bits(3));
        assert_eq!(first.shape.renewal(first.written_at_ms, length(&fence)), None, "{ms}");
    }
    // One that was edited by hand says nothing by its length, whatever its text says.
    let edited = String::from_utf8(first.encode()).unwrap().replacen("10.0.0.1", "10.0.0.10", 1);
    assert_eq!(NodeRecord::decode(edited.as_bytes()).unwrap().shape, Shape::NONE);
}

// R-OWN-1
#[test]
fn an_ownership_record_is_written_in_this_text() {
    assert_eq!(
        String::from_utf8(owner_record().encode()).unwrap(),
        concat!(
            r#"{"format":1,"node":"a","process":"00000000000000000000000000000001","generation":5,"#,
            r#""state":"held","nonce":"00000000000000000000000000000002"}"#,
        )
    );
}

#[test]
fn unknown_fields_are_left_alone_and_missing_or_wrong_ones_are_refused() {
    let good = String::from_utf8(node_record().encode()).unwrap();
    let changed = |from: &str, to: &str| NodeRecord::decode(good.replacen(from, to, 1).as_bytes());
    assert_eq!(changed(r#""format":1"#, r#""later":[{}],"format":1"#), Ok(node_record()));
    assert_eq!(changed(r#""format":1"#, r#""format":2"#), Err(RecordError::Format(2)));
    assert_eq!(changed(r#""live""#, r#""alive""#), Err(RecordError::Field("state")));
    assert_eq!(changed(r#""live""#, r#""fenced""#), Err(RecordError::Field("watched_ms")));
    assert_eq!(changed("10000", "0"), Err(RecordError::Field("ttl_ms")));
    assert_eq!(changed("10000", "99000000"), Err(RecordError::Field("ttl_ms")));
    assert_eq!(changed("01\"", "0X\""), Err(RecordError::Field("process")));
    assert!(matches!(changed(r#""sequence":7,"#, ""), Err(RecordError::Malformed(_))));
    assert!(matches!(changed("7", "-7"), Err(RecordError::Malformed(_))));
    assert_eq!(
        NodeRecord::decode(&vec![b' '; RECORD_BYTES_MAX + 1]),
        Err(RecordError::TooLarge(RECORD_BYTES_MAX + 1))
    );

    let good = String::from_utf8(owner_record().encode()).unwrap();
    let changed = |from: &str, to: &str| OwnerRecord::decode(good.replacen(from, to, 1).as_bytes());
    assert_eq!(changed("}", r#","later":1}"#), Ok(owner_record()));
    assert_eq!(changed(r#""a""#, r#""A""#), Err(RecordError::Field("node")));
    assert_eq!(changed(":5", ":0"), Err(RecordError::Field("generation")));
    assert_eq!(changed(":5", ":18446744073709551615"), Err(RecordError::Field("generation")));
    assert!(matches!(changed("held", "lent"), Err(RecordError::Malformed(_))));
    assert!(matches!(OwnerRecord::decode(&node_record().encode()), Err(RecordError::Malformed(_))));
}

// R-LEASE-4, R-LEASE-6
#[test]
fn only_a_release_or_a_watched_fence_proves_a_node_gone() {
    let grace = Duration::from_secs(5);
    let fenced = |ms| node_record().fence(Duration::from_millis(ms), None, Nonce::from_bits(3));
    assert!(!node_record().is_gone(grace));
    assert!(!fenced(0).is_gone(grace) && !fenced(14_999).is_gone(grace));
    assert!(fenced(15_000).is_gone(grace));
    assert!(NodeRecord { state: NodeState::Released, ..node_record() }.is_gone(grace));
    let longer = NodeRecord { ttl: Duration::from_secs(20), ..fenced(24_999) };
    assert!(!longer.is_gone(grace), "a node's own ttl counts");
}

fn any_node_record() -> impl Strategy<Value = NodeRecord> {
    let state = prop_oneof![
        Just(NodeState::Live),
        Just(NodeState::Released),
        (any::<u64>(), proptest::option::of("[a-z0-9-]{1,64}")).prop_map(|(ms, by)| NodeState::Fenced {
            watched: Duration::from_millis(ms),
            by: by.map(|by| by.parse().unwrap()),
        }),
    ];
    let presence = (any::<String>(), proptest::option::of(any::<String>()), any::<String>(), any::<bool>())
        .prop_map(|(advertise, fingerprint, version, stopping)| Presence {
            advertise,
            fingerprint,
            version,
            stopping,
            ..Presence::default()
        });
    let shape = (0..16).prop_map(|changes| (0..changes).fold(Shape::NONE, |shape, _| shape.next()));
    (any::<(u128, u64, u128, u64)>(), 1..3_600_000_u64, state, shape, presence).prop_map(
        |((process, sequence, nonce, written_at_ms), ttl, state, shape, presence)| NodeRecord {
            process: Process::from_bits(process),
            sequence,
            nonce: Nonce::from_bits(nonce),
            state,
            written_at_ms,
            ttl: Duration::from_millis(ttl),
            shape,
            presence: Arc::new(presence),
        },
    )
}

proptest! {
    #[test]
    fn a_heartbeat_survives_its_text(record in any_node_record()) {
        prop_assert_eq!(NodeRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn an_ownership_record_survives_its_text(
        node in "[a-z0-9-]{1,64}", process: u128, generation in 1..u64::MAX, released: bool, nonce: u128,
    ) {
        let record = OwnerRecord {
            node: node.parse().unwrap(),
            process: Process::from_bits(process),
            generation,
            hold: if released { Hold::Released } else { Hold::Held },
            nonce: Nonce::from_bits(nonce),
        };
        prop_assert_eq!(OwnerRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn no_bytes_make_a_decoder_fail_otherwise_than_by_its_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert!(NodeRecord::decode(&bytes).is_err());
        prop_assert!(OwnerRecord::decode(&bytes).is_err());
    }

    /// What was read is what is written again: a decoder that gives two readings of one text would show here.
    #[test]
    fn a_damaged_heartbeat_is_refused_or_read_as_a_whole(record in any_node_record(), at: usize, byte: u8) {
        let mut bytes = record.encode();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(read) = NodeRecord::decode(&bytes) {
            prop_assert_eq!(NodeRecord::decode(&read.encode()), Ok(read));
        }
    }
}
