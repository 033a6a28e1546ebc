use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn id(class: &str, name: &str) -> ActorId {
    ActorId { class: class.parse().unwrap(), name: name.parse().unwrap() }
}

fn secret() -> Secret {
    Secret::parse(&"0f".repeat(32)).unwrap()
}

struct Owned {
    node: NodeId,
    caller: ActorId,
    chain: Vec<ActorId>,
}

fn owned() -> Owned {
    Owned { node: "b".parse().unwrap(), caller: id("room", "lobby"), chain: vec![id("hub", "main")] }
}

fn call(owned: &Owned) -> Call<'_> {
    Call {
        node: &owned.node,
        method: "POST",
        path: "/actor/counter/alice?x=1",
        body: b"body",
        caller: &owned.caller,
        chain: &owned.chain,
        timestamp_ms: NOW_MS,
        nonce: [7; 16],
    }
}

#[test]
fn a_signed_call_is_believed_once() {
    // R-CALL-1
    let owned = owned();
    let (call, mut seen) = (call(&owned), SeenNonces::default());
    let signature = secret().sign(&call);
    let mut accept = |now| secret().accept(&owned.node, &call, &signature, now, &mut seen);
    assert_eq!(accept(NOW_MS), Ok(()));
    assert_eq!(accept(NOW_MS + 1), Err(CallRefused::Replayed));
    assert_eq!(accept(NOW_MS + VALID_MS), Err(CallRefused::Replayed));
    assert_eq!(accept(NOW_MS + VALID_MS + 1), Err(CallRefused::Expired));
}

#[test]
fn every_field_is_under_the_signature() {
    // R-CALL-1
    let base = owned();
    let genuine = secret().sign(&call(&base));
    let other_caller = Owned { caller: id("room", "other"), ..owned() };
    let other_chain = Owned { chain: vec![], ..owned() };
    let other_node = Owned { node: "c".parse().unwrap(), ..owned() };
    // The same bytes in a row, cut elsewhere.
    let shifted = Owned { caller: id("rooml", "obby"), ..owned() };
    let changed = [
        Call { method: "PUT", ..call(&base) },
        Call { path: "/actor/counter/alice?x=2", ..call(&base) },
        Call { body: b"bodY", ..call(&base) },
        Call { timestamp_ms: NOW_MS + 1, ..call(&base) },
        Call { nonce: [8; 16], ..call(&base) },
        call(&other_caller),
        call(&other_chain),
        call(&other_node),
        call(&shifted),
    ];
    for call in &changed {
        let mut seen = SeenNonces::default();
        let refused = secret().accept(call.node, call, &genuine, NOW_MS, &mut seen);
        assert_eq!(refused, Err(CallRefused::Signature), "{call:?}");
        assert!(seen.is_empty());
    }
    let another = Secret::parse(&"f0".repeat(32)).unwrap();
    let refused = another.accept(&base.node, &call(&base), &genuine, NOW_MS, &mut SeenNonces::default());
    assert_eq!(refused, Err(CallRefused::Signature));
}

#[test]
fn a_call_for_another_node_is_refused() {
    let owned = owned();
    let (call, here) = (call(&owned), "c".parse().unwrap());
    let signature = secret().sign(&call);
    let refused = secret().accept(&here, &call, &signature, NOW_MS, &mut SeenNonces::default());
    assert_eq!(refused, Err(CallRefused::Signature));
}

#[test]
fn the_cache_forgets_after_the_minute_and_refuses_when_full() {
    let owned = owned();
    let mut seen = SeenNonces::new(2);
    let mut accept = |nonce: u8, stamp: u64, now: u64| {
        let call = Call { nonce: [nonce; 16], timestamp_ms: stamp, ..call(&owned) };
        let answer = secret().accept(&owned.node, &call, &secret().sign(&call), now, &mut seen);
        (answer, seen.len())
    };
    assert_eq!(accept(1, NOW_MS, NOW_MS), (Ok(()), 1));
    // Signed by a clock that is ahead: remembered for as long as it would be accepted.
    assert_eq!(accept(2, NOW_MS + 30_000, NOW_MS), (Ok(()), 2));
    assert_eq!(accept(3, NOW_MS, NOW_MS), (Err(CallRefused::Overloaded), 2));
    let later = NOW_MS + VALID_MS + 1;
    assert_eq!(accept(2, NOW_MS + 30_000, later), (Err(CallRefused::Replayed), 1));
    assert_eq!(accept(3, later, later), (Ok(()), 2));
}

#[test]
fn a_malformed_secret_is_no_secret() {
    // R-CALL-2
    for text in ["", "0f", &"0g".repeat(32), &"0f".repeat(33)] {
        assert_eq!(Secret::parse(text).unwrap_err(), MalformedSecret, "{text}");
    }
    assert!(Secret::parse(&format!("{}\n", "0F".repeat(32))).is_ok());
    assert_eq!(format!("{:?}", secret()), "Secret(..)");
}
